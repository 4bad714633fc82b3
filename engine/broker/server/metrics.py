"""All metrics of a running broker: asks each part for its figures when somebody reads them, and ticks the meters.

Every MBean that Kafka 3.9 registers has its counterpart here, under the same name with the same attributes. Where a
thing has no meaning in this broker the value is the nearest true one; ``docs/reference/broker-metrics.md`` says which.
"""

from __future__ import annotations

import gc
import math
import os
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from engine.broker.controller.events import ControllerState
from engine.broker.controller.states import ReplicaState
from engine.broker.coordinator.groups.states import GroupState
from engine.broker.handlers.context import Broker
from engine.broker.log.cleaner.stats import CleaningStats
from engine.broker.metrics.mbeans import MBean, PrometheusPage, Tags
from engine.broker.metrics.measures import TICK_S, Attributes, Histogram, Meter, Rate, Timer
from engine.broker.metrics.requests import FROM_CONSUMER, FROM_FOLLOWER, ApiMetrics, NetworkTotals, RequestTimes
from engine.broker.network.routes import Route
from engine.broker.network.server import SocketServer
from engine.broker.replication.partition import Partition
from engine.broker.replication.state_changes import Breather
from engine.common.errors import ErrorCode
from engine.common.version import VERSION
from engine.kafka.client.broker_client import ChannelTotals
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import request_class
from engine.kafka.zk.session_keeper import SessionEvent
from engine.runtime.descriptors import descriptor_limit
from engine.runtime.purgatory import Purgatory
from engine.runtime.turns import Turns

if TYPE_CHECKING:
    from engine.broker.replication.controller_channel import ControllerChannel
    from engine.broker.server.log_cleaning import LogCleaner
    from engine.runtime.loop_lag import LoopLagGauge


class MeasuredBroker(Broker, Protocol):
    """The parts of a running broker that have figures."""

    network: SocketServer
    is_zookeeper_away: bool
    state: int

    @property
    def controller_channel(self) -> ControllerChannel: ...
    @property
    def log_cleaner(self) -> LogCleaner: ...
    @property
    def loop_lag(self) -> LoopLagGauge: ...
    def routes(self) -> list[Route]: ...


RATES_OF_S: Final = 60
"""Kafka's windowed figures are those of about the last minute."""

SAMPLE_S: Final = 1
"""Seconds between two looks at the newest requests."""

_CONTROLLER_TIMERS: Final = {
    ControllerState.CONTROLLER_CHANGE: "ControllerChange",
    ControllerState.BROKER_CHANGE: "LeaderElection",
    ControllerState.TOPIC_CHANGE: "TopicChange",
    ControllerState.TOPIC_DELETION: "TopicDeletion",
    ControllerState.ALTER_PARTITION_REASSIGNMENT: "PartitionReassignment",
    ControllerState.AUTO_LEADER_BALANCE: "AutoLeaderBalance",
    ControllerState.MANUAL_LEADER_BALANCE: "ManualLeaderBalance",
    ControllerState.CONTROLLED_SHUTDOWN: "ControlledShutdown",
    ControllerState.ISR_CHANGE: "IsrChange",
    ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED: "LeaderAndIsrResponseReceived",
    ControllerState.LOG_DIR_CHANGE: "LogDirChange",
    ControllerState.CONTROLLER_SHUTDOWN: "ControllerShutdown",
    ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE: "UncleanLeaderElectionEnable",
    ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE: "TopicUncleanLeaderElectionEnable",
    ControllerState.LIST_PARTITION_REASSIGNMENT: "ListPartitionReassignment",
    ControllerState.UPDATE_FEATURES: "UpdateFeatures",
}
"""Kafka's names of the timers; it has none for the answers to UpdateMetadata."""

_SESSION_METERS: Final = {
    "ZooKeeperAuthFailuresPerSec": "authfailures",
    "ZooKeeperDisconnectsPerSec": "disconnects",
    "ZooKeeperExpiresPerSec": "expires",
    "ZooKeeperReadOnlyConnectsPerSec": "readonlyconnects",
    "ZooKeeperSaslAuthenticationsPerSec": "saslauthentications",
    "ZooKeeperSyncConnectsPerSec": "syncconnects",
}
_SESSION_EVENTS: Final = {
    SessionEvent.AUTH_FAILED: "ZooKeeperAuthFailuresPerSec",
    SessionEvent.SUSPENDED: "ZooKeeperDisconnectsPerSec",
    SessionEvent.LOST: "ZooKeeperExpiresPerSec",
    SessionEvent.RECONNECTED: "ZooKeeperSyncConnectsPerSec",
    SessionEvent.NEW_SESSION: "ZooKeeperSyncConnectsPerSec",
}

_LOGIN_TOTALS: Final = (
    "failed-authentication",
    "failed-reauthentication",
    "successful-authentication",
    "successful-reauthentication",
)
Found = Iterator[MBean]


