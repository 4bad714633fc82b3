"""Log dirs of brokers, with every replica: where it is, how large, how far behind (DescribeLogDirs).

It asks all brokers at the same time, so that a hanging one delays no other, and reports that one.
``reassignment.log_dirs`` moves replicas between log dirs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from engine.admin.cluster.asking import FAILURES, answer_limit
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, NotFound
from engine.admin.cluster.rights import Right
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode, error_code
from engine.common.metric import Metric, metrics_of
from engine.common.model import TopicPartition
from engine.common.snapshot import ClusterSnapshot, FailedLogDir, LogDirSnapshot, ReplicaLog, TopicSnapshot
from engine.common.topic_names import invalid_topic_name
from engine.kafka.protocol.apis.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

NOT_ALIVE = "not alive"
"""The error of a broker that has partitions but is not in the cluster."""
NOT_ALLOWED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name
"""The error of a broker that does not show its log dirs."""

_UNKNOWN_LAG = -1
_HIDDEN_MAX = 1_000
"""At most this many hidden topics are named."""
_HIDDEN_WITHIN_S = 3.0
"""A broker that does not say within this time which topics it has is not waited for."""


@dataclass(frozen=True, slots=True)
class DirReplica:
    """One replica in a log dir. ``offset_lag`` is None if the broker does not know it.

    The lag counts records: a replica's behind the high watermark, a future one's behind the current replica.
    """

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int | None
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log dir. ``log_dir`` is None for a broker that did not answer; ``error`` says why anything is missing.

    ``total_bytes`` and ``usable_bytes`` are those of its volume, None before Kafka 3.3 (KIP-827).
    """

    broker: int
    log_dir: str | None
    error: str | None
    size_bytes: int
    replica_count: int
    total_bytes: int | None
    usable_bytes: int | None
    replicas: tuple[DirReplica, ...] = ()


async def read_log_dirs(
    cluster: Cluster,
    brokers: Sequence[int] | None = None,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    limit_s: float | None = None,
) -> list[LogDir]:
    """Return the log dirs of brokers (None: of all that live) with these partitions in them (None: all of them).

    A broker that does not answer within ``limit_s`` (None: as long as any broker may take) is reported as silent.

    Raises:
        NotFound: a named broker is not alive.
        Unreachable: no broker answers at all.
    """
    wire = await cluster.wire()
    live = sorted(await wire.live_brokers())
    absent = [broker for broker in brokers or () if broker not in live]
    if absent:
        named, known = ", ".join(map(str, absent)), ", ".join(map(str, live)) or "none"
        raise NotFound(f"the given brokers are not alive: {named}", hint=f"live brokers: {known}")
    request = DescribeLogDirsRequest(topics=None if partitions is None else _topics(partitions))
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_ask(cluster, broker, request, limit_s), name=f"log-dirs-of-{broker}")
            for broker in (live if brokers is None else sorted(set(brokers)))
        ]
    return [log_dir for task in tasks for log_dir in task.result()]


async def read_all_log_dirs(cluster: Cluster, topics: Sequence[TopicSnapshot] | None = None) -> list[LogDir]:
    """Return the log dirs of all brokers with the replicas of these topics in them (None: of all topics).

    A dead broker that has partitions is listed, with that as its error.

    Raises:
        Unreachable: no broker answers at all.
    """
    wire = await cluster.wire()
    if topics is None:
        answers = (await wire.metadata(None)).topics
        assigned = {broker for topic in answers for partition in topic.partitions for broker in partition.replica_nodes}
        names = None
    else:
        assigned = {broker for topic in topics for partition in topic.partitions for broker in partition.replicas}
        names = [TopicPartition(topic.name, partition.partition) for topic in topics for partition in topic.partitions]
    log_dirs = await read_log_dirs(cluster, None, names)
    # By the answers, not by an earlier list of live brokers: one that comes back in between would be in neither.
    absent = assigned - {log_dir.broker for log_dir in log_dirs}
    return sorted(
        [*log_dirs, *(_silent(broker, NOT_ALIVE) for broker in absent)], key=lambda described: described.broker
    )


async def note_hidden_topics(cluster: Cluster, stored: Set[str], listed: Iterable[str]) -> list[str]:
    """Let the cluster note the missing right on topics that log dirs have and no list had; return those.

    Lists leave out what a principal may not describe, and do not say so; log dirs show all. Topics that are just being
    made or deleted are no such topics: brokers say so of each.
    """
    unlisted = sorted(stored - set(listed))[:_HIDDEN_MAX]
    await cluster.hidden(unlisted)
    hidden = {right.name for right in cluster.denied if right.resource_type is ResourceType.TOPIC}
    return [topic for topic in unlisted if topic in hidden]


