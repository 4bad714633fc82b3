"""Single brokers, as each source reports them: a snapshot, ZooKeeper, the brokers themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from event_loop import staged
from scripted_brokers import SILENCE, ScriptedCluster, scripted_cluster

from engine.admin.brokers import by_wire
from engine.admin.brokers.access import BrokerReader, broker_reader
from engine.admin.brokers.load import BrokerLoad
from engine.admin.brokers.reading_load import read_broker_load
from engine.admin.brokers.self_report import Registered
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.snapshot_file import save_snapshot
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.topics.selection import select_topics
from engine.common.errors import ErrorCode
from engine.common.model import BrokerInfo, ReplicaAssignment, TopicPartition
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, ReplicaLog, SnapshotSource, TopicSnapshot
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsResponse
from engine.kafka.protocol.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


def topic(name: str, size_bytes: int) -> TopicSnapshot:
    logs = (ReplicaLog(0, "/x", size_bytes), ReplicaLog(1, "/y", size_bytes + 1))
    return TopicSnapshot(name, (PartitionSnapshot(0, ReplicaAssignment((0, 1)), 0, (0, 1), replica_logs=logs),))


SNAPSHOT = ClusterSnapshot(
    (BrokerInfo(0, ()), BrokerInfo(1, ())), (topic("t", 10), topic("u", 20)), SnapshotSource.ZOOKEEPER, 0
)


def read(target: ClusterTarget, reading: Callable[[Cluster], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), Cluster(target, timeout_s=10) as cluster:
            await reading(cluster)

    asyncio.run(run())


@pytest.fixture
def of_snapshot(tmp_path: Path) -> ClusterTarget:
    save_snapshot(SNAPSHOT, tmp_path / "s.json")
    return ClusterTarget("s", Origin.SNAPSHOT, snapshot=tmp_path / "s.json")


def test_of_a_snapshot(of_snapshot: ClusterTarget) -> None:
    async def reading(cluster: Cluster) -> None:
        assert cluster.snapshot() == SNAPSHOT
        reader: BrokerReader = broker_reader(cluster)
        assert await reader.registrations() == {}
        assert await reader.self_reports([0, 1]) == {}
        assert [(log_dir.broker, log_dir.log_dir) for log_dir in await reader.log_dirs(None, None)] == [
            (0, "/x"),
            (1, "/y"),
        ]
        (of_one,) = await reader.log_dirs([1], SNAPSHOT.topics[1:])
        assert [(replica.topic, replica.size_bytes) for replica in of_one.replicas] == [("u", 21)]
        assert await reader.sizes([T0]) == {T0: 11}
        assert await reader.sizes_of_brokers(SNAPSHOT.topics, are_all=True) == {0: 30, 1: 32}
        assert await reader.sizes_of_brokers(SNAPSHOT.topics[:1], are_all=False) == {0: 10, 1: 11}

    read(of_snapshot, reading)


def test_the_load_of_a_snapshot(of_snapshot: ClusterTarget) -> None:
    async def reading(cluster: Cluster) -> None:
        assert await read_broker_load(cluster, select_topics(["u"])) == [
            BrokerLoad(0, None, True, 1, 1, 1, 20),
            BrokerLoad(1, None, True, 1, 0, 0, 21),
        ]
        with pytest.raises(NotFound, match="'v' does not exist"):
            await read_broker_load(cluster, select_topics(["v"]))

    read(of_snapshot, reading)


def test_a_living_cluster_has_no_snapshot() -> None:
    cluster = Cluster(ClusterTarget("t", Origin.OPTIONS, zookeeper="127.0.0.1:1"))
    with pytest.raises(BadRequest, match="this needs a snapshot"):
        cluster.snapshot()


def test_of_zookeeper(recorded: Callable[[str], str]) -> None:
    async def reading(cluster: Cluster) -> None:
        registered = await broker_reader(cluster).registrations()
        assert sorted(registered) == [0, 1, 2]
        assert all(broker.at_ms is not None and broker.at_ms > 1_600_000_000_000 for broker in registered.values())
        assert {broker.jmx_port for broker in registered.values()} == {None}
        assert Registered() not in registered.values()

    read(ClusterTarget("t", Origin.OPTIONS, zookeeper=recorded("reassignment-under-way")), reading)


def told(request: DescribeLogDirsRequest, size_bytes: int = 5) -> DescribeLogDirsResponse:
    names = ["t", "u"] if request.topics is None else [topic.topic for topic in request.topics]
    partitions = [DescribeLogDirsPartition(partition_index=0, partition_size=size_bytes)]
    topics = [DescribeLogDirsTopic(name=name, partitions=partitions) for name in names]
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/data", topics=topics)])


def read_of_brokers(reading: Callable[[Cluster, ScriptedCluster], Awaitable[None]]) -> None:
    """Two brokers, each with a replica of ``t-0`` and of ``u-0``. Those of the first are one byte larger."""

    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(2) as brokers:
            brokers.leaders = {"t": [0], "u": [0]}
            brokers.brokers[0].answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda request: told(request, 6)
            brokers.brokers[1].answers[ApiKey.DESCRIBE_LOG_DIRS] = told
            target = ClusterTarget("t", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
            async with Cluster(target, timeout_s=10) as cluster:
                await reading(cluster, brokers)

    asyncio.run(playing())


@staged(read_of_brokers)
async def test_what_a_broker_has_told_before_it_fell_silent_is_kept(
    cluster: Cluster, brokers: ScriptedCluster, /
) -> None:
    cluster.timeout_s = 1.0
    brokers.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = lambda _: SILENCE
    report = (await broker_reader(cluster).self_reports([0]))[0]
    assert report.trouble == "no answer within 0.4 s"
    assert report.release is not None
    assert "Metadata" in {api.name for api in report.apis}


@staged(read_of_brokers)
async def test_of_the_brokers_themselves(cluster: Cluster, _: ScriptedCluster, /) -> None:
    reader = broker_reader(cluster)
    assert await reader.registrations() == {}
    log_dirs = await reader.log_dirs([0], SNAPSHOT.topics[:1])
    assert [(log_dir.broker, log_dir.log_dir, [r.topic for r in log_dir.replicas]) for log_dir in log_dirs] == [
        (0, "/data", ["t"])
    ]
    assert await reader.sizes([U0]) == {U0: 6}, "a partition is as large as its largest replica"
    assert await reader.sizes_of_brokers(SNAPSHOT.topics, are_all=True) == {0: 12, 1: 10}
    assert await reader.sizes_of_brokers(SNAPSHOT.topics[:1], are_all=False) == {0: 6, 1: 5}
    assert (await reader.self_reports([1]))[1].trouble is None


@staged(read_of_brokers)
async def test_who_is_silent_has_no_size(
    cluster: Cluster, brokers: ScriptedCluster, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_wire, "ONE_WITHIN_S", 0.2)
    brokers.brokers[1].answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: SILENCE
    assert await broker_reader(cluster).sizes_of_brokers(SNAPSHOT.topics, are_all=True) == {0: 12}


@staged(read_of_brokers)
async def test_who_has_a_failed_log_dir_has_no_size(cluster: Cluster, brokers: ScriptedCluster, /) -> None:
    """The size of its content is unknown, so the other log dirs are not everything that the broker holds."""

    def with_a_failed_one(request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        answer = told(request)
        failed = DescribeLogDirsResult(log_dir="/full", error_code=ErrorCode.KAFKA_STORAGE_ERROR.value)
        return DescribeLogDirsResponse(results=[*answer.results, failed])

    brokers.brokers[1].answers[ApiKey.DESCRIBE_LOG_DIRS] = with_a_failed_one
    assert await broker_reader(cluster).sizes_of_brokers(SNAPSHOT.topics, are_all=True) == {0: 12}


@pytest.mark.parametrize(("words", "asked"), [([], None), (["t"], ["t"])])
@staged(read_of_brokers)
async def test_the_load_of_all_topics_is_asked_for_without_naming_them(
    cluster: Cluster, brokers: ScriptedCluster, /, words: list[str], asked: list[str] | None
) -> None:
    named: list[list[str] | None] = []

    def noted(request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        named.append(None if request.topics is None else [topic.topic for topic in request.topics])
        return told(request)

    for broker in brokers.brokers:
        broker.answers[ApiKey.DESCRIBE_CONFIGS] = lambda _: DescribeConfigsResponse(results=[])
    brokers.brokers[0].answers[ApiKey.DESCRIBE_LOG_DIRS] = noted
    await read_broker_load(cluster, select_topics(words))
    assert named == [asked]
