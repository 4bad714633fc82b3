"""Finds out where brokers serve their metrics, and reads all at once, so that a slow broker does not delay others.

A profile or the caller may say where. Otherwise a setting of a klamm broker says it, and a broker of Apache Kafka
registers its JMX port in ZooKeeper.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeGuard

from engine.admin.brokers.access import broker_reader
from engine.admin.brokers.metrics import (
    Beans,
    BrokerFigures,
    Teller,
    TopicTraffic,
    figures_of,
    has_rates,
    patterns,
    traffic_of,
    traffic_patterns,
)
from engine.admin.brokers.metrics_sources import Reading, ReadJmx, Source, read_http, resolved_pattern, sources_of
from engine.admin.cluster.asking import FAILURES, answer_limit
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, Unreachable, no_live_broker
from engine.admin.cluster.members import read_members
from engine.common.model import BrokerInfo
from engine.kafka.client.tls.context import tls_settings

_KEY: Final = "klamm.metrics.listener"
MEASURE_S: Final = 2.0
"""Seconds between two readings of a broker that reports counts only."""

_LIMIT_SHARE, _ALL_SHARE = 0.4, 0.8
"""The shares of the operation's time that one reading of one broker may take, and all by JMX with the start of Java. A
JMX exporter needs many seconds for its page where a broker has thousands of partitions."""


@dataclass(frozen=True, slots=True)
class BrokerReading:
    """What one broker reported. Without ``beans`` there is a ``trouble``.

    ``before`` is what it had reported ``measured_s`` seconds earlier, if it reports counts only.
    """

    broker: int
    source: Source | None = None
    beans: Beans | None = None
    before: Beans | None = None
    measured_s: float | None = None
    trouble: str | None = None


async def read_figures(
    cluster: Cluster,
    read_jmx: ReadJmx,
    ids: Sequence[int] = (),
    *,
    pattern: str | None = None,
    requests: bool = False,
    topics: bool = False,
) -> list[BrokerFigures]:
    """Return what live brokers report (none named: all), by id. A broker that reports nothing has the reason.

    Args:
        pattern: where each broker serves its metrics, instead of what the profile says.

    Raises:
        BadRequest: the pattern is not the address of metrics.
        NotFound: no live broker has one of the ids.
    """
    wanted = patterns(requests=requests, topics=topics)
    answers = await read_beans(cluster, read_jmx, wanted, ids, pattern=pattern, measures=True)
    return [_figures(answer, requests=requests, topics=topics) for answer in answers]


def _figures(reading: BrokerReading, *, requests: bool, topics: bool) -> BrokerFigures:
    where = None if reading.source is None else str(reading.source)
    if reading.source is None or reading.beans is None:
        return BrokerFigures(reading.broker, where=where, trouble=reading.trouble)
    figures = figures_of(
        reading.beans, reading.broker, reading.before, reading.measured_s or 0.0, requests=requests, topics=topics
    )
    return replace(figures, told_by=reading.source.teller, where=where)


async def read_beans(
    cluster: Cluster,
    read_jmx: ReadJmx,
    wanted: Sequence[str],
    ids: Sequence[int] = (),
    *,
    pattern: str | None = None,
    measures: bool = False,
) -> list[BrokerReading]:
    """Return the MBeans of live brokers that have one of the names, by id; see ``read_figures``.

    Args:
        measures: read a broker that reports only counts twice.
    """
    pattern = pattern or cluster.target.metrics
    if pattern is not None:
        pattern = resolved_pattern(pattern)
    brokers = {member.id: member for member in (await read_members(cluster)).brokers}
    if unknown := sorted(set(ids) - set(brokers)):
        raise no_live_broker(", ".join(map(str, unknown)), brokers)
    registered = {} if pattern is not None else await broker_reader(cluster).registrations()
    ports = {broker: registration.jmx_port for broker, registration in registered.items()}
    sources = await _sources(cluster, [brokers[broker_id] for broker_id in sorted(set(ids) or brokers)], pattern, ports)
    limit_s = cluster.timeout_s * _LIMIT_SHARE
    return await _read_sources(sources, read_jmx, wanted, limit_s, cluster.timeout_s * _ALL_SHARE, measures=measures)


async def _read_sources(
    sources: Mapping[int, Source | str],
    read_jmx: ReadJmx,
    wanted: Sequence[str],
    limit_s: float,
    within_s: float,
    *,
    measures: bool,
) -> list[BrokerReading]:
    """Read all sources at once. Where a broker has none, a text says why."""
    by_jmx = {broker: source for broker, source in sources.items() if _is_jmx(source)}
    read = read_jmx(by_jmx, wanted, limit_s, within_s) if by_jmx else _nothing()
    by_http = [
        read_by_http(broker, source, wanted, limit_s, measures=measures)
        for broker, source in sources.items()
        if isinstance(source, Source) and broker not in by_jmx
    ]
    from_jmx, from_http = await asyncio.gather(_all_by_jmx(read, by_jmx), asyncio.gather(*by_http))
    silent = [BrokerReading(broker, trouble=why) for broker, why in sources.items() if isinstance(why, str)]
    return sorted([*from_jmx, *from_http, *silent], key=lambda figures: figures.broker)


def _is_jmx(source: Source | str) -> TypeGuard[Source]:
    return isinstance(source, Source) and source.teller is Teller.JMX


async def _nothing() -> dict[int, Beans | str]:
    return {}


async def _all_by_jmx(read: Awaitable[Mapping[int, Beans | str]], sources: Mapping[int, Source]) -> list[BrokerReading]:
    return [
        BrokerReading(broker, sources[broker], trouble=beans)
        if isinstance(beans, str)
        else BrokerReading(broker, sources[broker], beans)
        for broker, beans in (await read).items()
    ]


async def read_by_http(
    broker: int, source: Source, wanted: Sequence[str], limit_s: float, *, measures: bool
) -> BrokerReading:
    """Read a broker; if it reports counts only, read it again after a while: rates are made of both."""
    try:
        first = await _in_time(source, wanted, limit_s)
        if not measures or has_rates(first.beans):
            return BrokerReading(broker, first.source, first.beans)
        began_s = time.monotonic()
        await asyncio.sleep(MEASURE_S)
        second = await _in_time(first.source, wanted, limit_s)
        return BrokerReading(broker, second.source, second.beans, first.beans, time.monotonic() - began_s)
    except Unreachable as error:
        return BrokerReading(broker, source, trouble=str(error))


async def _in_time(source: Source, wanted: Sequence[str], limit_s: float) -> Reading:
    try:
        async with asyncio.timeout(limit_s):
            return await read_http(source, wanted)
    except TimeoutError:
        raise Unreachable(f"no answer within {limit_s:g} s", where=str(source)) from None


async def _sources(
    cluster: Cluster, brokers: Sequence[BrokerInfo], pattern: str | None, jmx_ports: Mapping[int, int | None]
) -> dict[int, Source | str]:
    """Return where each broker serves its metrics, or why that is not known.

    Args:
        jmx_ports: of each broker that is known to be registered in ZooKeeper.
    """
    tls = tls_settings(cluster.target.client_properties.entries)
    if pattern is not None:
        return sources_of(pattern, {broker.id: _host(broker) for broker in brokers}, tls)
    sources: dict[int, Source | str] = {}
    unknown: list[BrokerInfo] = []
    for broker in brokers:
        if port := jmx_ports.get(broker.id):
            sources[broker.id] = Source(Teller.JMX, _host(broker), port, tls=tls)
        else:
            unknown.append(broker)
    reason = (
        "it has no JMX port, and no other address of its metrics is known"
        if jmx_ports
        else "no address of its metrics is known; a JMX port would stand in ZooKeeper"
    )
    if not cluster.target.may_ask_brokers:
        return sources | dict.fromkeys((member.id for member in unknown), reason)
    listeners = await _listeners(cluster, unknown)
    return sources | {member.id: await _source_of_listener(member, listeners[member.id], reason) for member in unknown}


async def _listeners(cluster: Cluster, brokers: Sequence[BrokerInfo]) -> dict[int, str | AdminError | None]:
    """Return the metrics listeners of klamm's brokers; None of others, the failure of those that do not answer."""
    if not brokers:
        return {}
    try:
        # Open it once for all: each task below would open its own.
        await (await cluster.wire()).nodes()
    except AdminError as error:
        return dict.fromkeys((broker.id for broker in brokers), error)
    listeners = await asyncio.gather(*(_listener(cluster, broker.id) for broker in brokers))
    return dict(zip((broker.id for broker in brokers), listeners, strict=True))