async def note_topics_left_out(
    cluster: Cluster,
    listed: Iterable[str],
    choose: Callable[[Iterable[str]], Iterable[str]] = tuple,
    brokers: Sequence[int] | None = None,
    operation: AclOperation = AclOperation.DESCRIBE,
) -> list[str]:
    """Note the missing right on topics that a list may lack, as far as brokers show their log dirs; return those.

    It never fails.

    Args:
        choose: picks those of the topics in log dirs that the list was to have.
        brokers: whose log dirs to read; None: of all that live.
        operation: what the caller does with the topics of the list.
    """
    if not cluster.may_hide_topics:
        return []
    try:
        dirs = await read_log_dirs(cluster, brokers, limit_s=_HIDDEN_WITHIN_S)
    except AdminError as error:
        cluster.observe(f"log dirs do not say whether topics are hidden: {error}")
        cluster.may_lack_unseen = True
        return []
    hidden = await note_hidden_topics(cluster, set(choose(topics_in(dirs))), listed)
    cluster.note_denied(Right(operation, ResourceType.TOPIC, topic) for topic in hidden)
    return hidden


async def hidden_matches(cluster: Cluster, patterns: Sequence[str]) -> list[str]:
    """Return hidden topics whose whole names a pattern matches, as far as brokers show their log dirs.

    A comma is an alternative, as in the patterns of Kafka's tools. A topic's name is no pattern.
    """
    texts = [text.replace(",", "|") for text in patterns if invalid_topic_name(text) is not None]
    if not texts:
        return []
    try:
        pattern = re.compile("|".join(texts))
    except re.error:
        return []
    return await note_topics_left_out(cluster, (), lambda topics: filter(pattern.fullmatch, topics))


def topics_in(dirs: Iterable[LogDir]) -> set[str]:
    return {replica.topic for log_dir in dirs for replica in log_dir.replicas}


async def _ask(cluster: Cluster, broker: int, request: DescribeLogDirsRequest, limit_s: float | None) -> list[LogDir]:
    wire = await cluster.wire()
    try:
        async with answer_limit(wire, broker, limit_s):
            response: DescribeLogDirsResponse = await wire.call_broker(broker, request)
    except FAILURES as error:
        return [_silent(broker, str(error))]
    if response.error_code != ErrorCode.NONE:
        return [_silent(broker, error_code(response.error_code).name)]
    if not response.results:
        # Every broker has a log dir: this is how those before Kafka 3.1 refuse.
        return [_silent(broker, NOT_ALLOWED)]
    return [_log_dir_of(broker, result) for result in sorted(response.results, key=lambda result: result.log_dir)]


def _log_dir_of(broker: int, result: DescribeLogDirsResult) -> LogDir:
    if result.error_code != ErrorCode.NONE:
        return LogDir(broker, result.log_dir, error_code(result.error_code).name, 0, 0, None, None)
    replicas = [
        DirReplica(
            topic.name, p.partition_index, p.partition_size, None if p.offset_lag < 0 else p.offset_lag, p.is_future_key
        )
        for topic in result.topics
        for p in topic.partitions
    ]
    total = None if result.total_bytes < 0 else result.total_bytes
    usable = None if result.usable_bytes < 0 else result.usable_bytes
    return log_dir_with(broker, result.log_dir, replicas, total, usable)


def log_dir_with(
    broker: int, path: str, replicas: list[DirReplica], total: int | None = None, usable: int | None = None
) -> LogDir:
    """Return the log dir that holds these replicas, on a volume of ``total`` bytes of which ``usable`` are free."""
    replicas.sort(key=lambda replica: (replica.topic, replica.partition, replica.is_future))
    size = sum(replica.size_bytes for replica in replicas)
    return LogDir(broker, path, None, size, len(replicas), total, usable, tuple(replicas))


def _silent(broker: int, reason: str) -> LogDir:
    return LogDir(broker, None, reason, 0, 0, None, None)


def _topics(partitions: Iterable[TopicPartition]) -> list[DescribableLogDirTopic]:
    grouped: dict[str, list[int]] = {}
    for name in partitions:
        grouped.setdefault(name.topic, []).append(name.partition)
    return [DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in grouped.items()]


def working_dirs(dirs: Iterable[LogDir]) -> tuple[LogDirSnapshot, ...]:
    """Return the log dirs without those that have failed, and without brokers that did not answer."""
    return tuple(
        LogDirSnapshot(log_dir.broker, log_dir.log_dir, log_dir.total_bytes, log_dir.usable_bytes)
        for log_dir in dirs
        if log_dir.log_dir is not None and log_dir.error is None
    )


