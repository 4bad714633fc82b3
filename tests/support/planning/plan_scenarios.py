"""The recorded plan scenarios as cluster snapshots."""

from __future__ import annotations

import json
from pathlib import Path

from engine.common.model import BrokerInfo, ReplicaAssignment
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, ReplicaLog, SnapshotSource, TopicSnapshot

SCENARIOS = Path(__file__).parents[3] / "fixtures" / "plans"
MIB = 1 << 20


def scenario(name: str) -> ClusterSnapshot:
    """Return the cluster of a scenario file."""
    return snapshot_of(json.loads((SCENARIOS / f"{name}.json").read_text("utf-8")))


def snapshot_of(document: dict) -> ClusterSnapshot:
    """Return the cluster of a scenario's document: brokers, and partitions with their sizes in MiB."""
    topics: dict[str, list[PartitionSnapshot]] = {}
    for written in document["partitions"]:
        replicas = tuple(written["replicas"])
        size = round(written["size"] * MIB)
        logs = tuple(ReplicaLog(broker, "/data", size) for broker in replicas)
        partition = PartitionSnapshot(
            written["partition"], ReplicaAssignment(replicas), replicas[0], replicas, 0, 1, 0, replica_logs=logs
        )
        topics.setdefault(written["topic"], []).append(partition)
    return ClusterSnapshot(
        brokers=tuple(sorted((BrokerInfo(b["id"], (), b["rack"]) for b in document["brokers"]), key=lambda b: b.id)),
        topics=tuple(TopicSnapshot(name, tuple(parts)) for name, parts in sorted(topics.items())),
        source=SnapshotSource.ZOOKEEPER,
        taken_at_ms=0,
        cluster_id="scenario",
    )
