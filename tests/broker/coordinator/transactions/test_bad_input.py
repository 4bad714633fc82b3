"""What a coordinator of transactions survives: damaged logs, full disks, odd names, very many ids."""

from __future__ import annotations

import asyncio
import struct
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from event_loop import in_event_loop, staged
from transaction_world import STATE_PARTITION, THERE, Partition, TransactionWorld, play
from virtual_time import LoopClock, in_virtual_time

from engine.broker.coordinator.transactions.marker_writer import Marker, MarkerWriter
from engine.broker.coordinator.transactions.records import TransactionLoader
from engine.broker.coordinator.transactions.state_machine import ProducerIdAndEpoch
from engine.broker.coordinator.transactions.transaction import Transaction
from engine.broker.handlers.add_partitions_to_txn import add_partitions_to_txn
from engine.broker.network.connection import LARGE_FRAME_BYTES
from engine.broker.network.request import Deferred
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.formats.control_records import ControlRecordType
from engine.kafka.formats.transaction_state import TransactionLogValue, TransactionState, encode_key, encode_value
from engine.kafka.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.runtime.purgatory import Purgatory

E, S = ErrorCode, TransactionState


def state_record(name: str, producer_id: int = 5, **changes: Any) -> Record:
    value = TransactionLogValue(
        **{
            "producer_id": producer_id,
            "producer_epoch": 0,
            "transaction_timeout_ms": 60_000,
            "transaction_status": S.EMPTY,
            "transaction_partitions": None,
            "transaction_last_update_timestamp_ms": 1,
            "transaction_start_timestamp_ms": -1,
        }
        | changes
    )
    return Record(timestamp_ms=1, key=encode_key(name), value=encode_value(value))


# -- requests


Named = list[tuple[str, list[int]]]


@pytest.mark.parametrize("size_bytes", [100, LARGE_FRAME_BYTES], ids=["usual", "large"])
@pytest.mark.parametrize(
    ("named", "answered"),
    [
        ([("a", [0, 1])], [("a", [(0, E.NONE), (1, E.NONE)])]),
        ([("a", [0]), ("b", [0])], [("a", [(0, E.NONE)]), ("b", [(0, E.NONE)])]),
        ([("a", [1, 1])], [("a", [(1, E.NONE), (1, E.NONE)])]),
        ([("a", [0]), ("a", [1])], [("a", [(0, E.NONE), (1, E.NONE)])]),
        ([("a", [0]), ("b", [])], [("a", [(0, E.NONE)])]),
        ([("a", [0, 7])], [("a", [(0, E.OPERATION_NOT_ATTEMPTED), (7, E.UNKNOWN_TOPIC_OR_PARTITION)])]),
        ([], []),
    ],
    ids=["one topic", "two topics", "a partition twice", "a topic twice", "no partition", "a missing one", "nothing"],
)
@staged(play)
async def test_what_a_client_adds_is_answered_alike_in_requests_of_any_size(
    world: TransactionWorld, /, named: Named, answered: list[tuple[str, list[tuple[int, E]]]], size_bytes: int
) -> None:
    world.add("a", partitions=2)
    world.add("b")
    assert await added(world, named, size_bytes) == answered
    assert world.found().partitions == {
        TopicPartition(topic, index) for topic, parts in answered for index, error in parts if error is E.NONE
    }


@pytest.mark.parametrize("size_bytes", [100, LARGE_FRAME_BYTES], ids=["usual", "large"])
@staged(play)
async def test_nothing_is_added_while_brokers_may_not_know_transactions(
    world: TransactionWorld, /, size_bytes: int
) -> None:
    world.add("a")
    refused = [("a", [(0, E.UNSUPPORTED_VERSION)])]
    assert await added(world, [("a", [0])], size_bytes, MetadataVersion.IBP_0_10_2_IV0) == refused
    assert world.found().partitions == set()


