"""The one exchange of Fetch: the request, and a result for every requested partition."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise

import pytest
from event_loop import in_event_loop
from scripted_brokers import ScriptedCluster, scripted_cluster
from scripted_logs import Log, lead

from engine.admin.cluster.errors import NotFound, Refused, Unknown
from engine.admin.cluster.wire import WireCluster
from engine.admin.records.fetching import FetchFrom, fetch
from engine.common.errors import ErrorCode
from engine.common.model import DEBUGGING_REPLICA_ID, IsolationLevel, TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
Answers = Mapping[TopicPartition, PartitionData | Unknown]


def fetched(response: FetchResponse, *names: TopicPartition) -> tuple[FetchRequest, Answers]:
    """Return what the broker got, and what the caller got."""

    async def asking() -> tuple[FetchRequest, Answers]:
        async with asyncio.timeout(30), scripted_cluster(1) as cluster:
            cluster.brokers[0].answers[ApiKey.FETCH] = lambda _: response
            wire = WireCluster(cluster.bootstrap)
            try:
                answers = await fetch(
                    wire,
                    0,
                    {name: FetchFrom(10 + index, 1000 + index) for index, name in enumerate(names)},
                    max_bytes=5000,
                    max_wait_ms=70,
                    isolation=IsolationLevel.READ_COMMITTED,
                    replica_id=DEBUGGING_REPLICA_ID,
                )
            finally:
                await wire.close()
            (request,) = cluster.brokers[0].requests(FetchRequest)
            return request, answers

    return asyncio.run(asking())


def of_topic(name: str, *partitions: PartitionData) -> FetchableTopicResponse:
    return FetchableTopicResponse(topic=name, partitions=list(partitions))


def test_the_broker_is_asked_by_name_though_it_knows_newer_versions() -> None:
    request, _ = fetched(FetchResponse(responses=[]), A0, B0, A1)
    asked = {
        topic.topic: [(p.partition, p.fetch_offset, p.partition_max_bytes) for p in topic.partitions]
        for topic in request.topics
    }
    assert asked == {"a": [(0, 10, 1000), (1, 12, 1002)], "b": [(0, 11, 1001)]}
    assert (request.max_bytes, request.max_wait_ms, request.isolation_level) == (5000, 70, 1)
    assert request.replica_id == -2


def test_each_partition_has_its_answer_and_one_that_is_missing_is_named() -> None:
    data = PartitionData(partition_index=0, high_watermark=7, records=b"records")
    refused = PartitionData(partition_index=0, error_code=1, records=b"")
    unasked = PartitionData(partition_index=5, records=b"")
    response = FetchResponse(responses=[of_topic("b", refused), of_topic("a", unasked, data)])
    _, answers = fetched(response, A0, A1, B0)
    assert answers.keys() == {A0, A1, B0}
    answer = answers[A0]
    assert isinstance(answer, PartitionData)
    assert (answer.high_watermark, bytes(answer.records)) == (7, b"records")
    assert answers[A1] == Unknown("the broker left it out of its answer")
    assert answers[B0] == Unknown("OFFSET_OUT_OF_RANGE", ErrorCode.OFFSET_OUT_OF_RANGE)


def test_a_request_that_is_refused_as_a_whole() -> None:
    data = PartitionData(partition_index=0, high_watermark=7, records=b"records")
    with pytest.raises(Refused, match="FETCH_SESSION_ID_NOT_FOUND") as refused:
        fetched(FetchResponse(error_code=70, responses=[of_topic("a", data)]), A0)
    assert refused.value.where == "broker 0"


@in_event_loop
async def test_a_quota_is_waited_for() -> None:
    """A broker answers without partitions while a quota holds the client back, and wants to hear nothing until then."""
    asked_at: list[float] = []

    def answer(_: FetchRequest) -> FetchResponse:
        asked_at.append(asyncio.get_running_loop().time())
        if len(asked_at) < 3:
            return FetchResponse(responses=[], throttle_time_ms=150)
        return FetchResponse(responses=[of_topic("a", PartitionData(partition_index=0, records=b"records"))])

    async with asyncio.timeout(30), scripted_cluster(1) as cluster:
        cluster.brokers[0].answers[ApiKey.FETCH] = answer
        wire = WireCluster(cluster.bootstrap)
        try:
            answers = await fetch(wire, 0, {A0: FetchFrom(0, 10)}, max_bytes=10)
        finally:
            await wire.close()
    assert isinstance(answers[A0], PartitionData) and len(asked_at) == 3
    assert all(later - earlier >= 0.15 for earlier, later in pairwise(asked_at))


@in_event_loop
async def test_a_broker_that_is_not_there() -> None:
    async def asking(cluster: ScriptedCluster) -> None:
        lead(cluster, 0, {0: Log(1)})
        wire = WireCluster(cluster.bootstrap)
        try:
            await fetch(wire, 8, {A0: FetchFrom(0, 10)}, max_bytes=10)
        finally:
            await wire.close()

    async with asyncio.timeout(30), scripted_cluster(1) as cluster:
        with pytest.raises(NotFound, match="no live broker has the id 8"):
            await asking(cluster)
