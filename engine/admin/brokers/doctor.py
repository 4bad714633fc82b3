"""Checks the connection to a cluster step by step, as a person would look for the problem.

The checks of ZooKeeper and those of the brokers each end at the first step that fails. If an address does not answer
but another one does, the checks continue with that one, as commands do.

For ZooKeeper: name, port, login, znodes. For the brokers: name, port, TLS, login, APIs, rights, and the connection to
every broker that the cluster names.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from engine.admin.brokers.self_report import release_of
from engine.admin.cluster.certificates import Validity, expiry_text
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, FailureKind, MixedClusters, Unreachable
from engine.admin.cluster.remedies import CHECK_NAME, START_IT, Phrase, Words
from engine.admin.cluster.rights import NOT_TOLD, Right
from engine.admin.cluster.wire_failures import unreachable
from engine.common.acl import AclOperation, ResourceType
from engine.common.clock import SystemClock
from engine.common.errors import ConfigError
from engine.common.model import address_text
from engine.common.quantities import counted
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import NetworkError, TlsFailed
from engine.kafka.client.listener_probe import explained
from engine.kafka.protocol.apis.describe_cluster import DescribeClusterRequest
from engine.kafka.zk.connect_string import server_addresses
from engine.kafka.zk.errors import NoAuth, NoNode

T = TypeVar("T")

_STEP_S_MAX = 10.0
_SILENT = "the broker hangs, or something else listens there; or this port is for TLS: see security.protocol"


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its subject, its result, and what to do if it failed."""

    name: str
    where: str
    found: str
    failure: FailureKind | None = None
    hint: Words | None = None


class _Failed(Exception):
    """The way ends here."""

    def __init__(self, step: Step) -> None:
        super().__init__(step.found)
        self.step = step


async def walk(cluster: Cluster) -> AsyncIterator[Step]:
    """Yield the steps to a cluster's ZooKeeper, then those to its brokers; the last one of each may have failed."""
    target, names_brokers = cluster.target, bool(cluster.target.bootstrap)
    if target.may_ask_zookeeper:
        try:
            async for step in _to_zookeeper(cluster):
                yield step
            names_brokers = True
        except _Failed as failed:
            yield failed.step
    if target.may_ask_brokers and names_brokers:
        try:
            async for step in _to_brokers(cluster):
                yield step
        except _Failed as failed:
            yield failed.step


async def _to_zookeeper(cluster: Cluster) -> AsyncIterator[Step]:
    connect = cluster.target.zookeeper or ""
    servers, count_open = server_addresses(connect), 0
    for index, (host, port) in enumerate(servers, 1):
        async for step in _reach("ZooKeeper", host, port, is_last=index == len(servers) and not count_open):
            yield step
        count_open += step.failure is None
    zk = await _tried("ZooKeeper login", connect, cluster.zookeeper)
    who = " and ".join(zk.security.identities) or "anonymous: no login"
    yield Step("ZooKeeper login", connect, f"{who}{', over TLS' if zk.security.tls else ''}")

    async def look() -> str:
        try:
            brokers = await zk.children("/brokers/ids")
        except NoNode:
            raise Unreachable(
                "no cluster's znodes are there", where=connect, hint="check the part after the slash"
            ) from None
        try:
            await zk.get("/config/users")
            secrets = ""
        except (NoAuth, NoNode) as error:
            secrets = "; secrets are hidden from this session" if isinstance(error, NoAuth) else ""
        return f"{counted(len(brokers), 'broker')} registered{secrets}"

    yield Step("znodes", connect, await _tried("znodes", connect, look))


async def _to_brokers(cluster: Cluster) -> AsyncIterator[Step]:
    security = cluster.target.client_properties.security
    wire = await _tried("brokers", cluster.target.name, cluster.wire)
    first = cluster.target.bootstrap or await _tried("brokers", cluster.target.name, _addresses(cluster))
    count_open = 0
    for index, (host, port) in enumerate(first, 1):
        async for step in _reach("broker", host, port, is_last=index == len(first) and not count_open):
            yield step
        if step.failure is not None:
            continue
        count_open += 1
        async for step in _admission(cluster, host, port):
            yield step
    yield await _rights(cluster)
    nodes = await _tried("brokers", cluster.target.name, wire.nodes)
    named = {(node.host, node.port): broker for broker, node in nodes.items()}
    for (host, port), broker in sorted(named.items(), key=lambda item: item[1]):
        if (host, port) not in first:
            yield await _name(f"broker {broker}", host, port)
            yield await _port(f"broker {broker}", host, port)
            async for step in _admission(cluster, host, port, advertised_by=broker):
                yield step
    yield Step(
        "every broker",
        cluster.target.name,
        f"{counted(len(nodes), 'broker')} at the addresses they advertise, {security.protocol.name}",
    )


def _addresses(cluster: Cluster) -> Callable[[], Coroutine[Any, Any, tuple[tuple[str, int], ...]]]:
    async def read() -> tuple[tuple[str, int], ...]:
        from engine.admin.cluster.zookeeper import registered_addresses

        return await registered_addresses(await cluster.zookeeper(), cluster.target.client_properties.security_protocol)

    return read


async def _reach(who: str, host: str, port: int, *, is_last: bool) -> AsyncIterator[Step]:
    """Yield the steps to a port. If one fails it is the end of them, and (``is_last``) of the walk."""
    try:
        yield await _name(who, host, port)
        yield await _port(who, host, port)
    except _Failed as failed:
        if is_last:
            raise
        yield failed.step