async def _listener(cluster: Cluster, broker: int) -> str | AdminError | None:
    from engine.kafka.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    wire = await cluster.wire()
    resource = DescribeConfigsResource(resource_type=4, resource_name=str(broker), configuration_keys=[_KEY])
    try:
        async with answer_limit(wire, broker):
            response = await wire.call_broker(broker, DescribeConfigsRequest(resources=[resource]))
    except FAILURES as error:
        return error if isinstance(error, AdminError) else Unreachable(str(error))
    return next((c.value or None for r in response.results for c in r.configs if c.name == _KEY), None)


async def _source_of_listener(broker: BrokerInfo, listener: str | AdminError | None, reason: str) -> Source | str:
    if not isinstance(listener, str):
        return reason if listener is None else f"it does not report its settings: {listener}"
    host, _, port = listener.rpartition(":")
    host = host.strip("[]")
    if not port.isdecimal():
        return f"{_KEY}: '{listener}' is not an address"
    if host in ("", "0.0.0.0", "::"):
        host = _host(broker)
    elif await _is_here(host) and not await _is_here(_host(broker)):
        # The same address of this machine belongs to another process.
        return f"it serves its metrics to its own machine alone, at {listener}"
    return Source(Teller.JOLOKIA, host, int(port), "/jolokia")


