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
from transaction_world import STATE_PARTITION, THERE, Partition, TransactionWorld
from virtual_time import LoopClock, run_virtual

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


def world(test: Callable[[TransactionWorld], Awaitable[None]], **settings: str) -> None:
    async def run() -> None:
        one = TransactionWorld(**settings)
        await one.lead()
        await test(one)
        await one.stop()

    run_virtual(run)


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
def test_what_a_client_adds_is_answered_alike_in_requests_of_any_size(
    named: Named, answered: list[tuple[str, list[tuple[int, E]]]], size_bytes: int
) -> None:
    async def test(one: TransactionWorld) -> None:
        one.add("a", partitions=2)
        one.add("b")
        assert await added(one, named, size_bytes) == answered
        assert one.found().partitions == {
            TopicPartition(topic, index) for topic, parts in answered for index, error in parts if error is E.NONE
        }

    world(test)


@pytest.mark.parametrize("size_bytes", [100, LARGE_FRAME_BYTES], ids=["usual", "large"])
def test_nothing_is_added_while_brokers_may_not_know_transactions(size_bytes: int) -> None:
    async def test(one: TransactionWorld) -> None:
        one.add("a")
        refused = [("a", [(0, E.UNSUPPORTED_VERSION)])]
        assert await added(one, [("a", [0])], size_bytes, MetadataVersion.IBP_0_10_2_IV0) == refused
        assert one.found().partitions == set()

    world(test)


