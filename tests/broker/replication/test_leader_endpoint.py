"""A follower's requests on the wire: their versions, what each field says, and how answers are read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.broker.replication import leader_endpoint
from engine.broker.replication.follower_fetch_session import FetchPlan, FetchWanted
from engine.broker.replication.leader_endpoint import LeaderEndpoint
from engine.broker.replication.settings import ReplicationSettings
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import Node, TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from engine.kafka.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from engine.kafka.protocol.declaration import Request
from engine.runtime import turns

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Wire:
    """Keeps what is sent, and answers everything the same."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.sent: list[tuple[Any, int]] = []
        self.is_closed = False

    async def send(self, request: Request, api_version: int) -> Any:
        self.sent.append((request, api_version))
        return self.answer

    async def close(self) -> None:
        self.is_closed = True


def endpoint(wire: Wire, ibp: MetadataVersion = MetadataVersion.IBP_3_9_IV0) -> LeaderEndpoint:
    settings = ReplicationSettings(
        2,
        inter_broker_protocol_version=ibp,
        replica_fetch_wait_max_ms=7,
        replica_fetch_min_bytes=8,
        replica_fetch_response_max_bytes=9,
    )
    return LeaderEndpoint(Node(1, "broker-1", 9092), wire, settings)


def fetched(ibp: MetadataVersion, *, uses_topic_ids: bool) -> tuple[Any, int]:
    wire = Wire("answer")
    plan = FetchPlan(3, 4, {}, [], uses_topic_ids, {})
    answer, version = asyncio.run(endpoint(wire, ibp).fetch(plan, 105))
    ((request, sent_version),) = wire.sent
    assert (answer, version) == ("answer", sent_version)
    return request, version


def test_a_request_of_very_many_partitions_is_made_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "HOLD_MS_MAX", 0)
    monkeypatch.setattr(leader_endpoint, "ADDED_AT_ONCE", 2)
    wire, breaths = Wire(), 0

    async def fetch() -> None:
        nonlocal breaths
        wanted = FetchWanted(ZERO_TOPIC_ID, 4, 0, 1000, 5, 3)
        sent = {TopicPartition("t", number): wanted for number in range(5)}
        sending = asyncio.create_task(endpoint(wire).fetch(FetchPlan(3, 4, sent, [], False, sent), 105))
        while not sending.done():
            breaths += not wire.sent
            await asyncio.sleep(0)

    asyncio.run(fetch())
    ((request, _),) = wire.sent
    (topic,) = request.topics
    assert [partition.partition for partition in topic.partitions] == list(range(5))
    assert breaths > 3


@pytest.mark.parametrize(
    ("ibp", "by_id", "by_name"),
    [
        (MetadataVersion.IBP_2_7_IV1, 12, 12),
        (MetadataVersion.IBP_3_1_IV0, 13, 12),
        (MetadataVersion.IBP_3_5_IV0, 14, 12),
        (MetadataVersion.IBP_3_5_IV1, 15, 12),
        (MetadataVersion.IBP_3_9_IV0, 17, 12),
    ],
)
def test_a_topic_without_an_id_is_fetched_in_the_last_version_that_names_it(
    ibp: MetadataVersion, by_id: int, by_name: int
) -> None:
    assert fetched(ibp, uses_topic_ids=True)[1] == by_id
    assert fetched(ibp, uses_topic_ids=False)[1] == by_name


def test_a_leader_learns_who_fetches_and_since_version_15_of_which_start() -> None:
    """KIP-903: a follower that has restarted since is not taken into the ISR for what it had before."""
    request, _ = fetched(MetadataVersion.IBP_3_5_IV0, uses_topic_ids=True)
    assert request.replica_id == 2
    request, version = fetched(MetadataVersion.IBP_3_5_IV1, uses_topic_ids=True)
    assert version == 15
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 105)
    assert (request.session_id, request.session_epoch) == (3, 4)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (7, 8, 9)


def listed(ibp: MetadataVersion, answer: ListOffsetsPartitionResponse, *, latest: bool) -> tuple[int, Any, int]:
    wire = Wire(ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])]))
    partition = endpoint(wire, ibp)
    offset = asyncio.run((partition.latest_offset if latest else partition.earliest_offset)(T1, 6))
    ((request, version),) = wire.sent
    return offset, request, version


@pytest.mark.parametrize(("latest", "timestamp"), [(True, -1), (False, -2)])
def test_the_leaders_offsets_are_asked_for_under_the_followers_leader_epoch(latest: bool, timestamp: int) -> None:
    answer = ListOffsetsPartitionResponse(partition_index=1, offset=33)
    offset, request, version = listed(MetadataVersion.IBP_3_9_IV0, answer, latest=latest)
    ((topic,), (asked,)) = request.topics, request.topics[0].partitions
    assert (offset, version > 1, request.replica_id) == (33, True, 2)
    assert (topic.name, asked.partition_index, asked.timestamp, asked.current_leader_epoch) == ("t", 1, timestamp, 6)


def test_a_leader_before_0_10_1_lists_offsets_and_the_first_one_counts() -> None:
    answer = ListOffsetsPartitionResponse(partition_index=1, offset=33, old_style_offsets=[5, 4])
    assert listed(MetadataVersion.IBP_0_9_0, answer, latest=True)[::2] == (5, 0)
    assert listed(MetadataVersion.IBP_0_10_2_IV0, answer, latest=True)[::2] == (33, 1)


def test_a_leaders_refusal_is_an_error() -> None:
    refusal = ListOffsetsPartitionResponse(partition_index=1, error_code=ErrorCode.FENCED_LEADER_EPOCH, offset=33)
    with pytest.raises(KafkaError) as caught:
        listed(MetadataVersion.IBP_3_9_IV0, refusal, latest=True)
    assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH


def test_the_ends_of_epochs_are_asked_for_together_and_read_one_by_one() -> None:
    answers = [
        OffsetForLeaderTopicResult(
            topic="t",
            partitions=[
                EpochEndOffset(partition=0, error_code=0, leader_epoch=2, end_offset=20),
                EpochEndOffset(partition=1, error_code=ErrorCode.FENCED_LEADER_EPOCH),
            ],
        ),
        OffsetForLeaderTopicResult(
            topic="u", partitions=[EpochEndOffset(partition=0, error_code=0, leader_epoch=3, end_offset=30)]
        ),
    ]
    wire = Wire(OffsetForLeaderEpochResponse(topics=answers))
    ends = asyncio.run(endpoint(wire).epoch_end_offsets({T0: (5, 2), T1: (6, 3), U0: (7, 4)}))
    ((request, _),) = wire.sent
    asked = [
        (topic.topic, p.partition, p.current_leader_epoch, p.leader_epoch)
        for topic in request.topics
        for p in topic.partitions
    ]
    assert asked == [("t", 0, 5, 2), ("t", 1, 6, 3), ("u", 0, 7, 4)]
    assert request.replica_id == 2
    assert {p: (end.error, end.leader_epoch, end.end_offset) for p, end in ends.items()} == {
        T0: (ErrorCode.NONE, 2, 20),
        T1: (ErrorCode.FENCED_LEADER_EPOCH, -1, -1),
        U0: (ErrorCode.NONE, 3, 30),
    }


def test_the_connection_is_closed_with_the_endpoint() -> None:
    wire = Wire()
    asyncio.run(endpoint(wire).close())
    assert wire.is_closed