async def added(
    world: TransactionWorld, named: Named, size_bytes: int, ibp: MetadataVersion = MetadataVersion.IBP_3_9_IV0
) -> list[tuple[str, list[tuple[int, E]]]]:
    """Send AddPartitionsToTxn as a client does; return the errors by topic."""
    producer = (await world.init()).producer_id
    broker = SimpleNamespace(
        transaction_coordinator=world.coordinator,
        metadata_cache=world.metadata,
        config=SimpleNamespace(inter_broker_protocol_version=ibp),
    )
    context = cast("Any", SimpleNamespace(api_version=3, broker=broker, size_bytes=size_bytes))
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=producer,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=parts) for topic, parts in named],
    )
    answer: Any = add_partitions_to_txn(context, request)
    while isinstance(answer, Deferred):
        await asyncio.sleep(0)
        answer = answer.response or answer
    return [
        (topic.name, [(part.partition_index, E(part.partition_error_code)) for part in topic.results_by_partition])
        for topic in answer.results_by_topic_v3_and_below
    ]


@pytest.mark.parametrize("name", ["n" * 32_767, "ü" * 16_383, "\0", " "])
@staged(play)
async def test_any_name_that_a_request_can_carry_is_kept_and_loaded_again(
    world: TransactionWorld, /, name: str
) -> None:
    """A request of 40 kB for a name never gets here: the protocol allows 32,767 bytes."""
    (a,) = world.add("a")
    producer = await world.begun([a], name)
    await world.move()
    assert world.found(name).partitions == {a}
    assert world.end(producer, name) == [E.NONE]
    await world.until(S.COMPLETE_COMMIT, name)


@staged(play)
async def test_an_end_without_a_transaction_writes_nothing(world: TransactionWorld, /) -> None:
    nobody = ProducerIdAndEpoch(7, 0)
    assert world.end(nobody) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert world.end(nobody, "") == [E.INVALID_REQUEST]
    made = await world.init()
    producer = ProducerIdAndEpoch(made.producer_id, made.producer_epoch)
    for is_commit in (True, False):
        assert world.end(producer, is_commit=is_commit) == [E.INVALID_TXN_STATE]
    assert [state for _, state in world.stored] == [S.EMPTY]


@staged(play)
async def test_a_fenced_producer_can_neither_add_nor_end_nor_be_verified(world: TransactionWorld, /) -> None:
    a, b = world.add("a", partitions=2)
    old = await world.begun([a])
    assert (await world.init()).error is E.CONCURRENT_TRANSACTIONS
    await world.until(S.COMPLETE_ABORT)
    made = await world.init()
    new = ProducerIdAndEpoch(made.producer_id, made.producer_epoch)
    assert world.add_partitions(new, [a]) == [E.NONE]
    count = len(world.stored)
    assert world.add_partitions(old, [b]) == [E.PRODUCER_FENCED]
    assert [world.end(old, is_commit=is_commit) for is_commit in (True, False)] == [[E.PRODUCER_FENCED]] * 2
    assert world.coordinator.verify_partitions("t", old, [a]) == {a: E.PRODUCER_FENCED}
    assert len(world.stored) == count and world.found().partitions == {a}


@staged(play)
async def test_a_partition_that_is_added_twice_gets_one_marker(world: TransactionWorld, /) -> None:
    a, b = world.add("a", partitions=2)
    producer = await world.begun([a, a])
    count = len(world.stored)
    assert world.add_partitions(producer, [a, a]) == [E.NONE]
    assert len(world.stored) == count, "there was nothing to write"
    assert world.add_partitions(producer, [b, a]) == [E.NONE]
    world.end(producer)
    await world.until(S.COMPLETE_COMMIT)
    assert [len(world.led[p].markers) for p in (a, b)] == [1, 1]


@pytest.mark.parametrize("name_is_used_again", [False, True])
@staged(play)
async def test_a_topic_that_vanishes_while_its_markers_are_on_their_way_holds_up_nothing(
    world: TransactionWorld, /, name_is_used_again: bool
) -> None:
    (a,) = world.add("a", leader=THERE)
    (b,) = world.add("b")
    producer = await world.begun([a, b])
    world.there.errors = [E.UNKNOWN_TOPIC_OR_PARTITION] * 5
    world.end(producer)
    await asyncio.sleep(0.2)
    assert world.found().state is S.PREPARE_COMMIT and len(world.led[b].markers) == 1
    del world.metadata.leaders[a]
    if name_is_used_again:
        world.add("a")
    await world.until(S.COMPLETE_COMMIT)
    assert world.add_partitions(producer, [b]) == [E.NONE]
    assert len(world.led[b].markers) == 1


