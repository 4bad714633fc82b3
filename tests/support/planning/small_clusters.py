"""Clusters of a few brokers and partitions for the planner's tests: written out, or drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.common.model import BrokerInfo, ReplicaAssignment
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, ReplicaLog, SnapshotSource, TopicSnapshot
from plans.plan_file import PlanEntry


def cluster(
    brokers: Mapping[int, str | None],
    topics: Mapping[str, Sequence[Sequence[int]]],
    sizes: Mapping[str, Sequence[int]] | None = None,
) -> ClusterSnapshot:
    """Return a cluster: racks by broker, replicas by partition of each topic, and sizes where known."""
    return ClusterSnapshot(
        brokers=tuple(BrokerInfo(broker, (), rack) for broker, rack in sorted(brokers.items())),
        topics=tuple(
            TopicSnapshot(
                name, tuple(_partition(n, lists, (sizes or {}).get(name)) for n, lists in enumerate(partitions))
            )
            for name, partitions in sorted(topics.items())
        ),
        source=SnapshotSource.WIRE,
        taken_at_ms=0,
        cluster_id="small",
    )


def _partition(number: int, replicas: Sequence[int], sizes: Sequence[int] | None) -> PartitionSnapshot:
    ids = tuple(replicas)
    logs = () if sizes is None else tuple(ReplicaLog(broker, "/data", sizes[number]) for broker in ids)
    return PartitionSnapshot(number, ReplicaAssignment(ids), ids[0], ids, replica_logs=logs)


def drawn_cluster(seed: int, *, brokers: int, racks: int, partitions: int, factor: int) -> ClusterSnapshot:
    """Return a skewed cluster, its replicas placed without regard to racks."""
    chance = random.Random(seed)
    ids = range(1, brokers + 1)
    weights = {broker: chance.expovariate(1) + 0.2 for broker in ids}
    lists = []
    for _ in range(partitions):
        left = list(ids)
        chosen: list[int] = []
        for _ in range(factor):
            chosen.append(chance.choices(left, [weights[broker] for broker in left])[0])
            left.remove(chosen[-1])
        lists.append(chosen)
    half = partitions // 2
    sizes = [chance.randrange(1, 50) for _ in lists]
    return cluster(
        {broker: f"r{broker % racks}" for broker in ids},
        {"a": lists[:half], "b": lists[half:]},
        {"a": sizes[:half], "b": sizes[half:]},
    )


def skewed_cluster(brokers: int, partitions: int, *, racks: int = 6, factor: int = 3, seed: int = 7) -> ClusterSnapshot:
    """Return a cluster with skewed brokers, rack-safe, with lognormal topics and sizes."""
    chance = random.Random(seed)
    members: dict[str, list[int]] = {f"r{rack}": [] for rack in range(racks)}
    weights: dict[int, float] = {}
    for broker in range(1, brokers + 1):
        members[f"r{broker % racks}"].append(broker)
        weights[broker] = chance.expovariate(1) + 0.3
    topics = []
    left = partitions
    while left > 0:
        count = min(left, max(1, int(chance.lognormvariate(2, 0.9))))
        left -= count
        mean = chance.lognormvariate(7, 1.2)
        parts = []
        for number in range(count):
            chosen = tuple(
                chance.choices(members[rack], [weights[b] for b in members[rack]])[0]
                for rack in chance.sample(sorted(members), factor)
            )
            size = int(mean * chance.lognormvariate(0, 0.5) * (1 << 20))
            logs = tuple(ReplicaLog(broker, "/data", size) for broker in chosen)
            parts.append(PartitionSnapshot(number, ReplicaAssignment(chosen), chosen[0], chosen, replica_logs=logs))
        topics.append(TopicSnapshot(f"t{len(topics):05d}", tuple(parts)))
    return ClusterSnapshot(
        brokers=tuple(BrokerInfo(b, (), f"r{b % racks}") for b in sorted(weights)),
        topics=tuple(topics),
        source=SnapshotSource.WIRE,
        taken_at_ms=0,
        cluster_id="bench",
    )


def applied(snapshot: ClusterSnapshot, entries: Sequence[PlanEntry]) -> ClusterSnapshot:
    """Return the cluster after these entries are applied, with the same sizes."""
    wanted = {entry.name: entry.replicas for entry in entries}

    def moved(topic: str, partition: PartitionSnapshot) -> PartitionSnapshot:
        replicas = wanted.get((topic, partition.partition))
        if replicas is None:
            return partition
        sizes = {log.size_bytes for log in partition.replica_logs}
        logs = tuple(ReplicaLog(broker, "/data", size) for broker in replicas for size in sizes)
        assignment = ReplicaAssignment(replicas)
        return replace(partition, assignment=assignment, leader=replicas[0], isr=replicas, replica_logs=logs)

    return replace(
        snapshot,
        topics=tuple(
            replace(topic, partitions=tuple(moved(topic.name, partition) for partition in topic.partitions))
            for topic in snapshot.topics
        ),
    )
