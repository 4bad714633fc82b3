"""A frame as metrics, for ``klamm exporter``. Pure.

What was not read lately is left out: an old figure would look like a new one. ``klamm_exporter_reading_age_seconds``
says how old each part is, and ``klamm_exporter_series_left_out`` how much the limit on series has cut off.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from engine.admin.analysis.tallies import Tallies, Tally
from engine.admin.brokers.load import load_of_brokers
from engine.admin.health.report import health_metrics
from engine.admin.lag.metrics import lag_metrics
from engine.admin.log_dirs.describing import DIR_FIGURES
from engine.admin.topics.selection import TopicSelection
from engine.admin.watch.frame import Frame, LinkState, Stage, WatchedGroup
from engine.admin.watch.packed_logs import ReplicaLogs
from engine.common.metric import Metric, metrics_of
from engine.common.model import TopicPartition
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot

STALE_MS = 60_000
STALE_INTERVALS = 3
"""A part is stale when it is this old and has missed this many readings."""

_Labels = Mapping[str, str]
_BROKERS = (
    ("replica_count", "replicas", "Replicas that are assigned to the broker."),
    ("leader_count", "leaders", "Partitions that it leads."),
    ("preferred_count", "preferred_leaders", "Partitions of which it is the preferred leader."),
    ("size_bytes", "size_bytes", "Bytes of its replicas."),
)
_NEW = "a reassignment's new ones do not count"
_TALLY = (
    ("partitions", "partitions", "Partitions."),
    ("leaderless", "leaderless", "Partitions without a live leader."),
    ("under_replicated", "under_replicated", f"Partitions with fewer replicas in sync than wanted; {_NEW}."),
    ("below_min", "below_min", "Partitions that refuse acks=all: fewer replicas in sync than min.insync.replicas."),
    ("at_min", "at_min", "Partitions that refuse acks=all once another replica falls out of sync."),
    ("moving", "moving", "Partitions that are being reassigned."),
)


@dataclass(frozen=True, slots=True)
class MetricsScope:
    """What to show.

    Attributes:
        topics: these; totals of the cluster and of brokers are always over all topics.
        groups: those whose whole name matches one of these; all if there are none.
        has_partitions: also a series for each partition.
        series_max: at most this many series of one metric.
    """

    topics: TopicSelection = field(default_factory=TopicSelection)
    groups: tuple[re.Pattern[str], ...] = ()
    has_partitions: bool = False
    series_max: int = 50_000


def trouble_of(frame: Frame) -> str:
    """Return why the cluster does not answer now; empty if it does."""
    used = [link for link in frame.links.values() if link.state is not LinkState.UNUSED]
    if any(link.state is LinkState.CONNECTED for link in used):
        return "" if frame.cluster is not None else "the cluster has not been read yet"
    return "; ".join(f"{link.address}: {link.cause or link.state.value}" for link in used) or "no address is known"


def read_at_ms(frame: Frame) -> int | None:
    """Return when the cluster's topics were last read, by the wall clock; None: never."""
    return frame.stage(Stage.METADATA).read_at_ms


