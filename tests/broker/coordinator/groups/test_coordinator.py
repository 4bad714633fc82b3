"""What a broker's coordinator answers while it loads, after it resigns, and to requests it must refuse."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from coordinator_world import READ, CoordinatorWorld, answered, join, offset_records, stable, sync, with_world
from event_loop import staged

from engine.broker.coordinator.groups.commit_form import CommittedOffset, Committer
from engine.broker.coordinator.groups.loading import GroupLoader
from engine.broker.coordinator.groups.member import MemberIdentity
from engine.broker.coordinator.groups.records import batch_of
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.turns import at_once
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

E = ErrorCode
IBP = parse_metadata_version("3.9")


def everything_says(world: CoordinatorWorld, group: str = "g") -> dict[str, ErrorCode]:
    """Send one request of each kind; return the answers."""
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
        "delete": at_once(coordinator.delete_group(group)),
        "list": at_once(coordinator.list_groups())[0],
    }


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("is_late", [True, False])
@staged(with_world)
async def test_a_transaction_that_ends_while_its_partition_is_loaded(
    world: CoordinatorWorld, /, is_commit: bool, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marker comes when the log has been read to its end. Readers of stable offsets must not wait forever."""
    loaded = GroupLoader.finish
    log, offsets = world.partition.log, world.coordinator.offsets
    log.append(batch_of(offset_records("g", {READ: CommittedOffset(7)}, 1, IBP), Codec.NONE))
    pending = offset_records("g", {READ: CommittedOffset(9)}, 1, IBP)
    log.append(encode_batch(pending, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True))

    def finish(loader: GroupLoader, now_ms: int) -> Iterator[None]:
        if is_late:
            yield from loaded(loader, now_ms)
        offsets.end_transaction(0, 5, is_commit)
        # A later transaction cannot have stored offsets here.
        offsets.end_transaction(0, 5, not is_commit)
        if not is_late:
            yield from loaded(loader, now_ms)

    monkeypatch.setattr(GroupLoader, "finish", finish)
    await world.lead()
    _, fetched = offsets.fetch("g", [READ], require_stable=True)
    assert fetched == {READ: CommittedOffset(9 if is_commit else 7, commit_timestamp_ms=-1)}
    monkeypatch.setattr(GroupLoader, "finish", loaded)
    await world.lead()
    assert offsets.fetch("g", [READ], require_stable=True)[1] == {READ: E.UNSTABLE_OFFSET_COMMIT}, "it is forgotten"


@staged(with_world)
async def test_what_is_answered_while_loading(world: CoordinatorWorld, /) -> None:
    await world.lead(waits=False)
    answers = everything_says(world)
    # Kafka's answers: a member learns of its loss with the former coordinator as a rebalance.
    assert answers.pop("sync") is E.REBALANCE_IN_PROGRESS
    assert answers.pop("heartbeat") is E.NONE
    assert set(answers.values()) == {E.COORDINATOR_LOAD_IN_PROGRESS}


@staged(with_world)
async def test_what_is_answered_where_nothing_is_led(world: CoordinatorWorld, /) -> None:
    for _ in range(2):
        answers = everything_says(world)
        assert answers.pop("list") is E.NONE
        assert set(answers.values()) == {E.NOT_COORDINATOR}
        await world.lead()
        world.resign()


@staged(with_world)
async def test_an_empty_group_id(world: CoordinatorWorld, /) -> None:
    await world.lead()
    answers = everything_says(world, "")
    refused = ("join", "sync", "heartbeat", "leave", "delete offsets")
    assert [answers[name] for name in refused] == [E.INVALID_GROUP_ID] * len(refused)
    # Clients that assign partitions themselves have long sent offsets without a group id.
    assert (answers["commit"], answers["fetch"], answers["describe"]) == (E.NONE, E.NONE, E.NONE)


@staged(with_world)
async def test_who_waits_when_the_coordinator_resigns_is_told(world: CoordinatorWorld, /) -> None:
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


@staged(with_world)
async def test_a_commit_waits_for_the_flush_that_its_topic_demands(world: CoordinatorWorld, /) -> None:
    await world.lead()
    world.partition.log.is_flush_due = True
    answers = [world.commit("g", 5), world.commit("h", 5)]
    assert (answers, world.committed("g")) == ([[], []], None)
    first, second = world.flushing
    first(E.NONE)
    second(E.KAFKA_STORAGE_ERROR)
    assert answers == [[E.NONE], [E.NOT_COORDINATOR]]
    assert (world.committed("g"), world.committed("h")) == (5, None)


