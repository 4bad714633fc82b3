"""What the coordinator of a broker answers while it loads, when it resigns, and to what it cannot take."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
from coordinator_world import READ, CoordinatorWorld
from virtual_time import run_virtual

from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.config.metadata_version import parse_metadata_version
from engine.coordinator.group.loading import GroupLoader
from engine.coordinator.group.records import batch_of, offset_records
from engine.coordinator.group.values import (
    CommittedOffset,
    Committer,
    Joining,
    JoinResult,
    MemberIdentity,
    Syncing,
    SyncResult,
)
from engine.formats.consumer_offsets import decode_key, decode_value
from engine.protocol.records.attributes import Codec
from engine.protocol.records.encode import encode_batch
from engine.protocol.records.header import iter_batches
from engine.protocol.records.iterate import iter_records
from engine.protocol.records.record import Record

E = ErrorCode
IBP = parse_metadata_version("3.9")
T = TypeVar("T")
DAY_MS = 24 * 3_600_000


def with_world(test: Callable[[CoordinatorWorld], Awaitable[None]], **settings: str) -> None:
    """Run a test on virtual time with a coordinator that leads nothing yet."""

    async def run() -> None:
        world = CoordinatorWorld(**settings)
        try:
            await test(world)
        finally:
            await world.stop()

    run_virtual(run)


def joining(member_id: str = "", **of: object) -> Joining:
    values: dict[str, object] = {
        "client_id": "c",
        "client_host": "/h",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": (("range", b"\0\0\0\0\0\1\0\4read\xff\xff\xff\xff"),),
    }
    return Joining(member_id, **(values | of))  # type: ignore[arg-type]


def join(world: CoordinatorWorld, group: str, member_id: str = "", **of: object) -> list[JoinResult]:
    answers: list[JoinResult] = []
    world.coordinator.join(group, joining(member_id, **of), answers.append)
    return answers


def sync(world: CoordinatorWorld, group: str, member_id: str, generation: int, **parts: bytes) -> list[SyncResult]:
    answers: list[SyncResult] = []
    world.coordinator.sync(group, Syncing(member_id, generation, parts), answers.append)
    return answers


async def stable(world: CoordinatorWorld, group: str) -> tuple[str, int]:
    """Bring a group of one member to a generation; return the member's id and the generation."""
    (joined,) = await answered(join(world, group))
    await answered(sync(world, group, joined.member_id, joined.generation_id, **{joined.member_id: b"part"}))
    return joined.member_id, joined.generation_id


async def answered(answers: list[T]) -> list[T]:
    async with asyncio.timeout(60):
        while not answers:
            await asyncio.sleep(0.01)
    return answers


def everything_says(world: CoordinatorWorld, group: str = "g") -> dict[str, ErrorCode]:
    """Send each kind of request; return what was answered."""
    coordinator = world.coordinator
    return {
        "join": join(world, group)[0].error,
        "sync": sync(world, group, "m", 1)[0].error,
        "heartbeat": coordinator.heartbeat(group, "m", None, 1),
        "leave": coordinator.leave(group, [MemberIdentity("m")])[0],
        "commit": world.commit(group, 1)[0],
        "fetch": coordinator.offsets.fetch(group, None)[0],
        "delete offsets": coordinator.offsets.delete(group, [READ])[0],
        "describe": coordinator.describe(group)[0],
        "delete": coordinator.delete_groups([group])[group],
        "list": coordinator.list_groups()[0],
    }


def test_what_is_answered_while_loading() -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead(waits=False)
        told = everything_says(world)
        # Kafka's answers: what a member lost with the former coordinator it hears as a rebalance.
        assert told.pop("sync") is E.REBALANCE_IN_PROGRESS
        assert told.pop("heartbeat") is E.NONE
        assert set(told.values()) == {E.COORDINATOR_LOAD_IN_PROGRESS}

    with_world(test)


def test_what_is_answered_where_nothing_is_led() -> None:
    async def test(world: CoordinatorWorld) -> None:
        for _ in range(2):
            told = everything_says(world)
            assert told.pop("list") is E.NONE
            assert set(told.values()) == {E.NOT_COORDINATOR}
            await world.lead()
            world.resign()

    with_world(test)


def test_an_empty_group_id() -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        told = everything_says(world, "")
        refused = ("join", "sync", "heartbeat", "leave", "delete offsets")
        assert [told[name] for name in refused] == [E.INVALID_GROUP_ID] * len(refused)
        # Offsets without a group id are an old habit of clients that assign partitions themselves.
        assert (told["commit"], told["fetch"], told["describe"]) == (E.NONE, E.NONE, E.NONE)

    with_world(test)


