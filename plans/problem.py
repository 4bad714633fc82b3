"""The model of a problem: brokers and partitions by index, and which replicas each partition may have.

A set of replicas is allowed if it lies in ``may_hold``, has ``must_hold``, has ``factor`` members and shares racks
no more than ``shared_racks_max`` times (members less distinct racks). Masks are integers with a bit per broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from engine.common.model import TopicPartition
from plans.options import Aim, Minimise, Replacement

Pattern = tuple[tuple[int, ...], int]
"""A way to place a partition: its replicas, sorted, and the leader among them, all by index."""


@dataclass(frozen=True, slots=True)
class ProblemBroker:
    """``remains``: alive and not being removed; such brokers are levelled. ``rack`` is an index; without usable racks
    every broker has one of its own, and so has a dead broker, whose rack is unknown."""

    id: int
    rack: int
    rack_name: str | None
    is_alive: bool
    remains: bool


@dataclass(frozen=True, slots=True)
class ProblemPartition:
    """``current`` is in preference order. ``size`` is None if it is unknown."""

    name: TopicPartition
    topic: int
    current: tuple[int, ...]
    factor: int
    size: int | None
    is_movable: bool
    may_hold: int
    must_hold: int
    may_lead: int
    shared_racks_max: int


@dataclass(frozen=True, slots=True)
class Problem:
    """The input of a solver. ``leaving`` are the brokers to empty; ``targets`` is the mask of the brokers to which
    replicas may go."""

    brokers: tuple[ProblemBroker, ...]
    partitions: tuple[ProblemPartition, ...]
    topic_count: int
    rack_count: int
    aim: frozenset[Aim]
    minimise: Minimise
    tolerance_percent: float
    capacities: tuple[int | None, ...]
    leaving: frozenset[int]
    targets: int = 0
    replacements: tuple[Replacement, ...] = ()
    max_moves: int | None = None
    max_bytes: int | None = None
    remaining: tuple[int, ...] = field(init=False, compare=False)
    movable: tuple[int, ...] = field(init=False, compare=False)
    """The indexes of partitions that may move. They are needed once per partition, so they are kept."""

    def __post_init__(self) -> None:
        remaining = tuple(index for index, broker in enumerate(self.brokers) if broker.remains)
        movable = tuple(index for index, partition in enumerate(self.partitions) if partition.is_movable)
        object.__setattr__(self, "remaining", remaining)
        object.__setattr__(self, "movable", movable)

    @property
    def has_sizes(self) -> bool:
        return all(partition.size is not None for partition in self.partitions)

    @property
    def is_capped(self) -> bool:
        return self.max_moves is not None or self.max_bytes is not None

    def weight(self, partition: ProblemPartition) -> int:
        """Return what one copied replica of the partition costs in the figure that is minimised first."""
        return 1 if self.minimise is Minimise.MOVES else partition.size or 0

    def racks(self) -> list[int]:
        """Return the mask of each rack's brokers, by rack."""
        masks = [0] * (1 + max((broker.rack for broker in self.brokers), default=-1))
        for index, broker in enumerate(self.brokers):
            masks[broker.rack] |= 1 << index
        return masks


def bits(mask: int) -> Iterator[int]:
    """Yield the indexes of a mask's bits, the lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_of(indexes: Sequence[int]) -> int:
    mask = 0
    for index in indexes:
        mask |= 1 << index
    return mask


def shared_racks(brokers: Sequence[ProblemBroker], replicas: Sequence[int]) -> int:
    """Return how many of the replicas share a rack with another that was counted already."""
    return len(replicas) - len({brokers[index].rack for index in replicas})


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


def ordered(current: tuple[int, ...], held: int, leader: int) -> tuple[int, ...]:
    """Return the list: what stays keeps its place, what is new takes the places of what leaves, the leader is first."""
    fresh = list(bits(held & ~mask_of(current)))
    replicas: list[int] = []
    for broker in current:
        if held >> broker & 1:
            replicas.append(broker)
        elif fresh:
            replicas.append(fresh.pop(0))
    replicas += fresh
    if replicas[0] != leader:
        replicas.remove(leader)
        replicas.insert(0, leader)
    return tuple(replicas)
