"""Replicas, their logs and fetchers, and requests that wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from engine.broker.log.cleaner.stats import CleaningStats
from engine.broker.log.log import Log
from engine.broker.metrics.mbean import MBean, MBeans, Tags, gauges
from engine.broker.metrics.measures import Ledger
from engine.broker.metrics.prometheus import PrometheusPage, WrittenPieces, family_name, labels_text
from engine.broker.metrics.topics import TOPIC_METERS
from engine.broker.replication.fetcher import ReplicaFetcher
from engine.broker.replication.partition import Partition
from engine.broker.server.figures.measured import MeasuredBroker
from engine.common.model import TopicPartition
from engine.runtime.purgatory import Purgatory


class _Census:
    """Totals over all replicas."""

    def __init__(self) -> None:
        self.partitions = self.logs = self.producers = self.copy_lag = 0
        self.led = self.at_min_isr = self.under_min_isr = self.under_replicated = self.reassigning = self.late = 0
        self.topic_meters = self.lags = 0
        self.uncleanable: dict[Path, tuple[int, int]] = {}
        """Number and bytes of logs that cannot be cleaned, by log dir."""

    def take_uncleanable(self, log: Log) -> None:
        number, size_bytes = self.uncleanable.get(log.log_dir, (0, 0))
        self.uncleanable[log.log_dir] = number + 1, size_bytes + log.size_bytes

    def add_up(self, roles: list[int], logs: list[int]) -> None:
        """Add up what ``_role`` returns for all replicas, and the figures of all logs."""
        at_min_isr, _, _, replicas, under_min_isr, under_replicated = (
            roles[position :: len(_OF_PARTITION)] for position in range(len(_OF_PARTITION))
        )
        self.partitions, self.led = len(replicas), len(replicas) - replicas.count(0)
        self.at_min_isr, self.under_min_isr = sum(at_min_isr), sum(under_min_isr)
        self.under_replicated = sum(under_replicated)
        producers = logs[_OF_LOG.index(None) :: len(_OF_LOG)]
        self.logs, self.producers = len(producers), sum(producers)


class ReplicaFigures:
    def __init__(self, server: MeasuredBroker, ledger: Ledger) -> None:
        self._server = server
        self._ledger = ledger
        self._census = _Census()
        self._labelled: list[TopicPartition] = []
        self._labels: list[str] = []
        """Those of each replica in ``_labelled``, from one page to the next: to make them costs as much as the rest."""
        self._written: WrittenPieces = {}
        """What pages made of these labels."""
        self._topic_labels: dict[str, str] = {}
        """How those of each topic begin."""

    def replicas(self) -> MBeans:
        """Yield the totals of all replicas."""
        manager = self._server.replica_manager
        isr, census = manager.environment.statistics, self._census
        yield from gauges("kafka.server", "ReplicaManager", {
            "AtMinIsrPartitionCount": census.at_min_isr,
            "LeaderCount": census.led,
            "OfflineReplicaCount": manager.offline_count,
            "PartitionCount": len(manager.partitions),
            "PartitionsWithLateTransactionsCount": census.late,
            "ProducerIdCount": census.producers,
            "ReassigningPartitions": census.reassigning,
            "UnderMinIsrPartitionCount": census.under_min_isr,
            "UnderReplicatedPartitions": census.under_replicated,
        })  # fmt: skip
        for name, event, count in (
            ("FailedIsrUpdatesPerSec", "failedUpdates", isr.failed_updates_total),
            ("IsrExpandsPerSec", "expands", isr.expands_total),
            ("IsrShrinksPerSec", "shrinks", isr.shrinks_total),
        ):
            yield MBean("kafka.server", "ReplicaManager", name, (), self._ledger.meter(name, event, count))
        purgatories = {
            p.name: p for p in (manager.delayed_produce, manager.delayed_fetch, manager.delayed_delete_records)
        }
        waiting = self._server.group_coordinator.waiting()
        waiting["topic"] = self._server.topic_admin.waiting
        waiting["ElectLeader"] = len(self._server.topic_admin.elections)
        for name in _PURGATORIES:
            purgatory = purgatories.get(name)
            number = waiting.get(name, 0) if purgatory is None else len(purgatory)
            watched = number if purgatory is None else purgatory.watched
            tags: Tags = (("delayedOperation", name),)
            values = {"NumDelayedOperations": number, "PurgatorySize": watched}
            yield from gauges("kafka.server", "DelayedOperationPurgatory", values, tags)
        yield from self._expirations(manager.delayed_fetch, manager.delayed_produce)
        sessions = self._server.fetch_sessions
        yield from gauges("kafka.server", "FetchSessionCache", {
            "NumIncrementalFetchPartitionsCached": sessions.partitions_total,
            "NumIncrementalFetchSessions": len(sessions),
        })  # fmt: skip
        evictions = self._ledger.meter("evictions", "evictions", sessions.evictions_total)
        yield MBean("kafka.server", "FetchSessionCache", "IncrementalFetchSessionEvictionsPerSec", (), evictions)

    def _expirations(self, fetches: Purgatory[object], produces: Purgatory[object]) -> MBeans:
        followers = self._server.fetch_sessions.follower_expirations_total
        for kind, count in (("consumer", fetches.expired_total - followers), ("follower", followers)):
            attributes = self._ledger.meter(f"expired fetches {kind}", "requests", count)
            yield MBean("kafka.server", "DelayedFetchMetrics", "ExpiresPerSec", (("fetcherType", kind),), attributes)
        if produces.expired_total:
            attributes = self._ledger.meter("expired produces", "requests", produces.expired_total)
            yield MBean("kafka.server", "DelayedProducerRequestMetrics", "ExpiresPerSec", (), attributes)

    def fetchers(self) -> MBeans:
        """Yield the fetchers, and how far behind they are."""
        manager = self._server.replica_manager
        fetchers = manager.fetchers
        for type_, client, failed, lag, count in (
            ("ReplicaFetcherManager", "Replica", len(fetchers.failed), fetchers.max_lag(), len(fetchers.fetchers)),
            ("ReplicaAlterLogDirsManager", "ReplicaAlterLogDirs", 0, self._census.copy_lag, 0),
        ):
            tags: Tags = (("clientId", client),)
            values = {"DeadThreadCount": 0, "FailedPartitionsCount": failed, "MaxLag": lag, "MinFetchRate": 0.0}
            if count:
                values["MinFetchRate"] = min(
                    self._ledger.rate(f"fetches {id(each)}", self._ledger.now_s, each.requests_total)
                    for each in fetchers.fetchers
                )
            yield from gauges("kafka.server", type_, values, tags)
        for fetcher in fetchers.fetchers:
            leader = fetcher.leader.node
            client = _client_id(fetcher)
            tags = (("clientId", client), ("brokerHost", leader.host), ("brokerPort", str(leader.port)))
            for name, event, count in (
                ("BytesPerSec", "bytes", fetcher.fetched_bytes_total),
                ("RequestsPerSec", "requests", fetcher.requests_total),
            ):
                yield MBean(
                    "kafka.server", "FetcherStats", name, tags, self._ledger.meter(f"{client} {name}", event, count)
                )
        # Kafka's appear with the first follower that fetches, and with the first throttled bytes.
        if manager.environment.topics.replication_bytes_out:
            rate = manager.leader_quota.rate_bytes()
            yield MBean("kafka.server", "LeaderReplication", None, (), {"byte-rate": rate})
        if manager.follower_quota.has_recorded:
            rate = manager.follower_quota.rate_bytes()
            yield MBean("kafka.server", "FollowerReplication", None, (), {"byte-rate": rate})

    def all_topics(self) -> MBeans:
        """Yield the totals of all topics."""
        topics = self._server.replica_manager.environment.topics
        for name, attributes in topics.of_broker(self._ledger.now_s, self._ledger.ticks):
            yield MBean("kafka.server", "BrokerTopicMetrics", name, (), attributes)

    def topics(self) -> MBeans:
        """Yield the counts of each topic."""
        topics = self._server.replica_manager.environment.topics
        for name, topic, attributes in topics.of_topics(self._ledger.now_s, self._ledger.ticks):
            yield MBean("kafka.server", "BrokerTopicMetrics", name, (("topic", topic),), attributes)

    def logs(self) -> MBeans:
        """Yield log dirs, flushes and cleanings."""
        manager = self._server.log_manager
        yield from gauges("kafka.log", "LogManager", {"OfflineLogDirectoryCount": len(manager.offline_dirs)})
        offline = set(manager.offline_dirs)
        for path in [*manager.live_dirs, *manager.offline_dirs]:
            partitions, size_bytes = self._census.uncleanable.get(path, (0, 0))
            tags: Tags = (("logDirectory", str(path)),)
            yield MBean("kafka.log", "LogManager", "LogDirectoryOffline", tags, {"Value": int(path in offline)})
            values = {"uncleanable-bytes": size_bytes, "uncleanable-partitions-count": partitions}
            yield from gauges("kafka.log", "LogCleanerManager", values, tags)
        flushes = self._server.replica_manager.flush_times
        yield MBean(
            "kafka.log",
            "LogFlushStats",
            "LogFlushRateAndTimeMs",
            (),
            flushes.attributes(self._ledger.now_s, self._ledger.ticks),
        )
        cleaner = self._server.log_cleaner
        stats = list(cleaner.last_stats.values())
        yield from gauges("kafka.log", "LogCleaner", {
            "DeadThreadCount": 0,
            "cleaner-recopy-percent": _recopied_percent(stats),
            "max-buffer-utilization-percent": int(100 * max((s.map_utilization for s in stats), default=0)),
            "max-clean-time-secs": int(max((s.elapsed_s for s in stats), default=0)),
            "max-compaction-delay-secs": cleaner.max_compaction_delay_ms // 1000,
        })  # fmt: skip
        yield from gauges("kafka.log", "LogCleanerManager", {
            "max-dirty-percent": cleaner.max_dirty_percent,
            "time-since-last-run-ms": cleaner.since_last_run_ms,
        })  # fmt: skip
        io = self._ledger.meter("cleaner-io", "bytes", cleaner.bytes_total)
        yield MBean("kafka.utils", "Throttler", "cleaner-io", (), io)

    @property
    def of_singles(self) -> int:
        """How many MBeans are of single topics and partitions."""
        census = self._census
        return (
            census.partitions * len(_OF_PARTITION)
            + census.logs * (len(_OF_LOG) - 1)
            + census.topic_meters
            + census.lags
        )

    def look(self, page: PrometheusPage) -> Iterator[None]:
        """Read all replicas and topics, for those MBeans that are about all of them; yields after every few.

        They are added to ``page`` as plain numbers, without an MBean for each of a hundred thousand.
        """
        census = _Census()
        yield from self._look_at_replicas(census, page)
        yield from self._look_at_topics(census, page)
        yield from self._look_at_lags(census, page)
        self._census = census

    def _look_at_replicas(self, census: _Census, page: PrometheusPage) -> Iterator[None]:
        now_ms, longest_ms = self._server.clock.now_ms(), self._server.config.transaction_max_timeout_ms
        replicas = dict(self._server.replica_manager.partitions)
        yield from self._label(replicas)
        labels = self._labels
        log_labels, numbers, log_numbers = list[str](), list[int](), list[int]()
        for number, partition in enumerate(replicas.values()):
            if number % _STEP == 0:
                yield
            numbers += _role(partition)
            log, is_led = partition.log, partition.leader_log is not None
            if log is not None:
                log_labels.append(labels[number])
                log_numbers += log.figures
                if log.cleaning.is_uncleanable:
                    census.take_uncleanable(log)
                if log.first_unstable_offset is not None and is_led:
                    census.late += log.has_late_transaction(now_ms, longest_ms)
                if partition.future_log is not None:
                    census.copy_lag = max(census.copy_lag, _copy_lag(partition))
            assignment = partition.assignment
            if is_led and (assignment.adding_replicas or assignment.removing_replicas):
                census.reassigning += 1
        census.add_up(numbers, log_numbers)
        page.add_numbers(_families("kafka.cluster", "Partition", _OF_PARTITION), labels, numbers, written=self._written)
        written = self._written if census.logs == census.partitions else None
        page.add_numbers(_families("kafka.log", "Log", _OF_LOG), log_labels, log_numbers, written=written)

    def _label(self, replicas: Iterable[TopicPartition]) -> Iterator[None]:
        """Make the labels of all replicas and topics, unless they are those of the last page."""
        if (names := list(replicas)) == self._labelled:
            return
        topic_labels, labels = dict[str, str](), list[str]()
        for number, (topic, partition) in enumerate(names):
            if number % _STEP == 0:
                yield
            begin = topic_labels.get(topic)
            if begin is None:
                begin = topic_labels[topic] = labels_text((("topic", topic),))[:-1]
            labels.append(f'{begin},partition="{partition}"}} ')
        self._labelled, self._labels, self._topic_labels, self._written = names, labels, topic_labels, {}

    def _look_at_topics(self, census: _Census, page: PrometheusPage) -> Iterator[None]:
        columns: dict[str, tuple[list[str], list[int]]] = {name: ([], []) for name, _ in TOPIC_METERS.values()}
        for number, (topic, counts) in enumerate(self._server.replica_manager.environment.topics.counted()):
            if number % _STEP == 0:
                yield
            text = f"{self._topic_labels.get(topic) or labels_text((('topic', topic),))[:-1]}}} "
            for name, count in counts:
                labels, numbers = columns[name]
                labels.append(text)
                numbers.append(count)
        for name, (labels, numbers) in columns.items():
            census.topic_meters += len(labels)
            families = _families("kafka.server", "BrokerTopicMetrics", [f"{name.removesuffix('PerSec')}_total"])
            page.add_numbers(families, labels, numbers, is_counter=True)

    def _look_at_lags(self, census: _Census, page: PrometheusPage) -> Iterator[None]:
        """Read how far behind each replica is that this broker fetches."""
        labels, numbers = list[str](), list[int]()
        for fetcher in list(self._server.replica_manager.fetchers.fetchers):
            client = labels_text((("clientId", _client_id(fetcher)),))[:-1]
            for number, ((topic, partition), lag) in enumerate(list(fetcher.lags())):
                if number % _STEP == 0:
                    yield
                begin = self._topic_labels.get(topic) or labels_text((("topic", topic),))[:-1]
                labels.append(f'{client},{begin[1:]},partition="{partition}"}} ')
                numbers.append(lag)
        census.lags = len(labels)
        page.add_numbers(_families("kafka.server", "FetcherLagMetrics", ["ConsumerLag"]), labels, numbers)

    def partitions(self) -> MBeans:
        """Yield each replica, and how far behind it is if this broker fetches it."""
        for partition in list(self._server.replica_manager.partitions.values()):
            topic, index = partition.topic_partition
            tags: Tags = (("topic", topic), ("partition", str(index)))
            values = dict(zip(_OF_PARTITION, _role(partition), strict=True))
            yield from gauges("kafka.cluster", "Partition", values, tags)
            if partition.log is not None:
                for name, value in zip(_OF_LOG, partition.log.figures, strict=True):
                    if name is not None:
                        yield MBean("kafka.log", "Log", name, tags, {"Value": value})
        for fetcher in list(self._server.replica_manager.fetchers.fetchers):
            client = ("clientId", _client_id(fetcher))
            for (topic, index), lag in list(fetcher.lags()):
                tags = (client, ("topic", topic), ("partition", str(index)))
                yield MBean("kafka.server", "FetcherLagMetrics", "ConsumerLag", tags, {"Value": lag})


_STEP: Final = 64
"""After this many replicas or topics it is worth a look at the clock."""

_PURGATORIES: Final = (
    "AlterAcls", "DeleteRecords", "ElectLeader", "Fetch", "Heartbeat", "Produce", "Rebalance", "RemoteFetch", "topic",
)  # fmt: skip


_OF_PARTITION: Final = (
    "AtMinIsr",
    "InSyncReplicasCount",
    "LastStableOffsetLag",
    "ReplicasCount",
    "UnderMinIsr",
    "UnderReplicated",
)
_OF_LOG: Final = ("LogEndOffset", "LogStartOffset", "NumLogSegments", "Size", None)
"""The names of ``Log.figures``. The producers of single logs are not shown."""


def _families(domain: str, type_: str, names: Iterable[str | None]) -> list[str | None]:
    return [None if name is None else family_name(f"{domain}_{type_}_{name}") for name in names]


def _client_id(fetcher: ReplicaFetcher) -> str:
    """Return the name of Kafka's thread for a fetcher."""
    return f"ReplicaFetcherThread-{fetcher.fetcher_id}-{fetcher.leader.node.id}"