class BrokerMetrics:
    """The figures of one broker. It belongs to the broker's event loop."""

    def __init__(self, server: MeasuredBroker) -> None:
        self._server = server
        self._since_s = time.monotonic()
        self._started_ms = server.clock.now_ms()
        self._ticks = 0
        self._seen: dict[RequestTimes, int] = {}
        """Their requests when the newest were last taken in."""
        self._seconds = 0
        self._apis: dict[str, ApiMetrics] = {}
        self._versions: dict[tuple[str, int], Meter] = {}
        self._sessions = {name: Meter(event, self._since_s) for name, event in _SESSION_METERS.items()}
        self._sessions["ZooKeeperSyncConnectsPerSec"].count = 1
        self._meters: dict[str, Meter] = {}
        self._rates: dict[str, Rate] = {}
        self._largest_answers: defaultdict[str, deque[int]] = defaultdict(lambda: deque((0,), RATES_OF_S // TICK_S))
        """Bytes of each listener's largest answer, tick by tick."""
        self._idle_ns = Meter("percent", self._since_s, rate_unit="NANOSECONDS")
        self._cpu_s = time.process_time()
        self._zookeeper_latencies = Histogram()
        self._gc_begun_s = 0.0
        self._gc_times = {generation: Timer(self._since_s) for generation in range(3)}

    # -- life

    def start(self) -> None:
        """Begin to tick."""
        self._server.supervisor.every(SAMPLE_S * 1000, self._sample, "metrics")
        self._server.zk.client.add_session_listener(self._on_session)
        gc.callbacks.append(self._on_gc)

    async def stop(self) -> None:
        """Let go of what belongs to the process."""
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    def _on_session(self, event: SessionEvent) -> None:
        self._sessions[_SESSION_EVENTS[event]].count += 1

    def _on_gc(self, phase: str, info: Mapping[str, int]) -> None:
        now_s = time.monotonic()
        if phase == "start":
            self._gc_begun_s = now_s
        else:
            self._gc_times[info["generation"]].add(1000 * (now_s - self._gc_begun_s), now_s)

    async def _sample(self) -> None:
        """Take in the newest requests; every few seconds bring all rates up to date."""
        now_s = time.monotonic()
        breather = Breather()
        self._take_latencies(now_s)
        for route in self._server.routes():
            for times in {route.times, route.follower_times}:
                requests = times.requests
                times.choose_skips((requests - self._seen.get(times, requests)) / SAMPLE_S)
                self._seen[times] = requests
        for name, times in self._all_times():
            if times.recent_s or times.waits:
                self._api(name).take(times, now_s)
                await breather.give_way()
        self._take_throttles(now_s)
        self._seconds += SAMPLE_S
        if self._seconds % TICK_S == 0:
            await self._tick(now_s, breather)

    async def _tick(self, now_s: float, breather: Breather) -> None:
        self._ticks += 1
        ticks = self._ticks
        self._count(now_s)
        for listener, totals in self._server.network.totals.items():
            self._largest_answers[listener].append(totals.largest_answer)
            totals.largest_answer = 0
        controller = self._server.controller
        meters: list[Meter | Timer] = [*self._versions.values(), *self._sessions.values(), *self._meters.values()]
        meters += [self._idle_ns, *controller.times.values(), *self._gc_times.values()]
        meters += [meter for api in self._apis.values() for meter in api.errors.values()]
        for meter in meters:
            meter.tick(ticks)
        topics = self._server.replica_manager.environment.topics
        hosted = {topic_partition.topic for topic_partition in self._server.replica_manager.partitions}
        topics.forget_all_but(hosted)
        for _ in topics.tick(ticks, now_s):
            await breather.give_way()

    def _count(self, now_s: float) -> None:
        """Bring meters and rates to what other parts have counted."""
        cpu_s, self._cpu_s = self._cpu_s, time.process_time()
        busy_s = self._cpu_s - cpu_s
        self._idle_ns.count += max(0, int((TICK_S - busy_s) * 1e9))
        requests: Counter[tuple[str, int]] = Counter()
        for name, version, times in self._all_versions():
            requests[name, version] += times.requests
        for (name, version), count in requests.items():
            meter = self._versions.get((name, version))
            if meter is None:
                meter = self._versions[name, version] = Meter("requests", now_s, max(0, self._ticks - 1))
            meter.count = count
        self._count_errors(now_s)
        for listener, totals in self._server.network.totals.items():
            for name, total in _listener_totals(totals):
                self._rate(f"{name} {listener}", now_s, total)

    def _count_errors(self, now_s: float) -> None:
        topics = self._server.replica_manager.environment.topics
        errors: dict[str, Counter[int]] = {"Produce": Counter(topics.produce_errors)}
        errors["Produce"][ErrorCode.NONE] = topics.produced
        for route in self._server.routes():
            # ``+=`` of a Counter would walk it twice.
            errors.setdefault(_api_name(route), Counter()).update(route.errors)
        for name, counts in errors.items():
            meters = self._api(name).errors
            for code, count in counts.items():
                if not count:
                    continue
                error = error_name(code)
                if error not in meters:
                    meters[error] = Meter("requests", now_s, max(0, self._ticks - 1))
                meters[error].count = count

    def _rate(self, name: str, now_s: float, total: float) -> float:
        rate = self._rates.get(name)
        if rate is None:
            rate = self._rates[name] = Rate(now_s)
        rate.note(now_s, total)
        return rate.per_second(now_s)

    def _meter(self, name: str, event_type: str, count: int, *, unit: str = "SECONDS") -> Attributes:
        meter = self._meters.get(name)
        if meter is None:
            meter = self._meters[name] = Meter(event_type, self._since_s, self._ticks, rate_unit=unit)
        meter.count = count
        return meter.attributes(time.monotonic(), self._ticks)

    # -- reading

    async def page(self) -> str:
        """Return all figures as Prometheus reads them."""
        page = PrometheusPage()
        breather = Breather()
        for mbean in self.mbeans():
            page.add(mbean)
            await breather.give_way()
        pieces = []
        for piece in page.pieces():
            pieces.append(piece)
            await breather.give_way()
        return "".join(pieces)

    async def collect(self) -> list[MBean]:
        """Return every MBean."""
        found = []
        breather = Breather()
        for mbean in self.mbeans():
            found.append(mbean)
            await breather.give_way()
        return found

    def mbeans(self) -> Found:
        """Yield every MBean. The caller gives way to the event loop in between."""
        self._count(time.monotonic())
        yield from self._broker()
        yield from self._requests()
        yield from self._network()
        yield from self._channels()
        yield from self._zookeeper()
        yield from self._replicas()
        yield from self._fetchers()
        yield from self._controller()
        yield from self._coordinators()
        yield from self._log_manager()
        yield from self._topics()
        yield from self._own()
        for partition in list(self._server.replica_manager.partitions.values()):
            yield from _partition(partition)

    # -- the broker

    def _broker(self) -> Found:
        server = self._server
        commit, version, started = "unknown", VERSION, self._started_ms
        broker_id = str(server.broker_id)
        yield MBean("kafka.server", "app-info", None, (("id", broker_id),),
                    {"CommitId": commit, "StartTimeMs": started, "Version": version})  # fmt: skip
        yield MBean("kafka.server", "app-info", None, (),
                    {"commit-id": commit, "start-time-ms": started, "version": version})  # fmt: skip
        read_bytes, written_bytes = _disk_bytes()
        yield from _gauges("kafka.server", "KafkaServer", {
            "BrokerState": server.state,
            "ClusterId": server.cluster_id,
            "linux-disk-read-bytes": read_bytes,
            "linux-disk-write-bytes": written_bytes,
            "yammer-metrics-count": len(self._versions) + len(self._meters),
        })  # fmt: skip
        yield MBean("kafka.server", "kafka-metrics-count", None, (), {"count": float(len(self._rates))})
        yield MBean("kafka.server", "KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent", (), self._idle())
        for kind, user, client_id, attributes in server.quotas.figures():
            # As in Kafka, a name leaves out what is empty.
            tags = tuple((key, value) for key, value in (("user", user), ("client-id", client_id)) if value)
            yield MBean("kafka.server", kind, None, tags, attributes)
        yield from _gauges(
            "kafka.server", "MetadataLoader", {"CurrentControllerId": server.metadata_cache.controller_id}
        )

    def _idle(self) -> Attributes:
        """Return the share of time in which the process did not use its CPU, as Kafka's handlers show theirs."""
        attributes = dict(self._idle_ns.attributes(time.monotonic(), self._ticks))
        for name in ("FifteenMinuteRate", "FiveMinuteRate", "MeanRate", "OneMinuteRate"):
            share = float(attributes[name]) / 1e9  # type: ignore[arg-type]
            attributes[name] = min(1.0, share) if self._ticks else 1.0
        return attributes

    # -- requests and the network

    def _all_versions(self) -> Iterator[tuple[str, int, RequestTimes]]:
        for route in self._server.routes():
            name = _api_name(route)
            if route.api_key != ApiKey.FETCH:
                yield name, route.api_version, route.times
                continue
            yield FROM_CONSUMER, route.api_version, route.times
            yield FROM_FOLLOWER, route.api_version, route.follower_times

    def _all_times(self) -> Iterator[tuple[str, RequestTimes]]:
        return ((name, times) for name, _, times in self._all_versions())

    def _api(self, name: str) -> ApiMetrics:
        api = self._apis.get(name)
        if api is None:
            api = self._apis[name] = ApiMetrics(name)
        return api

    def _take_throttles(self, now_s: float) -> None:
        for api_key, throttles in self._server.quotas.throttles.items():
            name = FROM_CONSUMER if api_key == ApiKey.FETCH else _name_of(api_key)
            requests = sum(times.requests for each, times in self._all_times() if each == name)
            self._api(name).take_throttles(throttles.recent_ms, throttles.count, throttles.total_ms, requests, now_s)
            throttles.recent_ms.clear()

    def _requests(self) -> Found:
        now_s = time.monotonic()
        self._take_throttles(now_s)
        for name, times in self._all_times():
            self._api(name).take(times, now_s)
        sums: dict[str, list[float]] = {}
        for name, _, times in self._all_versions():
            for each in (name, "Fetch") if name in (FROM_CONSUMER, FROM_FOLLOWER) else (name,):
                total = sums.setdefault(each, [0, 0, 0.0, 0.0, 0.0])
                for index, value in enumerate((times.requests, times.bytes, times.spent_s, times.waited_s)):
                    total[index] += value
                total[4] = max(total[4], times.slowest_s)
        for name in _API_NAMES:
            requests, size_bytes, spent_s, waited_s, slowest_s = sums.get(name, (0, 0, 0.0, 0.0, 0.0))
            api = self._api(name)
            if name == "Fetch":
                api.merge(self._api(FROM_CONSUMER), self._api(FROM_FOLLOWER))
            api.count(int(requests), int(size_bytes), spent_s, waited_s, slowest_s)
            for histogram, attributes in api.mbeans():
                yield MBean("kafka.network", "RequestMetrics", histogram, (("request", name),), attributes)
            for error, meter in api.errors.items():
                tags = (("request", name), ("error", error))
                yield MBean(
                    "kafka.network", "RequestMetrics", "ErrorsPerSec", tags, meter.attributes(now_s, self._ticks)
                )
        for (name, version), meter in self._versions.items():
            if meter.count:
                attributes = meter.attributes(now_s, self._ticks)
                for each in (name, "Fetch") if name == FROM_CONSUMER else (name,):
                    tags = (("request", each), ("version", str(version)))
                    yield MBean("kafka.network", "RequestMetrics", "RequestsPerSec", tags, attributes)

    def _network(self) -> Found:
        now_s = time.monotonic()
        network = self._server.network
        idle = min(1.0, float(self._idle()["OneMinuteRate"]))  # type: ignore[arg-type]
        idle_closed = float(sum(totals.idle_closed for totals in network.totals.values()))
        yield from _gauges("kafka.network", "SocketServer", {
            "ControlPlaneExpiredConnectionsKilledCount": 0.0,
            "ControlPlaneNetworkProcessorAvgIdlePercent": math.nan,
            "ExpiredConnectionsKilledCount": idle_closed,
            "MemoryPoolAvailable": 2**63 - 1,
            "MemoryPoolUsed": 0,
            "NetworkProcessorAvgIdlePercent": idle,
        })  # fmt: skip
        yield MBean("kafka.network", "Processor", "IdlePercent", (("networkProcessor", "0"),), {"Value": idle})
        unread = sum(connection.is_unread for connection in network.connections)
        queues = {"RequestQueueSize": len(Turns.of_loop()), "ResponseQueueSize": unread}
        yield from _gauges("kafka.network", "RequestChannel", queues)
        yield MBean("kafka.network", "RequestChannel", "ResponseQueueSize", (("processor", "0"),), {"Value": unread})
        yield MBean("kafka.server", "socket-server-metrics", None, (), {
            "MemoryPoolAvgDepletedPercent": 0.0,
            "MemoryPoolDepletedTimeTotal": 0.0,
            "broker-connection-accept-rate": sum(
                self._rates[f"connection-creation {name}"].per_second(now_s) for name in network.totals
            ),
        })  # fmt: skip
        for listener, totals in network.totals.items():
            tags: Tags = (("listener", listener),)
            throttle_ms, address_throttle_ms = network.rates.throttle_times_ms(listener)
            blocked = self._meter(f"blocked {listener}", "blocked time", 0, unit="NANOSECONDS")
            yield MBean("kafka.network", "Acceptor", "AcceptorBlockedPercent", tags, blocked)
            yield MBean("kafka.server", "socket-server-metrics", None, tags, {
                "connection-accept-rate": self._rates[f"connection-creation {listener}"].per_second(now_s),
                "connection-accept-throttle-time": throttle_ms,
                "ip-connection-accept-throttle-time": address_throttle_ms,
            })  # fmt: skip
            selector = self._selector(now_s, listener, totals)
            yield MBean("kafka.server", "socket-server-metrics", None, (*tags, ("networkProcessor", "0")), selector)
        for address, rate in network.rates.of_addresses():
            yield MBean(
                "kafka.server", "socket-server-metrics", None, (("ip", address),), {"connection-accept-rate": rate}
            )
        software = Counter(
            (c.session.client_software_name, c.session.client_software_version, c.session.listener_name)
            for c in network.connections
        )
        for (name, version, listener), count in software.items():
            tags = (("clientSoftwareName", name), ("clientSoftwareVersion", version), ("listener", listener))
            tags = (*tags, ("networkProcessor", "0"))
            yield MBean("kafka.server", "socket-server-metrics", None, tags, {"connections": count})

    def _selector(self, now_s: float, listener: str, totals: NetworkTotals) -> dict[str, object]:
        """Return the figures of Kafka's selector. One loop serves all listeners: its times are those of all.

        As in Kafka, "requests" are what the selector sends, so they are answers, and "responses" what it receives.
        """
        found = _selector(
            connections=sum(c.session.listener_name == listener for c in self._server.network.connections),
            created=totals.accepted,
            closed=totals.closed,
            bytes_in=totals.bytes_in,
            bytes_out=totals.bytes_out,
            requests=totals.answers,
            responses=totals.requests,
            request_size=totals.bytes_out / totals.answers if totals.answers else math.nan,
        )
        for name, total in _listener_totals(totals):
            found[f"{name}-total"] = float(total)
            found[f"{name}-rate"] = self._rates[f"{name} {listener}"].per_second(now_s)
        found["successful-authentication-no-reauth-total"] = float(totals.logins_without_renewal)
        since_ms = self._server.clock.monotonic_ms() - RATES_OF_S * 1000
        renewals = [took_ms for at_ms, took_ms in totals.renewal_times_ms if at_ms > since_ms]
        if renewals:
            found["reauthentication-latency-avg"] = sum(renewals) / len(renewals)
            found["reauthentication-latency-max"] = float(max(renewals))
        found["request-size-max"] = float(max(totals.largest_answer, *self._largest_answers[listener])) or math.nan
        idle = min(1.0, float(self._idle()["OneMinuteRate"]))  # type: ignore[arg-type]
        found["io-wait-ratio"], found["io-ratio"] = idle, 1.0 - idle
        found["io-waittime-total"] = found["io-wait-time-ns-total"] = float(self._idle_ns.count)
        found["iotime-total"] = found["io-time-ns-total"] = 1e9 * time.process_time()
        found["expired-connections-killed-count"] = float(totals.idle_closed)
        return found

    def _channel(self, type_: str, tags: Tags, totals: ChannelTotals) -> MBean:
        """Return what is known of a channel to other brokers."""
        now_s = time.monotonic()
        found = _selector(
            connections=totals.created - totals.closed,
            created=totals.created,
            closed=totals.closed,
            bytes_in=totals.bytes_in,
            bytes_out=totals.bytes_out,
            requests=totals.requests,
            responses=totals.responses,
            request_size=totals.bytes_out / totals.requests if totals.requests else math.nan,
        )
        found["request-size-max"] = float(totals.largest_request)
        for name, total in (
            ("connection-creation-rate", totals.created),
            ("connection-close-rate", totals.closed),
            ("incoming-byte-rate", totals.bytes_in),
            ("outgoing-byte-rate", totals.bytes_out),
            ("request-rate", totals.requests),
            ("response-rate", totals.responses),
        ):
            found[name] = self._rate(f"{type_} {tags} {name}", now_s, total)
        return MBean("kafka.server", type_, None, tags, found)

    def _channels(self) -> Found:
        server = self._server
        own: Tags = (("BrokerId", str(server.broker_id)),)
        yield self._channel("alter-partition-metrics", own, server.controller_channel.totals)
        yield self._channel("forwarding-metrics", own, ChannelTotals())
        yield self._channel("AddPartitionsManager-channel-metrics", (), server.transaction_verifier.connections.totals)
        yield self._channel("txn-marker-channel-metrics", (), server.transaction_coordinator.marker_totals)
        for fetcher in server.replica_manager.fetchers.fetchers:
            tags = (("broker-id", str(fetcher.leader.node.id)), ("fetcher-id", str(fetcher.fetcher_id)))
            yield self._channel("replica-fetcher-metrics", tags, fetcher.leader.totals)
        verifier = server.transaction_verifier
        failures = self._meter("verification failures", "failures", verifier.failures_total)
        yield MBean("kafka.server", "AddPartitionsToTxnManager", "VerificationFailureRate", (), failures)
        times = verifier.times_ms.attributes()
        yield MBean("kafka.server", "AddPartitionsToTxnManager", "VerificationTimeMs", (), times)

    def _zookeeper(self) -> Found:
        now_s = time.monotonic()
        state = "CONNECTED" if not self._server.is_zookeeper_away else "CONNECTING"
        yield from _gauges("kafka.server", "SessionExpireListener", {"SessionState": state})
        for name, meter in self._sessions.items():
            yield MBean("kafka.server", "SessionExpireListener", name, (), meter.attributes(now_s, self._ticks))
        self._take_latencies(now_s)
        latencies = self._zookeeper_latencies.attributes()
        yield MBean("kafka.server", "ZooKeeperClientMetrics", "ZooKeeperRequestLatencyMs", (), latencies)

    def _take_latencies(self, now_s: float) -> None:
        told, histogram = self._server.zk.client.latencies, self._zookeeper_latencies
        histogram.take((1000 * took_s for took_s in told.recent_s), now_s)
        told.recent_s.clear()
        histogram.count, histogram.total = told.count, 1000 * told.total_s
        histogram.max = 1000 * told.slowest_s

    # -- replicas

    def _replicas(self) -> Found:
        manager = self._server.replica_manager
        led = list(manager.led_partitions())
        isr = manager.environment.statistics
        log_manager = self._server.log_manager
        yield from _gauges("kafka.server", "ReplicaManager", {
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
            yield MBean("kafka.server", "ReplicaManager", name, (), self._meter(name, event, count))
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
            yield from _gauges("kafka.server", "DelayedOperationPurgatory", values, tags)
        yield from self._expirations(manager.delayed_fetch, manager.delayed_produce)
        sessions = self._server.fetch_sessions
        yield from _gauges("kafka.server", "FetchSessionCache", {
            "NumIncrementalFetchPartitionsCached": sessions.partitions_total,
            "NumIncrementalFetchSessions": len(sessions),
        })  # fmt: skip
        evictions = self._meter("evictions", "evictions", sessions.evictions_total)
        yield MBean("kafka.server", "FetchSessionCache", "IncrementalFetchSessionEvictionsPerSec", (), evictions)

    def _late_transactions(self) -> int:
        """Return how many partitions led here have a transaction that should have ended long ago."""
        now_ms, longest_ms = self._server.clock.now_ms(), self._server.config.transaction_max_timeout_ms
        logs = (partition.leader_log for partition in self._server.replica_manager.led_partitions())
        return sum(log is not None and log.has_late_transaction(now_ms, longest_ms) for log in logs)

    def _expirations(self, fetches: Purgatory[object], produces: Purgatory[object]) -> Found:
        followers = self._server.fetch_sessions.follower_expirations_total
        for kind, count in (("consumer", fetches.expired_total - followers), ("follower", followers)):
            attributes = self._meter(f"expired fetches {kind}", "requests", count)
            yield MBean("kafka.server", "DelayedFetchMetrics", "ExpiresPerSec", (("fetcherType", kind),), attributes)
        if produces.expired_total:
            attributes = self._meter("expired produces", "requests", produces.expired_total)
            yield MBean("kafka.server", "DelayedProducerRequestMetrics", "ExpiresPerSec", (), attributes)

    def _fetchers(self) -> Found:
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
                    self._rate(f"fetches {id(each)}", time.monotonic(), each.requests_total)
                    for each in fetchers.fetchers
                )
            yield from _gauges("kafka.server", type_, values, tags)
        for fetcher in fetchers.fetchers:
            leader = fetcher.leader.node
            client = f"ReplicaFetcherThread-{fetcher.fetcher_id}-{leader.id}"
            tags = (("clientId", client), ("brokerHost", leader.host), ("brokerPort", str(leader.port)))
            for name, event, count in (
                ("BytesPerSec", "bytes", fetcher.fetched_bytes_total),
                ("RequestsPerSec", "requests", fetcher.requests_total),
            ):
                yield MBean("kafka.server", "FetcherStats", name, tags, self._meter(f"{client} {name}", event, count))
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

    def _topics(self) -> Found:
        topics = self._server.replica_manager.environment.topics
        for name, topic, attributes in topics.mbeans(time.monotonic(), self._ticks):
            tags: Tags = () if topic is None else (("topic", topic),)
            yield MBean("kafka.server", "BrokerTopicMetrics", name, tags, attributes)

    # -- controller and coordinators

    def _controller(self) -> Found:
        now_s = time.monotonic()
        controller = self._server.controller
        context = controller.core.context
        is_active = controller.is_active
        states = Counter(context.replica_states.values()) if is_active and context.topics_to_be_deleted else Counter()
        yield from _gauges("kafka.controller", "KafkaController", {
            "ActiveBrokerCount": len(context.live_brokers) if is_active else 0,
            "ActiveControllerCount": int(is_active),
            "ControllerState": int(controller.state),
            "FencedBrokerCount": 0,
            "GlobalPartitionCount": sum(map(len, context.assignments.values())) if is_active else 0,
            "GlobalTopicCount": len(context.topics) if is_active else 0,
            "OfflinePartitionsCount": context.offline_partition_count() if is_active else 0,
            "PreferredReplicaImbalanceCount": context.preferred_replica_imbalance_count() if is_active else 0,
            "ReplicasIneligibleToDeleteCount": states[ReplicaState.DELETION_INELIGIBLE],
            "ReplicasToDeleteCount": sum(
                len(context.replicas(p))
                for topic in context.topics_to_be_deleted
                for p in context.partitions_of_topic(topic)
            ),
            "TopicsIneligibleToDeleteCount": len(context.topics_ineligible_for_deletion),
            "TopicsToDeleteCount": len(context.topics_to_be_deleted),
            "ZkMigrationState": _NO_MIGRATION,
        })  # fmt: skip
        for state, name in _CONTROLLER_TIMERS.items():
            timer = controller.times.get(state) or Timer(now_s, self._ticks)
            attributes = timer.attributes(now_s, self._ticks)
            yield MBean("kafka.controller", "ControllerStats", f"{name}RateAndTimeMs", (), attributes)
        unclean = self._meter("unclean elections", "elections", context.unclean_elections_total)
        yield MBean("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec", (), unclean)
        yield from _gauges(
            "kafka.controller", "ControllerEventManager", {"EventQueueSize": controller.event_queue_size}
        )
        yield MBean(
            "kafka.controller", "ControllerEventManager", "EventQueueTimeMs", (), controller.queue_times_ms.attributes()
        )
        total = {"TotalQueueSize": controller.total_request_queue_size}
        yield from _gauges("kafka.controller", "ControllerChannelManager", total)
        for broker_id, channel in list(controller.channels.items()):
            tags: Tags = (("broker-id", str(broker_id)),)
            yield self._channel("controller-channel-metrics", tags, channel.totals)
            yield from _gauges("kafka.controller", "ControllerChannelManager", {"QueueSize": channel.waiting}, tags)
            attributes = channel.times.attributes(now_s, self._ticks)
            yield MBean("kafka.controller", "ControllerChannelManager", "RequestRateAndQueueTimeMs", tags, attributes)

    def _coordinators(self) -> Found:
        groups = list(self._server.group_coordinator.groups)
        states = Counter(group.state for group in groups)
        yield from _gauges("kafka.coordinator.group", "GroupMetadataManager", {
            "NumGroups": len(groups),
            "NumGroupsCompletingRebalance": states[GroupState.COMPLETING_REBALANCE],
            "NumGroupsDead": states[GroupState.DEAD],
            "NumGroupsEmpty": states[GroupState.EMPTY],
            "NumGroupsPreparingRebalance": states[GroupState.PREPARING_REBALANCE],
            "NumGroupsStable": states[GroupState.STABLE],
            "NumOffsets": sum(len(group.offsets) for group in groups),
        })  # fmt: skip
        transactions = self._server.transaction_coordinator
        unknown, failed = transactions.waiting_markers
        yield from _gauges("kafka.coordinator.transaction", "TransactionMarkerChannelManager", {
            "LogAppendRetryQueueSize": failed,
            "UnknownDestinationQueueSize": unknown,
        })  # fmt: skip
        for type_, owned in (
            ("group-coordinator-metrics", self._server.group_coordinator.groups),
            ("transaction-coordinator-metrics", transactions.transactions),
        ):
            loads = owned.load_times_ms
            found: dict[str, object] = {
                "partition-load-time-avg": sum(loads) / len(loads) if loads else math.nan,
                "partition-load-time-max": max(loads, default=math.nan),
            }
            if type_.startswith("group"):
                found |= self._group_totals()
            yield MBean("kafka.server", type_, None, (), found)

    def _group_totals(self) -> dict[str, object]:
        now_s = time.monotonic()
        found: dict[str, object] = {}
        for name, total in self._server.group_coordinator.totals().items():
            found[f"{name}-count"] = float(total)
            found[f"{name}-rate"] = self._rate(name, now_s, total)
        return found

    # -- logs

    def _log_manager(self) -> Found:
        manager = self._server.log_manager
        yield from _gauges("kafka.log", "LogManager", {"OfflineLogDirectoryCount": len(manager.offline_dirs)})
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
            yield from _gauges("kafka.log", "LogCleanerManager", values, tags)
        flushes = self._server.replica_manager.flush_times
        yield MBean(
            "kafka.log", "LogFlushStats", "LogFlushRateAndTimeMs", (), flushes.attributes(time.monotonic(), self._ticks)
        )
        cleaner = self._server.log_cleaner
        stats = list(cleaner.last_stats.values())
        yield from _gauges("kafka.log", "LogCleaner", {
            "DeadThreadCount": 0,
            "cleaner-recopy-percent": _recopied_percent(stats),
            "max-buffer-utilization-percent": int(100 * max((s.map_utilization for s in stats), default=0)),
            "max-clean-time-secs": int(max((s.elapsed_s for s in stats), default=0)),
            "max-compaction-delay-secs": cleaner.max_compaction_delay_ms // 1000,
        })  # fmt: skip
        yield from _gauges("kafka.log", "LogCleanerManager", {
            "max-dirty-percent": cleaner.max_dirty_percent,
            "time-since-last-run-ms": cleaner.since_last_run_ms,
        })  # fmt: skip
        io = self._meter("cleaner-io", "bytes", cleaner.bytes_total)
        yield MBean("kafka.utils", "Throttler", "cleaner-io", (), io)

    # -- klamm's own

    def _own(self) -> Found:
        server = self._server
        yield from _gauges("klamm", "EventLoop", {
            "LagMs": server.loop_lag.lag_ms_last,
            "MaxLagMs": server.loop_lag.lag_ms_max,
        })  # fmt: skip
        for generation, timer in self._gc_times.items():
            attributes = timer.attributes(time.monotonic(), self._ticks)
            yield MBean("klamm", "GarbageCollection", "Pauses", (("generation", str(generation)),), attributes)
        used, limit = _descriptors()
        yield from _gauges("klamm", "Process", {
            "CpuSeconds": time.process_time(),
            "MaxOpenFiles": limit,
            "OpenFiles": used,
            "ResidentBytes": _resident_bytes(),
            "UptimeSeconds": time.monotonic() - self._since_s,
        })  # fmt: skip
        yield MBean("klamm", "info", None, (("version", VERSION),), {"info": 1})
        yield from _gauges("klamm", "OffloadedWork", {"Waiting": server.offloader.waiting})


_NO_MIGRATION: Final = 4
"""Kafka's number for a cluster that does not migrate to KRaft."""

_PURGATORIES: Final = (
    "AlterAcls", "DeleteRecords", "ElectLeader", "Fetch", "Heartbeat", "Produce", "Rebalance", "RemoteFetch", "topic",
)  # fmt: skip


_API_NAMES: Final = (
    "AddOffsetsToTxn", "AddPartitionsToTxn", "AddPartitionsToTxnVerification", "AllocateProducerIds",
    "AlterClientQuotas", "AlterConfigs", "AlterPartition", "AlterPartitionReassignments", "AlterReplicaLogDirs",
    "AlterUserScramCredentials", "ApiVersions", "ConsumerGroupDescribe", "ConsumerGroupHeartbeat",
    "ControlledShutdown", "CreateAcls", "CreateDelegationToken", "CreatePartitions", "CreateTopics", "DeleteAcls",
    "DeleteGroups", "DeleteRecords", "DeleteTopics", "DescribeAcls", "DescribeClientQuotas", "DescribeCluster",
    "DescribeConfigs", "DescribeDelegationToken", "DescribeGroups", "DescribeLogDirs", "DescribeProducers",
    "DescribeTransactions", "DescribeUserScramCredentials", "ElectLeaders", "EndTxn", "Envelope",
    "ExpireDelegationToken", "FetchConsumer", "FetchFollower", "Fetch", "FindCoordinator", "Heartbeat",
    "IncrementalAlterConfigs", "InitProducerId", "JoinGroup", "LeaderAndIsr", "LeaveGroup", "ListGroups",
    "ListOffsets", "ListPartitionReassignments", "ListTransactions", "Metadata", "OffsetCommit", "OffsetDelete",
    "OffsetFetch", "OffsetForLeaderEpoch", "Produce", "RenewDelegationToken", "SaslAuthenticate", "SaslHandshake",
    "StopReplica", "SyncGroup", "TxnOffsetCommit", "UpdateFeatures", "UpdateMetadata", "WriteTxnMarkers",
)  # fmt: skip
"""The APIs of which a broker of Kafka 3.9 in ZooKeeper mode has histograms from the start. Fetch is both kinds."""


def error_name(code: int) -> str:
    """Return an error code's name; Kafka's UNKNOWN_SERVER_ERROR for one that has none."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR.name


def _api_name(route: Route) -> str:
    return _name_of(route.api_key)


def _name_of(api_key: int) -> str:
    return request_class(ApiKey(api_key)).__name__.removesuffix("Request")


def _gauges(domain: str, type_: str, values: Mapping[str, object], tags: Tags = ()) -> Found:
    for name, value in values.items():
        yield MBean(domain, type_, name, tags, {"Value": value})


def _partition(partition: Partition) -> Found:
    """Yield a replica's figures: of its leadership only what its leader knows, as in Kafka."""
    topic, index = partition.topic_partition
    tags: Tags = (("topic", topic), ("partition", str(index)))
    led, log = partition.leader_log, partition.log
    yield from _gauges("kafka.cluster", "Partition", {
        "AtMinIsr": int(_is_at_min_isr(partition)),
        "InSyncReplicasCount": len(partition.isr) if led is not None else 0,
        "LastStableOffsetLag": 0 if log is None else log.high_watermark - log.last_stable_offset,
        "ReplicasCount": len(partition.assignment.replicas) if led is not None else 0,
        "UnderMinIsr": int(partition.is_under_min_isr),
        "UnderReplicated": int(_is_under_replicated(partition)),
    }, tags)  # fmt: skip
    if log is not None:
        yield from _gauges("kafka.log", "Log", {
            "LogEndOffset": log.log_end_offset,
            "LogStartOffset": log.log_start_offset,
            "NumLogSegments": log.segment_count,
            "Size": log.size_bytes,
        }, tags)  # fmt: skip


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


def _listener_totals(totals: NetworkTotals) -> tuple[tuple[str, int], ...]:
    """Return what one listener has counted, under the names of Kafka's selector without ``-total`` and ``-rate``."""
    return (
        ("connection-close", totals.closed),
        ("connection-creation", totals.accepted),
        ("failed-authentication", totals.failed_logins),
        ("failed-reauthentication", totals.failed_renewals),
        ("incoming-byte", totals.bytes_in),
        ("network-io", totals.answers + totals.requests),
        ("outgoing-byte", totals.bytes_out),
        ("request", totals.answers),
        ("response", totals.requests),
        ("successful-authentication", totals.logins),
        ("successful-reauthentication", totals.renewals),
    )


def _selector(
    *,
    connections: int,
    created: int,
    closed: int,
    bytes_in: int,
    bytes_out: int,
    requests: int,
    responses: int,
    request_size: float,
) -> dict[str, object]:
    """Return the attributes of one of Kafka's selectors; nobody waits for sockets here, so those times are 0."""
    found: dict[str, object] = {
        "connection-close-rate": 0.0, "connection-close-total": float(closed), "connection-count": float(connections),
        "connection-creation-rate": 0.0, "connection-creation-total": float(created),
        "incoming-byte-rate": 0.0, "incoming-byte-total": float(bytes_in),
        "io-ratio": 0.0, "io-time-ns-avg": 0.0, "io-time-ns-total": 0.0, "io-wait-ratio": 0.0,
        "io-wait-time-ns-avg": 0.0, "io-wait-time-ns-total": 0.0, "io-waittime-total": 0.0, "iotime-total": 0.0,
        "network-io-rate": 0.0, "network-io-total": float(requests + responses),
        "outgoing-byte-rate": 0.0, "outgoing-byte-total": float(bytes_out),
        "reauthentication-latency-avg": math.nan, "reauthentication-latency-max": math.nan,
        "request-rate": 0.0, "request-size-avg": request_size, "request-size-max": math.nan,
        "request-total": float(requests), "response-rate": 0.0, "response-total": float(responses),
        "select-rate": 0.0, "select-total": 0.0, "successful-authentication-no-reauth-total": 0.0,
    }  # fmt: skip
    for name in _LOGIN_TOTALS:
        found[f"{name}-rate"] = found[f"{name}-total"] = 0.0
    return found


def _disk_bytes() -> tuple[int, int]:
    """Return what this process has read from disks and written to them; zeros where the system does not tell."""
    try:
        told = Path("/proc/self/io").read_text()
    except OSError:
        return 0, 0
    found = dict(line.split(": ") for line in told.splitlines())
    return int(found.get("read_bytes", 0)), int(found.get("write_bytes", 0))


def _descriptors() -> tuple[int, int]:
    """Return how many descriptors are open, and the limit; -1 where the system does not tell."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir()), descriptor_limit()
    except OSError:
        return -1, descriptor_limit()


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return -1
