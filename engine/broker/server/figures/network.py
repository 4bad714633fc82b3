"""Listeners, connections and queues of the network."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from typing import Final

from engine.broker.metrics.mbean import MBean, MBeans, Tags, gauges
from engine.broker.metrics.measures import TICK_S, Ledger
from engine.broker.metrics.requests import NetworkTotals
from engine.broker.server.figures.measured import MeasuredBroker
from engine.broker.server.figures.process import ProcessFigures
from engine.kafka.client.broker_client import ChannelTotals
from engine.runtime.turns import Turns

_LOGINS: Final = (
    "failed-authentication",
    "failed-reauthentication",
    "successful-authentication",
    "successful-reauthentication",
)

LARGEST_ANSWERS_MAX: Final = 720
"""Ticks of an hour: however long the window of the metrics is, older answers are forgotten."""


class NetworkFigures:
    def __init__(self, server: MeasuredBroker, ledger: Ledger, process: ProcessFigures) -> None:
        self._server = server
        self._ledger = ledger
        self._process = process
        ticks = min(max(ledger.window.whole_ms // 1000 // TICK_S, 1), LARGEST_ANSWERS_MAX)
        self._largest_answers: defaultdict[str, deque[int]] = defaultdict(lambda: deque((0,), ticks))
        """Bytes of each listener's largest answer, tick by tick."""

    def count(self, now_s: float) -> None:
        """Take in what the listeners have counted."""
        answers = self._server.network.answers()
        self._ledger.rate("memory pool depleted", now_s, self._server.network.buffers.depleted_ms / 1000)
        for listener, totals in self._server.network.totals.items():
            for name, total in listener_totals(totals, answers[listener]):
                self._ledger.rate(f"{name} {listener}", now_s, total)

    def tick(self) -> None:
        """Start looking for the largest answers again."""
        for listener, totals in self._server.network.totals.items():
            self._largest_answers[listener].append(totals.largest_answer())
            totals.forget_largest_answer()

    def network(self) -> MBeans:
        """Yield listeners and queues."""
        now_s = self._ledger.now_s
        network = self._server.network
        buffers = network.buffers
        used = buffers.frames_bytes if buffers.frames_bytes_max else 0
        idle = self._process.idle_share
        idle_closed = float(sum(totals.idle_closed for totals in network.totals.values()))
        yield from gauges("kafka.network", "SocketServer", {
            "ControlPlaneExpiredConnectionsKilledCount": 0.0,
            "ControlPlaneNetworkProcessorAvgIdlePercent": math.nan,
            "ExpiredConnectionsKilledCount": idle_closed,
            "MemoryPoolAvailable": (buffers.frames_bytes_max or 2**63 - 1) - used,
            "MemoryPoolUsed": used,
            "NetworkProcessorAvgIdlePercent": idle,
        })  # fmt: skip
        yield MBean("kafka.network", "Processor", "IdlePercent", (("networkProcessor", "0"),), {"Value": idle})
        unread = sum(connection.is_unread for connection in network.connections)
        queues = {"RequestQueueSize": len(Turns.of_loop()), "ResponseQueueSize": unread}
        yield from gauges("kafka.network", "RequestChannel", queues)
        yield MBean("kafka.network", "RequestChannel", "ResponseQueueSize", (("processor", "0"),), {"Value": unread})
        yield MBean("kafka.server", "socket-server-metrics", None, (), {
            "MemoryPoolAvgDepletedPercent": self._ledger.rate_of("memory pool depleted", now_s),
            "MemoryPoolDepletedTimeTotal": float(buffers.depleted_ms),
            "broker-connection-accept-rate": network.rates.accept_rate(),
        })  # fmt: skip
        software = Counter(
            (c.session.client_software_name, c.session.client_software_version, c.session.listener_name)
            for c in network.connections
        )
        connected: Counter[str] = Counter()
        answers = network.answers()
        for (_, _, listener), count in software.items():
            connected[listener] += count
        for listener, totals in network.totals.items():
            tags: Tags = (("listener", listener),)
            throttle_ms, address_throttle_ms = network.rates.throttle_times_ms(listener)
            blocked_ns = 1_000_000 * network.rates.blocked_ms(listener)
            blocked = self._ledger.meter(f"blocked {listener}", "blocked time", blocked_ns, unit="NANOSECONDS")
            yield MBean("kafka.network", "Acceptor", "AcceptorBlockedPercent", tags, blocked)
            yield MBean("kafka.server", "socket-server-metrics", None, tags, {
                "connection-accept-rate": network.rates.accept_rate(listener),
                "connection-accept-throttle-time": throttle_ms,
                "ip-connection-accept-throttle-time": address_throttle_ms,
            })  # fmt: skip
            selector = self._selector(now_s, listener, totals, connected[listener], answers[listener])
            yield MBean("kafka.server", "socket-server-metrics", None, (*tags, ("networkProcessor", "0")), selector)
        for address, rate in network.rates.of_addresses():
            yield MBean(
                "kafka.server", "socket-server-metrics", None, (("ip", address),), {"connection-accept-rate": rate}
            )
        for (name, version, listener), count in software.items():
            tags = (("clientSoftwareName", name), ("clientSoftwareVersion", version), ("listener", listener))
            tags = (*tags, ("networkProcessor", "0"))
            yield MBean("kafka.server", "socket-server-metrics", None, tags, {"connections": count})

    def _selector(
        self, now_s: float, listener: str, totals: NetworkTotals, connected: int, answers: int
    ) -> dict[str, object]:
        """Return the figures of Kafka's selector. One loop serves all listeners: its times are those of all.

        As in Kafka, "requests" are what the selector sends, so they are answers, and "responses" what it receives.
        """
        requests, bytes_in = totals.received()
        bytes_out = totals.bytes_out()
        attributes = selector(
            connections=connected,
            created=totals.accepted,
            closed=totals.closed,
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            requests=answers,
            responses=requests,
            request_size=bytes_out / answers if answers else math.nan,
        )
        for name, total in listener_totals(totals, answers):
            attributes[f"{name}-total"] = float(total)
            attributes[f"{name}-rate"] = self._ledger.rate_of(f"{name} {listener}", now_s)
        attributes["successful-authentication-no-reauth-total"] = float(totals.logins_without_renewal)
        since_ms = self._server.clock.monotonic_ms() - self._ledger.window.whole_ms
        renewals = [took_ms for at_ms, took_ms in totals.renewal_times_ms if at_ms > since_ms]
        if renewals:
            attributes["reauthentication-latency-avg"] = sum(renewals) / len(renewals)
            attributes["reauthentication-latency-max"] = float(max(renewals))
        attributes["request-size-max"] = (
            float(max(totals.largest_answer(), *self._largest_answers[listener])) or math.nan
        )
        idle = self._process.idle_share
        attributes["io-wait-ratio"], attributes["io-ratio"] = idle, 1.0 - idle
        attributes["io-waittime-total"] = attributes["io-wait-time-ns-total"] = float(self._process.idle_ns)
        attributes["iotime-total"] = attributes["io-time-ns-total"] = self._process.cpu_ns
        attributes["expired-connections-killed-count"] = float(totals.idle_closed)
        return attributes

    def channels(self) -> MBeans:
        """Yield the connections to other brokers."""
        server = self._server
        own: Tags = (("BrokerId", str(server.broker_id)),)
        yield connections(self._ledger, "alter-partition-metrics", own, server.controller_channel.totals)
        yield connections(self._ledger, "forwarding-metrics", own, ChannelTotals())
        verifications = server.transaction_verifier.connections.totals
        yield connections(self._ledger, "AddPartitionsManager-channel-metrics", (), verifications)
        yield connections(self._ledger, "txn-marker-channel-metrics", (), server.transaction_coordinator.marker_totals)
        for fetcher in server.replica_manager.fetchers.fetchers:
            tags = (("broker-id", str(fetcher.leader.node.id)), ("fetcher-id", str(fetcher.fetcher_id)))
            yield connections(self._ledger, "replica-fetcher-metrics", tags, fetcher.leader.totals)
        verifier = server.transaction_verifier
        failures = self._ledger.meter("verification failures", "failures", verifier.failures_total)
        yield MBean("kafka.server", "AddPartitionsToTxnManager", "VerificationFailureRate", (), failures)
        times = verifier.times_ms.attributes()
        yield MBean("kafka.server", "AddPartitionsToTxnManager", "VerificationTimeMs", (), times)