# -- a log that is damaged, or from a later version


KEY, VALUE = encode_key("bad"), state_record("bad").value or b""
BAD = {
    "a key of a later version": (struct.pack(">hh", 1, 0), VALUE),
    "a value of a later version": (KEY, struct.pack(">h", 2) + bytes(20)),
    "a state that nobody knows": (KEY, state_record("bad", transaction_status=9).value),
    "no key": (None, VALUE),
    "an empty key": (b"", VALUE),
    "an empty value": (KEY, b""),
    "a value that is cut off": (KEY, VALUE[:-3]),
    "a key that is cut off": (KEY[:-1], VALUE),
}


def test_what_a_loader_reads_is_counted_and_later_versions_are_no_damage(caplog: pytest.LogCaptureFixture) -> None:
    loader = TransactionLoader(STATE_PARTITION)
    assert (loader.skipped, loader.record_count, loader.next_offset) == (0, 0, 0)
    records = [state_record("a"), state_record("b", 6), Record(timestamp_ms=1, key=encode_key("a"))]
    records += [Record(timestamp_ms=1, key=encode_key("nobody"))]
    records += [Record(timestamp_ms=1, key=key, value=value) for key, value in BAD.values()]
    list(loader.read(encode_batch(records)))
    assert {name: stored.producer_id for name, stored in loader.loaded.items()} == {"b": 6}
    assert (loader.record_count, loader.next_offset) == (len(records), len(records))
    later = [record for record in caplog.records if "left over from an aborted upgrade" in record.getMessage()]
    damage = [record for record in caplog.records if "is skipped" in record.getMessage()]
    assert (len(later), len(damage), loader.skipped) == (2, len(BAD) - 2, len(BAD) - 2)
    assert [line.levelname for line in (later[0], damage[0])] == ["WARNING", "ERROR"]