class FrameMetrics:
    """Makes the metrics of one frame after the other; unchanged topics are not counted again."""

    def __init__(self, scope: MetricsScope) -> None:
        self._scope = scope
        self._tallies = Tallies()

    def of_frame(self, frame: Frame) -> list[Metric]:
        """Return all metrics, none with more series than the scope allows, and how many were left out."""
        is_up = not trouble_of(frame)
        up = Metric("klamm_cluster_up", "1 while the cluster answers.", [({}, float(is_up))])
        metrics = [up, *_readings(frame), _rights_missing(frame)]
        if is_up:
            metrics += self._of_cluster(frame)
        limit = self._scope.series_max
        left_out = [({"metric": metric.name}, float(len(metric.samples) - limit)) for metric in metrics]
        kept = [Metric(metric.name, metric.help, metric.samples[:limit], metric.type) for metric in metrics]
        cut = [(labels, max(0.0, count)) for labels, count in left_out if count > 0]
        text = "Series of a metric that are left out because there are too many."
        return [*kept, Metric("klamm_exporter_series_left_out", text, cut)]

    def _of_cluster(self, frame: Frame) -> Iterator[Metric]:
        if frame.health is not None:
            yield from health_metrics(frame.health)
        if _is_fresh(frame, Stage.METADATA):
            total = self._tallies.of_frame(frame)
            yield from _of_members(frame)
            yield from metrics_of([({}, total)], "klamm_cluster_", _TALLY)
            yield from self._of_topics(frame)
        if _is_fresh(frame, Stage.LOG_DIRS):
            dirs = [log_dir for log_dir in frame.log_dirs if log_dir.log_dir is not None and log_dir.error is None]
            rows = [({"broker": str(log_dir.broker), "log_dir": log_dir.log_dir or ""}, log_dir) for log_dir in dirs]
            yield from metrics_of(rows, "klamm_log_dir_", DIR_FIGURES)
            yield from _of_moves(frame)
        if _is_fresh(frame, Stage.GROUPS) or _is_fresh(frame, Stage.SPARK):
            yield from self._of_groups(frame)
        if _is_fresh(frame, Stage.PROBES):
            yield from _of_transactions(frame)
        if frame.zookeeper_ms is not None:
            text = "How long ZooKeeper takes to answer a read."
            yield Metric("klamm_zookeeper_seconds", text, [({}, frame.zookeeper_ms / 1000)])

    # Topics

    def _of_topics(self, frame: Frame) -> Iterator[Metric]:
        assert frame.cluster is not None
        chosen = set(self._scope.topics.choose(topic.name for topic in frame.cluster.topics))
        topics = [topic for topic in frame.cluster.topics if topic.name in chosen]
        counts: list[tuple[_Labels, Tally]] = [
            ({"topic": topic.name}, self._tallies.of_topic(topic, frame.min_isr.get(topic.name))) for topic in topics
        ]
        partitions, *others = metrics_of(counts, "klamm_topic_", _TALLY)
        yield Metric("kafka_topic_partitions", partitions.help, partitions.samples)
        yield from others
        if _is_fresh(frame, Stage.OFFSETS):
            text = "Sum of the end offsets of a topic, once all are known: its rate is that of the records written."
            yield Metric("klamm_topic_end_offsets_total", text, list(_end_sums(frame, topics)), "counter")
        if _is_fresh(frame, Stage.LOG_DIRS):
            yield Metric("klamm_topic_size_bytes", "Bytes of all replicas of a topic.", list(_sizes(frame, topics)))
        if self._scope.has_partitions:
            yield from _of_partitions(frame, topics)

    # Groups

    def _of_groups(self, frame: Frame) -> Iterator[Metric]:
        groups = (
            [group for group in frame.groups if self._is_chosen(group.name)] if _is_fresh(frame, Stage.GROUPS) else []
        )
        lags = [group.lag for group in groups if group.has_lag]
        if _is_fresh(frame, Stage.SPARK):
            lags += [lag for query in frame.queries for lag in query.lags]
        lags.sort(key=lambda lag: (-lag.status.rank, -(lag.lag or 0), lag.group))
        yield from lag_metrics(lags, has_partitions=self._scope.has_partitions)
        yield Metric("kafka_consumergroup_members", "Members of a group.", list(_members(groups)))
        waiting = float(sum(not group.has_lag for group in groups))
        yield Metric("klamm_exporter_groups_waiting", "Groups whose lag has not been measured yet.", [({}, waiting)])

    def _is_chosen(self, group: str) -> bool:
        patterns = self._scope.groups
        return not patterns or any(pattern.fullmatch(group) for pattern in patterns)


def _is_fresh(frame: Frame, stage: Stage) -> bool:
    status = frame.stage(stage)
    if status.read_at_ms is None:
        return False
    allowed_ms = max(STALE_MS, STALE_INTERVALS * (status.interval_ms or 0))
    return frame.at_ms - status.read_at_ms <= allowed_ms


def _readings(frame: Frame) -> list[Metric]:
    """Return the age, the cost and the trouble of each part that can be read here."""
    parts = [(stage, status) for stage in Stage if (status := frame.stage(stage)).source is not None]
    ages = [
        ({"reading": stage.value}, max(0, frame.at_ms - status.read_at_ms) / 1000)
        for stage, status in parts
        if status.read_at_ms is not None
    ]
    costs = [({"reading": stage.value}, status.cost_ms / 1000) for stage, status in parts if status.cost_ms is not None]
    failed = [({"reading": stage.value}, float(bool(status.error))) for stage, status in parts]
    missing = [({"reading": stage.value}, float(len(status.missing))) for stage, status in parts]
    prefix = "klamm_exporter_reading_"
    return [
        Metric(f"{prefix}age_seconds", "How old a part is. What is too old is not exported.", ages),
        Metric(f"{prefix}cost_seconds", "How long the last good reading took.", costs),
        Metric(f"{prefix}failed", "1 if the last reading failed.", failed),
        Metric(f"{prefix}missing", "What the last reading lacks, such as brokers that do not answer.", missing),
    ]


def _rights_missing(frame: Frame) -> Metric:
    """Return the rights that the exporter lacked in the last minutes: no figure has what they would show."""
    counts = Counter((right.operation.word, right.resource_type.word) for right in frame.denied)
    samples = [({"operation": what, "resource": on}, float(count)) for (what, on), count in sorted(counts.items())]
    text = "On how many resources of a type the exporter lacks a right: all figures leave out what it would show."
    return Metric("klamm_exporter_rights_missing", text, samples)