def _role(partition: Partition) -> tuple[int, int, int, int, int, int]:
    """Return the values of ``_OF_PARTITION``: of its leadership only what its leader knows, as in Kafka."""
    led, log = partition.leader_log, partition.log
    lag = 0
    if log is not None and log.first_unstable_offset is not None:
        lag = log.high_watermark - log.last_stable_offset
    if led is None:
        return 0, 0, lag, 0, 0, 0
    assignment, isr = partition.assignment, len(partition.isr_state.committed)
    replicas = len(assignment.replicas)
    min_isr, all_replicas = led.config.min_insync_replicas, len(partition.followers) + 1
    if min_isr > all_replicas:
        min_isr = all_replicas
    # Those that a reassignment adds may be out of sync.
    is_short = replicas - len(assignment.adding_replicas) > isr
    return 1 if isr == min_isr else 0, isr, lag, replicas, 1 if isr < min_isr else 0, 1 if is_short else 0


def _copy_lag(partition: Partition) -> int:
    """Return how many records a copy in another log dir is behind."""
    log, copy = partition.log, partition.future_log
    return 0 if log is None or copy is None else max(0, log.log_end_offset - copy.log_end_offset)


def _recopied_percent(stats: list[CleaningStats]) -> int:
    read, written = sum(s.bytes_read for s in stats), sum(s.bytes_written for s in stats)
    return int(100 * written / read) if read else 0
