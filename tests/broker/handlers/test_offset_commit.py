"""How each version of OffsetCommit stores an offset: its time, its retention, and the answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from coordinator_world import READ, CoordinatorWorld, stable
from network_serving import session
from virtual_time import in_virtual_time

from engine.broker.coordinator.groups.commit_form import CommittedOffset
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.join_group import join_group
from engine.broker.handlers.leave_group import leave_group
from engine.broker.handlers.offset_commit import offset_commit
from engine.broker.handlers.offset_fetch import offset_fetch
from engine.broker.network.request import Deferred
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from engine.kafka.protocol.apis.leave_group import LeaveGroupRequest
from engine.kafka.protocol.apis.leave_group import MemberIdentity as LeaveGroupMember
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.offset_fetch import OffsetFetchRequest
from engine.kafka.protocol.frames import decode_request, encode_request

HOUR_MS = 3_600_000


async def send(world: CoordinatorWorld, request: OffsetCommitRequest, version: int) -> dict[tuple[str, int], int]:
    """Send a request in its version's format; return each partition's error."""
    partitions = {"read": {0: None, 1: None}}
    broker: Any = SimpleNamespace(
        clock=world.clock,
        group_coordinator=world.coordinator,
        metadata_cache=SimpleNamespace(partitions=lambda topic: partitions.get(topic, {})),
    )
    frame = encode_request(request, version, 1, "c")
    _, received = decode_request(memoryview(frame)[4:])
    context = RequestContext(broker, ApiKey.OFFSET_COMMIT, version, 1, "c", session("h"))
    deferred = offset_commit(context, received)
    world.coordinator.offsets.flush()
    response = deferred.response if isinstance(deferred, Deferred) else deferred
    return {(t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions}


def committing(*offsets: tuple[str, int], timestamp: int = -1, retention_ms: int = -1) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=7, commit_timestamp=timestamp, committed_metadata=None
                    )
                ],
            )
            for topic, index in offsets
        ],
    )


@pytest.mark.parametrize("version", range(1, 10))
@in_virtual_time
async def test_when_a_commit_was_made_and_how_long_it_is_kept(version: int) -> None:
    world = CoordinatorWorld()
    await world.lead()
    request = committing(("read", 0), timestamp=5 if version == 1 else -1)
    if 2 <= version <= 4:
        request.retention_time_ms = HOUR_MS
    assert await send(world, request, version) == {("read", 0): ErrorCode.NONE}
    now_ms = world.clock.now_ms()
    expected = CommittedOffset(
        7,
        "",
        -1,
        # Only version 1 gives the time; only versions 2 to 4 give the retention.
        5 if version == 1 else now_ms,
        now_ms + HOUR_MS if 2 <= version <= 4 else None,
    )
    for _ in range(2):
        assert world.coordinator.offsets.fetch("g", [READ])[1] == {READ: expected}
        await world.move()
    await world.stop()


@in_virtual_time
async def test_the_longest_retention_is_for_ever() -> None:
    world = CoordinatorWorld()
    await world.lead()
    request = committing(("read", 0), retention_ms=2**63 - 1)
    assert await send(world, request, 2) == {("read", 0): ErrorCode.NONE}
    await world.move()
    await world.coordinator.offsets.expire()
    offset = world.coordinator.offsets.fetch("g", [READ])[1][READ]
    assert isinstance(offset, CommittedOffset) and offset.expire_timestamp_ms == 2**63 - 1
    await world.stop()


@in_virtual_time
async def test_a_topic_that_is_named_twice_is_answered_once() -> None:
    world = CoordinatorWorld()
    await world.lead()
    broker: Any = SimpleNamespace(
        clock=world.clock,
        group_coordinator=world.coordinator,
        metadata_cache=SimpleNamespace(partitions=lambda topic: {0: None, 1: None}),
    )
    context = RequestContext(broker, ApiKey.OFFSET_COMMIT, 8, 1, "c", session("h"))
    deferred = offset_commit(context, committing(("read", 0), ("other", 0), ("read", 1), ("read", 0)))
    world.coordinator.offsets.flush()
    assert isinstance(deferred, Deferred)
    answer: Any = deferred.response
    results = [(topic.name, [p.partition_index for p in topic.partitions]) for topic in answer.topics]
    assert results == [("read", [0, 1]), ("other", [0])]
    await world.stop()


@in_virtual_time
async def test_each_partition_has_its_own_error() -> None:
    world = CoordinatorWorld()
    await world.lead()
    errors = await send(world, committing(("read", 0), ("nowhere", 0), ("read", 9)), 8)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == {("read", 0): ErrorCode.NONE, ("nowhere", 0): unknown, ("read", 9): unknown}
    assert await send(world, committing(("nowhere", 0)), 8) == {("nowhere", 0): unknown}
    world.resign()
    errors = await send(world, committing(("read", 0), ("nowhere", 0)), 8)
    assert errors == {("read", 0): ErrorCode.NOT_COORDINATOR, ("nowhere", 0): unknown}
    await world.stop()


@pytest.mark.parametrize("next_request", ["fetch", "leave", "join"])
@in_virtual_time
async def test_what_follows_on_the_connection_finds_the_commit_done(next_request: str) -> None:
    """Kafka reads no further request meanwhile. Others would get the member's partitions without its last commit."""
    world = CoordinatorWorld(**{"group.initial.rebalance.delay.ms": "0"})
    await world.lead()
    member_id, generation_id = await stable(world, "g")
    broker: Any = SimpleNamespace(
        clock=world.clock,
        group_coordinator=world.coordinator,
        metadata_cache=SimpleNamespace(partitions=lambda topic: {0: None}),
    )
    own = session("h")
    world.partition.is_replicated_at_once = False
    commit = committing(("read", 0))
    commit.member_id, commit.generation_id_or_member_epoch = member_id, generation_id
    answer = offset_commit(RequestContext(broker, ApiKey.OFFSET_COMMIT, 8, 1, "c", own), commit)
    world.coordinator.offsets.flush()
    assert isinstance(answer, Deferred) and not answer.is_complete
    following: dict[str, tuple[Any, ApiKey, Any]] = {
        "fetch": (offset_fetch, ApiKey.OFFSET_FETCH, OffsetFetchRequest(group_id="g", topics=None)),
        "leave": (
            leave_group,
            ApiKey.LEAVE_GROUP,
            LeaveGroupRequest(group_id="g", members=[LeaveGroupMember(member_id=member_id)]),
        ),
        "join": (
            join_group,
            ApiKey.JOIN_GROUP,
            JoinGroupRequest(
                group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id=member_id,
                protocol_type="consumer", protocols=[JoinGroupRequestProtocol(name="range", metadata=b"new")],
            ),
        ),
    }  # fmt: skip
    handler, key, request = following[next_request]
    waiting = asyncio.ensure_future(handler(RequestContext(broker, key, 5, 1, "c", own), request))
    await asyncio.sleep(1)
    assert not waiting.done() and world.coordinator.describe("g")[1].state == "Stable"
    world.replicate()
    answered = await waiting
    if next_request == "fetch":
        assert answered.topics[0].partitions[0].committed_offset == 7
    elif next_request == "leave":
        assert world.coordinator.describe("g")[1].state == "Empty"
    else:
        assert isinstance(answered, Deferred) and world.coordinator.describe("g")[1].state == "CompletingRebalance"
    await world.stop()


