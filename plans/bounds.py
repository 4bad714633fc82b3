"""Bounds that no plan which meets the aim can go below, by counting alone, without a solver."""

from __future__ import annotations

from dataclasses import dataclass

from plans.levels import Levels
from plans.problem import Problem, ProblemPartition, bits, mask_of


@dataclass(frozen=True, slots=True)
class Counted:
    """Bounds of each figure by itself; ``bytes`` is None if a size that counts is unknown."""

    moves: int
    bytes: int | None
    leader_changes: int


def counted_bounds(
    problem: Problem, replica_levels: Levels | None, leader_levels: Levels | None, most_bytes: dict[int, int]
) -> Counted:
    """Return the larger of what partitions need one by one and what the brokers' shares need.

    ``most_bytes`` is what brokers may hold at most, if bytes are an aim or a broker has a capacity.
    """
    parts = [problem.partitions[index] for index in problem.movable]
    forced = [(one, _forced_moves(problem, one)) for one in parts]
    moves = sum(count for _, count in forced)
    changes = sum(not (one.may_hold & one.may_lead) >> one.current[0] & 1 for one in parts)
    known = all(one.size is not None for one, count in forced if count)
    size = sum(count * (one.size or 0) for one, count in forced)
    if replica_levels is not None:
        counts = _counts(problem, leaders=False)
        moves = max(moves, _wanted(replica_levels, counts))
        if not any(one.factor < len(one.current) for one in parts):
            # If no partition loses replicas, every replica above a share is copied elsewhere.
            size = max(size, _cheapest_surplus(problem, replica_levels, counts))
        known = known and problem.has_sizes
    if leader_levels is not None:
        changes = max(changes, _wanted(leader_levels, _counts(problem, leaders=True)))
    if most_bytes:
        size = max(size, _above(problem, most_bytes))
    return Counted(moves, size if known else None, changes)


def _forced_moves(problem: Problem, one: ProblemPartition) -> int:
    """Return how many new replicas the partition must get, whatever the others do."""
    stays = list(bits(mask_of(one.current) & one.may_hold))
    racks = len({problem.brokers[broker].rack for broker in stays})
    keepable = min(one.factor, racks + min(len(stays) - racks, one.shared_racks_max))
    return one.factor - keepable


def _counts(problem: Problem, *, leaders: bool) -> list[int]:
    counts = [0] * len(problem.brokers)
    for one in problem.partitions:
        for broker in one.current[:1] if leaders else one.current:
            counts[broker] += 1
    return counts


def _wanted(levels: Levels, counts: list[int]) -> int:
    return sum(max(0, share - counts[broker]) for broker, share in levels.shares(counts).items())


def _cheapest_surplus(problem: Problem, levels: Levels, counts: list[int]) -> int:
    """Return the sum of the smallest replicas above every broker's share."""
    sizes: dict[int, list[int]] = {broker: [] for broker in levels.high}
    for index in problem.movable:
        one = problem.partitions[index]
        for broker in one.current:
            if broker in sizes:
                sizes[broker].append(one.size or 0)
    return sum(sum(sorted(sizes[b])[: max(0, counts[b] - high)]) for b, high in levels.high.items())


def _above(problem: Problem, most_bytes: dict[int, int]) -> int:
    """Return by how much brokers exceed what they may hold; every such byte is copied elsewhere.

    That holds if no partition loses replicas, because a dropped replica is not copied.
    """
    parts = problem.partitions
    if any(one.factor < len(one.current) for one in parts):
        return 0
    held = [0] * len(problem.brokers)
    for one in parts:
        for broker in one.current:
            held[broker] += one.size or 0
    return sum(max(0, held[broker] - most) for broker, most in most_bytes.items())
