"""What readers have committed, from ``__consumer_offsets``: found among others' commits, or nothing is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.rights import Right
from engine.admin.cluster.wire import WireCluster
from engine.admin.lag.measuring import readers_within_pace
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.topic_names import GROUP_METADATA_TOPIC
from engine.kafka.formats.consumer_offsets import (
    OffsetCommitValue,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
    partition_for,
)
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from engine.kafka.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from engine.kafka.protocol.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

NOW_MS = 10_000_000
COUNT = 5
ORDERS = TopicPartition("orders", 3)
HOME = TopicPartition(GROUP_METADATA_TOPIC, partition_for("seldom", COUNT))


def commit(group: str, ago_s: int, offset: int | None) -> Record:
    """Return one record of a commit to orders-3; without an offset, the tombstone."""
    value = None
    if offset is not None:
        value = encode_offset_value(
            OffsetCommitValue(offset=offset, metadata="", commit_timestamp=NOW_MS - ago_s * 1000)
        )
    return Record(timestamp_ms=NOW_MS, key=encode_offset_key(group, *ORDERS), value=value)


HIDDEN = Right(AclOperation.DESCRIBE, ResourceType.TOPIC, HOME.topic)


class Cluster:
    """One broker with a partition of the offsets topic and one of orders, whose records are old."""

    operation_s = 30.0

    def __init__(self, commits: Sequence[Record], refusal: ErrorCode = ErrorCode.NONE) -> None:
        self.silent: dict[int, str] = {}
        self.denied: dict[Right, None] = {}
        self.fetched: list[int] = []
        self._refusal = refusal
        self._logs = {
            HOME: [encode_batch([record], base_offset=offset) for offset, record in enumerate(commits)],
            ORDERS: [
                encode_batch([Record(timestamp_ms=1, key=None, value=b"v")], base_offset=offset) for offset in range(50)
            ],
        }

    async def metadata(self, topics: Sequence[str]) -> MetadataResponse:
        def of(name: str) -> MetadataResponseTopic:
            partitions = [MetadataResponsePartition(partition_index=number, leader_id=1) for number in range(COUNT)]
            return MetadataResponseTopic(name=name, partitions=partitions)

        return MetadataResponse(topics=[of(name) for name in topics])

    async def client_of(self, broker_id: int) -> None:
        assert broker_id == 1

    async def call_broker(self, broker_id: int, request: Any, **_: Any) -> Any:
        return self._offsets(request) if isinstance(request, ListOffsetsRequest) else self._records(request)

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index,
                        offset=0 if wanted.timestamp >= 0 else self._end(topic.name, wanted.partition_index),
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def _end(self, topic: str, partition: int) -> int:
        return len(self._logs[TopicPartition(topic, partition)])

    def _records(self, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        name = TopicPartition(topic.topic, wanted.partition)
        is_home = name == HOME
        if is_home:
            self.fetched.append(wanted.fetch_offset)
        # Two batches per answer, so more must be fetched.
        held = b"".join(self._logs[name][wanted.fetch_offset : wanted.fetch_offset + 2])
        data = PartitionData(
            partition_index=wanted.partition,
            error_code=self._refusal if is_home else ErrorCode.NONE,
            high_watermark=self._end(*name),
            records=memoryview(held),
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic=topic.topic, partitions=[data])])


def within_pace(cluster: object, committed: int = 30, *, is_unowned: bool = False) -> bool:
    readers = {("seldom", ORDERS): committed}
    unowned = readers.keys() if is_unowned else ()
    within = asyncio.run(
        readers_within_pace(cast("WireCluster", cluster), readers, NOW_MS, patience_s=0.0, unowned=unowned)
    )
    assert within <= readers.keys()
    return bool(within)


STEADY = [commit("seldom", 180, 10), commit("seldom", 120, 20), commit("seldom", 60, 30)]


def test_a_readers_commits_are_found_among_others() -> None:
    other = commit("another", 1, 40)
    group = Record(timestamp_ms=NOW_MS, key=encode_group_key("seldom"), value=None)
    cluster = Cluster([STEADY[0], other, group, STEADY[1], other, STEADY[2], other])
    assert within_pace(cluster)
    assert cluster.fetched == [0, 2, 4, 6]
    assert not within_pace(Cluster([*STEADY[:2], other]))


def test_the_coordinator_knows_of_a_commit_that_the_log_does_not_show() -> None:
    assert not within_pace(Cluster(STEADY), committed=31)


def test_where_nobody_reads_a_reset_is_no_pace() -> None:
    reset = [commit("seldom", 360, 10), commit("seldom", 330, 15), commit("seldom", 300, 20), STEADY[2]]
    assert within_pace(Cluster(reset))
    assert not within_pace(Cluster(reset), is_unowned=True)
    assert within_pace(Cluster(STEADY), is_unowned=True)


def test_what_was_deleted_tells_nothing() -> None:
    assert not within_pace(Cluster([*STEADY[:2], commit("seldom", 0, None), STEADY[2]]))


@pytest.mark.parametrize("refusal", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.KAFKA_STORAGE_ERROR])
def test_who_may_not_read_the_topic_learns_nothing(refusal: ErrorCode) -> None:
    assert not within_pace(Cluster(STEADY, refusal))


def test_a_damaged_record_says_nothing() -> None:
    damaged = Record(timestamp_ms=NOW_MS, key=encode_offset_key("seldom", *ORDERS), value=b"\0\3\0")
    assert not within_pace(Cluster([*STEADY, damaged]))


def test_without_a_broker_nothing_is_said() -> None:
    class Gone(Cluster):
        async def metadata(self, topics: Sequence[str]) -> MetadataResponse:
            raise Unreachable("no broker answers")

    assert not within_pace(Gone(STEADY))


def test_groups_are_read_without_a_right_on_their_topic() -> None:
    class Hiding(Cluster):
        async def metadata(self, topics: Sequence[str]) -> MetadataResponse:
            self.denied[HIDDEN] = None
            return MetadataResponse(topics=[MetadataResponseTopic(name=name) for name in topics])

    cluster = Hiding(STEADY)
    assert not within_pace(cluster)
    assert cluster.denied == {}, "nothing is hidden for want of it"
    cluster.denied = {HIDDEN: None}
    assert not within_pace(cluster)
    assert cluster.denied == {HIDDEN: None}, "somebody asked for the topic itself"


def test_nobody_asks_where_nobody_stands_still() -> None:
    assert not asyncio.run(readers_within_pace(cast("WireCluster", None), {}, NOW_MS, patience_s=0.0))