@staged(with_world)
async def test_a_commit_becomes_visible_with_its_replication(world: CoordinatorWorld, /) -> None:
    await world.lead()
    world.partition.is_replicated_at_once = False
    answers = world.commit("g", 5)
    assert (answers, world.committed("g")) == ([], None)
    _, fetched = world.coordinator.offsets.fetch("g", [READ], require_stable=True)
    assert fetched == {READ: E.UNSTABLE_OFFSET_COMMIT}
    world.replicate()
    assert (answers, world.committed("g")) == ([E.NONE], 5)
    late = world.commit("g", 6)
    await asyncio.sleep(6)
    assert (late, world.committed("g")) == ([E.REQUEST_TIMED_OUT], 5)


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.RECORD_LIST_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
@staged(with_world)
async def test_a_commit_that_cannot_be_written(
    world: CoordinatorWorld, /, refusal: ErrorCode, expected: ErrorCode
) -> None:
    await world.lead()
    world.commit("g", 5)
    world.partition.refusal = refusal
    assert world.commit("g", 6) == [expected]
    assert world.committed("g") == 5


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
@staged(with_world)
async def test_an_assignment_that_cannot_be_written(
    world: CoordinatorWorld, /, refusal: ErrorCode, expected: ErrorCode
) -> None:
    await world.lead()
    (joined,) = await answered(join(world, "g"))
    world.partition.refusal = refusal
    assert sync(world, "g", joined.member_id, joined.generation_id)[0].error is expected


@staged(with_world, **{"offset.metadata.max.bytes": "4"})
async def test_metadata_is_measured_as_kafka_does(world: CoordinatorWorld, /) -> None:
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


@staged(with_world)
async def test_partitions_with_an_offset_are_named(world: CoordinatorWorld, /) -> None:
    await world.lead()
    offsets = world.coordinator.offsets
    partitions = [TopicPartition("read", index) for index in range(5)]
    for partition in partitions:
        world.commit("g", 1, partition=partition)
    assert (offsets.partitions("g"), offsets.partitions("nobody")) == (partitions, [])


@staged(with_world)
async def test_a_corrupt_record_is_skipped_counted_and_logged(
    world: CoordinatorWorld, /, caplog: pytest.LogCaptureFixture
) -> None:
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


@pytest.mark.parametrize("broken", ["read", "finish"])
@staged(with_world)
async def test_an_error_nobody_foresaw_keeps_no_partition_from_being_served(
    world: CoordinatorWorld, /, broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> Iterator[None]:
        raise RuntimeError("a fault of the program")

    world.partition.log.append(batch_of(offset_records("g", {READ: CommittedOffset(5)}, 1, IBP), Codec.NONE))
    monkeypatch.setattr(GroupLoader, broken, fails)
    await world.lead(waits=False)
    for _ in range(100):
        await asyncio.sleep(0)
    assert world.commit("g", 6) == [E.NONE]
    assert world.committed("g") == 6
    assert "a fault of the program" in caplog.text and "__consumer_offsets-0" in caplog.text


@staged(with_world)
async def test_a_replica_that_is_taken_away_takes_its_groups(world: CoordinatorWorld, /) -> None:
    await world.lead()
    world.commit("g", 1)
    for listener in world.replica_manager.stop_listeners:
        listener([READ])
    assert world.committed("g") == 1
    for listener in world.replica_manager.stop_listeners:
        listener([world.partition.topic_partition])
    assert world.coordinator.offsets.fetch("g", None)[0] is E.NOT_COORDINATOR


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


@staged(with_world)
async def test_groups_are_read_again_when_the_partition_is_led_again(world: CoordinatorWorld, /) -> None:
    """This holds even without a notice that the partition was lost: another coordinator has written to it meanwhile."""
    await world.lead()
    world.commit("g", 1)
    records = offset_records("g", {READ: CommittedOffset(7)}, 1, IBP)
    world.partition.log.append(batch_of(records, Codec.NONE))
    await world.lead()
    assert world.committed("g") == 7


@staged(with_world, **{"offsets.topic.num.partitions": "50"})
async def test_the_topic_counts_more_than_the_setting(world: CoordinatorWorld, /) -> None:
    world.partition_count = 0
    assert world.coordinator.partition_for("test").partition == 48, "as it would be created"
    world.partition_count = 10
    assert world.coordinator.partition_for("test").partition == 8


@staged(with_world)
async def test_a_partition_that_never_had_a_leader_counts(world: CoordinatorWorld, /) -> None:
    """The metadata leaves it out. Kafka counts in ZooKeeper, so that no group ever changes its partition."""
    world.stored_count = 10
    await world.lead()
    for error_code in (1, 9, 10):
        world.partition_count = error_code
        assert world.coordinator.partition_for("test").partition == 8


@staged(with_world)
async def test_a_commit_that_is_refused_takes_no_other_along(world: CoordinatorWorld, /) -> None:
    await world.lead()
    world.partition.is_replicated_at_once = False
    waiting = world.commit("g", 5, commit_timestamp_ms=1)
    world.partition.refusal = E.NOT_ENOUGH_REPLICAS
    assert world.commit("g", 5, commit_timestamp_ms=1) == [E.COORDINATOR_NOT_AVAILABLE]
    world.replicate()
    assert (waiting, world.committed("g")) == ([E.NONE], 5)
