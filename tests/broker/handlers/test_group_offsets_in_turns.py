"""Offsets of very many partitions are read and removed in turns with other work, with the same answers as for a few."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from coordinator_world import CoordinatorWorld, stable, with_world
from event_loop import staged

from engine.broker.coordinator.groups.commit_form import Committer
from engine.broker.handlers.offset_delete import offset_delete
from engine.broker.handlers.offset_fetch import offset_fetch
from engine.broker.network.request import LargeAnswer
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from engine.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

KNOWN = [TopicPartition("read", 0), TopicPartition("other", 0), TopicPartition("other", 1), TopicPartition("third", 0)]
NAMED = [("read", [0]), ("other", [0, 1, 7]), ("nowhere", [0]), ("other", [1, 2]), ("third", []), ("third", [0])]


@pytest.fixture
def each_is_a_turn(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    def let(is_so: bool) -> None:
        monkeypatch.setattr("engine.broker.handlers.in_turns.AT_ONCE_MAX", 1 if is_so else 500)
        monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0 if is_so else 60_000)

    return let


def context(world: CoordinatorWorld, version: int) -> Any:
    cache = SimpleNamespace(contains=lambda partition: partition in {*KNOWN, TopicPartition("other", 2)})
    broker = SimpleNamespace(group_coordinator=world.coordinator, metadata_cache=cache)
    return SimpleNamespace(api_version=version, broker=broker, size_bytes=0, session=SimpleNamespace(commits=[]))


async def outcome(handler: Any, world: CoordinatorWorld, version: int, request: Any) -> tuple[Any, int]:
    """Return an answer, and how often other tasks had their turn meanwhile."""
    answer, turns = handler(context(world, version), request), 0
    if inspect.isawaitable(answer):
        task = asyncio.ensure_future(answer)
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        answer = await task
    return (answer.response if isinstance(answer, LargeAnswer) else answer), turns


async def with_offsets(world: CoordinatorWorld, kind: str) -> None:
    """Make group g with nothing but offsets, with a member that reads, or absent."""
    await world.lead()
    committer = Committer(*await stable(world, "g")) if kind == "with a member" else None
    if kind != "without offsets":
        for number, partition in enumerate(KNOWN):
            world.commit("g", 10 + number, partition=partition, committer=committer, metadata="m" * number)
    if kind == "elsewhere":
        world.resign()


@pytest.mark.parametrize("kind", ["offsets alone", "with a member", "without offsets", "elsewhere"])
def test_offsets_are_removed_in_turns_as_at_once(kind: str, each_is_a_turn: Callable[[bool], None]) -> None:
    topics = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in of])
        for name, of in NAMED
    ]
    answers = []

    async def test(world: CoordinatorWorld) -> None:
        await with_offsets(world, kind)
        each_is_a_turn(len(answers) == 1)
        request = OffsetDeleteRequest(group_id="g", topics=topics)
        answer, turns = await outcome(offset_delete, world, 0, request)
        left = world.coordinator.offsets.fetch("g", None)
        answers.append((answer, left, world.coordinator.describe("g")[1].state))
        answered = sum(len(topic.partitions) for topic in answer.topics)
        assert (turns > 0) is (len(answers) == 2 and answered > 0) and turns >= (answered if len(answers) == 2 else 0)

    with_world(test)
    with_world(test)
    assert answers[0] == answers[1]
    if kind == "offsets alone":
        # The group ended with its last offset. Partitions named after it still get an answer.
        assert answers[1][2] == "Dead" and answers[1][0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [1, 2, 5, 7, 8, 9])
@pytest.mark.parametrize("kind", ["offsets alone", "with a member", "without offsets", "elsewhere"])
@pytest.mark.parametrize("wants_all", [False, True])
def test_offsets_are_read_in_turns_as_at_once(
    each_is_a_turn: Callable[[bool], None], kind: str, version: int, wants_all: bool
) -> None:
    if wants_all and version < 2:
        return
    answers = []

    async def test(world: CoordinatorWorld) -> None:
        await with_offsets(world, kind)
        each_is_a_turn(len(answers) == 1)
        answer, turns = await outcome(offset_fetch, world, version, asked(version, wants_all))
        answers.append(answer)
        assert turns == 0 or len(answers) == 2

    with_world(test)
    with_world(test)
    assert answers[0] == answers[1]


def asked(version: int, wants_all: bool) -> OffsetFetchRequest:
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=of) for name, of in NAMED]
        groups = [
            OffsetFetchRequestGroup(group_id="g", topics=None if wants_all else topics),
            OffsetFetchRequestGroup(group_id="nobody", topics=None if wants_all else topics),
        ]
        return OffsetFetchRequest(groups=groups, require_stable=True)
    old = [OffsetFetchRequestTopic(name=name, partition_indexes=of) for name, of in NAMED]
    return OffsetFetchRequest(group_id="g", topics=None if wants_all else old)


@staged(with_world)
async def test_a_small_request_for_all_of_very_many_gives_way(
    world: CoordinatorWorld, /, each_is_a_turn: Callable[[bool], None]
) -> None:
    """Its answer names them all."""
    each_is_a_turn(True)
    await with_offsets(world, "offsets alone")
    for version in (2, 9):
        answer, turns = await outcome(offset_fetch, world, version, asked(version, True))
        topics = answer.groups[0].topics if version >= 8 else answer.topics
        assert sum(len(topic.partitions) for topic in topics) == len(KNOWN) <= turns