def with_sizes(snapshot: ClusterSnapshot, dirs: Sequence[LogDir]) -> ClusterSnapshot:
    """Return a snapshot with its log dirs and the logs of its replicas, as brokers reported them."""
    logs: dict[TopicPartition, list[ReplicaLog]] = {}
    for log_dir in dirs:
        for r in log_dir.replicas:
            lag = _UNKNOWN_LAG if r.offset_lag is None else r.offset_lag
            log = ReplicaLog(log_dir.broker, log_dir.log_dir or "", r.size_bytes, lag, r.is_future)
            logs.setdefault(TopicPartition(r.topic, r.partition), []).append(log)
    failed = tuple(
        FailedLogDir(log_dir.broker, log_dir.log_dir, log_dir.error) for log_dir in dirs if log_dir.error is not None
    )
    return replace(with_logs(snapshot, logs), log_dirs=working_dirs(dirs), failed_log_dirs=failed)


def with_logs(snapshot: ClusterSnapshot, logs: Mapping[TopicPartition, Sequence[ReplicaLog]]) -> ClusterSnapshot:
    """Return a snapshot with the logs of its replicas, by partition."""

    def sized(topic: TopicSnapshot) -> TopicSnapshot:
        names = (TopicPartition(topic.name, partition.partition) for partition in topic.partitions)
        parts = zip(topic.partitions, names, strict=True)
        return replace(
            topic,
            partitions=tuple(replace(partition, replica_logs=tuple(logs.get(name, ()))) for partition, name in parts),
        )

    return replace(snapshot, topics=tuple(map(sized, snapshot.topics)))


@dataclass(frozen=True, slots=True)
class DirTotals:
    """The totals of a log dir, a broker or a topic. What does not apply is None."""

    broker: int | None
    log_dir: str | None
    topic: str | None
    replica_count: int
    future_count: int
    size_bytes: int
    largest_bytes: int
    offset_lag_max: int | None
    total_bytes: int | None
    usable_bytes: int | None
    error: str | None

    @property
    def used_percent(self) -> int | None:
        """How full the volume is, other programs' files included."""
        if not self.total_bytes or self.usable_bytes is None:
            return None
        return round(100 * (self.total_bytes - self.usable_bytes) / self.total_bytes)


def totals_by_dir(dirs: Sequence[LogDir]) -> list[DirTotals]:
    """Return one line per log dir."""
    return [_totals([log_dir], log_dir.replicas, broker=log_dir.broker, log_dir=log_dir.log_dir) for log_dir in dirs]


def totals_by_broker(dirs: Sequence[LogDir]) -> list[DirTotals]:
    """Return one line per broker. A volume counts once for each log dir on it."""
    grouped: dict[int, list[LogDir]] = {}
    for log_dir in dirs:
        grouped.setdefault(log_dir.broker, []).append(log_dir)
    return [
        _totals(group, [replica for log_dir in group for replica in log_dir.replicas], broker=broker)
        for broker, group in sorted(grouped.items())
    ]


def totals_by_topic(dirs: Sequence[LogDir]) -> list[DirTotals]:
    """Return one line per topic, over all its replicas."""
    grouped: dict[str, list[DirReplica]] = {}
    for log_dir in dirs:
        for replica in log_dir.replicas:
            grouped.setdefault(replica.topic, []).append(replica)
    return [_totals([], replicas, topic=topic) for topic, replicas in sorted(grouped.items())]


def _totals(
    dirs: Sequence[LogDir],
    replicas: Sequence[DirReplica],
    *,
    broker: int | None = None,
    log_dir: str | None = None,
    topic: str | None = None,
) -> DirTotals:
    errors = [each.error if each.log_dir is None else f"{each.log_dir}: {each.error}" for each in dirs if each.error]
    if log_dir is not None:
        errors = [each.error for each in dirs if each.error]
    return DirTotals(
        broker,
        log_dir,
        topic,
        len(replicas),
        sum(replica.is_future for replica in replicas),
        sum(replica.size_bytes for replica in replicas),
        max((replica.size_bytes for replica in replicas), default=0),
        max((replica.offset_lag for replica in replicas if replica.offset_lag is not None), default=None),
        _sum_known(each.total_bytes for each in dirs),
        _sum_known(each.usable_bytes for each in dirs),
        "; ".join(errors) or None,
    )


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


DIR_FIGURES = (
    ("size_bytes", "size_bytes", "Bytes that the replicas take."),
    ("replica_count", "replicas", "How many replicas there are."),
    ("total_bytes", "total_bytes", "How large the volume is."),
    ("usable_bytes", "usable_bytes", "How much of the volume is free."),
)
"""What a log dir has, as metrics: attribute, end of the name, help."""
_LAG = ("offset_lag_max", "offset_lag_max", "How far the slowest replica is behind.")


def log_dir_metrics(totals: Sequence[DirTotals]) -> list[Metric]:
    """Return the totals as gauges, labelled by what they are about."""
    subjects = [
        {name: str(value) for name in ("broker", "log_dir", "topic") if (value := getattr(total, name)) is not None}
        for total in totals
    ]
    return metrics_of(zip(subjects, totals, strict=True), "klamm_log_dir_", (*DIR_FIGURES, _LAG))