def test_who_waits_when_the_coordinator_resigns_is_told() -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        await stable(world, "join-waits")
        waiting_join = join(world, "join-waits")
        leader, _ = await stable(world, "sync-waits")
        second = join(world, "sync-waits")
        (again,) = await answered(join(world, "sync-waits", leader))
        waiting_sync = sync(world, "sync-waits", second[0].member_id, again.generation_id)
        world.partition.is_replicated_at_once = False
        waiting_commit = world.commit("offsets", 1)
        assert (waiting_join, waiting_sync, waiting_commit) == ([], [], [])
        world.resign()
        assert waiting_join[0].error is waiting_sync[0].error is waiting_commit[0] is E.NOT_COORDINATOR

    with_world(test)


def test_a_commit_waits_for_the_flush_that_its_topic_demands() -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        world.partition.log.is_flush_due = True
        answers = [world.commit("g", 5), world.commit("h", 5)]
        assert (answers, world.committed("g")) == ([[], []], None)
        first, second = world.flushing
        first(E.NONE)
        second(E.KAFKA_STORAGE_ERROR)
        assert answers == [[E.NONE], [E.NOT_COORDINATOR]]
        assert (world.committed("g"), world.committed("h")) == (5, None)

    with_world(test)


def test_a_commit_becomes_visible_with_its_replication() -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        world.partition.is_replicated_at_once = False
        answers = world.commit("g", 5)
        assert (answers, world.committed("g")) == ([], None)
        _, found = world.coordinator.offsets.fetch("g", [READ], require_stable=True)
        assert found == {READ: E.UNSTABLE_OFFSET_COMMIT}
        world.replicate()
        assert (answers, world.committed("g")) == ([E.NONE], 5)
        late = world.commit("g", 6)
        await asyncio.sleep(6)
        assert (late, world.committed("g")) == ([E.REQUEST_TIMED_OUT], 5)

    with_world(test)


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.RECORD_LIST_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_a_commit_that_cannot_be_written(refusal: ErrorCode, told: ErrorCode) -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        world.commit("g", 5)
        world.partition.refusal = refusal
        assert world.commit("g", 6) == [told]
        assert world.committed("g") == 5

    with_world(test)


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_written(refusal: ErrorCode, told: ErrorCode) -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        (joined,) = await answered(join(world, "g"))
        world.partition.refusal = refusal
        assert sync(world, "g", joined.member_id, joined.generation_id)[0].error is told

    with_world(test)


def test_metadata_is_measured_as_kafka_does() -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        assert world.commit("g", 1, metadata="x" * 5) == [E.OFFSET_METADATA_TOO_LARGE]
        assert world.commit("g", 1, metadata="ää\U0001f600") == [E.NONE], "four UTF-16 units"
        assert world.commit("g", 1, metadata="äää\U0001f600") == [E.OFFSET_METADATA_TOO_LARGE]
        other = TopicPartition("read", 1)
        answers: list[dict[TopicPartition, ErrorCode]] = []
        both = {READ: CommittedOffset(7, "x" * 5), other: CommittedOffset(8)}
        world.coordinator.offsets.commit(
            "g", Committer(), both, lambda error, refused: answers.append({other: error} | refused)
        )
        world.coordinator.offsets.flush()
        assert answers == [{other: E.NONE, READ: E.OFFSET_METADATA_TOO_LARGE}], "one does not hold up the other"

    with_world(test, **{"offset.metadata.max.bytes": "4"})


def test_a_large_partition_is_loaded_beside_other_work() -> None:
    """50,000 commits, half of them of groups of their own: no turn of the event loop is held for long."""

    async def test() -> None:
        # Collections of what other tests have left would be held against this one.
        gc.freeze()
        world = CoordinatorWorld()
        for start in range(0, 500, 10):
            for group in (f"new-{start}", "same"):
                for of in range(10):
                    offsets = {TopicPartition("read", p): CommittedOffset(start + of, "", 0, 1) for p in range(50)}
                    world.partition.log.append(batch_of(offset_records(f"{group}-{of}", offsets, 1, IBP), Codec.NONE))
        longest_ms = turns = 0.0
        await world.lead(waits=False)
        while world.coordinator.groups.is_loading:
            begin = time.thread_time()
            assert world.coordinator.offsets.fetch("same-3", None)[0] is E.COORDINATOR_LOAD_IN_PROGRESS
            await asyncio.sleep(0)
            longest_ms, turns = max(longest_ms, (time.thread_time() - begin) * 1000), turns + 1
        assert longest_ms < 50, f"{longest_ms:.0f} ms of CPU in one turn"
        assert turns > 10
        _, found = world.coordinator.offsets.fetch("same-3", None)
        assert {value.offset for value in found.values() if isinstance(value, CommittedOffset)} == {493}
        assert len(world.coordinator.list_groups()[1]) == 510
        await world.stop()

    try:
        asyncio.run(test())
    finally:
        gc.unfreeze()


