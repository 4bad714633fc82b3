"""The time of the record at an offset: every format, compressed, behind holes and markers; uncooperative brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from virtual_time import in_virtual_time

from engine.admin.cluster.errors import Unknown
from engine.admin.cluster.wire import WireCluster
from engine.admin.lag.unread import LOOK_LAG_MAX, Behind, Place, Times, UnreadRecord, look_behind, read_times
from engine.common.errors import ErrorCode
from engine.common.model import IsolationLevel, TopicPartition
from engine.kafka.protocol.apis.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from engine.kafka.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from engine.kafka.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def record(offset: int, time_ms: int | None = None) -> Record:
    return Record(
        offset=offset, timestamp_ms=offset * 10 if time_ms is None else time_ms, key=None, value=b"v", headers=()
    )


class Log:
    """A broker that holds batches of partitions and answers a Fetch as Kafka does: the first batch is complete."""

    operation_s = 30.0

    def __init__(
        self, batches: dict[TopicPartition, Sequence[tuple[int, bytes]]], ends: dict[TopicPartition, int]
    ) -> None:
        self._batches = batches
        self._ends = ends
        self.requests = 0
        self.silent: dict[int, str] = {}
        self.partition_bytes: list[int] = []

    async def metadata(self, topics: Sequence[str]) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(partition_index=name.partition, leader_id=1) for name in sorted(self._batches)
        ]
        return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])

    async def client_of(self, broker_id: int) -> None:
        assert broker_id == 1

    async def call_broker(self, broker_id: int, request: FetchRequest, **_: Any) -> FetchResponse:
        self.requests += 1
        (topic,) = request.topics
        answers, is_first = [], True
        for wanted in topic.partitions:
            name = TopicPartition("t", wanted.partition)
            self.partition_bytes.append(wanted.partition_max_bytes)
            held = b"".join(data for last, data in self._batches[name] if last >= wanted.fetch_offset)
            first = next((len(data) for last, data in self._batches[name] if last >= wanted.fetch_offset), 0)
            size = max(first, wanted.partition_max_bytes) if is_first else wanted.partition_max_bytes
            is_first = is_first and not held
            answers.append(
                PartitionData(
                    partition_index=wanted.partition,
                    error_code=0,
                    high_watermark=self._ends[name],
                    records=memoryview(held[:size]),
                )
            )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=answers)])


def times(log: Log, *places: Place) -> Times:
    return asyncio.run(read_times(cast("WireCluster", log), places, patience_s=0.0))


def one_partition(*batches: tuple[int, bytes]) -> Log:
    return Log({A: batches}, {A: batches[-1][0] + 1})


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_format(magic: int, codec: Codec) -> None:
    records = [record(offset) for offset in range(5, 9)]
    if magic == 2:
        data = encode_batch(records, base_offset=5, codec=codec)
    else:
        data = encode_message_set(records, magic, codec=codec)
    log = one_partition((8, bytes(data)))
    expected = UnreadRecord(7, None if magic == 0 else 70)
    assert times(log, Place(A, 7)) == {Place(A, 7): expected}


def test_the_time_of_appending_counts_where_the_topic_says_so() -> None:
    batch = encode_batch(
        [record(5), record(6)], base_offset=5, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=999
    )
    assert times(one_partition((6, batch)), Place(A, 5)) == {Place(A, 5): UnreadRecord(5, 999)}


def test_holes_of_compaction() -> None:
    first = encode_batch([record(5), record(6)], base_offset=5, last_offset=19)
    second = encode_batch([record(25)], base_offset=20)
    log = one_partition((19, first), (25, second))
    read_times = times(log, Place(A, 5), Place(A, 7), Place(A, 20))
    assert {place.offset: at for place, at in read_times.items()} == {
        5: UnreadRecord(5, 50),
        7: UnreadRecord(25, 250),
        20: UnreadRecord(25, 250),
    }


def test_markers_are_no_records() -> None:
    marker = encode_batch([record(6)], base_offset=6, producer_id=1, producer_epoch=0, transactional=True, control=True)
    after = encode_batch([record(7)], base_offset=7)
    assert times(one_partition((6, marker), (7, after)), Place(A, 6)) == {Place(A, 6): UnreadRecord(7, 70)}
    assert times(one_partition((6, marker)), Place(A, 6)) == {Place(A, 6): None}


def test_a_large_batch_beside_other_partitions_is_asked_for_alone() -> None:
    big = Record(offset=3, timestamp_ms=30, key=None, value=b"x" * 200_000, headers=())
    log = Log(
        {A: [(3, encode_batch([big], base_offset=3))], B: [(3, encode_batch([big], base_offset=3))]}, {A: 4, B: 4}
    )
    read_times = times(log, Place(A, 3), Place(B, 3))
    assert read_times == {Place(A, 3): UnreadRecord(3, 30), Place(B, 3): UnreadRecord(3, 30)}
    assert log.partition_bytes[-1] == 1, "alone, the first batch comes whole"


def test_many_places_of_a_partition() -> None:
    batches = [(n, encode_batch([record(n)], base_offset=n)) for n in range(50)]
    places = [Place(A, n) for n in range(50)]
    read_times = times(one_partition(*batches), *places)
    assert read_times == {place: UnreadRecord(place.offset, place.offset * 10) for place in places}


@pytest.mark.parametrize("data", [b"\x00" * 61, b"garbage that is long enough to look like a batch" * 3])
def test_damage_is_unknown(data: bytes) -> None:
    read_times = times(one_partition((5, data)), Place(A, 5))
    assert isinstance(read_times[Place(A, 5)], Unknown)


def test_a_record_cut_off_is_unknown() -> None:
    batch = bytearray(encode_batch([record(5), record(6)], base_offset=5, codec=Codec.GZIP))
    batch[70:] = b"\xff" * (len(batch) - 70)
    assert isinstance(times(one_partition((6, bytes(batch))), Place(A, 6))[Place(A, 6)], Unknown)


def test_errors_of_the_broker_are_unknown() -> None:
    class Refusing(Log):
        async def call_broker(self, broker_id: int, request: FetchRequest, **_: Any) -> FetchResponse:
            response = await super().call_broker(broker_id, request)
            response.responses[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return response

    log = Refusing({A: [(5, encode_batch([record(5)], base_offset=5))]}, {A: 6})
    read_time = times(log, Place(A, 5))[Place(A, 5)]
    assert isinstance(read_time, Unknown)
    assert read_time.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    absent = Place(TopicPartition("absent", 0), 5)
    assert isinstance(times(log, absent)[absent], Unknown)


def test_brokers_that_give_less_than_a_batch_if_less_is_asked_for() -> None:
    class Old(Log):
        """A broker before KIP-74: it never returns more than requested."""

        async def call_broker(self, broker_id: int, request: FetchRequest, **_: Any) -> FetchResponse:
            response = await super().call_broker(broker_id, request)
            data = response.responses[0].partitions[0]
            assert data.records is not None
            data.records = data.records[: request.topics[0].partitions[0].partition_max_bytes]
            return response

    log = Old({A: [(6, encode_batch([record(5), record(6)], base_offset=5))]}, {A: 7})
    assert times(log, Place(A, 6)) == {Place(A, 6): UnreadRecord(6, 60)}
    huge = Record(offset=5, timestamp_ms=1, key=None, value=b"x" * 5_000_000, headers=())
    log = Old({A: [(5, encode_batch([huge], base_offset=5))]}, {A: 6})
    assert isinstance(times(log, Place(A, 5))[Place(A, 5)], Unknown)


def test_endless_markers_are_given_up() -> None:
    class Endless(Log):
        async def call_broker(self, broker_id: int, request: FetchRequest, **_: Any) -> FetchResponse:
            self.requests += 1
            offset = request.topics[0].partitions[0].fetch_offset
            marker = encode_batch([record(offset)], base_offset=offset, producer_id=1, transactional=True, control=True)
            data = PartitionData(partition_index=0, error_code=0, high_watermark=2**40, records=memoryview(marker))
            return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

    log = Endless({A: []}, {A: 0})
    assert isinstance(times(log, Place(A, 0))[Place(A, 0)], Unknown)
    assert log.requests <= 200


# What stands behind the offsets that seem to be stuck


class TransactionLog:
    """One broker and one partition: each word is an offset, from 5 on.

    Words: ``record``; ``gone`` (compacted away, its batch is left); ``1`` (a record of producer 1's transaction);
    ``1c``, ``1a`` (its marker).
    """

    operation_s = 30.0

    def __init__(self, words: str, refusal: ErrorCode = ErrorCode.NONE) -> None:
        self.silent: dict[int, str] = {}
        self.requests: list[object] = []
        self._refusal = refusal
        self._batches: list[tuple[int, bytes]] = []
        self._aborted: list[AbortedTransaction] = []
        open_since: dict[int, int] = {}
        for offset, word in enumerate(words.split(), 5):
            self._batches.append((offset, _batch_of(word, offset)))
            if word[0].isdigit():
                producer, end = int(word[0]), word[1:]
                first = open_since.setdefault(producer, offset)
                if end:
                    del open_since[producer]
                if end == "a":
                    self._aborted.append(AbortedTransaction(producer_id=producer, first_offset=first))
        self.end = self._batches[-1][0] + 1
        self.stable = min(open_since.values(), default=self.end)

    async def metadata(self, topics: Sequence[str]) -> MetadataResponse:
        partitions = [MetadataResponsePartition(partition_index=0, leader_id=1)]
        return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])

    async def client_of(self, broker_id: int) -> None:
        assert broker_id == 1

    async def call_broker(self, broker_id: int, request: Any, **_: Any) -> Any:
        self.requests.append(request)
        if isinstance(request, ListOffsetsRequest):
            assert request.isolation_level == IsolationLevel.READ_COMMITTED
            offsets = [ListOffsetsPartitionResponse(partition_index=0, offset=self.stable)]
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=offsets)])
        is_committed = request.isolation_level == IsolationLevel.READ_COMMITTED
        wanted = request.topics[0].partitions[0]
        limit = self.stable if is_committed else self.end
        batches = [batch for last, batch in self._batches if wanted.fetch_offset <= last < limit]
        answer = b"".join(batches[:1])
        for batch in batches[1:]:
            if len(answer) + len(batch) > wanted.partition_max_bytes:
                break
            answer += batch
        data = PartitionData(
            partition_index=0,
            error_code=self._refusal,
            high_watermark=self.end,
            last_stable_offset=self.stable,
            aborted_transactions=self._aborted if is_committed else None,
            records=memoryview(answer),
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


def _batch_of(word: str, offset: int) -> bytes:
    if word == "record":
        return encode_batch([record(offset)], base_offset=offset)
    if word == "gone":
        return encode_batch([], base_offset=offset, last_offset=offset)
    more = {"producer_id": int(word[0]), "producer_epoch": 0, "transactional": True}
    if not word[1:]:
        return encode_batch([record(offset)], base_offset=offset, **more)
    key = b"\0\0\0\1" if word[1:] == "c" else b"\0\0\0\0"
    marker = Record(offset=offset, timestamp_ms=1, key=key, value=b"\0\0\0\0\0\0", headers=())
    return encode_batch([marker], base_offset=offset, control=True, **more)


def behind(
    log: Any,
    end: int | None = None,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    times: Times | None = None,
) -> Behind:
    ends = {Place(A, 5): log.end if end is None else end}
    return asyncio.run(look_behind(cast("WireCluster", log), ends, times or {}, isolation, patience_s=0.0))


NOTHING, ABORTED, RECORDS = (
    Behind(nothing=frozenset({Place(A, 5)})),
    Behind(aborted=frozenset({Place(A, 5)})),
    Behind(),
)


@pytest.mark.parametrize(
    ("words", "expected", "for_committed"),
    [
        ("1c", NOTHING, NOTHING),
        ("1a 2c 1a", NOTHING, NOTHING),
        ("gone 1c", NOTHING, NOTHING),
        ("1 1 1a", ABORTED, NOTHING),
        ("1c 1 2 1a 2a 3c", ABORTED, NOTHING),
        ("1 1a record", RECORDS, RECORDS),
        ("record", RECORDS, RECORDS),
        ("1 1c", RECORDS, RECORDS),
        ("1 1a 1 1c", RECORDS, RECORDS),
        ("1 2 1a 2c", RECORDS, RECORDS),
        # It may still be committed, but until then it does not hold up readers of committed records.
        ("1 1a 2", RECORDS, NOTHING),
        ("1", RECORDS, NOTHING),
    ],
)
def test_whether_anything_is_left_to_read(words: str, expected: Behind, for_committed: Behind) -> None:
    log = TransactionLog(words)
    assert behind(log) == expected
    known = {Place(A, 5): times_of(log)}
    assert behind(log, times=known) == expected, "what was read already is not read again"
    committed = TransactionLog(words)
    assert behind(committed, log.stable, IsolationLevel.READ_COMMITTED) == for_committed
    assert all(isinstance(request, FetchRequest) for request in committed.requests), "one look tells all"


def times_of(log: TransactionLog) -> UnreadRecord | Unknown | None:
    return asyncio.run(read_times(cast("WireCluster", log), [Place(A, 5)], patience_s=0.0))[Place(A, 5)]


def test_a_record_that_came_after_the_sample_does_not_count() -> None:
    assert behind(TransactionLog("1c record"), 6) == NOTHING
    assert behind(TransactionLog("1 1a record"), 7) == ABORTED
    assert behind(TransactionLog("1 1a record"), 8) == RECORDS


def test_who_may_not_read_the_topic_learns_nothing_and_asks_once() -> None:
    log = TransactionLog("1c", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert behind(log) == RECORDS
    assert len(log.requests) == 1


def test_nothing_is_asked_where_nobody_is_behind_or_by_very_much() -> None:
    assert asyncio.run(look_behind(cast("WireCluster", None), {}, {}, IsolationLevel(0), patience_s=0.0)) == RECORDS
    log = TransactionLog("1c")
    assert behind(log, 5 + LOOK_LAG_MAX + 1) == RECORDS
    assert log.requests == []


def test_a_record_outside_of_transactions_is_asked_about_no_further() -> None:
    log = TransactionLog("record")
    behind(log, times={Place(A, 5): UnreadRecord(5, 50)})
    assert log.requests == []


@in_virtual_time
async def test_a_broker_that_hangs_does_not_hold_up_the_answer() -> None:
    class Hanging(TransactionLog):
        async def call_broker(self, broker_id: int, request: Any, **_: Any) -> Any:
            await asyncio.Event().wait()

    wire, began = cast("WireCluster", Hanging("1c")), asyncio.get_running_loop().time()
    assert await look_behind(wire, {Place(A, 5): 6}, {}, IsolationLevel.READ_UNCOMMITTED, patience_s=2.0) == RECORDS
    assert asyncio.get_running_loop().time() - began <= 5.0, "no longer than other extras of an answer"


def test_many_small_aborted_batches_are_read_together() -> None:
    log = TransactionLog(" ".join(["1"] * 300 + ["1a"]))
    assert behind(log, times={Place(A, 5): UnreadRecord(5, 50, is_transactional=True)}) == ABORTED
    assert len(log.requests) == 3, "the last stable offset, one batch, and then many"
