"""Replicas, their logs and fetchers, and requests that wait for them."""

from __future__ import annotations

from collections.abc import Iterator
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


class ReplicaFigures:
    """Figures of replicas."""

    def __init__(self, server: MeasuredBroker, ledger: Ledger) -> None:
        self._server = server
        self._ledger = ledger

    def replicas(self) -> MBeans:
        """Yield what all replicas have together."""
        manager = self._server.replica_manager
        led = list(manager.led_partitions())
        isr = manager.environment.statistics
        log_manager = self._server.log_manager
        yield from gauges("kafka.server", "ReplicaManager", {
            "AtMinIsrPartitionCount": sum(_is_at_min_isr(p) for p in led),
            "LeaderCount": len(led),
            "OfflineReplicaCount": manager.offline_count,
            "PartitionCount": len(manager.partitions),
            "PartitionsWithLateTransactionsCount": self._late_transactions(),
            "ProducerIdCount": sum(log.producer_count for log in log_manager.logs.values()),
            "ReassigningPartitions": sum(p.assignment.is_being_reassigned for p in led),
            "UnderMinIsrPartitionCount": sum(p.is_under_min_isr for p in led),
            "UnderReplicatedPartitions": sum(_is_under_replicated(p) for p in led),
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

    def _late_transactions(self) -> int:
        """Return how many partitions led here have a transaction that should have ended long ago."""
        now_ms, longest_ms = self._server.clock.now_ms(), self._server.config.transaction_max_timeout_ms
        logs = (partition.leader_log for partition in self._server.replica_manager.led_partitions())
        return sum(log is not None and log.has_late_transaction(now_ms, longest_ms) for log in logs)

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
                max(map(_copy_lag, manager.partitions.values()), default=0),
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
        uncleanable: dict[Path, list[int]] = {path: [0, 0] for path in [*manager.live_dirs, *manager.offline_dirs]}
        for log in manager.logs.values():
            if log.cleaning.is_uncleanable and log.log_dir in uncleanable:
                uncleanable[log.log_dir][0] += 1
                uncleanable[log.log_dir][1] += log.size_bytes
        offline = set(manager.offline_dirs)
        for path, (partitions, size_bytes) in uncleanable.items():
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
        partitions = self._server.replica_manager.partitions.values()
        logs = sum(partition.log is not None for partition in partitions)
        topics = sum(len(counts) for _, counts in self._server.replica_manager.environment.topics.counted())
        return len(partitions) * len(_OF_PARTITION) + logs * len(_OF_LOG) + topics

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
        """Add the same to a page, without an MBean for each of a hundred thousand numbers; yields now and then."""
        of_partition = [_family(page, "kafka.cluster", "Partition", name) for name in _OF_PARTITION]
        of_log = [_family(page, "kafka.log", "Log", name) for name in _OF_LOG]
        labels_of: dict[str, str] = {}
        for partition in list(self._server.replica_manager.partitions.values()):
            topic, index = partition.topic_partition
            labels = labels_of.get(topic)
            if labels is None:
                labels = labels_of[topic] = labels_text((("topic", topic),))[:-1]
            labels = f'{labels},partition="{index}"}}'
            for (family, lines), value in zip(of_partition, _role(partition), strict=True):
                lines.append(f"{family}{labels} {value}.0\n")
            if partition.log is not None:
                for (family, lines), value in zip(of_log, _of_log(partition.log), strict=True):
                    lines.append(f"{family}{labels} {value}.0\n")
            yield

    def add_topics(self, page: PrometheusPage) -> Iterator[None]:
        """Add the counters of topics to a page in the same manner."""
        topics = self._server.replica_manager.environment.topics
        families = {
            name: _family(
                page, "kafka.server", "BrokerTopicMetrics", name.removesuffix("PerSec") + "_total", is_counter=True
            )
            for name, _ in TOPIC_METERS.values()
        }
        for topic, counts in topics.counted():
            labels = labels_text((("topic", topic),))
            for name, count in counts:
                family, lines = families[name]
                lines.append(f"{family}{labels} {count}.0\n")
            yield


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


def _family(
    page: PrometheusPage, domain: str, type_: str, name: str, *, is_counter: bool = False
) -> tuple[str, list[str]]:
    """Return a family's name, and its lines to add to."""
    family = family_name(f"{domain}_{type_}_{name}")
    return family, page.lines_of(family, is_counter=is_counter)


def _role(partition: Partition) -> tuple[int, int, int, int, int, int]:
    """Return the values of ``_OF_PARTITION``: of its leadership only what its leader knows, as in Kafka."""
    led, log = partition.leader_log, partition.log
    lag = 0 if log is None else log.high_watermark - log.last_stable_offset
    if led is None:
        return 0, 0, lag, 0, 0, 0
    replicas, isr = partition.assignment, len(partition.isr)
    return (
        int(_is_at_min_isr(partition)),
        isr,
        lag,
        len(replicas.replicas),
        int(partition.is_under_min_isr),
        int(len(replicas.replicas) - len(replicas.adding_replicas) > isr),
    )


def _of_log(log: Log) -> tuple[int, int, int, int]:
    """Return the values of ``_OF_LOG``."""
    return log.log_end_offset, log.log_start_offset, log.segment_count, log.size_bytes


def _is_under_replicated(partition: Partition) -> bool:
    """Whether this broker leads it and a replica, other than those that a reassignment adds, is not in sync."""
    if not partition.is_leader:
        return False
    assignment = partition.assignment
    return len(assignment.replicas) - len(assignment.adding_replicas) > len(partition.isr)


def _is_at_min_isr(partition: Partition) -> bool:
    log = partition.leader_log
    return log is not None and len(partition.isr) == min(log.config.min_insync_replicas, len(partition.followers) + 1)


def _copy_lag(partition: Partition) -> int:
    """Return how many records a copy in another log dir is behind."""
    log, copy = partition.log, partition.future_log
    return 0 if log is None or copy is None else max(0, log.log_end_offset - copy.log_end_offset)


def _recopied_percent(stats: list[CleaningStats]) -> int:
    read, written = sum(s.bytes_read for s in stats), sum(s.bytes_written for s in stats)
    return int(100 * written / read) if read else 0
