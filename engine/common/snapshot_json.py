"""ClusterSnapshot as JSON text and back. The file carries a version; a reader accepts its own and older ones.

A reader ignores unknown keys, so that it can read a newer klamm's file of the same version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.common.model import BrokerInfo, Endpoint, LeaderRecoveryState, ReplicaAssignment, SecurityProtocol
from engine.common.snapshot import (
    ClusterSnapshot,
    FailedLogDir,
    LogDirSnapshot,
    PartitionSnapshot,
    ReplicaLog,
    SnapshotSource,
    TopicSnapshot,
)
from engine.common.topic_id import parse_topic_id, topic_id_text

FORMAT_VERSION = 1


def snapshot_to_json(snapshot: ClusterSnapshot) -> str:
    """Return the snapshot's text: the same snapshot always gives the same bytes."""
    document = {
        "version": FORMAT_VERSION,
        "source": snapshot.source.value,
        "taken_at_ms": snapshot.taken_at_ms,
        "cluster_id": snapshot.cluster_id,
        "controller_id": snapshot.controller_id,
        "controller_epoch": snapshot.controller_epoch,
        "brokers": [_broker(broker) for broker in snapshot.brokers],
        "broker_configs": [
            {"broker": broker_id, "configs": dict(sorted(configs.items()))}
            for broker_id, configs in sorted(snapshot.broker_configs.items(), key=_default_first)
        ],
        **({"log_dirs": [_log_dir(log_dir) for log_dir in snapshot.log_dirs]} if snapshot.log_dirs else {}),
        **_failed_log_dirs(snapshot),
        "topics": [_topic(topic) for topic in snapshot.topics],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def snapshot_from_json(text: str) -> ClusterSnapshot:
    """Return the snapshot that ``text`` holds.

    Raises:
        ValueError: not JSON, not a snapshot, or of a version this reader does not know.
    """
    document = json.loads(text)
    if not isinstance(document, dict) or "topics" not in document:
        raise ValueError("it has no topics")
    version = document.get("version")
    if version != FORMAT_VERSION:
        raise ValueError(f"a snapshot of version {version}; this klamm reads version {FORMAT_VERSION}")
    try:
        return _snapshot(document)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a cluster snapshot: {type(error).__name__} {error}") from error


def _default_first(item: tuple[int | None, Mapping[str, str]]) -> tuple[bool, int]:
    return item[0] is not None, item[0] or 0


def _snapshot(document: Mapping[str, Any]) -> ClusterSnapshot:
    return ClusterSnapshot(
        brokers=tuple(_read_broker(entry) for entry in document["brokers"]),
        topics=tuple(_read_topic(entry) for entry in document["topics"]),
        source=SnapshotSource(document["source"]),
        taken_at_ms=int(document["taken_at_ms"]),
        cluster_id=document["cluster_id"],
        controller_id=int(document["controller_id"]),
        controller_epoch=document["controller_epoch"],
        broker_configs={entry["broker"]: dict(entry["configs"]) for entry in document["broker_configs"]},
        log_dirs=tuple(_read_log_dir(entry) for entry in document.get("log_dirs", ())),
        failed_log_dirs=_read_failed_log_dirs(document.get("failed_log_dirs")),
    )


def _broker(broker: BrokerInfo) -> dict[str, Any]:
    endpoints = [
        {"host": e.host, "port": e.port, "listener": e.listener_name, "protocol": e.security_protocol.name}
        for e in broker.endpoints
    ]
    return {"id": broker.id, "rack": broker.rack, "broker_epoch": broker.broker_epoch, "endpoints": endpoints}


def _read_broker(entry: Mapping[str, Any]) -> BrokerInfo:
    endpoints = tuple(
        Endpoint(e["host"], int(e["port"]), e["listener"], SecurityProtocol[e["protocol"]]) for e in entry["endpoints"]
    )
    return BrokerInfo(int(entry["id"]), endpoints, entry["rack"], int(entry["broker_epoch"]))


def _log_dir(log_dir: LogDirSnapshot) -> dict[str, Any]:
    return {
        "broker": log_dir.broker,
        "log_dir": log_dir.log_dir,
        "total_bytes": log_dir.total_bytes,
        "usable_bytes": log_dir.usable_bytes,
    }


def _read_log_dir(entry: Mapping[str, Any]) -> LogDirSnapshot:
    return LogDirSnapshot(int(entry["broker"]), entry["log_dir"], entry["total_bytes"], entry["usable_bytes"])


def _failed_log_dirs(snapshot: ClusterSnapshot) -> dict[str, Any]:
    """Return the key with its value; no key means that nobody asked, as in files of older versions."""
    if snapshot.failed_log_dirs is None:
        return {}
    failed = [{"broker": d.broker, "log_dir": d.log_dir, "error": d.error} for d in snapshot.failed_log_dirs]
    return {"failed_log_dirs": failed}


def _read_failed_log_dirs(entries: Sequence[Mapping[str, Any]] | None) -> tuple[FailedLogDir, ...] | None:
    if entries is None:
        return None
    return tuple(FailedLogDir(int(entry["broker"]), entry["log_dir"], entry["error"]) for entry in entries)


def _topic(topic: TopicSnapshot) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id is None else topic_id_text(topic.topic_id),
        "marked_for_deletion": topic.is_marked_for_deletion,
        "configs": None if topic.configs is None else dict(sorted(topic.configs.items())),
        "partitions": [_partition(partition) for partition in topic.partitions],
    }


