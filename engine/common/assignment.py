"""Which brokers get a topic's replicas: Kafka's own algorithm, with and without racks (AdminUtils, KIP-36).

Pure: the caller may replace the function that draws the random start. Not the planner: it ignores load.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import TypeVar

from engine.common.errors import ErrorCode, KafkaError

T = TypeVar("T")

Assignment = Mapping[int, tuple[int, ...]]
"""Partition id -> replicas in preference order."""


class FromZero(Mapping[int, T]):
    """Values of partitions 0, 1, 2 and so on, in a list: a dict of 100,000 takes ten times as much memory."""

    __slots__ = ("_values",)

    def __init__(self, values: list[T]) -> None:
        self._values = values

    def __getitem__(self, partition: int) -> T:
        if not 0 <= partition < len(self._values):
            raise KeyError(partition)
        return self._values[partition]

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._values)))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(dict(self))


PARTITIONS_MAX = 200_000
"""The most new partitions at once: as many as a whole ZooKeeper cluster holds. Kafka has no bound, and an absurd number
crashes its broker."""

Draw = Callable[[int], int]
"""Draw an index below a bound."""


class RackAwareMode(Enum):
    """What to do with racks when only some brokers have one."""

    ENFORCED = "enforced"
    """Refuse."""
    SAFE = "safe"
    """Ignore the racks."""
    DISABLED = "disabled"
    """Ignore racks always."""


def lacking_rack(brokers: Mapping[int, str | None]) -> list[int]:
    """Return the brokers without a rack; none if no broker has one."""
    lacking = sorted(broker for broker, rack in brokers.items() if rack is None)
    return lacking if len(lacking) < len(brokers) else []


def usable_racks(brokers: Mapping[int, str | None], mode: RackAwareMode) -> dict[int, str | None]:
    """Return broker id -> rack as the assignment should see it: all racks, or none.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR, as Kafka answers, if ``mode`` is ENFORCED and only some have a rack.
    """
    lacking = lacking_rack(brokers)
    if mode is RackAwareMode.DISABLED or (mode is RackAwareMode.SAFE and lacking):
        return dict.fromkeys(sorted(brokers))
    if lacking:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Not all brokers have rack information. Add --disable-rack-aware in command line"
            " to make replica assignment without rack information.",
        )
    return {broker: brokers[broker] for broker in sorted(brokers)}


def assign_replicas(
    brokers: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    *,
    fixed_start_index: int | None = None,
    start_partition_id: int = 0,
    draw: Draw = random.randrange,
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of ``partition_count`` new partitions, the first of them with id ``start_partition_id``.

    ``brokers`` maps id to rack; either all have one or none has. Without ``fixed_start_index`` the start and the first
    shift are drawn independently; with it both are that index (Kafka 0.8.2 to 3.9).

    Raises:
        KafkaError: INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR with Kafka's texts; UNKNOWN_SERVER_ERROR for racks
            on some brokers only.
    """
    _check_counts(len(brokers), partition_count, replication_factor)
    arranged, racks = _arranged(tuple(brokers.items()))
    start = draw(len(arranged)) if fixed_start_index is None else fixed_start_index
    shift = draw(len(arranged)) if fixed_start_index is None else fixed_start_index
    assignment: dict[int, tuple[int, ...]] = {}
    for partition in range(start_partition_id, start_partition_id + partition_count):
        if partition > 0 and partition % len(arranged) == 0:
            shift += 1
        first = (partition + start) % len(arranged)
        if racks:
            assignment[partition] = _spread_over_racks(arranged, racks, first, shift, replication_factor)
        else:
            assignment[partition] = _spread(arranged, first, shift, replication_factor)
    return assignment


def start_index_of_added_partitions(broker_ids: list[int], first_replica: int) -> int:
    """Return the start index Kafka gives to partitions added to a topic: that of partition 0's first replica.

    ``broker_ids`` is sorted; a missing broker counts as the next higher one, or, beyond the last, as the first.
    """
    return next((index for index, broker in enumerate(broker_ids) if broker >= first_replica), 0)


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Return the brokers taken from each rack in turn: racks by name, brokers of a rack by id."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    depth = max((len(queue) for queue in queues), default=0)
    return [queue[level] for level in range(depth) for queue in queues if level < len(queue)]


def _check_counts(broker_count: int, partition_count: int, replication_factor: int) -> None:
    if partition_count <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if partition_count > PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions must not be larger than {PARTITIONS_MAX}, but it is {partition_count}.",
        )
    if replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > broker_count:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {broker_count}.",
        )


@lru_cache(maxsize=8)
def _arranged(brokers: tuple[tuple[int, str | None], ...]) -> tuple[list[int], dict[int, str]]:
    """Return the brokers in the order of use, and their racks. Cached: a plan asks again for each topic."""
    racks = _all_or_no_racks(dict(brokers))
    return (rack_alternated(racks) if racks else sorted(broker for broker, _ in brokers)), racks


def _all_or_no_racks(brokers: Mapping[int, str | None]) -> dict[int, str]:
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    if lacking_rack(brokers):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Not all brokers have rack information for replica rack aware assignment.",
        )
    return racks


def _replica_index(first: int, shift: int, replica: int, broker_count: int) -> int:
    return (first + 1 + (shift + replica) % (broker_count - 1)) % broker_count


def _spread(brokers: list[int], first: int, shift: int, replication_factor: int) -> tuple[int, ...]:
    followers = (brokers[_replica_index(first, shift, j, len(brokers))] for j in range(replication_factor - 1))
    return (brokers[first], *followers)


def _spread_over_racks(
    brokers: list[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    """Pick a broker of a rack without a replica while there is one, and never pick a broker twice."""
    rack_count = len(set(racks.values()))
    replicas = [brokers[first]]
    used_racks = {racks[brokers[first]]}
    step = 0
    while len(replicas) < replication_factor:
        broker = brokers[_replica_index(first, shift * rack_count, step, len(brokers))]
        step += 1
        rack_fits = racks[broker] not in used_racks or len(used_racks) == rack_count
        if rack_fits and broker not in replicas:
            replicas.append(broker)
            used_racks.add(racks[broker])
    return tuple(replicas)
