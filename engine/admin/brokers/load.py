"""How much each broker carries: replicas, leaders, bytes; in a cluster now, and before and after a plan. Pure.

A plan's leaders are the preferred ones, which lead once they have been elected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.common.model import BrokerInfo, TopicPartition
from engine.common.snapshot import TopicSnapshot

Replicas = Mapping[TopicPartition, Sequence[int]]


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """What one broker carries. ``size_bytes`` is None if the broker did not report it; the rates if it did not, or was
    not asked.

    Rates are by the second: over the last minute, or over two seconds for a broker that reports counts only.
    """

    broker: int
    rack: str | None
    alive: bool
    replica_count: int
    leader_count: int
    preferred_count: int
    size_bytes: int | None
    messages_in_rate: float | None = None
    bytes_in_rate: float | None = None
    bytes_out_rate: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """One broker's part of a plan's partitions, before and after; bytes are None if sizes are not known."""

    broker: int
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int
    bytes_before: int | None
    bytes_after: int | None


@dataclass(frozen=True, slots=True)
class LoadOfPlan:
    """The brokers' load under a plan, and how much its new replicas have to copy."""

    brokers: Sequence[PlannedLoad]
    bytes_to_copy: int


def load_of_brokers(
    brokers: Sequence[BrokerInfo], topics: Iterable[TopicSnapshot], sizes: Mapping[int, int]
) -> list[BrokerLoad]:
    """Return one line per broker that lives or has a replica, by id; ``sizes`` in bytes, of those that reported
    them."""
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    preferred: Counter[int] = Counter()
    for topic in topics:
        for partition in topic.partitions:
            replicas.update(partition.replicas)
            leaders[partition.leader] += 1
            preferred[partition.preferred_leader] += 1
    live = {broker.id: broker.rack for broker in brokers}
    return [
        BrokerLoad(
            broker, live.get(broker), broker in live, replicas[broker], leaders[broker], preferred[broker],
            sizes.get(broker),
        )
        for broker in sorted({*live, *replicas})
    ]  # fmt: skip


def sizes_of_brokers(topics: Iterable[TopicSnapshot]) -> dict[int, int]:
    """Return the bytes of each broker as a snapshot has them; nothing if it was taken without sizes."""
    sizes: Counter[int] = Counter()
    for topic in topics:
        for partition in topic.partitions:
            for log in partition.replica_logs:
                sizes[log.broker] += log.size_bytes
    return dict(sizes)


def sizes_of_partitions(topics: Iterable[TopicSnapshot]) -> dict[TopicPartition, int]:
    """Return the bytes of each partition, those of its largest replica, as a snapshot has them."""
    return {
        TopicPartition(topic.name, partition.partition): max(log.size_bytes for log in partition.replica_logs)
        for topic in topics
        for partition in topic.partitions
        if partition.replica_logs
    }


def load_of_plan(
    before: Replicas, after: Replicas, sizes: Mapping[TopicPartition, int], brokers: Iterable[int] = ()
) -> list[PlannedLoad]:
    """Return the part of each broker that has one, and of ``brokers``, by id."""
    counts = [(_replicas(placement), _leaders(placement), _bytes(placement, sizes)) for placement in (before, after)]
    (replicas, leaders, sized), (replicas_after, leaders_after, sized_after) = counts
    has_sizes = bool(sizes)
    return [
        PlannedLoad(
            broker,
            replicas[broker],
            replicas_after[broker],
            leaders[broker],
            leaders_after[broker],
            sized[broker] if has_sizes else None,
            sized_after[broker] if has_sizes else None,
        )
        for broker in sorted({*replicas, *replicas_after, *brokers})
    ]


def bytes_to_copy(before: Replicas, after: Replicas, sizes: Mapping[TopicPartition, int]) -> int:
    """Return how much the plan's new replicas have to copy."""
    return sum(
        sizes.get(name, 0) * sum(broker not in before.get(name, ()) for broker in replicas)
        for name, replicas in after.items()
    )


def _replicas(assignment: Replicas) -> Counter[int]:
    return Counter(broker for replicas in assignment.values() for broker in replicas)


def _leaders(assignment: Replicas) -> Counter[int]:
    return Counter(replicas[0] for replicas in assignment.values() if replicas)


def _bytes(assignment: Replicas, sizes: Mapping[TopicPartition, int]) -> Counter[int]:
    bytes_held: Counter[int] = Counter()
    for name, replicas in assignment.items():
        for broker in replicas:
            bytes_held[broker] += sizes.get(name, 0)
    return bytes_held
