"""The way to a cluster, step by step: what each step finds, and at which one the walk ends."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from certificates import Authority
from event_loop import in_event_loop, staged
from scripted_brokers import HANG_UP, ScriptedCluster, scripted_cluster

from engine.admin.brokers.doctor import Step, walk
from engine.admin.cluster.client_properties import client_properties
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import FailureKind
from engine.admin.cluster.remedies import CHECK_NAME, START_IT
from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.health.reading import read_health_facts
from engine.common.acl import AclOperation
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_cluster import DescribeClusterResponse
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from engine.kafka.protocol.apis.describe_log_dirs import DescribeLogDirsResponse
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.operations import Acl
from engine.local.addresses import own_loopback_address

DESCRIBE = 1 << AclOperation.DESCRIBE.value
NOT_TOLD = -(2**31)


async def walked(target: ClusterTarget, timeout_s: float = 5.0) -> list[Step]:
    async with asyncio.timeout(60), Cluster(target, timeout_s=timeout_s) as cluster:
        return [step async for step in walk(cluster)]


def by_wire(*bootstrap: tuple[str, int]) -> ClusterTarget:
    return ClusterTarget("brokers", Origin.OPTIONS, bootstrap=bootstrap)


def by_zookeeper(connect: str) -> ClusterTarget:
    return ClusterTarget("znodes", Origin.OPTIONS, zookeeper=connect, via=Side.ZOOKEEPER)


def names(steps: list[Step]) -> list[str]:
    return [step.name for step in steps]


def last(steps: list[Step]) -> Step:
    """Return the step that failed; all before it did not."""
    assert [step.failure for step in steps[:-1]] == [None] * (len(steps) - 1)
    assert steps[-1].failure is not None
    return steps[-1]


def scripted(scene: Callable[[ScriptedCluster], Awaitable[None]]) -> None:
    async def playing() -> None:
        async with scripted_cluster(2) as cluster:
            cluster.leaders = {"orders": [0], "clicks": [1]}
            for broker in cluster.brokers:
                broker.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: DescribeClusterResponse(
                    cluster_authorized_operations=DESCRIBE
                )
            await scene(cluster)

    asyncio.run(playing())


@staged(scripted)
async def test_the_way_to_every_broker(cluster: ScriptedCluster, /) -> None:
    first, second = cluster.bootstrap
    steps = await walked(by_wire(first))
    assert [(step.name, step.where) for step in steps] == [
        *((name, f"{first[0]}:{first[1]}") for name in ("broker name", "broker port", "API versions")),
        ("rights", "brokers"),
        *((name, f"{second[0]}:{second[1]}") for name in ("broker 1 name", "broker 1 port", "API versions")),
        ("every broker", "brokers"),
    ]
    assert not any(step.failure for step in steps)
    assert steps[3].found == "on the cluster: Describe; sees 2 topics"
    assert steps[-1].found == "2 brokers at the addresses they advertise, PLAINTEXT"


@pytest.mark.parametrize(
    ("bits", "expected"),
    [(0, "on the cluster: nothing; sees 2 topics"), (NOT_TOLD, "sees 2 topics"), (None, "sees 2 topics")],
    ids=["no right", "not told", "before 2.8"],
)
@staged(scripted)
async def test_what_the_principal_may_do(cluster: ScriptedCluster, /, bits: int | None, expected: str) -> None:
    for broker in cluster.brokers:
        if bits is None:
            del broker.answers[ApiKey.DESCRIBE_CLUSTER]
        else:
            broker.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: DescribeClusterResponse(
                cluster_authorized_operations=bits
            )
    steps = await walked(by_wire(*cluster.bootstrap))
    (rights,) = [step for step in steps if step.name == "rights"]
    assert rights.found == expected
    assert (rights.hint is not None) == (bits == 0), "who cannot know what is hidden is told how to"


@staged(scripted)
async def test_a_broker_that_cannot_be_reached_at_the_address_it_advertises_is_named(
    cluster: ScriptedCluster, /
) -> None:
    """The brokers behind the bootstrap address answer, and clients get nowhere all the same."""
    first, second = cluster.brokers
    await second.stop()
    steps = await walked(by_wire((first.host, first.port)))
    failed = last(steps)
    assert (failed.name, failed.where) == ("broker 1 port", f"{second.host}:{second.port}")
    assert (failed.found, failed.failure, failed.hint) == (
        "refuses connections",
        FailureKind.UNREACHABLE,
        START_IT,
    )


@pytest.mark.parametrize(
    ("days", "hint", "left_days"),
    [
        ((-27, 4), "expires in 3 days: give that broker a new one", {0: 3, 1: 3}),
        ((-1, 30), None, {}),
    ],
)
@staged(scripted)
async def test_a_certificate_that_expires_soon_is_told_before_it_does(
    cluster: ScriptedCluster, /, days: tuple[int, int], hint: str | None, left_days: dict[int, int], tmp_path: Path
) -> None:
    authority, (host, port) = Authority(), cluster.bootstrap[0]
    (tmp_path / "ca.pem").write_text(authority.pem)
    store = authority.sign("broker", [host], days=days).write_pem(tmp_path / "broker.pem")
    for broker in cluster.brokers:
        broker.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        broker.tls.load_cert_chain(store)
        broker.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: DescribeLogDirsResponse(results=[])
        broker.answers[ApiKey.DESCRIBE_CONFIGS] = lambda request: DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
                for asked in request.resources
            ]
        )
        await broker.stop()
        await broker.start()
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    target = replace(by_wire((host, port)), client_properties=client_properties(properties, "test"))
    assert [step.hint for step in await walked(target) if step.name == "TLS"] == [
        hint and f"the certificate of {broker.host}:{broker.port} {hint}" for broker in cluster.brokers
    ]
    async with Cluster(target, timeout_s=20) as opened:
        facts = await read_health_facts(opened)
    assert {broker: left // 86_400_000 for broker, left in facts.certificates_left_ms.items()} == left_days


@staged(scripted)
async def test_who_closes_the_connection_at_an_advertised_address_is_named_too(cluster: ScriptedCluster, /) -> None:
    first, second = cluster.brokers
    second._answer = lambda _: HANG_UP  # type: ignore[method-assign]
    failed = last(await walked(by_wire((first.host, first.port))))
    assert (failed.name, failed.where) == ("API versions", f"{second.host}:{second.port}")
    assert failed.found.endswith("(broker 1 advertises this address)")


@staged(scripted)
async def test_an_address_that_does_not_answer_ends_nothing_while_another_one_does(cluster: ScriptedCluster, /) -> None:
    dead = (own_loopback_address(), 9092)
    for addresses in ((dead, cluster.bootstrap[0]), (cluster.bootstrap[0], dead)):
        steps = await walked(by_wire(*addresses))
        assert [step.where for step in steps if step.failure is not None] == [f"{dead[0]}:{dead[1]}"]
        assert names(steps)[-1] == "every broker"


@in_event_loop
async def test_who_takes_connections_and_says_nothing_is_named_in_time() -> None:
    release = asyncio.Event()

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    async with await asyncio.start_server(hold, own_loopback_address(), 9092) as server:
        host, port = server.sockets[0].getsockname()
        async with asyncio.timeout(20):
            steps = await walked(by_wire((host, port)), timeout_s=1.0)
        release.set()
    failed = last(steps)
    assert names(steps) == ["broker name", "broker port", "API versions"]
    assert (failed.found, failed.failure) == (
        "takes the connection, and says nothing within 0.5 s",
        FailureKind.UNREACHABLE,
    )


@in_event_loop
async def test_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unresolved(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unresolved, raising=False)
    failed = last(await walked(by_wire(("nohost", 9092))))
    assert (failed.name, failed.where, failed.hint) == ("broker name", "nohost:9092", CHECK_NAME)
    assert failed.found == "cannot be resolved (Name or service not known)"


@in_event_loop
async def test_a_broker_that_is_not_there() -> None:
    steps = await walked(by_wire((own_loopback_address(), 9092)))
    failed = last(steps)
    assert names(steps) == ["broker name", "broker port"]
    assert (failed.found, failed.failure) == ("refuses connections", FailureKind.UNREACHABLE)


@in_event_loop
async def test_the_way_to_zookeeper(zk_chroot: str) -> None:
    async with await ZkClient.connect(zk_chroot, session_timeout_ms=6_000) as client:
        failed = last(await walked(by_zookeeper(zk_chroot)))
        assert (failed.name, failed.found) == ("znodes", "no cluster's znodes are there")
        assert failed.hint == "check the part after the slash"
        await client.ensure_path("/brokers/ids/3")
        steps = await walked(by_zookeeper(zk_chroot))
        assert names(steps) == ["ZooKeeper name", "ZooKeeper port", "ZooKeeper login", "znodes"]
        assert steps[2].found == "anonymous: no login"
        assert steps[3].found == "1 broker registered"
        await client.ensure_path("/config/users")
        assert (await walked(by_zookeeper(zk_chroot)))[3].found == "1 broker registered"
        await client.set_acl("/config/users", (Acl(2, "world", "anyone"),))
        assert (await walked(by_zookeeper(zk_chroot)))[3].found == (
            "1 broker registered; secrets are hidden from this session"
        )


@in_event_loop
async def test_brokers_are_found_in_zookeeper(zk_chroot: str) -> None:
    """Without a broker that is registered the walk ends there."""
    async with await ZkClient.connect(zk_chroot, session_timeout_ms=6_000) as client:
        await client.ensure_path("/brokers/ids")
        steps = await walked(ClusterTarget("both", Origin.OPTIONS, zookeeper=zk_chroot))
        assert names(steps) == ["ZooKeeper name", "ZooKeeper port", "ZooKeeper login", "znodes", "brokers"]
        assert last(steps).failure is FailureKind.UNREACHABLE