def _of_members(frame: Frame) -> Iterator[Metric]:
    assert frame.cluster is not None
    cluster = frame.cluster
    yield Metric("kafka_brokers", "Live brokers.", [({}, float(len(cluster.brokers)))])
    yield Metric(
        "klamm_cluster_controller_id", "The broker that is the controller; -1: none.", [({}, cluster.controller_id)]
    )
    sizes: dict[int, int] = {}
    for log_dir in frame.log_dirs if _is_fresh(frame, Stage.LOG_DIRS) else ():
        if log_dir.error is None:
            sizes[log_dir.broker] = sizes.get(log_dir.broker, 0) + log_dir.size_bytes
    loads = load_of_brokers(cluster.brokers, cluster.topics, sizes)
    silent = {broker for broker, words in frame.words.items() if words.trouble}
    up = [
        ({"broker": str(load.broker), "rack": load.rack or ""}, float(load.alive and load.broker not in silent))
        for load in loads
    ]
    yield Metric("klamm_broker_up", "1 if a broker is registered and answers.", up)
    yield from metrics_of([({"broker": str(load.broker)}, load) for load in loads], "klamm_broker_", _BROKERS)


def _end_sums(frame: Frame, topics: Iterable[TopicSnapshot]) -> Iterator[tuple[_Labels, float]]:
    """Yield the sums of those whose ends are all known: without one, a counter would seem to go back."""
    for topic in topics:
        ends = [frame.offsets.get(TopicPartition(topic.name, p.partition)) for p in topic.partitions]
        known = [end.end for end in ends if end is not None]
        if known and len(known) == len(ends):
            yield {"topic": topic.name}, float(sum(known))


def _sizes(frame: Frame, topics: Iterable[TopicSnapshot]) -> Iterator[tuple[_Labels, float]]:
    logs = ReplicaLogs.of(frame.logs)
    for topic in topics:
        size = logs.topic_bytes(topic.name)
        if size is not None:
            yield {"topic": topic.name}, float(size)


def _of_partitions(frame: Frame, topics: Sequence[TopicSnapshot]) -> Iterator[Metric]:
    rows = [
        (
            {"topic": topic.name, "partition": str(partition.partition)},
            TopicPartition(topic.name, partition.partition),
            partition,
        )
        for topic in topics
        for partition in topic.partitions
    ]
    prefix = "kafka_topic_partition_"
    if _is_fresh(frame, Stage.OFFSETS):
        ends = [(labels, float(end.end)) for labels, name, _ in rows if (end := frame.offsets.get(name)) is not None]
        yield Metric(f"{prefix}current_offset", "End offset.", ends)
    figures = (
        ("leader", "The broker that leads it; -1: none.", lambda p: p.leader),
        ("leader_is_preferred", "1 if the preferred replica leads it.", lambda p: p.leader == p.preferred_leader),
        ("replicas", "Replicas.", lambda p: len(p.replicas)),
        ("in_sync_replica", "Replicas in sync.", lambda p: len(p.isr)),
        ("under_replicated_partition", "1 if replicas are out of sync.", lambda p: p.is_under_replicated),
    )  # fmt: skip
    for name, text, value in figures:
        yield Metric(f"{prefix}{name}", text, [(labels, float(value(partition))) for labels, _, partition in rows])


def _of_moves(frame: Frame) -> Iterator[Metric]:
    """Yield what new replicas still lack, by topic: what the largest replica has and they have not."""
    left: dict[str, int] = {}
    for topic in frame.cluster.topics if frame.cluster is not None else ():
        for partition in topic.partitions:
            if partition.assignment.is_being_reassigned:
                lacking = _lacking_bytes(frame, topic.name, partition)
                left[topic.name] = left.get(topic.name, 0) + lacking
    samples = [({"topic": topic}, float(count)) for topic, count in sorted(left.items())]
    yield Metric("klamm_reassignment_left_bytes", "Bytes that a topic's new replicas still have to copy.", samples)


def _lacking_bytes(frame: Frame, topic: str, partition: PartitionSnapshot) -> int:
    logs = frame.logs.get(TopicPartition(topic, partition.partition), ())
    sizes = {log.broker: log.size_bytes for log in logs if not log.is_future}
    largest = max(sizes.values(), default=0)
    new = [broker for broker in partition.assignment.adding_replicas if broker not in partition.isr]
    return sum(largest - sizes.get(broker, 0) for broker in new)


def _of_transactions(frame: Frame) -> Iterator[Metric]:
    hanging = sum(transaction.is_hanging for transaction in frame.holding)
    counts = [({"state": "hanging"}, float(hanging)), ({"state": "open"}, float(len(frame.holding) - hanging))]
    text = "Transactions that hold readers of committed records up: hanging ones forever, open ones for a while."
    yield Metric("klamm_transactions_holding", text, counts)
    held = max((transaction.held_ms for transaction in frame.holding if transaction.held_ms is not None), default=0)
    yield Metric("klamm_transactions_held_seconds_max", "How long the oldest of them holds.", [({}, held / 1000)])


def _members(groups: Iterable[WatchedGroup]) -> Iterator[tuple[_Labels, float]]:
    for group in groups:
        if group.members is not None:
            yield {"group": group.name}, float(len(group.members))