async def _is_here(host: str) -> bool:
    """Whether an address belongs to this machine: only then can a socket have it."""
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _host(broker: BrokerInfo) -> str:
    return broker.endpoints[0].host if broker.endpoints else "localhost"


# Repeatedly, for a dashboard or an exporter

_WATCH_LIMIT_S, _WATCH_ALL_S = 8.0, 12.0
"""What one broker may take, and all by JMX. Nothing else waits for it, and a JMX exporter's page takes seconds."""


@dataclass(frozen=True, slots=True)
class WatchedFigures:
    """What brokers reported at one time.

    Attributes:
        brokers: by id; each live broker has some, or the reason why not.
        topics: the traffic of the topics in use.
        requests: how many questions it took.
        missing: what did not answer although it should, a line for each.
    """

    brokers: Mapping[int, BrokerFigures]
    topics: Mapping[str, TopicTraffic]
    requests: int
    missing: tuple[str, ...]


class FiguresReader:
    """Reads the same brokers' figures repeatedly.

    It finds out once where a broker serves them, until that broker does not answer. If a broker reports counts only, it
    makes rates between two readings.
    """

    def __init__(self, cluster: Cluster, read_jmx: ReadJmx) -> None:
        self._cluster = cluster
        self._read_jmx = read_jmx
        self._known: dict[BrokerInfo, Source] = {}
        self._before: dict[int, tuple[float, Beans]] = {}

    async def read(
        self,
        brokers: Collection[BrokerInfo],
        jmx_ports: Mapping[int, int | None],
        silent: Collection[int],
        *,
        topics: bool,
    ) -> WatchedFigures:
        """Read live brokers, except those that answer no request.

        Args:
            topics: read the traffic of each topic, too.

        Raises:
            BadRequest: what the profile says is not the address of metrics.
        """
        pattern = self._cluster.target.metrics
        if pattern is not None:
            pattern = resolved_pattern(pattern)
        asked = [broker for broker in brokers if broker.id not in silent]
        self._known = {broker: self._known[broker] for broker in asked if broker in self._known}
        new = [broker for broker in asked if broker not in self._known]
        sources_found = await _sources(self._cluster, new, pattern, jmx_ports)
        sources = {broker.id: sources_found.get(broker.id) or self._known[broker] for broker in asked}
        wanted = [*patterns(requests=False, topics=False), *(traffic_patterns() if topics else ())]
        readings = await _read_sources(sources, self._read_jmx, wanted, _WATCH_LIMIT_S, _WATCH_ALL_S, measures=False)
        answers = {
            answer.broker: answer.source
            for answer in readings
            if answer.source is not None and answer.beans is not None
        }
        self._known = {broker: answers[broker.id] for broker in asked if broker.id in answers}
        # Thousands of topics take longer than an event loop may stand still.
        figures = await asyncio.to_thread(self._figures, readings, topics)
        figures += [BrokerFigures(broker, trouble="it does not answer") for broker in sorted(silent)]
        # The start of a Java is work, whether a broker then answers it or not; waiting for a broker is none.
        has_java = any(map(_is_jmx, sources.values()))
        missing = [
            f"broker {answer.broker}: {answer.trouble}"
            for answer in readings
            if answer.source is not None and answer.trouble
        ]
        return WatchedFigures(
            {figure.broker: replace(figure, topics=None) for figure in figures},
            traffic_of(figures),
            len(new) + len(sources),
            () if has_java else tuple(missing),
        )

    def _figures(self, readings: Sequence[BrokerReading], topics: bool) -> list[BrokerFigures]:
        now_s, before = time.monotonic(), self._before
        counted = {
            answer.broker: answer.beans
            for answer in readings
            if answer.beans is not None and not has_rates(answer.beans)
        }
        self._before = {broker: (now_s, beans) for broker, beans in counted.items()}
        return [
            _figures(answer, requests=False, topics=topics)
            if answer.broker not in counted
            else _measured(answer, before.get(answer.broker), now_s, topics=topics)
            for answer in readings
        ]


def _measured(
    reading: BrokerReading, before: tuple[float, Beans] | None, now_s: float, *, topics: bool
) -> BrokerFigures:
    """Make rates of what a broker counts and what it had counted before."""
    if before is None:
        reading = replace(reading, trouble="it reports only counts: rates follow with its next reading")
        return replace(_figures(reading, requests=False, topics=topics), trouble=reading.trouble)
    return _figures(replace(reading, before=before[1], measured_s=now_s - before[0]), requests=False, topics=topics)
