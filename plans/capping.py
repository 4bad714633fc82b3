"""The best plan within a cap on moves or bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.common.quantities import counted
from plans.levels import Levels
from plans.loads import ByteLimits, byte_room, held_bytes
from plans.options import Minimise
from plans.problem import Problem, mask_of, shared_racks, undone_of
from plans.score import Lists, costs_of
from plans.solving import Solved, broker_counts, first_figure, may_use_solver, solve
from plans.work import Work

Rank = tuple[float, ...]

_REST_S = 2.0
"""This many seconds of work are enough to find how many moves a cap leaves."""

_VARIABLES_MAX = 40_000
"""Up to this many variables, one program takes seconds; with more, the cap takes a part of the whole plan."""

_WHOLE_MAX = 6_000
"""With more variables than this the choices are narrowed down first: HiGHS may take a minute between two looks at its
limits then, while steps of a linear program can be counted one by one."""

_PROMISING = 2_500
"""This many pairs of a partition and a broker are left then."""

_SHARE = 3
"""The program within a cap may take one part in this many of the work, even if the whole plan has taken all of it: it
may only do so if it could have been within the cap."""


def within_caps(problem: Problem, solved: Solved, limits: ByteLimits, work: Work) -> tuple[tuple[int, ...], ...]:
    """Return the best plan that the caps allow.

    Each partition changes as a whole or not at all, and gets only replica sets that the whole plan may give. So the
    cluster is as safe after each partition as with the whole plan. If the solver sees every choice, no such plan is
    better by ``rank``; otherwise the result is a part of the whole plan, the most urgent first.
    """
    if _is_within(problem, solved.after):
        return solved.after
    current = tuple(partition.current for partition in problem.partitions)
    candidates = [current, _part_of(problem, solved.after, solved.replica_levels)]
    # Only the whole plan knows which replica succeeds which.
    if may_use_solver(problem, work.seconds) and not problem.replacements:
        best = _of_every_choice(problem, solved, limits, Work(work.whole // _SHARE, work.seconds, work.exchanges))
        candidates += [best] if best is not None and _is_within(problem, best) else []
    return min(candidates, key=lambda lists: rank(problem, lists, solved.replica_levels, solved.leader_levels, limits))


def remaining_moves(
    problem: Problem, solved: Solved, after: Lists, limits_of: Callable[[Problem], ByteLimits], work: Work
) -> int:
    """Return how many moves a cap leaves: those of the whole plan, or about the fewest from where the cap ends."""
    every = list(zip(problem.partitions, after, solved.after, strict=True))
    if all(lists in (partition.current, planned) for partition, lists, planned in every):
        return costs_of(problem, solved.after).moves - costs_of(problem, after).moves
    parts = tuple(replace(partition, current=lists) for partition, lists, _ in every)
    rest = replace(problem, partitions=parts, minimise=Minimise.MOVES)
    seconds = _REST_S if work.seconds is None else min(work.seconds, _REST_S)
    few = Work(min(max(0, work.left), Work.within(seconds, len(rest.movable)).left), seconds, work.exchanges)
    rest_solved = solve(rest, limits_of(rest), few, lambda _: None, is_rough=True)
    return min(costs_of(rest, lists).moves for lists in (rest_solved.after, solved.after))


def cap_note(remaining: int) -> str:
    """Say what a cap leaves undone."""
    are = "is" if remaining == 1 else "are"
    return f"a cap ends the plan early: {counted(remaining, 'move')} {are} left of the whole plan"


def _of_every_choice(
    problem: Problem, solved: Solved, limits: ByteLimits, work: Work
) -> tuple[tuple[int, ...], ...] | None:
    """Return the solver's plan; None without the solver, on a large cluster, or if the work is not enough."""
    try:
        from plans.capped_program import CappedProgram, narrowed
        from plans.whole_program import variables_of
    except ImportError:
        return None
    if variables_of(problem) > _VARIABLES_MAX:
        return None
    levels = solved.replica_levels, solved.leader_levels
    if variables_of(problem) > _WHOLE_MAX:
        relaxed = CappedProgram(problem, *levels, limits, work, is_relaxed=True)
        problem = narrowed(problem, relaxed.promising(_PROMISING), solved.after)
    return CappedProgram(problem, *levels, limits, work).run()


