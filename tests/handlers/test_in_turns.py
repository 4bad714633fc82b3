"""Requests that name very many groups or partitions are answered in turns with others, and as small ones are."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from event_loop import in_event_loop

from engine.common.errors import ErrorCode, KafkaError
from engine.handlers.delete_groups import delete_groups
from engine.handlers.describe_groups import describe_groups
from engine.handlers.describe_producers import describe_producers
from engine.handlers.find_coordinator import find_coordinator
from engine.handlers.in_turns import AT_ONCE_MAX, answered, topics_answered
from engine.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from engine.protocol.apis.delete_groups import DeleteGroupsRequest
from engine.protocol.apis.describe_groups import DescribeGroupsRequest
from engine.protocol.apis.describe_producers import DescribeProducersRequest, TopicRequest
from engine.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from engine.replication import state_changes

MANY = 3 * AT_ONCE_MAX
NAMES = [f"g{number}" for number in range(MANY)]


def unknown_partition(*_: object) -> None:
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def context() -> Any:
    """Return the context of a request to a broker that has no group, no topic and no coordinator."""
    nothing = SimpleNamespace(state="Dead", protocol_type="", protocol_name="", members=[])
    groups = SimpleNamespace(
        describe=lambda _: (ErrorCode.NONE, nothing),
        delete_group=lambda _: ErrorCode.GROUP_ID_NOT_FOUND,
        partition_for=lambda _: 0,
    )
    cache = SimpleNamespace(partitions=lambda _: {0: None}, partition_info=lambda _: None)
    broker = SimpleNamespace(
        group_coordinator=groups, metadata_cache=cache, replica_manager=SimpleNamespace(partition=unknown_partition)
    )
    return SimpleNamespace(api_version=4, broker=broker)


REQUESTS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[list[str]], Any], Callable[[Any], list[Any]]]] = {
    "FindCoordinator": (
        find_coordinator,
        lambda names: FindCoordinatorRequest(coordinator_keys=names),
        lambda answer: [one.key for one in answer.coordinators],
    ),
    "DescribeGroups": (
        describe_groups,
        lambda names: DescribeGroupsRequest(groups=names),
        lambda answer: [one.group_id for one in answer.groups],
    ),
    "DeleteGroups": (
        delete_groups,
        lambda names: DeleteGroupsRequest(groups_names=[*names, names[0]]),
        lambda answer: [one.group_id for one in answer.results],
    ),
    "OffsetForLeaderEpoch, one topic": (
        offset_for_leader_epoch,
        lambda names: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=p) for p, _ in one])]
            if (one := list(enumerate(names)))
            else []
        ),
        lambda answer: [NAMES[p.partition] for topic in answer.topics for p in topic.partitions],
    ),
    "DescribeProducers": (
        describe_producers,
        lambda names: DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=[0]) for name in names]
        ),
        lambda answer: [topic.name for topic in answer.topics],
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
@in_event_loop
async def test_very_many_are_answered_in_turns(name: str) -> None:
    """Of 200,000 each held everybody up for half a second and more."""
    handler, request_of, named = REQUESTS[name]
    few = NAMES[:10]
    at_once = handler(context(), request_of(few))
    assert not inspect.isawaitable(at_once) and named(at_once) == few
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(state_changes, "HOLD_MS_MAX", 0)
        answering = asyncio.ensure_future(handler(context(), request_of(NAMES)))
        turns = 0
        while not answering.done():
            turns += 1
            await asyncio.sleep(0)
    assert named(await answering) == NAMES
    assert turns >= MANY


@in_event_loop
async def test_at_most_so_many_are_answered_at_once() -> None:
    def count(results: list[Any]) -> int:
        return len(results)

    assert answered(range(AT_ONCE_MAX), abs, count) == AT_ONCE_MAX
    more = answered(range(AT_ONCE_MAX + 1), abs, count)
    assert inspect.isawaitable(more) and await more == AT_ONCE_MAX + 1
    # Topics count as their partitions do: very many without any take as long.
    topics: Any = topics_answered([()] * (AT_ONCE_MAX + 1), lambda topic: topic, lambda *_: None, count)
    assert inspect.isawaitable(topics) and await topics == AT_ONCE_MAX + 1