async def _name(who: str, host: str, port: int) -> Step:
    where = address_text(host, port)
    try:
        async with asyncio.timeout(_STEP_S_MAX):
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or "no answer in time"
        raise _Failed(
            Step(f"{who} name", where, f"cannot be resolved ({reason})", FailureKind.UNREACHABLE, CHECK_NAME)
        ) from error
    addresses = ", ".join(dict.fromkeys(str(info[4][0]) for info in infos))
    return Step(f"{who} name", where, addresses)


async def _port(who: str, host: str, port: int) -> Step:
    where, began = address_text(host, port), time.monotonic()
    try:
        async with asyncio.timeout(_STEP_S_MAX):
            _, writer = await asyncio.open_connection(host, port)
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
    except ConnectionRefusedError as error:
        step = Step(f"{who} port", where, "refuses connections", FailureKind.UNREACHABLE, START_IT)
        raise _Failed(step) from error
    except (OSError, TimeoutError) as error:
        hint = "a firewall may drop what is sent there, or the machine is down"
        reason = getattr(error, "strerror", None) or "no answer in time"
        raise _Failed(Step(f"{who} port", where, reason.lower(), FailureKind.UNREACHABLE, hint)) from error
    return Step(f"{who} port", where, f"open, {(time.monotonic() - began) * 1000:.1f} ms")


async def _admission(
    cluster: Cluster, host: str, port: int, *, advertised_by: int | None = None
) -> AsyncIterator[Step]:
    """Go through TLS, the login and the APIs of one broker."""
    properties, where = cluster.target.client_properties, address_text(host, port)
    security = properties.security
    whose = "" if advertised_by is None else f" (broker {advertised_by} advertises this address)"
    # The command's time must leave room to tell of it.
    step_s = min(cluster.timeout_s / 2, _STEP_S_MAX)
    client = BrokerClient(
        host, port, client_id=properties.client_id, connect_timeout_ms=int(step_s * 1000), security=security
    )
    began = time.monotonic()
    try:
        try:
            async with asyncio.timeout(step_s):
                await client.connect()
                offered = await client.api_versions()
        except TimeoutError as error:
            silent = f"takes the connection, and says nothing within {step_s:g} s{whose}"
            raise _Failed(Step("API versions", where, silent, FailureKind.UNREACHABLE, _SILENT)) from error
        except NetworkError as error:
            failure = unreachable(await explained(error, host, port, security))
            is_login = security.sasl is not None and not isinstance(error, TlsFailed)
            if is_login and security.tls is not None:
                yield await _tls(cluster, host, port)
            name = "TLS" if isinstance(error, TlsFailed) else "login" if is_login else "API versions"
            raise _Failed(Step(name, where, f"{failure.message}{whose}", failure.kind, failure.hint)) from error
        except ConfigError as error:
            raise _Failed(Step("TLS", where, str(error), FailureKind.USAGE)) from error
        took_ms = (time.monotonic() - began) * 1000
        if security.tls is not None:
            yield await _tls(cluster, host, port)
        if security.sasl is not None:
            yield Step("login", where, f"{security.sasl.identity}, {took_ms:.0f} ms with all before it")
        release = release_of(offered)
        yield Step("API versions", where, f"{len(offered)} APIs{f', as of Kafka {release}' if release else ''}")
    finally:
        await client.close()


async def _tls(cluster: Cluster, host: str, port: int) -> Step:
    """Shake hands once more, to tell of the broker's certificate."""
    from engine.kafka.client.tls.context import client_context

    settings, where = cluster.target.client_properties.security.tls, address_text(host, port)
    assert settings is not None
    async with asyncio.timeout(_STEP_S_MAX):
        _, writer = await asyncio.open_connection(host, port, ssl=client_context(settings), server_hostname=host)
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    certificate: dict[str, Any] = writer.get_extra_info("peercert") or {}
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()
    names = ", ".join(value for _, value in certificate.get("subjectAltName", ())) or "no name"
    validity = Validity.of(certificate)
    until = "?" if validity is None else validity.last_day
    left_ms = None if validity is None else validity.left_ms(SystemClock().now_ms())
    return Step(
        "TLS",
        where,
        f"{tls.version()}, certificate for {names}, valid until {until}",
        hint=None
        if left_ms is None
        else f"the certificate of {where} {expiry_text(left_ms)}: give that broker a new one",
    )


async def _rights(cluster: Cluster) -> Step:
    """Say what this principal may do with the cluster, as far as the brokers say."""
    where = cluster.target.name
    describe = Right(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    hint: Words | None = None

    async def look() -> str:
        nonlocal hint
        wire = await cluster.wire()
        topics = len((await wire.metadata(None)).topics)
        try:
            answer = await wire.call_any(DescribeClusterRequest(include_cluster_authorized_operations=True))
            bits = answer.cluster_authorized_operations
        except AdminError:
            # Brokers before 2.8 do not tell.
            bits = NOT_TOLD
        if bits == NOT_TOLD:
            return f"sees {counted(topics, 'topic')}"
        if not bits >> AclOperation.DESCRIBE & 1:
            hint = Phrase("klamm cannot name what is hidden from this login; ", describe.remedy(cluster.principal))
        allowed = [operation.spelling for operation in AclOperation if bits >> operation & 1]
        return f"on the cluster: {', '.join(allowed) or 'nothing'}; sees {counted(topics, 'topic')}"

    text = await _tried("rights", where, look)
    return Step("rights", where, text, hint=hint)


async def _tried(name: str, where: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    try:
        return await work()
    except AdminError as error:
        text, hint = str(error.message), error.hint
        name = "same cluster" if isinstance(error, MixedClusters) else name
        raise _Failed(Step(name, where, text, error.kind, hint)) from error