@pytest.mark.parametrize("kind", BAD)
@staged(play)
async def test_a_record_that_nobody_understands_takes_no_other_along(
    world: TransactionWorld, /, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.resign()
    key, value = BAD[kind]
    bad = Record(timestamp_ms=1, key=key, value=value)
    world.state.log.append(encode_batch([state_record("before"), bad, state_record("after", 6)]))
    world.state.log.append(encode_batch([state_record("later", 7)]))
    await world.lead()
    assert [world.found(name).producer_id for name in ("before", "after", "later")] == [5, 6, 7]
    assert world.coordinator.describe("bad") is E.TRANSACTIONAL_ID_NOT_FOUND
    assert str(STATE_PARTITION) in caplog.text
    assert (await world.init("bad")).error is E.NONE


@staged(play)
async def test_a_value_of_the_next_version_is_read_with_what_it_adds(world: TransactionWorld, /) -> None:
    """Kafka 4 writes version 1; after a downgrade its records are there."""
    world.resign()
    value = TransactionLogValue(
        producer_id=8,
        previous_producer_id=7,
        next_producer_id=9,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_status=S.COMPLETE_COMMIT,
        transaction_partitions=[],
        transaction_last_update_timestamp_ms=1,
        transaction_start_timestamp_ms=1,
        client_transaction_version=2,
    )
    record = Record(timestamp_ms=1, key=encode_key("t"), value=encode_value(value, 1))
    world.state.log.append(encode_batch([record]))
    await world.lead()
    assert await world.init() == (E.NONE, 8, 4)


@pytest.mark.parametrize("at", ["its records", "its length"])
@staged(play)
async def test_a_batch_that_is_damaged_leaves_what_stands_before_it(
    world: TransactionWorld, /, at: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.resign()
    world.state.log.append(encode_batch([state_record("before")]))
    position = len(world.state.log.data)
    world.state.log.append(encode_batch([state_record("bad", 6)]))
    world.state.log.append(encode_batch([state_record("later", 7)]))
    place = position + 61 if at == "its records" else position + 8
    world.state.log.data[place : place + 4] = b"\x7f\xff\xff\xff"
    await world.lead()
    assert world.found("before").producer_id == 5
    assert {"its records": "is skipped", "its length": "What follows cannot be read"}[at] in caplog.text
    assert (await world.init("bad")).error is E.NONE, "the partition has a coordinator all the same"


# -- markers that cannot be written


class Hosted:
    """Partitions of a broker, as its replica manager hosts them."""

    def __init__(self) -> None:
        self.there = {TopicPartition(topic, 0): Partition(TopicPartition(topic, 0)) for topic in ("a", "old", "gone")}
        self.there[TopicPartition("old", 0)].log.config.record_magic = 1  # type: ignore[attr-defined]
        self.there[TopicPartition("gone", 0)].log = None  # type: ignore[assignment]
        self.delayed_produce = Purgatory("produce")
        self.ended: list[tuple[int, int, bool]] = []
        self.writer = MarkerWriter(
            cast("Any", SimpleNamespace(hosted_partition=self.there.get, delayed_produce=self.delayed_produce)),
            LoopClock(),
            timeout_ms=1_000,
            offsets_ended=lambda *ended: self.ended.append(ended),
        )

    def mark(self, *names: TopicPartition) -> list[tuple[str, E]]:
        answers: list[tuple[str, E]] = []
        marker = Marker(7, 0, 3, is_commit=True)
        self.writer.write(marker, names, lambda name, error, _: answers.append((name.topic, error)))
        return answers


@in_virtual_time
async def test_each_partition_is_told_why_it_gets_no_marker() -> None:
    hosted = Hosted()
    follower = hosted.there[TopicPartition("followed", 0)] = Partition(TopicPartition("followed", 0))
    follower.is_leader = False
    offsets = hosted.there[TopicPartition("__consumer_offsets", 4)] = Partition(TopicPartition("__consumer_offsets", 4))
    names = [TopicPartition(topic, 0) for topic in ("a", "nobody", "gone", "old", "followed")]
    assert hosted.mark(*names, offsets.topic_partition) == [
        ("a", E.NONE),
        ("nobody", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("gone", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("old", E.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ("followed", E.NOT_LEADER_OR_FOLLOWER),
        ("__consumer_offsets", E.NONE),
    ]
    assert hosted.ended == [(4, 7, True)], "only there are offsets"
    offsets.refusal = E.NOT_ENOUGH_REPLICAS
    assert hosted.mark(offsets.topic_partition) == [("__consumer_offsets", E.NOT_ENOUGH_REPLICAS)]
    assert len(hosted.ended) == 1
    hosted.delayed_produce.close()


# -- a full disk


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("at", range(5))
@staged(play)
async def test_a_disk_that_is_full_at_any_write_loses_no_outcome(
    world: TransactionWorld, /, at: int, is_written: bool
) -> None:
    """The broker gives its partition up. What the producer was told holds with the next coordinator.

    ``is_written``: the record is in the log that the next coordinator reads, though it failed here.
    """
    a, b = world.add("a", partitions=2)
    write = world.state.append_records_to_leader
    left = at

    def failing(batch: memoryview, required_acks: int, **facts: Any) -> Any:
        nonlocal left
        left -= 1
        if left == -1:
            if is_written:
                world.state.log.append(batch)
            world.state.refusal = E.KAFKA_STORAGE_ERROR
        return write(batch, required_acks, **facts)

    world.state.append_records_to_leader = failing  # type: ignore[method-assign]

    async def again(ask: Callable[[], Awaitable[E]]) -> None:
        """Ask as a client does, which looks for the coordinator if it is another one."""
        async with asyncio.timeout(100):
            while (error := await ask()) is not E.NONE:
                assert error in (E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS), error
                await follow()

    async def follow() -> None:
        if world.state.refusal is not None:
            world.state.refusal = None
            await world.move()
        await asyncio.sleep(0.01)

    async def init() -> E:
        made.append(await world.init())
        return made[-1].error

    async def at_once(answers: list[E]) -> E:
        return answers[0]

    made: list[Any] = []
    await again(init)
    producer = ProducerIdAndEpoch(made[-1].producer_id, made[-1].producer_epoch)
    for partition in (a, b):
        await again(lambda partition=partition: at_once(world.add_partitions(producer, [partition])))  # type: ignore[misc]
    await again(lambda: at_once(world.end(producer)))
    async with asyncio.timeout(100):
        while world.found().state is not S.COMPLETE_COMMIT:
            await follow()
    assert left < 0, "the disk was full once"
    for partition in (a, b):
        assert {(pid, epoch, marker.type) for pid, epoch, marker in world.led[partition].markers} == {
            (producer.producer_id, producer.producer_epoch, ControlRecordType.COMMIT)
        }


@staged(play)
async def test_a_marker_waits_while_the_disk_of_its_partition_is_full(
    world: TransactionWorld, /, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    a, b = world.add("a", partitions=2)
    producer = await world.begun([a, b])
    world.led[a].refusal = E.KAFKA_STORAGE_ERROR
    assert world.end(producer) == [E.NONE]
    await asyncio.sleep(10)
    assert world.found().state is S.PREPARE_COMMIT and world.found().partitions == {a}
    assert caplog.text.count(E.KAFKA_STORAGE_ERROR.name) == 1, "it is tried 200 times, and the log says so once"
    world.led[a].refusal = None
    await world.until(S.COMPLETE_COMMIT)
    assert [len(world.led[p].markers) for p in (a, b)] == [1, 1]


@staged(play)
async def test_the_log_says_once_that_a_broker_does_not_answer(
    world: TransactionWorld, /, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for times in (1, 2):
        producer = await world.begun(world.add("a", leader=THERE))
        world.there.errors = [None] * 100
        assert world.end(producer) == [E.NONE]
        await world.until(S.COMPLETE_COMMIT)
        assert len(world.there.requests) == 101 * times
        assert caplog.text.count("the broker was killed") == times


@staged(play)
async def test_a_completion_waits_while_the_disk_is_full(
    world: TransactionWorld, /, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    producer = await world.begun(world.add("a"))
    assert world.end(producer) == [E.NONE]
    world.state.refusal = E.KAFKA_STORAGE_ERROR
    await asyncio.sleep(10)
    assert world.found().state is S.PREPARE_COMMIT and not world.found().partitions
    assert caplog.text.count(E.KAFKA_STORAGE_ERROR.name) == 1, "it is tried 200 times, and the log says so once"
    world.state.refusal = None
    await world.until(S.COMPLETE_COMMIT)


# -- very many ids

MANY = 100_000
HOLD_S_MAX = 0.1
"""Of CPU. All of them together take half a second, and a collection of what the tests before have left some of this."""


@in_event_loop
async def test_very_many_ids_take_little_memory_and_hold_nobody_when_they_expire() -> None:
    world = TransactionWorld(
        **{
            "transactional.id.expiration.ms": "1000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "600000",
        }
    )
    await world.lead()
    (owned,) = world.coordinator.transactions.partitions()
    now_ms = world.clock.now_ms()
    old_ms = now_ms - 5_000
    tracemalloc.start()
    for number in range(MANY):
        name = f"application-{number}"
        owned.states[name] = Transaction(name, number, producer_epoch=0, timeout_ms=60_000, last_update_ms=old_ms)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size / MANY < 400, f"{size / MANY} bytes for each"
    open_ = TopicPartition("a", 0)
    owned.states["open"] = Transaction(
        "open",
        1,
        producer_epoch=0,
        timeout_ms=60_000,
        state=S.ONGOING,
        partitions=[open_],
        start_ms=now_ms,
        last_update_ms=old_ms,
    )
    for work in (world.coordinator.abort_timed_out, world.coordinator.remove_expired):
        assert await longest_hold(work) < HOLD_S_MAX
    assert list(owned.states) == ["open"]
    await world.stop()


async def longest_hold(work: Callable[[], Awaitable[None]]) -> float:
    """Return for how long the work kept the event loop from others."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        since = time.thread_time()
        while True:
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - since)
            since = time.thread_time()

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await work()
    watching.cancel()
    return longest
