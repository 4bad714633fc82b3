"""Replicas, their logs and fetchers, and requests that wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from engine.broker.log.cleaner.stats import CleaningStats
from engine.broker.log.log import Log
from engine.broker.metrics.ledger import Ledger
from engine.broker.metrics.mbeans import MBean, MBeans, PrometheusPage, Tags, family_name, gauges, labels_text
from engine.broker.metrics.topics import TOPIC_METERS
from engine.broker.replication.partition import Partition
from engine.broker.server.figures.measured import MeasuredBroker
from engine.runtime.purgatory import Purgatory


class _Census:
    """What all replicas have together, counted in one pass."""

    def __init__(self, now_ms: int, transaction_max_timeout_ms: int) -> None:
        self._now_ms = now_ms
        self._longest_ms = transaction_max_timeout_ms
        self.partitions = self.logs = self.producers = self.copy_lag = 0
        self.led = self.at_min_isr = self.under_min_isr = self.under_replicated = self.reassigning = self.late = 0
        self.uncleanable: dict[Path, tuple[int, int]] = {}
        """Number and bytes of logs that cannot be cleaned, by log dir."""

    def count(self, partition: Partition, role: tuple[int, ...]) -> None:
        """Take in a replica and what ``_role`` says of it."""
        log = partition.log
        self.partitions += 1
        if log is not None:
            self.logs += 1
            self.producers += log.producer_count
            if log.cleaning.is_uncleanable:
                number, size_bytes = self.uncleanable.get(log.log_dir, (0, 0))
                self.uncleanable[log.log_dir] = number + 1, size_bytes + log.size_bytes
            if partition.future_log is not None:
                self.copy_lag = max(self.copy_lag, _copy_lag(partition))
        if partition.leader_log is not None:
            self.led += 1
            self.at_min_isr += role[0]
            self.under_min_isr += role[4]
            self.under_replicated += role[5]
            self.reassigning += partition.assignment.is_being_reassigned
            if partition.leader_log.producer_count:
                self.late += partition.leader_log.has_late_transaction(self._now_ms, self._longest_ms)


class ReplicaFigures:
    """Figures of replicas."""

    def __init__(self, server: MeasuredBroker, ledger: Ledger) -> None:
        self._server = server
        self._ledger = ledger
        self._census = _Census(0, 0)
        self._topic_labels: dict[str, str] = {}
        """How the labels of each topic begin, from one page to the next."""

    def replicas(self) -> MBeans:
        """Yield what all replicas have together."""
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
            (
                "ReplicaAlterLogDirsManager",
                "ReplicaAlterLogDirs",
                0,
                self._census.copy_lag,
                0,
            ),
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
            client = f"ReplicaFetcherThread-{fetcher.fetcher_id}-{leader.id}"
            tags = (("clientId", client), ("brokerHost", leader.host), ("brokerPort", str(leader.port)))
            for name, event, count in (
                ("BytesPerSec", "bytes", fetcher.fetched_bytes_total),
                ("RequestsPerSec", "requests", fetcher.requests_total),
            ):
                yield MBean(
                    "kafka.server", "FetcherStats", name, tags, self._ledger.meter(f"{client} {name}", event, count)
                )
            for topic_partition, lag in fetcher.lags():
                tags = (
                    ("clientId", client),
                    ("topic", topic_partition.topic),
                    ("partition", str(topic_partition.partition)),
                )
                yield MBean("kafka.server", "FetcherLagMetrics", "ConsumerLag", tags, {"Value": lag})
        # Kafka's appear with the first follower that fetches, and with the first throttled bytes.
        if manager.environment.topics.replication_bytes_out:
            rate = manager.leader_quota.rate_bytes()
            yield MBean("kafka.server", "LeaderReplication", None, (), {"byte-rate": rate})
        if manager.follower_quota.has_recorded:
            rate = manager.follower_quota.rate_bytes()
            yield MBean("kafka.server", "FollowerReplication", None, (), {"byte-rate": rate})

    def all_topics(self) -> MBeans:
        """Yield what all topics count together."""
        topics = self._server.replica_manager.environment.topics
        for name, attributes in topics.of_broker(self._ledger.now_s, self._ledger.ticks):
            yield MBean("kafka.server", "BrokerTopicMetrics", name, (), attributes)

    def topics(self) -> MBeans:
        """Yield what each topic counts."""
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
        topics = sum(len(counts) for _, counts in self._server.replica_manager.environment.topics.counted())
        return census.partitions * len(_OF_PARTITION) + census.logs * len(_OF_LOG) + topics

    def look(self) -> Iterator[None]:
        """Take the census anew, for those MBeans that are about all replicas; yields after each."""
        census = _Census(self._server.clock.now_ms(), self._server.config.transaction_max_timeout_ms)
        for partition in list(self._server.replica_manager.partitions.values()):
            census.count(partition, _role(partition))
            yield
        self._census = census

    def partitions(self) -> MBeans:
        """Yield each replica."""
        for partition in list(self._server.replica_manager.partitions.values()):
            topic, index = partition.topic_partition
            tags: Tags = (("topic", topic), ("partition", str(index)))
            values = dict(zip(_OF_PARTITION, _role(partition), strict=True))
            yield from gauges("kafka.cluster", "Partition", values, tags)
            if partition.log is not None:
                values = dict(zip(_OF_LOG, _of_log(partition.log), strict=True))
                yield from gauges("kafka.log", "Log", values, tags)

    def add_partitions(self, page: PrometheusPage) -> Iterator[None]:
        """Add the same to a page as plain numbers, without an MBean for each of a hundred thousand, and take the census
        anew; yields after every few replicas.
        """
        census = _Census(self._server.clock.now_ms(), self._server.config.transaction_max_timeout_ms)
        known, topic_labels = self._topic_labels, dict[str, str]()
        labels, numbers = list[str](), list[int]()
        log_labels, log_numbers = list[str](), list[int]()
        for number, partition in enumerate(list(self._server.replica_manager.partitions.values())):
            topic, index = partition.topic_partition
            begin = topic_labels.get(topic)
            if begin is None:
                begin = topic_labels[topic] = known.get(topic) or labels_text((("topic", topic),))[:-1]
            text = f'{begin},partition="{index}"}} '
            role = _role(partition)
            census.count(partition, role)
            labels.append(text)
            numbers += role
            if partition.log is not None:
                log_labels.append(text)
                log_numbers += _of_log(partition.log)
            if number % _STEP == 0:
                yield
        page.add_numbers(_families("kafka.cluster", "Partition", _OF_PARTITION), labels, numbers)
        page.add_numbers(_families("kafka.log", "Log", _OF_LOG), log_labels, log_numbers)
        self._census, self._topic_labels = census, topic_labels

    def add_topics(self, page: PrometheusPage) -> Iterator[None]:
        """Add the counters of topics to a page in the same manner."""
        columns: dict[str, tuple[list[str], list[int]]] = {name: ([], []) for name, _ in TOPIC_METERS.values()}
        for number, (topic, counts) in enumerate(self._server.replica_manager.environment.topics.counted()):
            text = f"{self._topic_labels.get(topic) or labels_text((('topic', topic),))[:-1]}}} "
            for name, count in counts:
                labels, numbers = columns[name]
                labels.append(text)
                numbers.append(count)
            if number % _STEP == 0:
                yield
        for name, (labels, numbers) in columns.items():
            if labels:
                counter = f"{name.removesuffix('PerSec')}_total"
                families = _families("kafka.server", "BrokerTopicMetrics", [counter])
                page.add_numbers(families, labels, numbers, is_counter=True)


_STEP: Final = 64
"""After so many replicas or topics it is worth a look at the clock."""

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
_OF_LOG: Final = ("LogEndOffset", "LogStartOffset", "NumLogSegments", "Size")


def _families(domain: str, type_: str, names: Iterable[str]) -> list[str]:
    """Return the names of families."""
    return [family_name(f"{domain}_{type_}_{name}") for name in names]


def _role(partition: Partition) -> tuple[int, int, int, int, int, int]:
    """Return the values of ``_OF_PARTITION``: of its leadership only what its leader knows, as in Kafka."""
    led, log = partition.leader_log, partition.log
    lag = 0 if log is None else log.high_watermark - log.last_stable_offset
    if led is None:
        return 0, 0, lag, 0, 0, 0
    assignment, isr = partition.assignment, len(partition.isr)
    replicas = len(assignment.replicas)
    min_isr = min(led.config.min_insync_replicas, len(partition.followers) + 1)
    # Those that a reassignment adds may be out of sync.
    is_short = replicas - len(assignment.adding_replicas) > isr
    return int(isr == min_isr), isr, lag, replicas, int(isr < min_isr), int(is_short)


def _of_log(log: Log) -> tuple[int, int, int, int]:
    """Return the values of ``_OF_LOG``."""
    return log.log_end_offset, log.log_start_offset, log.segment_count, log.size_bytes


def _copy_lag(partition: Partition) -> int:
    """Return how many records a copy in another log dir is behind."""
    log, copy = partition.log, partition.future_log
    return 0 if log is None or copy is None else max(0, log.log_end_offset - copy.log_end_offset)


def _recopied_percent(stats: list[CleaningStats]) -> int:
    read, written = sum(s.bytes_read for s in stats), sum(s.bytes_written for s in stats)
    return int(100 * written / read) if read else 0
