"""The best part of a plan within a cap on moves or bytes."""

from __future__ import annotations

from collections.abc import Sequence

from plans.levels import Levels
from plans.problem import Problem, mask_of


def within_caps(
    problem: Problem, after: Sequence[tuple[int, ...]], levels: Levels | None
) -> tuple[tuple[int, ...], ...]:
    """Return as much of the plan as the caps allow; partitions that copy nothing always come along.

    Each partition is done whole or not at all, so every part is as safe as the plan. First those off brokers that are
    emptied, then rack repairs, then those that take the most off brokers above their share, the fewest bytes first.
    """
    counts = [0] * len(problem.brokers)
    for one in problem.partitions:
        for broker in one.current:
            counts[broker] += 1
    moves_left = problem.max_moves if problem.max_moves is not None else 1 << 62
    bytes_left = problem.max_bytes if problem.max_bytes is not None else 1 << 62
    found = [one.current for one in problem.partitions]
    waiting = []
    for index, (one, lists) in enumerate(zip(problem.partitions, after, strict=True)):
        fresh = len(set(lists) - set(one.current))
        if not fresh:
            found[index] = lists
        else:
            waiting.append((_urgency(problem, index, lists), fresh * (one.size or 0), fresh, index))
    for _, size, fresh, index in sorted(waiting):
        gains = _gain(problem, index, after[index], counts, levels)
        if fresh <= moves_left and size <= bytes_left and gains:
            moves_left, bytes_left = moves_left - fresh, bytes_left - size
            found[index] = after[index]
            for broker in problem.partitions[index].current:
                counts[broker] -= 1
            for broker in after[index]:
                counts[broker] += 1
    return tuple(found)


def _urgency(problem: Problem, index: int, lists: tuple[int, ...]) -> int:
    one = problem.partitions[index]
    if mask_of(one.current) & ~one.may_hold or len(one.current) != one.factor:
        return 0
    racks = [len({problem.brokers[b].rack for b in each}) for each in (one.current, lists)]
    return 1 if racks[1] > racks[0] else 2


def _gain(problem: Problem, index: int, lists: tuple[int, ...], counts: Sequence[int], levels: Levels | None) -> bool:
    """Whether the partition's move takes anything off where it should not be."""
    if levels is None or _urgency(problem, index, lists) < 2:
        return True
    leaves = set(problem.partitions[index].current) - set(lists)
    return any(counts[broker] > levels.low.get(broker, 0) for broker in leaves)