def _read_topic(entry: Mapping[str, Any]) -> TopicSnapshot:
    return TopicSnapshot(
        name=entry["topic"],
        partitions=tuple(_read_partition(p) for p in entry["partitions"]),
        topic_id=None if entry["topic_id"] is None else parse_topic_id(entry["topic_id"]),
        configs=None if entry["configs"] is None else dict(entry["configs"]),
        is_marked_for_deletion=bool(entry["marked_for_deletion"]),
    )


def _partition(partition: PartitionSnapshot) -> dict[str, Any]:
    return {
        "partition": partition.partition,
        "replicas": list(partition.assignment.replicas),
        "adding_replicas": list(partition.assignment.adding_replicas),
        "removing_replicas": list(partition.assignment.removing_replicas),
        "leader": partition.leader,
        "isr": list(partition.isr),
        "leader_epoch": partition.leader_epoch,
        "controller_epoch": partition.controller_epoch,
        "zk_version": partition.zk_version,
        "leader_recovery_state": partition.leader_recovery_state.value,
        "replica_logs": [_replica_log(log) for log in partition.replica_logs],
    }


def _read_partition(entry: Mapping[str, Any]) -> PartitionSnapshot:
    return PartitionSnapshot(
        partition=int(entry["partition"]),
        assignment=ReplicaAssignment(
            tuple(entry["replicas"]), tuple(entry["adding_replicas"]), tuple(entry["removing_replicas"])
        ),
        leader=int(entry["leader"]),
        isr=tuple(entry["isr"]),
        leader_epoch=entry["leader_epoch"],
        controller_epoch=entry["controller_epoch"],
        zk_version=entry["zk_version"],
        leader_recovery_state=LeaderRecoveryState(entry["leader_recovery_state"]),
        replica_logs=tuple(_read_replica_log(log) for log in entry["replica_logs"]),
    )


def _replica_log(log: ReplicaLog) -> dict[str, Any]:
    return {
        "broker": log.broker,
        "log_dir": log.log_dir,
        "size_bytes": log.size_bytes,
        "offset_lag": log.offset_lag,
        "future": log.is_future,
    }


def _read_replica_log(entry: Mapping[str, Any]) -> ReplicaLog:
    return ReplicaLog(
        entry["broker"], entry["log_dir"], entry["size_bytes"], entry["offset_lag"], bool(entry["future"])
    )
