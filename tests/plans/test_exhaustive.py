"""Small clusters of every shape, strategy and mix of options: the plan is the best of all possible placements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from odd_clusters import odd_case
from plan_files import hide_solver
from small_clusters import drawn_cluster

from engine.common.snapshot import ClusterSnapshot
from plans.errors import PlanError
from plans.loads import byte_limits, byte_room, held_bytes
from plans.options import Aim, Minimise, PlanOptions, Strategy
from plans.planning import make_plan
from plans.problem import Problem, ProblemPartition, bits, is_allowed, mask_of, shared_racks, undone_of
from plans.problem_building import build_problem
from plans.score import costs_of
from plans.solving import first_figure

PLACEMENTS_MAX = 30_000
Lists = tuple[tuple[int, ...], ...]


def ways(problem: Problem, one: ProblemPartition) -> list[tuple[int, ...]]:
    """Return the allowed replica sets of a partition, each with every leader that it may have, the leader first."""
    if not one.is_movable:
        return [one.current]
    return [
        (leader, *(broker for broker in held if broker != leader))
        for held in itertools.combinations(bits(one.may_hold), one.factor)
        if one.must_hold & mask_of(held) == one.must_hold
        and shared_racks(problem.brokers, held) <= one.shared_racks_max
        for leader in held
        if one.may_lead >> leader & 1
    ]


def squares(problem: Problem, lists: Lists, aim: Aim) -> int:
    if aim not in problem.aim:
        return 0
    counts = [0] * len(problem.brokers)
    for replicas in lists:
        for broker in replicas if aim is Aim.REPLICAS else replicas[:1]:
            counts[broker] += 1
    return sum(counts[broker] ** 2 for broker in problem.remaining)


def level(problem: Problem, lists: Lists) -> tuple[int, int]:
    return squares(problem, lists, Aim.REPLICAS), squares(problem, lists, Aim.LEADERS)


def figures(problem: Problem, lists: Lists) -> tuple[int, int]:
    costs = costs_of(problem, lists)
    return first_figure(problem, costs) or 0, costs.leader_changes


def placements(problem: Problem) -> Iterator[Lists]:
    return itertools.product(*(ways(problem, partition) for partition in problem.partitions))


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 1 << 30))
@example(333)
@example(480)
@example(837)
@example(7053)
@example(8656)
def test_no_placement_is_better(seed: int) -> None:
    """In the examples, dead brokers lead, or are the only ones, or stay with a lower factor, or a broker is full."""
    odd = odd_case(seed, brokers_max=5, partitions_max=4)
    options = replace(odd.options, max_moves=None, max_bytes=None)
    try:
        problem = build_problem(odd.snapshot, odd.strategy, options).problem
        limits = byte_limits(problem)
    except PlanError:
        return
    count = 1
    for partition in problem.partitions:
        count *= len(ways(problem, partition))
    if count > PLACEMENTS_MAX:
        return
    every = list(placements(problem))
    most_level = min(level(problem, lists) for lists in every)
    good = [plan for plan in every if level(problem, plan) == most_level and limits.is_kept(problem, plan)]
    try:
        made = make_plan(odd.snapshot, odd.strategy, options)
    except PlanError as error:
        assert not good, f"{error}, and yet {good[0]}"
        return
    score, after = made.plan.klamm.score, tuple(made.after)
    if not good:
        outside = limits.violation(held_bytes(problem, after))
        assert score.is_optimal <= (not outside), "the best that was found is no proof"
        assert (score.remaining_bytes, score.gap is None or not outside) == (outside, True)
        return
    assert (level(problem, after), limits.is_kept(problem, after)) == (most_level, True)
    best = min(figures(problem, plan) for plan in good)
    value = figures(problem, after)
    bound = first_figure(problem, score.lower_bound)
    assert bound is not None
    assert value[0] >= best[0] >= bound
    if problem.replacements:
        # What a broker had goes to its successor, however many leader changes that takes.
        return
    assert value[0] == best[0] or not score.is_optimal
    assert not score.is_optimal or value == best
    # Subset sums of bytes are found to within the solver's noise.
    assert value[0] - best[0] <= best[0] * 1e-5


def capped_placements(problem: Problem) -> Iterator[Lists]:
    """Return every placement in which a partition gets an allowed set, or stays as it is."""
    return itertools.product(*({*ways(problem, partition), partition.current} for partition in problem.partitions))


def is_within(problem: Problem, lists: Lists) -> bool:
    costs, held = costs_of(problem, lists), held_bytes(problem, lists)
    return (
        (problem.max_moves is None or costs.moves <= problem.max_moves)
        and (problem.max_bytes is None or (costs.bytes or 0) <= problem.max_bytes)
        and all(held[broker] <= room for broker, room in byte_room(problem).items())
    )


def counts_of(problem: Problem, lists: Lists, aim: Aim) -> tuple[int, ...]:
    """Return how many replicas or leaders each remaining broker has."""
    counts = [0] * len(problem.brokers)
    for replicas in lists:
        for broker in replicas if aim is Aim.REPLICAS else replicas[:1]:
            counts[broker] += 1
    return tuple(counts[broker] for broker in problem.remaining)


def goal_of(problem: Problem) -> Callable[[Lists], tuple[int, ...]]:
    """Return what a placement leaves undone and what it costs; shares are those of the most level placements."""
    limits = byte_limits(problem)
    level_counts: dict[Aim, set[tuple[int, ...]]] = {}
    for aim in problem.aim & {Aim.REPLICAS, Aim.LEADERS}:
        achievable = {counts_of(problem, lists, aim) for lists in placements(problem)}
        least = min(sum(n * n for n in counts) for counts in achievable)
        level_counts[aim] = {counts for counts in achievable if sum(n * n for n in counts) == least}

    def above(lists: Lists, aim: Aim) -> int:
        counts = counts_of(problem, lists, aim)
        shares = level_counts.get(aim, ())
        return min((sum(max(0, n - s) for n, s in zip(counts, share, strict=True)) for share in shares), default=0)

    def goal(lists: Lists) -> tuple[int, ...]:
        moving = [
            (partition, held) for partition, held in zip(problem.partitions, lists, strict=True) if partition.is_movable
        ]
        return (
            sum(undone_of(undone, held) for undone, held in moving),
            sum(max(0, shared_racks(problem.brokers, held) - undone.shared_racks_max) for undone, held in moving),
            above(lists, Aim.REPLICAS),
            above(lists, Aim.LEADERS),
            limits.violation(held_bytes(problem, lists)),
            *figures(problem, lists),
        )

    return goal


def check_every_prefix(problem: Problem, after: Lists) -> None:
    """Check that caps and capacities are kept, and that each partition has an allowed set or is as it was."""
    assert is_within(problem, after)
    for partition, held in zip(problem.partitions, after, strict=True):
        assert held == partition.current or is_allowed(problem, partition, mask_of(held)), partition.name


def check_best_within(snapshot: ClusterSnapshot, strategy: Strategy, options: PlanOptions) -> None:
    """Check that of all options within the cap, the plan leaves the least undone, and costs the least."""
    problem = build_problem(snapshot, strategy, options).problem
    count = 1
    for partition in problem.partitions:
        count *= len(ways(problem, partition)) + 1
    if count > PLACEMENTS_MAX or problem.replacements:
        return
    after = tuple(make_plan(snapshot, strategy, options).after)
    check_every_prefix(problem, after)
    goal = goal_of(problem)
    best = min(goal(lists) for lists in capped_placements(problem) if is_within(problem, lists))
    value = goal(after)
    assert value[:4] == best[:4]
    # Bytes are found to within the solver's noise.
    assert value[4] - best[4] <= 1e-5 * (1 + best[4])
    assert value[5] - best[5] <= 1e-5 * (1 + best[5])
    assert value[4:6] != best[4:6] or value[6] == best[6]


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(0, 6), st.floats(0, 1.2), st.booleans())
def test_nothing_within_a_cap_is_better(seed: int, moves: int, share: float, is_by_bytes: bool) -> None:
    odd = odd_case(seed, brokers_max=5, partitions_max=4)
    free = replace(odd.options, max_moves=None, max_bytes=None)
    try:
        made = make_plan(odd.snapshot, odd.strategy, free)
    except PlanError:
        return
    size = int((made.plan.klamm.score.bytes or 0) * share)
    is_by_bytes = is_by_bytes and made.problem.has_sizes
    capped = replace(free, max_bytes=size) if is_by_bytes else replace(free, max_moves=moves)
    check_best_within(odd.snapshot, odd.strategy, capped)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("shape", [(4, 2, 6, 1), (3, 3, 5, 2)])
@pytest.mark.parametrize("minimise", Minimise)
def test_nothing_within_some_bytes_is_better(seed: int, shape: tuple[int, int, int, int], minimise: Minimise) -> None:
    """Here the best plan is rarely a part of the best plan without a cap."""
    brokers, racks, partitions, factor = shape
    snapshot = drawn_cluster(seed, brokers=brokers, racks=racks, partitions=partitions, factor=factor)
    removed = seed % 4 == 3 and factor == 1
    strategy = Strategy.DECOMMISSION if removed else Strategy.REBALANCE
    options = PlanOptions(
        brokers=(2,) if removed else (), aim=(Aim.REPLICAS, Aim.LEADERS)[: 1 + seed % 2], minimise=minimise
    )
    size = make_plan(snapshot, strategy, options).plan.klamm.score.bytes or 0
    check_best_within(snapshot, strategy, replace(options, max_bytes=size * 2 // 3))


def test_without_the_solver_a_cap_takes_a_safe_part_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_solver(monkeypatch)
    ended_early = 0
    for seed in range(150):
        odd = odd_case(seed)
        try:
            made = make_plan(odd.snapshot, odd.strategy, replace(odd.options, max_moves=seed % 7, max_bytes=None))
        except PlanError:
            continue
        assert made.plan.klamm.score.solver == "heuristic"
        check_every_prefix(made.problem, tuple(made.after))
        ended_early += made.plan.klamm.score.remaining_moves > 0
    assert ended_early > 20
