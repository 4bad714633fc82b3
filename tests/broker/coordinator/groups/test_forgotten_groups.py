"""When offsets and groups are removed, by retention or by request, and the tombstones that remain."""

from __future__ import annotations

import asyncio

import pytest
from coordinator_world import READ, CoordinatorWorld, answered, join, stable, with_world
from event_loop import staged

from engine.broker.coordinator.groups.commit_form import CommittedOffset, Committer
from engine.broker.coordinator.groups.member import MemberIdentity
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.turns import at_once
from engine.kafka.formats.consumer_offsets import decode_key, decode_value
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.header import iter_batches

E = ErrorCode
DAY_MS = 24 * 3_600_000


def tombstones(world: CoordinatorWorld, since: int) -> list[str]:
    """Return the keys of the tombstones that were written from an offset on."""
    values = []
    for record in iter_records(bytes(world.partition.log.data)):
        assert record.key is not None
        if record.offset >= since and record.value is None:
            key = decode_key(record.key)
            assert decode_value(key, None) is None
            values.append(type(key).__name__)
    return values


@staged(with_world, **{"offsets.retention.minutes": "600"})
async def test_offsets_are_forgotten_when_their_retention_is_over(world: CoordinatorWorld, /) -> None:
    await world.lead()
    world.commit("simple", 1)
    world.commit("asked", 2, expire_timestamp_ms=world.clock.now_ms() + 2 * 3_600_000)
    member_id, generation_id = await stable(world, "members")
    world.commit("members", 3, committer=Committer(member_id, generation_id))
    written = world.partition.log.log_end_offset
    for _ in range(2 * DAY_MS // 5_000):
        await asyncio.sleep(5)
        if world.clock.monotonic_ms() % DAY_MS < DAY_MS // 2:
            world.coordinator.heartbeat("members", member_id, None, generation_id)
    assert world.committed("simple") is None
    assert world.committed("asked") is None
    assert tombstones(world, written).count("OffsetCommitKey") == 3
    assert "GroupMetadataKey" in tombstones(world, written), "the group that had members is gone with its offsets"
    assert at_once(world.coordinator.list_groups()) == (E.NONE, [])


@staged(with_world)
async def test_offsets_and_groups_are_deleted(world: CoordinatorWorld, /) -> None:
    await world.lead()
    offsets, other = world.coordinator.offsets, TopicPartition("other", 0)
    member_id, generation_id = await stable(world, "g")
    for partition in (READ, other):
        world.commit("g", 3, partition=partition, committer=Committer(member_id, generation_id))
    assert offsets.delete("nobody", [READ]) == (E.GROUP_ID_NOT_FOUND, {})
    assert offsets.delete("g", [READ, other]) == (E.NONE, {READ: E.GROUP_SUBSCRIBED_TO_TOPIC, other: E.NONE})
    assert (world.committed("g"), world.committed("g", other)) == (3, None)
    assert at_once(world.coordinator.delete_group("g")) is E.NON_EMPTY_GROUP
    assert at_once(world.coordinator.delete_group("nobody")) is E.GROUP_ID_NOT_FOUND
    assert world.coordinator.leave("g", [MemberIdentity(member_id)]) == (E.NONE, [E.NONE])
    assert at_once(world.coordinator.delete_group("g")) is E.NONE
    await world.move()
    assert at_once(world.coordinator.list_groups()) == (E.NONE, [])


@pytest.mark.parametrize("refusal", [None, E.NOT_ENOUGH_REPLICAS])
def test_what_the_log_does_not_know_as_deleted_is_there_for_the_next_coordinator(
    refusal: E | None, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka, the group is deleted here anyway; the log says that its tombstones are missing."""

    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        world.commit("g", 3)
        world.partition.refusal = refusal
        assert world.coordinator.offsets.delete("g", [READ]) == (E.NONE, {READ: E.NONE})
        world.partition.refusal = None
        assert world.committed("g") is None
        await world.move()
        assert world.committed("g") == (None if refusal is None else 3)

    with_world(test)
    assert ("Tombstones could not be written" in caplog.text) == (refusal is not None)


@staged(with_world)
async def test_an_empty_group_of_which_nothing_is_removed_stays(world: CoordinatorWorld, /) -> None:
    """A request that names only partitions that do not exist asks for nothing here."""
    await world.lead()
    member_id, _ = await stable(world, "g")
    assert world.coordinator.leave("g", [MemberIdentity(member_id)]) == (E.NONE, [E.NONE])
    assert world.coordinator.offsets.delete("g", []) == (E.NONE, {})
    error, groups = at_once(world.coordinator.list_groups())
    assert (error, [group.group_id for group in groups]) == (E.NONE, ["g"])


@staged(with_world)
async def test_a_group_that_lives_loses_its_offsets_and_nothing_else(world: CoordinatorWorld, /) -> None:
    """A group's record goes only with the group: the next coordinator must know its members and generation."""
    await world.lead()
    other = TopicPartition("other", 0)
    member_id, generation_id = await stable(world, "g")
    world.commit("g", 3, partition=other, committer=Committer(member_id, generation_id))
    written = world.partition.log.log_end_offset
    assert world.coordinator.offsets.delete("g", [other]) == (E.NONE, {other: E.NONE})
    assert tombstones(world, written) == ["OffsetCommitKey"]
    await world.move()
    assert world.coordinator.heartbeat("g", member_id, None, generation_id) is E.NONE


@pytest.mark.parametrize(("generations", "expected"), [(0, []), (1, ["GroupMetadataKey"]), (2, ["GroupMetadataKey"])])
@staged(with_world, **{"group.initial.rebalance.delay.ms": "3000"})
async def test_a_group_that_had_a_generation_leaves_a_tombstone(
    world: CoordinatorWorld, /, generations: int, expected: list[str]
) -> None:
    """Without it the next coordinator would bring the group back. A group with only offsets never had a record."""
    await world.lead()
    world.commit("g", 3)
    if generations == 1:
        join(world, "g", group_instance_id="leaves before the first generation has begun")
        world.coordinator.leave("g", [MemberIdentity("", "leaves before the first generation has begun")])
    elif generations == 2:
        member_id, _ = await stable(world, "g")
        world.coordinator.leave("g", [MemberIdentity(member_id)])
    await asyncio.sleep(10)
    group = world.coordinator.groups.find("g")
    assert group is not None and group.generation_id == generations
    written = world.partition.log.log_end_offset
    assert at_once(world.coordinator.delete_group("g")) is E.NONE
    assert tombstones(world, written) == ["OffsetCommitKey", *expected]
    await world.move()
    assert at_once(world.coordinator.list_groups()) == (E.NONE, [])


@staged(with_world)
async def test_offsets_of_deleted_topics_go(world: CoordinatorWorld, /) -> None:
    await world.lead()
    other = TopicPartition("other", 0)
    world.commit("g", 1)
    world.commit("g", 2, partition=other)
    world.commit("only", 3)
    await world.coordinator.offsets.partitions_deleted([READ])
    assert (world.committed("g"), world.committed("g", other)) == (None, 2)
    await world.move()
    assert (world.committed("g"), world.committed("g", other)) == (None, 2)
    assert [group.group_id for group in at_once(world.coordinator.list_groups())[1]] == ["g"]


@staged(with_world)
async def test_a_group_with_very_many_offsets_is_deleted(world: CoordinatorWorld, /) -> None:
    await world.lead()
    for start in range(0, 6_000, 3_000):
        many = {TopicPartition("read", p): CommittedOffset(1) for p in range(start, start + 3_000)}
        world.coordinator.offsets.commit("g", Committer(), many, lambda error, refused: None)
    begin = len(world.partition.log.data)
    assert at_once(world.coordinator.delete_group("g")) is E.NONE
    sizes = [h.size_bytes for _, h in iter_batches(bytes(world.partition.log.data[begin:]))]
    assert len(sizes) > 1 and max(sizes) < 1_048_588, "what a log takes as one batch by default"
    await world.move()
    assert at_once(world.coordinator.list_groups()) == (E.NONE, [])


@staged(with_world)
async def test_who_is_not_a_consumer_keeps_its_offsets(world: CoordinatorWorld, /) -> None:
    await world.lead()
    await answered(join(world, "connect", protocol_type="connect"))
    assert world.coordinator.offsets.delete("connect", [READ]) == (E.NON_EMPTY_GROUP, {})


@staged(with_world)
async def test_an_expiry_of_many_groups_gives_way_and_takes_no_time(
    world: CoordinatorWorld, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    await world.lead()
    for number in range(20):
        world.commit(f"g{number}", 1)
    given = 0

    async def count() -> None:
        nonlocal given
        while True:
            await asyncio.sleep(0)
            given += 1

    begun_ms = world.clock.monotonic_ms()
    counting = asyncio.create_task(count(), name="count")
    await world.coordinator.offsets.expire()
    counting.cancel()
    assert given >= 20 - 1, "after each group others go on"
    assert world.clock.monotonic_ms() == begun_ms


@staged(with_world)
async def test_a_commit_keeps_its_members_session(world: CoordinatorWorld, /) -> None:
    await world.lead()
    member_id, generation_id = await stable(world, "g")
    for _ in range(4):
        await asyncio.sleep(5)
        answer = world.commit("g", 3, committer=Committer(member_id, generation_id))
        assert answer == [E.NONE]
    await asyncio.sleep(60)
    assert world.coordinator.heartbeat("g", member_id, None, generation_id) is E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("leader_epoch", [0, 5])
@staged(with_world)
async def test_metadata_that_is_too_long_is_refused_whatever_else_is_committed(
    world: CoordinatorWorld, /, leader_epoch: int
) -> None:
    await world.lead()
    answer = world.commit("g", 3, metadata="x" * 5_000, leader_epoch=leader_epoch)
    assert answer == [E.OFFSET_METADATA_TOO_LARGE]
