"""Figures of connections under the names of Kafka's selectors."""

from __future__ import annotations

import math
from typing import Final

from engine.broker.metrics.ledger import Ledger
from engine.broker.metrics.mbeans import MBean, Tags
from engine.broker.metrics.requests import NetworkTotals
from engine.kafka.client.broker_client import ChannelTotals

_LOGINS: Final = (
    "failed-authentication",
    "failed-reauthentication",
    "successful-authentication",
    "successful-reauthentication",
)


def listener_totals(totals: NetworkTotals) -> tuple[tuple[str, int], ...]:
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


def connections(ledger: Ledger, type_: str, tags: Tags, totals: ChannelTotals) -> MBean:
    """Return what is known of a channel to other brokers."""
    now_s = ledger.now_s
    found = selector(
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
        found[name] = ledger.rate(f"{type_} {tags} {name}", now_s, total)
    return MBean("kafka.server", type_, None, tags, found)


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
    for name in _LOGINS:
        found[f"{name}-rate"] = found[f"{name}-total"] = 0.0
    return found