@in_virtual_time
async def test_no_later_commit_hides_one_that_is_not_done() -> None:
    """One that is refused at once says nothing about the one before, nor does that of another group, done earlier."""
    world = CoordinatorWorld()
    await world.lead()
    broker: Any = SimpleNamespace(
        clock=world.clock,
        group_coordinator=world.coordinator,
        metadata_cache=SimpleNamespace(partitions=lambda topic: {0: None}),
    )
    own = session("h")
    world.partition.is_replicated_at_once = False
    refused = committing(("read", 0))
    refused.generation_id_or_member_epoch = 3
    answers = [
        offset_commit(RequestContext(broker, ApiKey.OFFSET_COMMIT, 8, 1, "c", own), request)
        for request in (committing(("read", 0)), refused, committing(("read", 0)))
    ]
    assert not isinstance(answers[1], Deferred)
    fetch = OffsetFetchRequest(group_id="g", topics=None)
    waiting = asyncio.ensure_future(offset_fetch(RequestContext(broker, ApiKey.OFFSET_FETCH, 5, 1, "c", own), fetch))
    await asyncio.sleep(1)
    answers[2].complete(answers[1])
    await asyncio.sleep(1)
    assert not waiting.done()
    answers[0].complete(answers[1])
    await waiting
    assert not asyncio.iscoroutine(offset_fetch(RequestContext(broker, ApiKey.OFFSET_FETCH, 5, 1, "c", own), fetch))