def test_a_corrupt_record_is_skipped_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: CoordinatorWorld) -> None:
        log = world.partition.log
        log.append(encode_batch(offset_records("g", {READ: CommittedOffset(5)}, 1, IBP)))
        log.append(encode_batch([Record(timestamp_ms=1, key=b"\0\1\0\1g\0", value=b"")]))
        other = {TopicPartition("read", 1): CommittedOffset(6)}
        log.append(encode_batch(offset_records("g", other, 1, IBP)))
        with caplog.at_level(logging.INFO, "kafka.coordinator.group.GroupMetadataManager"):
            await world.lead()
        assert (world.committed("g"), world.committed("g", TopicPartition("read", 1))) == (5, 6)
        assert "is skipped" in caplog.text and "partition=__consumer_offsets-0 offset=1" in caplog.text
        assert "3 records, 1 skipped" in caplog.text

    with_world(test)


@pytest.mark.parametrize("broken", ["read", "finish"])
def test_an_error_nobody_foresaw_keeps_no_partition_from_being_served(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> Iterator[None]:
        raise RuntimeError("a fault of the program")

    async def test(world: CoordinatorWorld) -> None:
        world.partition.log.append(batch_of(offset_records("g", {READ: CommittedOffset(5)}, 1, IBP), Codec.NONE))
        monkeypatch.setattr(GroupLoader, broken, fails)
        await world.lead(waits=False)
        for _ in range(100):
            await asyncio.sleep(0)
        assert world.commit("g", 6) == [E.NONE]
        assert world.committed("g") == 6
        assert "a fault of the program" in caplog.text and "__consumer_offsets-0" in caplog.text

    with_world(test)


def tombstones(world: CoordinatorWorld, since: int) -> list[str]:
    """Return whose tombstones were written from an offset on."""
    found = []
    for record in iter_records(bytes(world.partition.log.data)):
        assert record.key is not None
        if record.offset >= since and record.value is None:
            key = decode_key(record.key)
            assert decode_value(key, None) is None
            found.append(type(key).__name__)
    return found


def test_offsets_are_forgotten_when_their_retention_is_over() -> None:
    async def test(world: CoordinatorWorld) -> None:
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
        assert world.coordinator.list_groups() == (E.NONE, [])

    with_world(test, **{"offsets.retention.minutes": "600"})


def test_offsets_and_groups_are_deleted() -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        offsets, other = world.coordinator.offsets, TopicPartition("other", 0)
        member_id, generation_id = await stable(world, "g")
        for partition in (READ, other):
            world.commit("g", 3, partition=partition, committer=Committer(member_id, generation_id))
        assert offsets.delete("nobody", [READ]) == (E.GROUP_ID_NOT_FOUND, {})
        assert offsets.delete("g", [READ, other]) == (E.NONE, {READ: E.GROUP_SUBSCRIBED_TO_TOPIC, other: E.NONE})
        assert (world.committed("g"), world.committed("g", other)) == (3, None)
        assert world.coordinator.delete_groups(["g", "nobody"]) == {
            "g": E.NON_EMPTY_GROUP,
            "nobody": E.GROUP_ID_NOT_FOUND,
        }
        assert world.coordinator.leave("g", [MemberIdentity(member_id)]) == (E.NONE, [E.NONE])
        assert world.coordinator.delete_groups(["g"]) == {"g": E.NONE}
        await world.move()
        assert world.coordinator.list_groups() == (E.NONE, [])

    with_world(test)


def test_a_group_that_lives_loses_its_offsets_and_nothing_else() -> None:
    """A group's record goes only with the group: whoever coordinates it next must know its members and generation."""

    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        other = TopicPartition("other", 0)
        member_id, generation_id = await stable(world, "g")
        world.commit("g", 3, partition=other, committer=Committer(member_id, generation_id))
        written = world.partition.log.log_end_offset
        assert world.coordinator.offsets.delete("g", [other]) == (E.NONE, {other: E.NONE})
        assert tombstones(world, written) == ["OffsetCommitKey"]
        await world.move()
        assert world.coordinator.heartbeat("g", member_id, None, generation_id) is E.NONE

    with_world(test)


@pytest.mark.parametrize(("generations", "expected"), [(0, []), (1, ["GroupMetadataKey"]), (2, ["GroupMetadataKey"])])
def test_a_group_that_had_a_generation_leaves_a_tombstone(generations: int, expected: list[str]) -> None:
    """Without it the group would be back with the next coordinator. One of offsets alone never had a record."""

    async def test(world: CoordinatorWorld) -> None:
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
        assert world.coordinator.delete_groups(["g"]) == {"g": E.NONE}
        assert tombstones(world, written) == ["OffsetCommitKey", *expected]
        await world.move()
        assert world.coordinator.list_groups() == (E.NONE, [])

    with_world(test, **{"group.initial.rebalance.delay.ms": "3000"})


def test_offsets_of_deleted_topics_go() -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        other = TopicPartition("other", 0)
        world.commit("g", 1)
        world.commit("g", 2, partition=other)
        world.commit("only", 3)
        world.coordinator.offsets.partitions_deleted([READ])
        assert (world.committed("g"), world.committed("g", other)) == (None, 2)
        await world.move()
        assert (world.committed("g"), world.committed("g", other)) == (None, 2)
        assert [group.group_id for group in world.coordinator.list_groups()[1]] == ["g"]

    with_world(test)


def test_a_group_with_very_many_offsets_is_deleted() -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        for start in range(0, 6_000, 3_000):
            many = {TopicPartition("read", p): CommittedOffset(1) for p in range(start, start + 3_000)}
            world.coordinator.offsets.commit("g", Committer(), many, lambda error, refused: None)
        begin = len(world.partition.log.data)
        assert world.coordinator.delete_groups(["g"]) == {"g": E.NONE}
        sizes = [h.size_bytes for _, h in iter_batches(bytes(world.partition.log.data[begin:]))]
        assert len(sizes) > 1 and max(sizes) < 1_048_588, "what a log takes as one batch by default"
        await world.move()
        assert world.coordinator.list_groups() == (E.NONE, [])

    with_world(test)


def test_who_is_not_a_consumer_keeps_its_offsets() -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        await answered(join(world, "connect", protocol_type="connect"))
        assert world.coordinator.offsets.delete("connect", [READ]) == (E.NON_EMPTY_GROUP, {})

    with_world(test)


def test_a_replica_that_is_taken_away_takes_its_groups() -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        world.commit("g", 1)
        for listener in world.replica_manager.stop_listeners:
            listener([READ])
        assert world.committed("g") == 1
        for listener in world.replica_manager.stop_listeners:
            listener([world.partition.topic_partition])
        assert world.coordinator.offsets.fetch("g", None)[0] is E.NOT_COORDINATOR

    with_world(test)


def test_leadership_lost_while_loading(caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: CoordinatorWorld) -> None:
        for number in range(2_000):
            world.partition.log.append(
                batch_of(offset_records(f"g{number}", {READ: CommittedOffset(7)}, 1, IBP), Codec.NONE)
            )
        await world.lead(waits=False)
        await asyncio.sleep(0)
        world.resign()
        assert world.coordinator.offsets.fetch("g5", None)[0] is E.NOT_COORDINATOR
        await world.lead(waits=False)
        world.resign()
        await world.lead()
        assert world.committed("g5") == 7
        assert caplog.text.count("Finished loading") == 1

    with caplog.at_level(logging.INFO, "kafka.coordinator.group.GroupMetadataManager"):
        with_world(test)


def test_groups_are_read_again_when_the_partition_is_led_again() -> None:
    """Even if nobody said that it was lost: another coordinator has written to it meanwhile."""

    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        world.commit("g", 1)
        records = offset_records("g", {READ: CommittedOffset(7)}, 1, IBP)
        world.partition.log.append(batch_of(records, Codec.NONE))
        await world.lead()
        assert world.committed("g") == 7

    with_world(test)


def test_the_topic_counts_more_than_the_setting() -> None:
    async def test(world: CoordinatorWorld) -> None:
        world.partition_count = 0
        assert world.coordinator.partition_for("test").partition == 48, "as it would be created"
        world.partition_count = 10
        assert world.coordinator.partition_for("test").partition == 8

    with_world(test, **{"offsets.topic.num.partitions": "50"})


def test_a_commit_that_is_refused_takes_no_other_along() -> None:
    async def test(world: CoordinatorWorld) -> None:
        await world.lead()
        world.partition.is_replicated_at_once = False
        waiting = world.commit("g", 5, commit_timestamp_ms=1)
        world.partition.refusal = E.NOT_ENOUGH_REPLICAS
        assert world.commit("g", 5, commit_timestamp_ms=1) == [E.COORDINATOR_NOT_AVAILABLE]
        world.replicate()
        assert (waiting, world.committed("g")) == ([E.NONE], 5)

    with_world(test)
