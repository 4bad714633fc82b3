"""A group with very many offsets: they are noted, expire and are deleted in turns with other work, as few are at once.

200,000 offsets, those of a group that reads all of a large cluster, held the event loop for 200 ms when they were
noted, and for 600 when the group was deleted or expired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from coordinator_world import READ, CoordinatorWorld, with_world
from event_loop import staged

from engine.broker.coordinator.groups import commit_gathering, offset_requests
from engine.broker.coordinator.groups.commit_form import CommittedOffset, Committer
from engine.broker.coordinator.groups.group import GroupState
from engine.broker.handlers.delete_groups import delete_groups
from engine.common.errors import ErrorCode as E
from engine.common.model import TopicPartition
from engine.common.turns import at_once
from engine.kafka.protocol.apis.delete_groups import DeleteGroupsRequest
from engine.runtime.turns import carry_out

COUNT = 20
MANY = [TopicPartition("many", index) for index in range(COUNT)]


@pytest.fixture(autouse=True)
def each_is_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_requests, "REMOVED_AT_ONCE", 1)
    monkeypatch.setattr(commit_gathering, "_NOTED_AT_ONCE", 1)
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)


async def commit(world: CoordinatorWorld, group: str = "g", offset: int = 7) -> list[E]:
    """Commit an offset for each; return the list that gets the answer."""
    answers: list[E] = []
    values = {p: CommittedOffset(offset, commit_timestamp_ms=world.clock.now_ms()) for p in MANY}
    world.coordinator.offsets.commit(group, Committer(), values, lambda error, _: answers.append(error))
    world.coordinator.offsets.flush()
    return answers


async def committed(world: CoordinatorWorld, offset: int = 7) -> None:
    answers = await commit(world, offset=offset)
    async with asyncio.timeout(60):
        while not answers:
            await asyncio.sleep(0)
    assert answers == [E.NONE]


async def turns_of(work: Coroutine[Any, Any, Any]) -> int:
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


def seen(world: CoordinatorWorld) -> list[int | None]:
    return [world.committed("g", partition) for partition in MANY]


@pytest.mark.parametrize("is_replicated_at_once", [True, False])
@staged(with_world)
async def test_a_commit_becomes_visible_in_turns_and_is_answered_then(
    world: CoordinatorWorld, /, is_replicated_at_once: bool
) -> None:
    await world.lead()
    world.partition.is_replicated_at_once = is_replicated_at_once
    answers = await commit(world)
    world.replicate()
    steps = []
    while not answers:
        steps.append(sum(offset is not None for offset in seen(world)))
        await asyncio.sleep(0)
    assert steps[-1] == COUNT and max(b - a for a, b in pairwise(steps)) == 1
    assert (answers, seen(world)) == ([E.NONE], [7] * COUNT)
    await world.move()
    assert seen(world) == [7] * COUNT


@staged(with_world)
async def test_a_later_commit_wins_over_one_that_is_still_being_noted(world: CoordinatorWorld, /) -> None:
    await world.lead()
    answers = await commit(world)
    world.commit("g", 9, partition=MANY[-1])
    while not answers:
        await asyncio.sleep(0)
    assert seen(world) == [7] * (COUNT - 1) + [9]
    await world.move()
    assert seen(world) == [7] * (COUNT - 1) + [9]


@staged(with_world)
async def test_what_is_removed_while_it_is_noted_does_not_come_back(world: CoordinatorWorld, /) -> None:
    await world.lead()
    answers = await commit(world)
    assert world.coordinator.offsets.delete("g", [MANY[-1]]) == (E.NONE, {MANY[-1]: E.NONE})
    while not answers:
        await asyncio.sleep(0)
    for _ in range(2):
        assert seen(world) == [7] * (COUNT - 1) + [None]
        await world.move()


@staged(with_world)
async def test_a_group_is_deleted_in_turns_and_is_dead_meanwhile(world: CoordinatorWorld, /) -> None:
    await world.lead()
    await committed(world)
    context: Any = SimpleNamespace(broker=SimpleNamespace(group_coordinator=world.coordinator), size_bytes=0)
    answer = delete_groups(context, DeleteGroupsRequest(groups_names=["g", "g", "nobody"]))
    assert asyncio.iscoroutine(answer)
    deleting = asyncio.ensure_future(answer)
    turns, was_dead = 0, False
    while not deleting.done():
        await asyncio.sleep(0)
        turns += 1
        if not was_dead and world.coordinator.describe("g")[1].state == "Dead":
            was_dead = True
            assert world.commit("g", 1) == [E.COORDINATOR_NOT_AVAILABLE]
            assert at_once(world.coordinator.delete_group("g")) is E.NOT_COORDINATOR
            assert world.coordinator.offsets.delete("g", [READ]) == (E.NOT_COORDINATOR, {})
            assert seen(world) == [None] * COUNT
    assert was_dead and turns > COUNT
    results = [(r.group_id, r.error_code) for r in deleting.result().response.results]
    assert results == [("g", E.NONE), ("nobody", E.GROUP_ID_NOT_FOUND)]
    for _ in range(2):
        assert at_once(world.coordinator.list_groups()) == (E.NONE, [])
        await world.move()


@staged(with_world)
async def test_a_coordinator_that_resigns_meanwhile_stops_there(world: CoordinatorWorld, /) -> None:
    await world.lead()
    await committed(world)
    deleting = asyncio.ensure_future(carry_out(world.coordinator.delete_group("g")))
    for _ in range(4):
        await asyncio.sleep(0)
    world.resign()
    assert await deleting is E.NONE
    assert world.coordinator.groups.find("g") is None
    await world.lead()
    left = [offset for offset in seen(world) if offset is not None]
    assert 0 < len(left) < COUNT


@staged(with_world, **{"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "100000000"})
async def test_offsets_expire_in_turns(world: CoordinatorWorld, /) -> None:
    await world.lead()
    await committed(world)
    await asyncio.sleep(90)
    world.commit("g", 9)
    assert await turns_of(world.coordinator.offsets.expire()) > COUNT
    for _ in range(2):
        assert (seen(world), world.committed("g")) == ([None] * COUNT, 9)
        await world.move()
    await asyncio.sleep(90)
    await world.coordinator.offsets.expire()
    assert at_once(world.coordinator.list_groups()) == (E.NONE, [])


@staged(with_world)
async def test_offsets_of_deleted_topics_go_in_turns(world: CoordinatorWorld, /) -> None:
    await world.lead()
    await committed(world)
    world.commit("g", 9)
    assert await turns_of(world.coordinator.offsets.partitions_deleted(MANY)) > COUNT
    for _ in range(2):
        assert (seen(world), world.committed("g")) == ([None] * COUNT, 9)
        await world.move()


@staged(with_world)
async def test_very_many_groups_forget_a_deleted_topic_in_turns(world: CoordinatorWorld, /) -> None:
    """60,000 of them held the loop for 0.2 s, though one topic with one partition was deleted."""
    await world.lead()
    for number in range(COUNT):
        world.commit(f"g{number}", 9)
    assert await turns_of(world.coordinator.offsets.partitions_deleted([READ])) > COUNT
    assert [world.committed(f"g{number}") for number in range(COUNT)] == [None] * COUNT


@staged(with_world)
async def test_tombstones_of_more_than_a_batch_are_all_written(
    world: CoordinatorWorld, /, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(offset_requests, "_TOMBSTONES_PER_BATCH", 3)
    await world.lead()
    await committed(world)
    world.commit("g", 9)
    assert world.coordinator.offsets.delete("g", MANY) == (E.NONE, dict.fromkeys(MANY, E.NONE))
    for _ in range(2):
        assert (seen(world), world.committed("g")) == ([None] * COUNT, 9)
        await world.move()


@staged(with_world)
async def test_a_group_without_its_last_offset_is_dead(world: CoordinatorWorld, /) -> None:
    await world.lead()
    world.commit("g", 9)
    group = world.coordinator.groups.find("g")
    assert group is not None
    assert world.coordinator.offsets.delete("g", [READ]) == (E.NONE, {READ: E.NONE})
    assert group.state is GroupState.DEAD