def listener_totals(totals: NetworkTotals, answers: int) -> tuple[tuple[str, int], ...]:
    """Return what one listener has counted, under the names of Kafka's selector without ``-total`` and ``-rate``."""
    requests, bytes_in = totals.received()
    return (
        ("connection-close", totals.closed),
        ("connection-creation", totals.accepted),
        ("failed-authentication", totals.failed_logins),
        ("failed-reauthentication", totals.failed_renewals),
        ("incoming-byte", bytes_in),
        ("network-io", answers + requests),
        ("outgoing-byte", totals.bytes_out()),
        ("request", answers),
        ("response", requests),
        ("successful-authentication", totals.logins),
        ("successful-reauthentication", totals.renewals),
    )


def connections(ledger: Ledger, type_: str, tags: Tags, totals: ChannelTotals) -> MBean:
    """Return what is known of a channel to other brokers."""
    now_s = ledger.now_s
    attributes = selector(
        connections=totals.created - totals.closed,
        created=totals.created,
        closed=totals.closed,
        bytes_in=totals.bytes_in,
        bytes_out=totals.bytes_out,
        requests=totals.requests,
        responses=totals.responses,
        request_size=totals.bytes_out / totals.requests if totals.requests else math.nan,
    )
    attributes["request-size-max"] = float(totals.largest_request)
    for name, total in (
        ("connection-creation-rate", totals.created),
        ("connection-close-rate", totals.closed),
        ("incoming-byte-rate", totals.bytes_in),
        ("outgoing-byte-rate", totals.bytes_out),
        ("request-rate", totals.requests),
        ("response-rate", totals.responses),
    ):
        attributes[name] = ledger.rate(f"{type_} {tags} {name}", now_s, total)
    return MBean("kafka.server", type_, None, tags, attributes)


def selector(
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
    """Return the attributes of one of Kafka's selectors; nothing waits for sockets here, so those times are 0."""
    attributes: dict[str, object] = {
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
    for name in _LOGINS:
        attributes[f"{name}-rate"] = attributes[f"{name}-total"] = 0.0
    return attributes
