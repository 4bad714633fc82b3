"""Offsets of many partitions when leaders move, are gone, too old, or frozen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from event_loop import staged
from scripted_brokers import SILENCE, ScriptedCluster, scripted_cluster

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import Refused, Unknown
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.offsets.listing import end_offsets, look_up
from engine.admin.offsets.selection import parse_offset_time
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

Scene = Callable[[ScriptedCluster, Cluster], Awaitable[None]]
LATEST = parse_offset_time("latest")
T0, T1, T2 = (TopicPartition("t", index) for index in range(3))


def play(scene: Scene, *, version_max: int = 10) -> None:
    """Play two brokers. Each reports the offset 100 + partition, and denies leading partitions of the other."""

    async def playing() -> None:
        newest = {ApiKey.LIST_OFFSETS: version_max}
        async with asyncio.timeout(30), scripted_cluster(2, version_max=newest) as brokers:
            brokers.leaders = {"t": [0, 1, -1]}
            for broker in brokers.brokers:
                broker.answers[ApiKey.LIST_OFFSETS] = lambda request, broker=broker: told(brokers, broker.id, request)
            target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
            async with Cluster(target, timeout_s=10) as cluster:
                await scene(brokers, cluster)

    asyncio.run(playing())


def told(brokers: ScriptedCluster, broker_id: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topic = request.topics[0]
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=p.partition_index, offset=100 + p.partition_index)
                    if brokers.leaders[topic.name][p.partition_index] == broker_id
                    else ListOffsetsPartitionResponse(
                        partition_index=p.partition_index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
                    )
                    for p in topic.partitions
                ],
            )
        ]
    )


@staged(play)
async def test_each_partition_has_an_answer_in_the_order_asked(_: ScriptedCluster, cluster: Cluster, /) -> None:
    offsets = await look_up(await cluster.wire(), {T2: -1, T1: 1, T0: 0}, LATEST)
    assert [(row.partition, row.leader, row.offset, row.error) for row in offsets] == [
        (2, -1, None, "LEADER_NOT_AVAILABLE"),
        (1, 1, 101, None),
        (0, 0, 100, None),
    ]


@staged(play)
async def test_a_leader_that_has_moved_is_found(_: ScriptedCluster, cluster: Cluster, /) -> None:
    offsets = await look_up(await cluster.wire(), {T0: 1, T1: 0}, LATEST)
    assert [(row.leader, row.offset, row.error) for row in offsets] == [(0, 100, None), (1, 101, None)]


@staged(play, version_max=6)
async def test_a_broker_that_is_too_old_for_a_time_ends_it_all(_: ScriptedCluster, cluster: Cluster, /) -> None:
    wire = await cluster.wire()
    with pytest.raises(Refused, match="broker 0 does not know the time 'max-timestamp'"):
        await look_up(wire, {T0: 0}, parse_offset_time("max-timestamp"))
    assert (await look_up(wire, {T0: 0}, LATEST))[0].offset == 100


@staged(play)
async def test_a_frozen_leader_leaves_time_to_tell_of_the_others(
    brokers: ScriptedCluster, cluster: Cluster, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs a share of the operation's time, however short that is."""
    monkeypatch.setattr("engine.admin.cluster.asking._ANSWER_SHARE", 0.2)
    brokers.brokers[1].answers[ApiKey.LIST_OFFSETS] = lambda _: SILENCE
    wire = await cluster.wire()
    offsets = await look_up(wire, {T0: 0, T1: 1}, LATEST)
    assert [(row.offset, row.error) for row in offsets] == [(100, None), (None, "no answer within 2 s: broker 1")]
    ends = await end_offsets(wire, [T0, T1])
    assert ends[T0] == 100 and isinstance(ends[T1], Unknown)
