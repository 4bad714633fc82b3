"""What the health checks get from each source."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from event_loop import in_event_loop
from scripted_brokers import SILENCE as NOTHING_SAID
from scripted_brokers import scripted_cluster
from virtual_time import ManualClock

from engine.admin.cluster import hung
from engine.admin.cluster.client_properties import ClientProperties, client_properties
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.snapshot_file import save_snapshot
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.health import reading
from engine.admin.health.checks import ZOOKEEPER_SLOW_MS, assess
from engine.admin.health.reading import BrokerProbe, read_health_facts, zookeeper_delay_ms
from engine.admin.health.report import Check, HealthFacts
from engine.common.clock import SystemClock
from engine.common.errors import ErrorCode
from engine.common.model import BrokerInfo, Endpoint, ReplicaAssignment, SecurityProtocol, TopicPartition
from engine.common.snapshot import ClusterSnapshot, FailedLogDir, PartitionSnapshot, SnapshotSource, TopicSnapshot
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from engine.kafka.protocol.apis.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from engine.kafka.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsResponse
from engine.kafka.zk.admin_nodes import ReassignPartitionsZNode
from engine.kafka.zk.brokers import BrokerIdZNode, BrokerRegistration
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import SessionLost
from engine.local.addresses import own_loopback_address

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SILENCE = "no answer within 3 s"
_LATE = "no answer to DescribeLogDirs within 2 s"


def _described(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = [
        DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        for resource in request.resources
    ]
    return DescribeConfigsResponse(results=results)


def test_of_a_snapshot_is_told_what_it_has(tmp_path: Path) -> None:
    topic = TopicSnapshot("t", (PartitionSnapshot(0, ReplicaAssignment((0,)), 0, (0,)),), configs={})
    settings = {None: {"min.insync.replicas": "2"}}
    snapshot = ClusterSnapshot((), (topic,), SnapshotSource.WIRE, 0, broker_configs=settings)
    save_snapshot(snapshot, tmp_path / "s.json")

    async def run() -> HealthFacts:
        async with Cluster(ClusterTarget("s", Origin.SNAPSHOT, snapshot=tmp_path / "s.json")) as cluster:
            return await read_health_facts(cluster)

    assert asyncio.run(run()) == HealthFacts(snapshot, {"t": 2})


@pytest.mark.parametrize(
    ("failed", "offline", "complaints"),
    [
        (None, {}, ["this snapshot does not show whether log dirs have failed; one taken with sizes does"]),
        ((), {}, []),
        (
            (FailedLogDir(1, "/d1", "KAFKA_STORAGE_ERROR"), FailedLogDir(1, "/d2", "KAFKA_STORAGE_ERROR")),
            {1: ("/d1", "/d2")},
            [],
        ),
        (
            (FailedLogDir(2, None, _LATE),),
            {},
            [f"this snapshot does not show whether log dirs of broker 2 have failed: {_LATE}"],
        ),
    ],
)
def test_log_dirs_that_had_failed_when_a_snapshot_was_taken(
    tmp_path: Path,
    failed: tuple[FailedLogDir, ...] | None,
    offline: dict[int, tuple[str, ...]],
    complaints: list[str],
) -> None:
    save_snapshot(ClusterSnapshot((), (), SnapshotSource.WIRE, 0, failed_log_dirs=failed), tmp_path / "s.json")
    heard: list[str] = []

    async def run() -> HealthFacts:
        target = ClusterTarget("s", Origin.SNAPSHOT, snapshot=tmp_path / "s.json")
        async with Cluster(target, complain=heard.append) as cluster:
            return await read_health_facts(cluster)

    assert asyncio.run(run()).offline_log_dirs == offline
    assert heard == complaints


@in_event_loop
async def test_brokers_that_are_known_to_be_silent_are_not_asked_again() -> None:
    async with asyncio.timeout(60), scripted_cluster(2) as brokers:
        brokers.leaders = {"t": [0]}
        for broker in brokers.brokers:
            broker.answers[ApiKey.DESCRIBE_CONFIGS] = _described
            broker.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: DescribeLogDirsResponse(results=[])
        target = ClusterTarget("t", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
        async with Cluster(target, timeout_s=20) as cluster:
            (await cluster.wire()).silent[1] = SILENCE
            facts = await read_health_facts(cluster)
        assert facts.silent_brokers == {1: SILENCE}
        assert facts.seen_controllers == {0: 0}
        assert (facts.is_kraft, facts.caps_min_isr) == (True, False)
        assert (facts.min_isr, facts.zookeeper_ms) == ({"t": 1}, None)
        assert brokers.brokers[0].requests(DescribeLogDirsRequest)
        assert not brokers.brokers[1].requests(DescribeLogDirsRequest)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
@in_event_loop
async def test_whether_anybody_says_what_moves(error: ErrorCode) -> None:
    async with asyncio.timeout(60), scripted_cluster(1) as brokers:
        brokers.leaders = {"t": [0]}
        answers = brokers.brokers[0].answers
        answers[ApiKey.DESCRIBE_CONFIGS] = _described
        answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: DescribeLogDirsResponse(results=[])
        answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: ListPartitionReassignmentsResponse(error_code=error)
        target = ClusterTarget("t", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
        async with Cluster(target, timeout_s=20) as cluster:
            facts = await read_health_facts(cluster)
        assert facts.are_moves_known == (error is ErrorCode.NONE)


@in_event_loop
async def test_an_address_that_hangs_is_named_beside_a_missing_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    real, limits = hung.hangs, list[float]()

    def hangs(address: tuple[str, int], properties: ClientProperties, limit_s: float) -> Awaitable[bool]:
        limits.append(limit_s)
        return real(address, properties, 0.5)

    monkeypatch.setattr(hung, "hangs", hangs)
    with socket.create_server((own_loopback_address(), 0)) as frozen, socket.create_server(("127.0.0.1", 0)) as ended:
        hung_name, free = frozen.getsockname(), ended.getsockname()
        ended.close()
        async with asyncio.timeout(60), scripted_cluster(1) as brokers:
            brokers.leaders, brokers.replicas = {"t": [0]}, {("t", 0): [0]}
            answers = brokers.brokers[0].answers
            answers[ApiKey.DESCRIBE_CONFIGS] = _described
            answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: DescribeLogDirsResponse(results=[])
            bootstrap = (*brokers.bootstrap, hung_name, free)
            target = ClusterTarget("t", Origin.OPTIONS, bootstrap=bootstrap)
            async with Cluster(target, timeout_s=15) as cluster:
                assert (await read_health_facts(cluster)).hung_addresses == (), "no broker is missing"
                brokers.replicas = {("t", 0): [0, 7]}
                facts = await read_health_facts(cluster)
    address = "{}:{}".format(*hung_name)
    assert facts.hung_addresses == (address,)
    assert limits == [1.5, 1.5], "a share of the command's time: it has more to read"
    (advice,) = [reason.advice for reason in assess(facts).reasons if reason.check is Check.MISSING_BROKERS]
    assert str(advice).startswith(f"no answer at {address}, where connections are taken: continue the process")
    assert str(advice).endswith(f"then {Check.MISSING_BROKERS.advice}")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
@in_event_loop
async def test_a_process_hangs_also_before_it_shakes_hands_or_takes_a_login(protocol: str) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN_LOGIN} username=a password=b;"}
    properties = client_properties({"security.protocol": protocol, **login}, "client.properties")
    with socket.create_server((own_loopback_address(), 0)) as server:
        address = server.getsockname()
        assert await hung.hangs(address, properties, 1)
    assert not await hung.hangs(address, properties, 1), "it has ended"


@pytest.mark.parametrize("is_for_long", [False, True])
@in_event_loop
async def test_a_controller_that_was_elected_meanwhile_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, is_for_long: bool
) -> None:
    """What brokers say of the controller is heard later than who it was."""
    monkeypatch.setattr(reading, "_SECOND_LOOK_S", 0.05)
    async with asyncio.timeout(60), scripted_cluster(2) as brokers:
        brokers.leaders = {"t": [0]}
        for broker in brokers.brokers:
            broker.answers[ApiKey.DESCRIBE_CONFIGS] = _described
            broker.answers[ApiKey.LEADER_AND_ISR] = pytest.fail
            broker.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: DescribeLogDirsResponse(results=[])
        probe, probed = reading.probe_brokers, 0

        async def elects(snapshot: ClusterSnapshot, **options: Any) -> dict[int, BrokerProbe]:
            nonlocal probed
            probed += 1
            brokers.controller_id = 1
            outcome = await probe(snapshot, **options)
            brokers.controller_id = 0 if is_for_long else 1
            return outcome

        monkeypatch.setattr(reading, "probe_brokers", elects)
        target = ClusterTarget("t", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
        async with Cluster(target, timeout_s=20) as cluster:
            facts = await read_health_facts(cluster)
        assert probed == 2
        checks = {reason.check for reason in assess(facts).reasons}
        assert checks == ({Check.SEVERAL_CONTROLLERS} if is_for_long else set())


async def _hangs(*_: object) -> None:
    await asyncio.sleep(60)


async def _loses_the_session(*_: object) -> None:
    raise SessionLost


async def _reaches_nobody(*_: object) -> None:
    raise Unreachable("nobody answers")


@pytest.mark.parametrize(
    ("reads", "why"),
    [
        (None, None),
        (_hangs, "no answer within 0.4 s"),
        (_loses_the_session, str(SessionLost())),
        (_reaches_nobody, "nobody answers"),
    ],
)
@in_event_loop
async def test_a_second_look_at_the_controller_asks_anew_who_is_there_and_no_broker_that_hung(
    monkeypatch: pytest.MonkeyPatch, reads: Callable[..., Awaitable[None]] | None, why: str | None
) -> None:
    """Broker 2 comes and wins while broker 1 hangs. If the second look fails, the first one counts."""
    monkeypatch.setattr(reading, "_SECOND_LOOK_S", 0.05)
    read, heard = reading.read_snapshot, list[str]()
    if reads is not None:
        monkeypatch.setattr(reading, "read_members", reads)
    async with asyncio.timeout(60), scripted_cluster(3) as brokers:
        brokers.leaders = {"t": [0]}
        for broker in brokers.brokers:
            broker.answers[ApiKey.DESCRIBE_CONFIGS] = _described
            broker.answers[ApiKey.LEADER_AND_ISR] = pytest.fail
            broker.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: DescribeLogDirsResponse(results=[])
        brokers.brokers[1].answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: NOTHING_SAID

        async def before_it_came(*given: Any, **options: Any) -> ClusterSnapshot:
            snapshot = await read(*given, **options)
            brokers.controller_id = 2
            return replace(snapshot, brokers=snapshot.brokers[:2])

        monkeypatch.setattr(reading, "read_snapshot", before_it_came)
        target = ClusterTarget("t", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
        async with Cluster(target, timeout_s=2, complain=heard.append) as cluster:
            facts = await read_health_facts(cluster)
        assert len(brokers.brokers[1].requests(DescribeLogDirsRequest)) == 1
        assert list(facts.silent_brokers) == [1]
        checks = {reason.check for reason in assess(facts).reasons}
        if why is None:
            assert (facts.snapshot.controller_id, checks, heard) == (2, {Check.SILENT_BROKERS}, [])
            assert facts.seen_controllers == {0: 2, 2: 2}
        else:
            assert checks == {Check.SILENT_BROKERS, Check.SEVERAL_CONTROLLERS}
            complaint = "the controller is that of a moment ago, because it could not be read again"
            assert heard == [f"{complaint}: {why}"]


@pytest.mark.parametrize("is_frozen", [False, True])
@in_event_loop
async def test_a_controller_that_waits_for_zookeeper_is_no_silent_broker(is_frozen: bool) -> None:
    async with asyncio.timeout(60), scripted_cluster(2) as brokers:
        brokers.leaders = {"t": [0]}
        for broker in brokers.brokers:
            broker.answers[ApiKey.DESCRIBE_CONFIGS] = _described
            broker.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: DescribeLogDirsResponse(results=[])
        if is_frozen:
            brokers.brokers[0].answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: NOTHING_SAID
        target = ClusterTarget("t", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
        async with Cluster(target, timeout_s=20) as cluster:
            (await cluster.wire()).silent[0] = SILENCE
            facts = await read_health_facts(cluster)
        assert (facts.silent_brokers, facts.idle_controller) == (({0: SILENCE}, None) if is_frozen else ({}, SILENCE))
        examples = {reason.check: reason.examples for reason in assess(facts).reasons}
        example = (f"broker 0 is the controller, and answers, but not as the controller: {SILENCE}; is ZooKeeper up?",)
        assert examples.get(Check.NO_CONTROLLER) == (None if is_frozen else example)
        assert (Check.SILENT_BROKERS in examples) == is_frozen


@pytest.mark.parametrize(
    ("fetch_max", "offers_leader_and_isr", "expected"),
    [(15, True, (False, False)), (16, True, (False, True)), (17, False, (True, True))],
)
@in_event_loop
async def test_what_kind_of_broker_it_is_is_seen_from_its_apis(
    fetch_max: int, offers_leader_and_isr: bool, expected: tuple[bool, bool]
) -> None:
    versions = {ApiKey.FETCH: fetch_max}
    async with asyncio.timeout(60), scripted_cluster(1, version_max=versions) as brokers:
        broker = brokers.brokers[0]
        broker.answers |= {
            ApiKey.DESCRIBE_CONFIGS: _described,
            ApiKey.DESCRIBE_LOG_DIRS: lambda _: DescribeLogDirsResponse(results=[]),
            ApiKey.FETCH: pytest.fail,
        }
        if offers_leader_and_isr:
            broker.answers[ApiKey.LEADER_AND_ISR] = pytest.fail
        target = ClusterTarget("t", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
        async with Cluster(target, timeout_s=20) as cluster:
            facts = await read_health_facts(cluster)
        assert (facts.is_kraft, facts.caps_min_isr) == expected


@in_event_loop
async def test_zookeeper_tells_of_deletions_reassignments_and_itself(zk_chroot: str) -> None:
    async with await ZkClient.connect(zk_chroot, session_timeout_ms=6_000) as zk:
        await zk.ensure_path("/admin/delete_topics/t")
        await zk.create("/admin/reassign_partitions", ReassignPartitionsZNode.encode({TopicPartition("u", 1): (2,)}))
        await zk.ensure_path("/brokers/topics/damaged")
        info = BrokerInfo(1, (Endpoint.of_protocol("127.0.0.1", 1, SecurityProtocol.PLAINTEXT),))
        await zk.ensure_path("/brokers/ids")
        await zk.create("/brokers/ids/1", BrokerIdZNode.encode(BrokerRegistration(info, 0)))
        # A change of its listeners writes it again; when it was created says nothing about clocks.
        registered = await zk.exists("/brokers/ids/1")
        assert registered is not None
        while (now_ms := SystemClock().now_ms()) <= registered.ctime_ms:
            await asyncio.sleep(0)
        await zk.set("/brokers/ids/1", BrokerIdZNode.encode(BrokerRegistration(info, now_ms + 300_000)))
        written = await zk.exists("/brokers/ids/1")
        assert written is not None and written.mtime_ms > registered.ctime_ms
        stat = await zk.exists("/admin/delete_topics/t")
        assert stat is not None
    address, _, chroot = zk_chroot.partition("/")
    gone = f"{own_loopback_address()}:1"
    target = ClusterTarget("t", Origin.OPTIONS, zookeeper=f"{address},{gone}/{chroot}")
    async with asyncio.timeout(60), Cluster(target, timeout_s=20) as cluster:
        facts = await read_health_facts(cluster, ManualClock(stat.ctime_ms + 1_500))
    assert facts.deletion_ages_ms == {"t": 1_500}
    assert facts.listed_reassignments == ("u-1",)
    assert facts.clocks_apart_ms == {1: now_ms + 300_000 - written.mtime_ms}
    assert facts.zookeeper_ms is not None
    assert facts.zookeepers_down == (f"{gone} refuses connections; 1 of 2 servers serve",)
    (complaint,) = facts.unreadable_topics
    assert "/brokers/topics/damaged" in complaint


@in_event_loop
async def test_a_frozen_broker_takes_only_a_part_of_the_time_there_is() -> None:
    """The rest of the answer is worth more than waiting for one broker."""
    async with asyncio.timeout(60), scripted_cluster(2) as brokers:
        brokers.leaders = {"t": [0]}
        for broker in brokers.brokers:
            broker.answers[ApiKey.DESCRIBE_CONFIGS] = _described
            broker.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: DescribeLogDirsResponse(results=[])
        brokers.brokers[1].answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: NOTHING_SAID
        target = ClusterTarget("t", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
        async with Cluster(target, timeout_s=5) as cluster:
            facts = await read_health_facts(cluster)
        assert list(facts.silent_brokers) == [1]
        assert facts.silent_brokers[1] in ("no answer within 2 s", _LATE)


def test_a_slow_zookeeper_is_told_from_a_late_loop() -> None:
    async def answers_in(*delays_s: float) -> float:
        left = iter(delays_s)

        async def read() -> None:
            await asyncio.sleep(next(left))

        return await zookeeper_delay_ms(read)

    async def under_load() -> float:
        """ZooKeeper answers at once, and something else holds the loop for longer than a slow ZooKeeper would."""

        async def hold() -> None:
            while True:
                time.sleep(2 * ZOOKEEPER_SLOW_MS / 1000)
                await asyncio.sleep(0)

        holding = asyncio.create_task(hold())
        try:
            # Answers come from a thread, as those of ZooKeeper's client do.
            return await zookeeper_delay_ms(partial(asyncio.to_thread, int))
        finally:
            holding.cancel()

    assert asyncio.run(answers_in(0.15, 0.15, 0.15)) > ZOOKEEPER_SLOW_MS
    assert asyncio.run(answers_in(0.15, 0.001)) < ZOOKEEPER_SLOW_MS, "one late answer is no verdict"
    assert asyncio.run(under_load()) < ZOOKEEPER_SLOW_MS