async def added(
    one: TransactionWorld, named: Named, size_bytes: int, ibp: MetadataVersion = MetadataVersion.IBP_3_9_IV0
) -> list[tuple[str, list[tuple[int, E]]]]:
    """Send AddPartitionsToTxn as a client does; return the errors by topic."""
    producer = (await one.init()).producer_id
    broker = SimpleNamespace(
        transaction_coordinator=one.coordinator,
        metadata_cache=one.metadata,
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
def test_any_name_that_a_request_can_carry_is_kept_and_loaded_again(name: str) -> None:
    """A request of 40 kB for a name never gets here: the protocol allows 32,767 bytes."""

    async def test(one: TransactionWorld) -> None:
        (a,) = one.add("a")
        producer = await one.begun([a], name)
        await one.move()
        assert one.found(name).partitions == {a}
        assert one.end(producer, name) == [E.NONE]
        await one.until(S.COMPLETE_COMMIT, name)

    world(test)


def test_an_end_without_a_transaction_writes_nothing() -> None:
    async def test(one: TransactionWorld) -> None:
        nobody = ProducerIdAndEpoch(7, 0)
        assert one.end(nobody) == [E.INVALID_PRODUCER_ID_MAPPING]
        assert one.end(nobody, "") == [E.INVALID_REQUEST]
        made = await one.init()
        producer = ProducerIdAndEpoch(made.producer_id, made.producer_epoch)
        for is_commit in (True, False):
            assert one.end(producer, is_commit=is_commit) == [E.INVALID_TXN_STATE]
        assert [state for _, state in one.stored] == [S.EMPTY]

    world(test)


def test_a_fenced_producer_can_neither_add_nor_end_nor_be_verified() -> None:
    async def test(one: TransactionWorld) -> None:
        a, b = one.add("a", partitions=2)
        old = await one.begun([a])
        assert (await one.init()).error is E.CONCURRENT_TRANSACTIONS
        await one.until(S.COMPLETE_ABORT)
        made = await one.init()
        new = ProducerIdAndEpoch(made.producer_id, made.producer_epoch)
        assert one.add_partitions(new, [a]) == [E.NONE]
        count = len(one.stored)
        assert one.add_partitions(old, [b]) == [E.PRODUCER_FENCED]
        assert [one.end(old, is_commit=is_commit) for is_commit in (True, False)] == [[E.PRODUCER_FENCED]] * 2
        assert one.coordinator.verify_partitions("t", old, [a]) == {a: E.PRODUCER_FENCED}
        assert len(one.stored) == count and one.found().partitions == {a}

    world(test)


def test_a_partition_that_is_added_twice_gets_one_marker() -> None:
    async def test(one: TransactionWorld) -> None:
        a, b = one.add("a", partitions=2)
        producer = await one.begun([a, a])
        count = len(one.stored)
        assert one.add_partitions(producer, [a, a]) == [E.NONE]
        assert len(one.stored) == count, "there was nothing to write"
        assert one.add_partitions(producer, [b, a]) == [E.NONE]
        one.end(producer)
        await one.until(S.COMPLETE_COMMIT)
        assert [len(one.led[p].markers) for p in (a, b)] == [1, 1]

    world(test)


@pytest.mark.parametrize("name_is_used_again", [False, True])
def test_a_topic_that_vanishes_while_its_markers_are_on_their_way_holds_up_nothing(name_is_used_again: bool) -> None:
    async def test(one: TransactionWorld) -> None:
        (a,) = one.add("a", leader=THERE)
        (b,) = one.add("b")
        producer = await one.begun([a, b])
        one.there.errors = [E.UNKNOWN_TOPIC_OR_PARTITION] * 5
        one.end(producer)
        await asyncio.sleep(0.2)
        assert one.found().state is S.PREPARE_COMMIT and len(one.led[b].markers) == 1
        del one.metadata.leaders[a]
        if name_is_used_again:
            one.add("a")
        await one.until(S.COMPLETE_COMMIT)
        assert one.add_partitions(producer, [b]) == [E.NONE]
        assert len(one.led[b].markers) == 1

    world(test)


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
    assert {name: one.producer_id for name, one in loader.loaded.items()} == {"b": 6}
    assert (loader.record_count, loader.next_offset) == (len(records), len(records))
    later = [one for one in caplog.records if "left over from an aborted upgrade" in one.getMessage()]
    damage = [one for one in caplog.records if "is skipped" in one.getMessage()]
    assert (len(later), len(damage), loader.skipped) == (2, len(BAD) - 2, len(BAD) - 2)
    assert [one.levelname for one in (later[0], damage[0])] == ["WARNING", "ERROR"]


@pytest.mark.parametrize("kind", BAD)
def test_a_record_that_nobody_understands_takes_no_other_along(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(one: TransactionWorld) -> None:
        one.resign()
        key, value = BAD[kind]
        bad = Record(timestamp_ms=1, key=key, value=value)
        one.state.log.append(encode_batch([state_record("before"), bad, state_record("after", 6)]))
        one.state.log.append(encode_batch([state_record("later", 7)]))
        await one.lead()
        assert [one.found(name).producer_id for name in ("before", "after", "later")] == [5, 6, 7]
        assert one.coordinator.describe("bad") is E.TRANSACTIONAL_ID_NOT_FOUND
        assert str(STATE_PARTITION) in caplog.text
        assert (await one.init("bad")).error is E.NONE

    world(test)


def test_a_value_of_the_next_version_is_read_with_what_it_adds() -> None:
    """Kafka 4 writes version 1; after a downgrade its records are there."""

    async def test(one: TransactionWorld) -> None:
        one.resign()
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
        one.state.log.append(encode_batch([record]))
        await one.lead()
        assert await one.init() == (E.NONE, 8, 4)

    world(test)


@pytest.mark.parametrize("at", ["its records", "its length"])
def test_a_batch_that_is_damaged_leaves_what_stands_before_it(at: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(one: TransactionWorld) -> None:
        one.resign()
        one.state.log.append(encode_batch([state_record("before")]))
        position = len(one.state.log.data)
        one.state.log.append(encode_batch([state_record("bad", 6)]))
        one.state.log.append(encode_batch([state_record("later", 7)]))
        place = position + 61 if at == "its records" else position + 8
        one.state.log.data[place : place + 4] = b"\x7f\xff\xff\xff"
        await one.lead()
        assert one.found("before").producer_id == 5
        assert {"its records": "is skipped", "its length": "What follows cannot be read"}[at] in caplog.text
        assert (await one.init("bad")).error is E.NONE, "the partition has a coordinator all the same"

    world(test)


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


def test_each_partition_is_told_why_it_gets_no_marker() -> None:
    async def test() -> None:
        hosted = Hosted()
        follower = hosted.there[TopicPartition("followed", 0)] = Partition(TopicPartition("followed", 0))
        follower.is_leader = False
        offsets = hosted.there[TopicPartition("__consumer_offsets", 4)] = Partition(
            TopicPartition("__consumer_offsets", 4)
        )
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

    run_virtual(test)


# -- a full disk


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("at", range(5))
def test_a_disk_that_is_full_at_any_write_loses_no_outcome(at: int, is_written: bool) -> None:
    """The broker gives its partition up. What the producer was told holds with the next coordinator.

    ``is_written``: the record is in the log that the next coordinator reads, though it failed here.
    """

    async def test(one: TransactionWorld) -> None:
        a, b = one.add("a", partitions=2)
        write = one.state.append_records_to_leader
        left = at

        def failing(batch: memoryview, required_acks: int, **facts: Any) -> Any:
            nonlocal left
            left -= 1
            if left == -1:
                if is_written:
                    one.state.log.append(batch)
                one.state.refusal = E.KAFKA_STORAGE_ERROR
            return write(batch, required_acks, **facts)

        one.state.append_records_to_leader = failing  # type: ignore[method-assign]

        async def again(ask: Callable[[], Awaitable[E]]) -> None:
            """Ask as a client does, which looks for the coordinator if it is another one."""
            async with asyncio.timeout(100):
                while (error := await ask()) is not E.NONE:
                    assert error in (E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS), error
                    await follow()

        async def follow() -> None:
            if one.state.refusal is not None:
                one.state.refusal = None
                await one.move()
            await asyncio.sleep(0.01)

        async def init() -> E:
            made.append(await one.init())
            return made[-1].error

        async def at_once(answers: list[E]) -> E:
            return answers[0]

        made: list[Any] = []
        await again(init)
        producer = ProducerIdAndEpoch(made[-1].producer_id, made[-1].producer_epoch)
        for partition in (a, b):
            await again(lambda partition=partition: at_once(one.add_partitions(producer, [partition])))  # type: ignore[misc]
        await again(lambda: at_once(one.end(producer)))
        async with asyncio.timeout(100):
            while one.found().state is not S.COMPLETE_COMMIT:
                await follow()
        assert left < 0, "the disk was full once"
        for partition in (a, b):
            assert {(pid, epoch, marker.type) for pid, epoch, marker in one.led[partition].markers} == {
                (producer.producer_id, producer.producer_epoch, ControlRecordType.COMMIT)
            }

    world(test)


def test_a_marker_waits_while_the_disk_of_its_partition_is_full() -> None:
    async def test(one: TransactionWorld) -> None:
        a, b = one.add("a", partitions=2)
        producer = await one.begun([a, b])
        one.led[a].refusal = E.KAFKA_STORAGE_ERROR
        assert one.end(producer) == [E.NONE]
        await asyncio.sleep(10)
        assert one.found().state is S.PREPARE_COMMIT and one.found().partitions == {a}
        one.led[a].refusal = None
        await one.until(S.COMPLETE_COMMIT)
        assert [len(one.led[p].markers) for p in (a, b)] == [1, 1]

    world(test)


# -- very many ids

MANY = 100_000
HOLD_S_MAX = 0.25
"""Far less than all of them take; the machine may be busy."""


def test_very_many_ids_take_little_memory_and_hold_nobody_when_they_expire() -> None:
    async def run() -> None:
        one = TransactionWorld(
            **{
                "transactional.id.expiration.ms": "1000",
                "transaction.remove.expired.transaction.cleanup.interval.ms": "600000",
            }
        )
        await one.lead()
        (owned,) = one.coordinator.transactions.partitions()
        now_ms = one.clock.now_ms()
        old_ms = now_ms - 5_000
        tracemalloc.start()
        for number in range(MANY):
            name = f"application-{number}"
            owned.states[name] = Transaction(name, number, producer_epoch=0, timeout_ms=60_000, last_update_ms=old_ms)
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert size / MANY < 1_000, f"{size / MANY} bytes for each"
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
        for work in (one.coordinator.abort_timed_out, one.coordinator.remove_expired):
            assert await longest_hold(work) < HOLD_S_MAX
        assert list(owned.states) == ["open"]
        await one.stop()

    asyncio.run(run())


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
