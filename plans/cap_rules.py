"""What a part of a plan may do and what it leaves undone: for the program within a cap, and for its judge."""

from __future__ import annotations

from plans.loads import held_bytes
from plans.problem import Problem, ProblemPartition, bits, mask_of, shared_racks


def is_allowed(problem: Problem, one: ProblemPartition, held: int) -> bool:
    """Whether a set of replicas is one that the plan may give to the partition."""
    return (
        not held & ~one.may_hold
        and held & one.must_hold == one.must_hold
        and held.bit_count() == one.factor
        and shared_racks(problem.brokers, list(bits(held))) <= one.shared_racks_max
    )


def undone_of(one: ProblemPartition, held: tuple[int, ...]) -> int:
    """Return how many replicas are misplaced, surplus or missing; a leader that must go counts as one more."""
    is_led = bool(one.may_lead >> held[0] & 1)
    return (mask_of(held) & ~one.may_hold).bit_count() + abs(len(held) - one.factor) + (not is_led)


def byte_room(problem: Problem) -> dict[int, int]:
    """Return what brokers with a capacity may hold: one that is already too full gets no fuller."""
    held = held_bytes(problem, [partition.current for partition in problem.partitions])
    capacities = enumerate(problem.capacities)
    return {broker: max(capacity, held[broker]) for broker, capacity in capacities if capacity is not None}
