"""What a part of a plan may do and what it leaves undone: for the program within a cap, and for its judge."""

from __future__ import annotations

from plans.loads import held_bytes
from plans.problem import Problem, ProblemPartition, bits, mask_of, shared_racks


def is_allowed(problem: Problem, partition: ProblemPartition, held: int) -> bool:
    """Whether a set of replicas is one that the plan may give to the partition."""
    return (
        not held & ~partition.may_hold
        and held & partition.must_hold == partition.must_hold
        and held.bit_count() == partition.factor
        and shared_racks(problem.brokers, list(bits(held))) <= partition.shared_racks_max
    )


def undone_of(partition: ProblemPartition, held: tuple[int, ...]) -> int:
    """Return how many replicas are misplaced, surplus or missing; a leader that must go counts as one more."""
    is_led = bool(partition.may_lead >> held[0] & 1)
    return (mask_of(held) & ~partition.may_hold).bit_count() + abs(len(held) - partition.factor) + (not is_led)


def byte_room(problem: Problem) -> dict[int, int]:
    """Return what brokers with a capacity may hold: one that is already too full gets no fuller."""
    held = held_bytes(problem, [partition.current for partition in problem.partitions])
    capacities = enumerate(problem.capacities)
    return {broker: max(capacity, held[broker]) for broker, capacity in capacities if capacity is not None}
