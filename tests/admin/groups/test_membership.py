"""Partitions shared by range, as Kafka's assignor does it: each to one member, evenly."""

from __future__ import annotations

import asyncio
import math
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.cluster.errors import NotFound, Refused
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups import membership as membership_module
from engine.admin.groups.membership import Membership, assign_ranges
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.heartbeat import HeartbeatResponse
from engine.kafka.protocol.apis.join_group import JoinGroupResponse
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from engine.kafka.protocol.declaration import Response


@pytest.mark.parametrize(
    ("wanted", "counts", "given_out"),
    [
        ({}, {"t": 3}, {}),
        ({"a": ["t"]}, {}, {"a": {}}),
        ({"a": ["t"]}, {"t": 3}, {"a": {"t": [0, 1, 2]}}),
        ({"b": ["t"], "a": ["t"]}, {"t": 1}, {"b": {}, "a": {"t": [0]}}),
        ({"a": ["t"], "b": ["t"]}, {"t": 3}, {"a": {"t": [0, 1]}, "b": {"t": [2]}}),
        (
            {"a": ["t", "u"], "b": ["t", "u"]},
            {"t": 3, "u": 3},
            {"a": {"t": [0, 1], "u": [0, 1]}, "b": {"t": [2], "u": [2]}},
        ),
        (
            {"a": ["t"], "b": ["t", "u"], "c": ["t"]},
            {"t": 3, "u": 2},
            {"a": {"t": [0]}, "b": {"t": [1], "u": [0, 1]}, "c": {"t": [2]}},
        ),
    ],
)  # fmt: skip
def test_as_kafkas_range_assignor(
    wanted: dict[str, list[str]], counts: dict[str, int], given_out: dict[str, dict[str, list[int]]]
) -> None:
    assert assign_ranges(wanted, counts) == given_out


MEMBERS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.lists(st.sampled_from("tuv"), unique=True))


@given(MEMBERS, st.dictionaries(st.sampled_from("tuv"), st.integers(0, 20)))
def test_each_partition_has_one_owner_that_wants_it(wanted: dict[str, list[str]], counts: dict[str, int]) -> None:
    shared = assign_ranges(wanted, counts)
    assert set(shared) == set(wanted)
    for topic, count in counts.items():
        sizes = {member: len(topics.get(topic, [])) for member, topics in shared.items() if topic in wanted[member]}
        owned = sorted(number for topics in shared.values() for number in topics.get(topic, []))
        assert owned == (list(range(count)) if sizes else [])
        assert not sizes or max(sizes.values()) - min(sizes.values()) <= 1
        assert all(topic in wanted[member] for member, topics in shared.items() if topic in topics)


class Coordinator:
    """Answers every commit with one code."""

    def __init__(self, code: ErrorCode) -> None:
        self.code = code

    async def call_broker(self, broker_id: int, request: OffsetCommitRequest, **_: object) -> OffsetCommitResponse:
        partition = OffsetCommitResponsePartition(partition_index=0, error_code=self.code)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])


@pytest.mark.parametrize("asks", ["heartbeat", "commit"])
def test_a_coordinator_that_has_left_the_cluster_is_looked_for_again(
    asks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is in a rolling restart: the member goes on with the next coordinator."""
    asked: list[int] = []
    homes = iter((2, 0))

    class OneHasLeft:
        async def call_broker(self, broker_id: int, *_: object, **__: object) -> Response:
            asked.append(broker_id)
            if broker_id == 2:
                raise NotFound("no live broker has the id 2")
            return HeartbeatResponse() if asks == "heartbeat" else OffsetCommitResponse(topics=[])

    async def find(*_: object) -> dict[str, int]:
        return {"g": next(homes)}

    monkeypatch.setattr(membership_module, "find_coordinators", find)

    async def scene() -> None:
        membership = Membership(cast("WireCluster", OneHasLeft()), "g", ["t"], give_up_s=math.inf)
        for _ in range(3):
            if asks == "heartbeat":
                assert await membership.heartbeat()
            else:
                assert await membership.commit({TopicPartition("t", 0): 5})

    asyncio.run(scene())
    assert asked == [2, 0, 0]


def test_who_is_not_taken_for_long_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_module, "PATIENCE_S", 0.0)

    asked = 0

    class NotYet:
        async def call_broker(self, *_: object, **__: object) -> JoinGroupResponse:
            nonlocal asked
            asked += 1
            return JoinGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    class Settled(Membership):
        async def _home(self) -> int:
            return 0

    reasons: list[str] = []

    async def joining() -> None:
        membership = Settled(cast("WireCluster", NotYet()), "g", ["t"], give_up_s=math.inf, complain=reasons.append)
        task = asyncio.create_task(membership.join())
        while asked < 5:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(joining(), 30))
    assert reasons == ["waiting for the coordinator of group g: COORDINATOR_NOT_AVAILABLE"]


@pytest.mark.parametrize(
    ("code", "is_still_in"),
    [
        (ErrorCode.NONE, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.ILLEGAL_GENERATION, False),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, None),
    ],
)
def test_what_a_commits_answer_means(code: ErrorCode, is_still_in: bool | None) -> None:
    """The next commit asks a coordinator again that was too slow, or has moved."""
    membership = Membership(cast("WireCluster", Coordinator(code)), "g", ["t"], give_up_s=1.0)
    membership._coordinator = 0
    committing = membership.commit({TopicPartition("t", 0): 5})
    if is_still_in is None:
        with pytest.raises(Refused):
            asyncio.run(committing)
    else:
        assert asyncio.run(committing) is is_still_in
