"""Brokers from a snapshot: log dirs and sizes, if the snapshot was taken with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.admin.brokers.load import sizes_of_brokers, sizes_of_partitions
from engine.admin.brokers.self_report import Registered, SelfReport
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.log_dirs.describing import DirReplica, LogDir, log_dir_with
from engine.common.model import TopicPartition
from engine.common.snapshot import ClusterSnapshot, LogDirSnapshot, TopicSnapshot


class SnapshotBrokerReader:
    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot

    async def registrations(self) -> Mapping[int, Registered]:
        return {}

    async def self_reports(self, brokers: Iterable[int]) -> Mapping[int, SelfReport]:
        return {}

    async def log_dirs(self, brokers: Sequence[int] | None, topics: Sequence[TopicSnapshot] | None) -> list[LogDir]:
        return log_dirs_of(self._snapshot, brokers, None if topics is None else [topic.name for topic in topics])

    async def sizes(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        wanted = frozenset(partitions)
        sizes = sizes_of_partitions(self._snapshot.topics)
        return {name: size for name, size in sizes.items() if name in wanted}

    async def volumes(self) -> Sequence[LogDirSnapshot]:
        return self._snapshot.log_dirs

    async def sizes_of_brokers(self, topics: Sequence[TopicSnapshot], *, are_all: bool) -> Mapping[int, int]:
        sizes = sizes_of_brokers(topics)
        unknown = {log_dir.broker for log_dir in self._snapshot.failed_log_dirs or ()}
        return {broker: size for broker, size in sizes.items() if broker not in unknown}


def log_dirs_of(
    snapshot: ClusterSnapshot, brokers: Sequence[int] | None = None, topics: Iterable[str] | None = None
) -> list[LogDir]:
    """Return the log dirs as a snapshot has them: those with replicas, without the size of the volumes, and those
    that had failed.

    Raises:
        BadRequest: the snapshot was taken without sizes.
        NotFound: it has no such broker.
    """
    chosen = None if topics is None else set(topics)
    replicas_of: dict[tuple[int, str], list[DirReplica]] = {}
    for topic in snapshot.topics:
        for partition in topic.partitions:
            for log in partition.replica_logs:
                replicas = replicas_of.setdefault((log.broker, log.log_dir), [])
                if chosen is None or topic.name in chosen:
                    lag = None if log.offset_lag < 0 else log.offset_lag
                    replicas.append(DirReplica(topic.name, partition.partition, log.size_bytes, lag, log.is_future))
    if not replicas_of and not snapshot.failed_log_dirs and any(topic.partitions for topic in snapshot.topics):
        hint = Phrase("take one with them: ", Operation.TAKE_SNAPSHOT_WITH_SIZES)
        raise BadRequest("this snapshot has no log dirs", hint=hint)
    absent = set(brokers or ()) - {broker for broker, _ in replicas_of} - snapshot.live_broker_ids
    if absent:
        raise NotFound(f"the snapshot has no such brokers: {', '.join(map(str, sorted(absent)))}")
    dirs = [log_dir_with(broker, path, replicas) for (broker, path), replicas in replicas_of.items()]
    dirs += [LogDir(f.broker, f.log_dir, f.error, 0, 0, None, None) for f in snapshot.failed_log_dirs or ()]
    chosen_dirs = [log_dir for log_dir in dirs if brokers is None or log_dir.broker in brokers]
    return sorted(chosen_dirs, key=lambda log_dir: (log_dir.broker, log_dir.log_dir or ""))