def rank(
    problem: Problem, lists: Lists, replica_levels: Levels | None, leader_levels: Levels | None, limits: ByteLimits
) -> Rank:
    """Return what a cap leaves undone, less being better: the aims in their order, then the cost."""
    moving = [
        (partition, held) for partition, held in zip(problem.partitions, lists, strict=True) if partition.is_movable
    ]
    counts, leads = broker_counts(problem, lists)
    costs = costs_of(problem, lists)
    return (
        sum(undone_of(partition, held) for partition, held in moving),
        sum(max(0, shared_racks(problem.brokers, held) - partition.shared_racks_max) for partition, held in moving),
        _above(replica_levels, counts),
        _above(leader_levels, leads),
        limits.violation(held_bytes(problem, lists)),
        first_figure(problem, costs) or 0,
        costs.leader_changes,
        costs.moves,
    )


def _is_within(problem: Problem, after: Lists) -> bool:
    """Whether a plan keeps the caps and leaves no broker fuller than it may be."""
    costs, held = costs_of(problem, after), held_bytes(problem, after)
    is_kept = problem.max_moves is None or costs.moves <= problem.max_moves
    is_kept = is_kept and (problem.max_bytes is None or (costs.bytes or 0) <= problem.max_bytes)
    return is_kept and all(held[broker] <= room for broker, room in byte_room(problem).items())


def _above(levels: Levels | None, counts: Sequence[int]) -> int:
    """Return how much brokers have above their shares."""
    if levels is None:
        return 0
    return sum(max(0, counts[broker] - share) for broker, share in levels.shares(counts).items())


def _part_of(problem: Problem, after: Lists, levels: Levels | None) -> tuple[tuple[int, ...], ...]:
    """Return as much of a plan as the caps allow; partitions that copy nothing are always included.

    The order: partitions on brokers to empty, then rack repairs, then those that relieve brokers above their share the
    most, the fewest bytes first.
    """
    counts = [0] * len(problem.brokers)
    for partition in problem.partitions:
        for broker in partition.current:
            counts[broker] += 1
    moves_left = problem.max_moves if problem.max_moves is not None else 1 << 62
    bytes_left = problem.max_bytes if problem.max_bytes is not None else 1 << 62
    room = byte_room(problem)
    held = held_bytes(problem, [partition.current for partition in problem.partitions])
    chosen = [partition.current for partition in problem.partitions]
    waiting = []
    for index, (partition, lists) in enumerate(zip(problem.partitions, after, strict=True)):
        fresh = len(set(lists) - set(partition.current))
        if not fresh:
            chosen[index] = lists
        else:
            waiting.append((_urgency(problem, index, lists), fresh * (partition.size or 0), fresh, index))
    for _, size, fresh, index in sorted(waiting):
        partition, each = problem.partitions[index], problem.partitions[index].size or 0
        gains = _gain(problem, index, after[index], counts, levels)
        fits = all(held[b] + each <= room.get(b, 1 << 62) for b in set(after[index]) - set(partition.current))
        if fresh <= moves_left and size <= bytes_left and gains and fits:
            moves_left, bytes_left = moves_left - fresh, bytes_left - size
            chosen[index] = after[index]
            for brokers, sign in ((partition.current, -1), (after[index], 1)):
                for broker in brokers:
                    counts[broker] += sign
                    held[broker] += sign * each
    return tuple(chosen)


def _urgency(problem: Problem, index: int, lists: tuple[int, ...]) -> int:
    partition = problem.partitions[index]
    if mask_of(partition.current) & ~partition.may_hold or len(partition.current) != partition.factor:
        return 0
    racks = [len({problem.brokers[b].rack for b in each}) for each in (partition.current, lists)]
    return 1 if racks[1] > racks[0] else 2


def _gain(problem: Problem, index: int, lists: tuple[int, ...], counts: Sequence[int], levels: Levels | None) -> bool:
    """Whether the partition's move removes anything from a place where it should not be."""
    if levels is None or _urgency(problem, index, lists) < 2:
        return True
    leaves = set(problem.partitions[index].current) - set(lists)
    return any(counts[broker] > levels.low.get(broker, 0) for broker in leaves)
