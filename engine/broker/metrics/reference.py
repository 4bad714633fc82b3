"""Writes the page that lists every metric of a broker: ``python -m engine.broker.metrics.reference``.

A test compares the rows with what a running broker has, so none is missing and none is made up.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, NamedTuple

from engine.broker.metrics.mbean import MBean
from engine.broker.metrics.measures import Histogram, Meter, Timer
from engine.broker.metrics.prometheus import series_of
from engine.broker.metrics.topics import BROKER_METERS, TOPIC_METERS

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "broker-metrics.md"

_HEAD: Final = """\
# Metrics of a broker

<!-- Made by `python -m engine.broker.metrics.reference` (`make docs`); do not edit. -->

What a broker shows at [`klamm.metrics.listener`](broker-configs.md#klamms-own): at `/metrics` to Prometheus, at
`/jolokia` to whatever reads JMX by Jolokia's protocol. MBeans have Kafka's names and attributes, as
recorded from Kafka 3.9.1; the names for Prometheus are those that its JMX exporter gives with its usual rules for
Kafka. [Watch Kafka with Prometheus](../guides/watch-with-prometheus.md) shows how to use them.

A *gauge* has the attribute `Value`. A *meter* counts events: `Count`, `MeanRate`, and `OneMinuteRate`,
`FiveMinuteRate`, `FifteenMinuteRate` per second. A *histogram* has `Count`, `Mean`, `Min`, `Max`, `StdDev` and the
percentiles `50thPercentile` to `999thPercentile`, mostly of the last five minutes. A *timer* is both, in milliseconds.
*Windowed* figures have an attribute each; their rates are those of the last minute, or of what
`metrics.num.samples` and `metrics.sample.window.ms` say.
"""


class Row(NamedTuple):
    """MBeans of one type. ``names`` is empty for those without a name; ``tags`` are their further properties."""

    domain: str
    type: str
    names: tuple[str, ...]
    tags: tuple[str, ...]
    kind: str
    meaning: str


_USED: Final = {
    "Produce": "`byte-rate`",
    "Fetch": "`byte-rate`",
    "Request": "`request-time`, in percent of a core",
    "ControllerMutation": "`mutation-rate`, and `tokens` that are left",
}
"""What a quota's own figures are."""

_T, _P = ("topic",), ("topic", "partition")

ROWS: Final = (
    Row(
        "kafka.server",
        "BrokerTopicMetrics",
        tuple(sorted(n for n, _ in (*TOPIC_METERS.values(), *BROKER_METERS.values()))),
        (),
        "meter",
        "records and requests of all topics; as in Kafka a Fetch counts once for each partition of its session",
    ),
    Row(
        "kafka.server",
        "BrokerTopicMetrics",
        tuple(sorted(n for n, _ in TOPIC_METERS.values())),
        _T,
        "meter",
        "the same of one topic, once there is something to count; until the broker hosts nothing of it",
    ),
    Row(
        "kafka.server",
        "ReplicaManager",
        (
            "AtMinIsrPartitionCount",
            "LeaderCount",
            "OfflineReplicaCount",
            "PartitionCount",
            "PartitionsWithLateTransactionsCount",
            "ProducerIdCount",
            "ReassigningPartitions",
            "UnderMinIsrPartitionCount",
            "UnderReplicatedPartitions",
        ),
        (),
        "gauge",
        "replicas here, and partitions led here",
    ),
    Row(
        "kafka.server",
        "ReplicaManager",
        ("FailedIsrUpdatesPerSec", "IsrExpandsPerSec", "IsrShrinksPerSec"),
        (),
        "meter",
        "changes of ISRs that this broker, as leader, has asked for",
    ),
    Row(
        "kafka.cluster",
        "Partition",
        ("AtMinIsr", "InSyncReplicasCount", "LastStableOffsetLag", "ReplicasCount", "UnderMinIsr", "UnderReplicated"),
        _P,
        "gauge",
        "of each replica; 0 on followers where only the leader knows",
    ),
    Row(
        "kafka.log",
        "Log",
        ("LogEndOffset", "LogStartOffset", "NumLogSegments", "Size"),
        _P,
        "gauge",
        "of each replica's log; `Size` in bytes",
    ),
    Row("kafka.log", "LogManager", ("OfflineLogDirectoryCount",), (), "gauge", "log dirs that have failed"),
    Row(
        "kafka.log", "LogManager", ("LogDirectoryOffline",), ("logDirectory",), "gauge", "1 if this log dir has failed"
    ),
    Row(
        "kafka.log",
        "LogFlushStats",
        ("LogFlushRateAndTimeMs",),
        (),
        "timer",
        "flushes that a request or a cleaning waited for",
    ),
    Row(
        "kafka.log",
        "LogCleaner",
        (
            "DeadThreadCount",
            "cleaner-recopy-percent",
            "max-buffer-utilization-percent",
            "max-clean-time-secs",
            "max-compaction-delay-secs",
        ),
        (),
        "gauge",
        "of each thread's last cleaning; a cleaner that fails is started again, so none is dead",
    ),
    Row(
        "kafka.log",
        "LogCleanerManager",
        ("max-dirty-percent", "time-since-last-run-ms"),
        (),
        "gauge",
        "how much there is to clean, and since when nobody has looked",
    ),
    Row(
        "kafka.log",
        "LogCleanerManager",
        ("uncleanable-bytes", "uncleanable-partitions-count"),
        ("logDirectory",),
        "gauge",
        "logs that cannot be cleaned",
    ),
    Row("kafka.utils", "Throttler", ("cleaner-io",), (), "meter", "bytes that cleanings have read and written"),
    Row(
        "kafka.network",
        "RequestMetrics",
        (
            "LocalTimeMs",
            "RemoteTimeMs",
            "RequestBytes",
            "RequestQueueTimeMs",
            "ResponseQueueTimeMs",
            "ResponseSendTimeMs",
            "ThrottleTimeMs",
            "TotalTimeMs",
        ),
        ("request",),
        "histogram",
        "of each API; `Fetch` is both `FetchConsumer` and `FetchFollower`. Local is the time until the handler returns "
        "or waits, remote what it waited, throttle how long its connection was muted. Request queue is how long it "
        "waited for its connection's next turn: one loop does what Kafka's processors and handlers do, and gives turns "
        "to a connection that sends very many requests at once. Response queue and send are 0: an answer goes to the "
        "socket as soon as there is one, and nobody measures when a slow peer takes it. Of more than 128 requests a "
        "second some are timed, and stand for the others",
    ),
    Row(
        "kafka.network",
        "RequestMetrics",
        ("MessageConversionsTimeMs", "TemporaryMemoryBytes"),
        ("request",),
        "histogram",
        "how long it took to give records another format or codec, and the bytes of the new ones; 0 for requests whose "
        "records stayed as they were. Kafka's memory includes what it unpacks only to check it",
    ),
    Row("kafka.network", "RequestMetrics", ("RequestsPerSec",), ("request", "version"), "meter", "requests"),
    Row(
        "kafka.network",
        "RequestMetrics",
        ("DeprecatedRequestsPerSec",),
        ("request", "version", "clientSoftwareName", "clientSoftwareVersion"),
        "meter",
        "those in a version that Kafka 4.0 does not take, by the client's software (KIP-896). Software beyond the "
        "first hundred of each version, or that takes more than 200 letters to name, counts as `unknown`",
    ),
    Row(
        "kafka.network",
        "RequestMetrics",
        ("ErrorsPerSec",),
        ("request", "error"),
        "meter",
        "error codes in answers, `NONE` too",
    ),
    Row(
        "kafka.network",
        "SocketServer",
        (
            "ControlPlaneExpiredConnectionsKilledCount",
            "ControlPlaneNetworkProcessorAvgIdlePercent",
            "ExpiredConnectionsKilledCount",
            "MemoryPoolAvailable",
            "MemoryPoolUsed",
            "NetworkProcessorAvgIdlePercent",
        ),
        (),
        "gauge",
        "idle is the share of time in which the process used no CPU; the memory pool is what "
        "`queued.max.request.bytes` limits; there is no control plane with connections of its own",
    ),
    Row(
        "kafka.network",
        "Processor",
        ("IdlePercent",),
        ("networkProcessor",),
        "gauge",
        "the same; the loop is processor 0",
    ),
    Row(
        "kafka.network",
        "RequestChannel",
        ("RequestQueueSize", "ResponseQueueSize"),
        (),
        "gauge",
        "connections whose next request waits for its turn; connections whose peers do not read what is ready",
    ),
    Row("kafka.network", "RequestChannel", ("ResponseQueueSize",), ("processor",), "gauge", "the same"),
    Row(
        "kafka.network",
        "Acceptor",
        ("AcceptorBlockedPercent",),
        ("listener",),
        "meter",
        "nanoseconds in which a rate of connections kept new ones waiting; nothing else does",
    ),
    Row("kafka.server", "socket-server-metrics", (), (), "windowed", "connections accepted per second"),
    Row(
        "kafka.server",
        "socket-server-metrics",
        (),
        ("listener",),
        "windowed",
        "the same of one listener, and for how many milliseconds connections waited because of a connection rate",
    ),
    Row(
        "kafka.server",
        "socket-server-metrics",
        (),
        ("ip",),
        "windowed",
        "connections per second from an address with a limit, while it comes",
    ),
    Row(
        "kafka.server",
        "socket-server-metrics",
        (),
        ("listener", "networkProcessor"),
        "windowed",
        "bytes, requests, connections and logins of one listener. As in Kafka, `request-` is about what is sent: "
        "answers; `response-` about what is received. `io-` and `iotime-` are the CPU of the process, `io-wait` the "
        "rest; `select-` is 0: the event loop never says how often it waits, and to count would cost every request",
    ),
    Row(
        "kafka.server",
        "socket-server-metrics",
        (),
        ("clientSoftwareName", "clientSoftwareVersion", "listener", "networkProcessor"),
        "windowed",
        "connections by the client's software (KIP-511)",
    ),
    *(
        Row("kafka.server", type_, (), tags, "windowed", meaning)
        for type_, tags, meaning in (
            ("alter-partition-metrics", ("BrokerId",), "the connection on which ISR changes are asked for"),
            ("forwarding-metrics", ("BrokerId",), "0: with ZooKeeper nothing is forwarded to the controller"),
            ("controller-channel-metrics", ("broker-id",), "the controller's connection to a broker"),
            ("replica-fetcher-metrics", ("broker-id", "fetcher-id"), "a fetcher's connection to its leader"),
            ("AddPartitionsManager-channel-metrics", (), "connections on which transactions are verified"),
            ("txn-marker-channel-metrics", (), "connections that carry transaction markers"),
        )
    ),
    Row(
        "kafka.server",
        "FetcherStats",
        ("BytesPerSec", "RequestsPerSec"),
        ("clientId", "brokerHost", "brokerPort"),
        "meter",
        "of each fetcher",
    ),
    Row(
        "kafka.server",
        "FetcherLagMetrics",
        ("ConsumerLag",),
        ("clientId", *_P),
        "gauge",
        "records that a follower here is behind its leader's high watermark",
    ),
    *(
        Row(
            "kafka.server",
            type_,
            ("DeadThreadCount", "FailedPartitionsCount", "MaxLag", "MinFetchRate"),
            ("clientId",),
            "gauge",
            meaning,
        )
        for type_, meaning in (
            ("ReplicaFetcherManager", "all fetchers of this broker"),
            ("ReplicaAlterLogDirsManager", "copies between its log dirs"),
        )
    ),
    Row(
        "kafka.server",
        "LeaderReplication",
        (),
        (),
        "windowed",
        "bytes per second of throttled replicas that followers fetched, once a follower fetched anything",
    ),
    Row(
        "kafka.server",
        "FollowerReplication",
        (),
        (),
        "windowed",
        "bytes per second of throttled replicas that this broker fetched, once it did",
    ),
    Row(
        "kafka.server",
        "DelayedOperationPurgatory",
        ("NumDelayedOperations", "PurgatorySize"),
        ("delayedOperation",),
        "gauge",
        "operations that wait, and under how many keys: requests; members (`Heartbeat`) and groups (`Rebalance`) with "
        "deadlines; requests that wait for new metadata (`topic`, `ElectLeader`). 0: `AlterAcls`, which waits for no "
        "deadline, and `RemoteFetch`, since there is no tiered storage",
    ),
    Row(
        "kafka.server",
        "DelayedFetchMetrics",
        ("ExpiresPerSec",),
        ("fetcherType",),
        "meter",
        "Fetches that waited as long as they might",
    ),
    Row(
        "kafka.server",
        "DelayedProducerRequestMetrics",
        ("ExpiresPerSec",),
        (),
        "meter",
        "Produce requests that timed out, once one did",
    ),
    Row(
        "kafka.server",
        "FetchSessionCache",
        ("NumIncrementalFetchPartitionsCached", "NumIncrementalFetchSessions"),
        (),
        "gauge",
        "fetch sessions",
    ),
    Row(
        "kafka.server",
        "FetchSessionCache",
        ("IncrementalFetchSessionEvictionsPerSec",),
        (),
        "meter",
        "sessions that had to make room",
    ),
    Row(
        "kafka.server",
        "AddPartitionsToTxnManager",
        ("VerificationFailureRate",),
        (),
        "meter",
        "partitions that a transaction's coordinator did not know",
    ),
    Row(
        "kafka.server",
        "AddPartitionsToTxnManager",
        ("VerificationTimeMs",),
        (),
        "histogram",
        "how long the coordinator took to say",
    ),
    Row(
        "kafka.server",
        "KafkaRequestHandlerPool",
        ("RequestHandlerAvgIdlePercent",),
        (),
        "meter",
        "the share of time in which the process used no CPU; it may use one",
    ),
    *(
        Row("kafka.server", type_, (), tags, "windowed", meaning)
        for type_ in ("Produce", "Fetch", "Request", "ControllerMutation")
        for tags, meaning in (
            (
                (),
                "connections that are muted because of this quota; `exempt-request-time` is that of brokers' requests",
            ),
            (
                ("user", "client-id"),
                f"{_USED[type_]}, and `throttle-time`, the mean of the throttle times in milliseconds: of each who "
                "shares a quota, or would, while this broker has a quota of this kind; with `user`, `client-id` or "
                "both, as the quotas are. Forgotten after an hour of silence",
            ),
        )
    ),
    Row(
        "kafka.server",
        "KafkaServer",
        ("BrokerState", "ClusterId", "linux-disk-read-bytes", "linux-disk-write-bytes", "yammer-metrics-count"),
        (),
        "gauge",
        "`BrokerState`: 1 starting, 2 recovering, 3 running, 7 stopping",
    ),
    Row(
        "kafka.server", "MetadataLoader", ("CurrentControllerId",), (), "gauge", "the controller that this broker knows"
    ),
    Row("kafka.server", "app-info", (), (), "windowed", "klamm's version, and the start of the broker"),
    Row("kafka.server", "app-info", (), ("id",), "windowed", "the same"),
    Row("kafka.server", "kafka-metrics-count", (), (), "windowed", "rates that are kept"),
    Row(
        "kafka.server",
        "SessionExpireListener",
        ("SessionState",),
        (),
        "gauge",
        "the connection to ZooKeeper: `CONNECTED` or `CONNECTING`",
    ),
    Row(
        "kafka.server",
        "SessionExpireListener",
        (
            "ZooKeeperAuthFailuresPerSec",
            "ZooKeeperDisconnectsPerSec",
            "ZooKeeperExpiresPerSec",
            "ZooKeeperReadOnlyConnectsPerSec",
            "ZooKeeperSaslAuthenticationsPerSec",
            "ZooKeeperSyncConnectsPerSec",
        ),
        (),
        "meter",
        "events of the session",
    ),
    Row(
        "kafka.server",
        "ZooKeeperClientMetrics",
        ("ZooKeeperRequestLatencyMs",),
        (),
        "histogram",
        "how long ZooKeeper took to answer",
    ),
    Row(
        "kafka.controller",
        "KafkaController",
        (
            "ActiveBrokerCount",
            "ActiveControllerCount",
            "ControllerState",
            "FencedBrokerCount",
            "GlobalPartitionCount",
            "GlobalTopicCount",
            "OfflinePartitionsCount",
            "PreferredReplicaImbalanceCount",
            "ReplicasIneligibleToDeleteCount",
            "ReplicasToDeleteCount",
            "TopicsIneligibleToDeleteCount",
            "TopicsToDeleteCount",
            "ZkMigrationState",
        ),
        (),
        "gauge",
        "0 on brokers that are not the controller; `ZkMigrationState` is always 4, none",
    ),
    Row(
        "kafka.controller",
        "ControllerStats",
        tuple(
            f"{name}RateAndTimeMs"
            for name in (
                "AutoLeaderBalance",
                "ControlledShutdown",
                "ControllerChange",
                "ControllerShutdown",
                "IsrChange",
                "LeaderAndIsrResponseReceived",
                "LeaderElection",
                "ListPartitionReassignment",
                "LogDirChange",
                "ManualLeaderBalance",
                "PartitionReassignment",
                "TopicChange",
                "TopicDeletion",
                "TopicUncleanLeaderElectionEnable",
                "UncleanLeaderElectionEnable",
                "UpdateFeatures",
            )
        ),
        (),
        "timer",
        "events that this broker processed as controller",
    ),
    Row(
        "kafka.controller",
        "ControllerStats",
        ("UncleanLeaderElectionsPerSec",),
        (),
        "meter",
        "elections that lost records",
    ),
    Row("kafka.controller", "ControllerEventManager", ("EventQueueSize",), (), "gauge", "events that wait"),
    Row("kafka.controller", "ControllerEventManager", ("EventQueueTimeMs",), (), "histogram", "how long they waited"),
    Row(
        "kafka.controller",
        "ControllerChannelManager",
        ("TotalQueueSize",),
        (),
        "gauge",
        "requests to brokers that wait",
    ),
    Row("kafka.controller", "ControllerChannelManager", ("QueueSize",), ("broker-id",), "gauge", "those to one broker"),
    Row(
        "kafka.controller",
        "ControllerChannelManager",
        ("RequestRateAndQueueTimeMs",),
        ("broker-id",),
        "timer",
        "until a broker had answered",
    ),
    Row(
        "kafka.coordinator.group",
        "GroupMetadataManager",
        (
            "NumGroups",
            "NumGroupsCompletingRebalance",
            "NumGroupsDead",
            "NumGroupsEmpty",
            "NumGroupsPreparingRebalance",
            "NumGroupsStable",
            "NumOffsets",
        ),
        (),
        "gauge",
        "groups that this broker coordinates",
    ),
    Row(
        "kafka.coordinator.transaction",
        "TransactionMarkerChannelManager",
        ("LogAppendRetryQueueSize", "UnknownDestinationQueueSize"),
        (),
        "gauge",
        "markers that wait for another try, or for a leader",
    ),
    Row(
        "kafka.server",
        "group-coordinator-metrics",
        (),
        (),
        "windowed",
        "commits, expired and deleted offsets, rebalances, time to load a partition",
    ),
    Row("kafka.server", "transaction-coordinator-metrics", (), (), "windowed", "time to load a partition"),
    Row(
        "klamm",
        "ClientQuotas",
        ("NotShown",),
        (),
        "gauge",
        "clients of quotas that `/metrics` leaves out: for each quota it shows 1,000, first those who had to wait "
        "lately; `/jolokia` shows all",
    ),
    Row(
        "klamm",
        "EventLoop",
        ("LagMs", "MaxLagMs"),
        (),
        "gauge",
        "how late the loop was a moment ago, and at most in the last minute: every request waited that long",
    ),
    Row("klamm", "GarbageCollection", ("Pauses",), ("generation",), "timer", "pauses of Python's garbage collector"),
    Row("klamm", "OffloadedWork", ("Waiting",), (), "gauge", "work for the disk that no thread has begun"),
    Row(
        "klamm",
        "Process",
        ("CpuSeconds", "MaxOpenFiles", "OpenFiles", "ResidentBytes", "UptimeSeconds"),
        (),
        "gauge",
        "the process; `ResidentBytes` includes mapped indexes. In Prometheus all but the last have the names of every "
        "program: `process_max_fds`, `process_open_fds`, `process_resident_memory_bytes`",
    ),
    Row("klamm", "info", (), ("version",), "windowed", "1; the version is a label"),
)


def page() -> str:
    lines = [_HEAD, f"{sum(max(1, len(row.names)) for row in ROWS)} kinds of MBean:\n"]
    lines += ["| MBean | Kind | In Prometheus | In short |", "|---|---|---|---|"]
    lines += [f"| {_mbean(row)} | {row.kind} | {_series(row)} | {row.meaning} |" for row in ROWS]
    return "\n".join(lines) + "\n"


def _mbean(row: Row) -> str:
    tags = "".join(f",{tag}=…" for tag in row.tags)
    if not row.names:
        return f"`{row.domain}:type={row.type}{tags}`"
    if len(row.names) == 1:
        return f"`{row.domain}:type={row.type},name={row.names[0]}{tags}`"
    return f"`{row.domain}:type={row.type},name=…{tags}`: {', '.join(f'`{name}`' for name in row.names)}"


def _series(row: Row) -> str:
    """Return the names of the first one's series."""
    attributes: dict[str, dict[str, object]] = {
        "gauge": {"Value": 0},
        "meter": Meter("", 0.0).attributes(0.0, 0),
        "histogram": Histogram().attributes(),
        "timer": Timer(0.0).attributes(0.0, 0),
        "windowed": {"…": 0},
    }
    name = row.names[0] if row.names else None
    mbean = MBean(row.domain, row.type, name, tuple((tag, "x") for tag in row.tags), attributes[row.kind])
    families = dict.fromkeys(series.family for series in series_of(mbean))
    return ", ".join(f"`{family}`" for family in families).replace("__`", "_…`")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.exit()
