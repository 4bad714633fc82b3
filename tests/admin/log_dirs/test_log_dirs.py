"""Log dirs when some brokers are dead or frozen: the others' are shown soon, and those brokers are named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from event_loop import staged
from scripted_brokers import SILENCE, ScriptedCluster, scripted_cluster

from engine.admin.brokers import by_wire
from engine.admin.brokers.reading_load import read_sizes
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.log_dirs.describing import LogDir, read_all_log_dirs, read_log_dirs
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from engine.kafka.protocol.apis.metadata import MetadataResponse

Scene = Callable[[ScriptedCluster, Cluster], Awaitable[None]]
T0 = TopicPartition("t", 0)


def play(scene: Scene, *, timeout_s: float = 1.0) -> None:
    """Play two brokers. ``t-0`` and ``u-0`` have replicas on brokers 0, 1 and 7, the last of which does not exist."""

    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(2) as brokers:
            brokers.leaders = {"t": [0], "u": [0]}
            tell = brokers.brokers[0].answers[ApiKey.METADATA]
            for broker in brokers.brokers:
                broker.answers[ApiKey.METADATA] = lambda request: on_three(tell(request))
                broker.answers[ApiKey.DESCRIBE_LOG_DIRS] = told
            target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
            async with Cluster(target, timeout_s=timeout_s) as cluster:
                await scene(brokers, cluster)

    asyncio.run(playing())


def on_three(metadata: MetadataResponse) -> MetadataResponse:
    for topic in metadata.topics:
        topic.partitions[0].replica_nodes = [0, 1, 7]
    return metadata


def told(request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    partitions = [DescribeLogDirsPartition(partition_index=0, partition_size=5)]
    names = ["t", "u"] if request.topics is None else [topic.topic for topic in request.topics]
    topics = [DescribeLogDirsTopic(name=name, partitions=partitions) for name in names]
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/data", topics=topics)])


def short(dirs: list[LogDir]) -> list[tuple[int, str | None, int, str | None]]:
    return [(log_dir.broker, log_dir.log_dir, log_dir.replica_count, log_dir.error) for log_dir in dirs]


@staged(play)
async def test_a_broker_that_is_gone_is_named(_: ScriptedCluster, cluster: Cluster, /) -> None:
    rows = short(await read_all_log_dirs(cluster))
    assert rows == [(0, "/data", 2, None), (1, "/data", 2, None), (7, None, 0, "not alive")]


@staged(play)
async def test_for_some_topics_it_is_named_where_it_has_their_replicas(_: ScriptedCluster, cluster: Cluster, /) -> None:
    def topic(*replicas: int) -> TopicSnapshot:
        return TopicSnapshot("t", (PartitionSnapshot(0, ReplicaAssignment(replicas)),))

    assert short(await read_all_log_dirs(cluster, [topic(0, 1)])) == [(0, "/data", 1, None), (1, "/data", 1, None)]
    assert short(await read_all_log_dirs(cluster, [topic(0, 9)]))[-1] == (9, None, 0, "not alive")


@staged(play)
async def test_one_that_stands_still_takes_no_longer_than_in_other_commands(
    brokers: ScriptedCluster, cluster: Cluster, /
) -> None:
    brokers.brokers[1].answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: SILENCE
    rows = short(await read_log_dirs(cluster))
    assert rows == [(0, "/data", 2, None), (1, None, 0, "no answer within 0.4 s")]
    again = short(await read_log_dirs(cluster, limit_s=0.2))
    assert again[1] == (1, None, 0, "no answer within 0.2 s")
    assert (await cluster.wire()).silent == {1: "no answer within 0.4 s"}


@staged(play, timeout_s=30)
async def test_one_that_stands_still_does_not_hide_the_sizes_that_others_tell(
    brokers: ScriptedCluster, cluster: Cluster, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_wire, "ONE_WITHIN_S", 0.2)
    brokers.brokers[1].answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _: SILENCE
    assert await read_sizes(cluster, [T0]) == {T0: 5}
