"""The time of the record at an offset: every format, compressed, behind holes and markers; uncooperative brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from engine.admin.cluster.errors import Unknown
from engine.admin.cluster.wire import WireCluster
from engine.admin.lag.unread import Place, Times, UnreadRecord, read_times
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
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
Answer = Callable[[FetchRequest], FetchResponse]


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
    found = times(log, Place(A, 5), Place(A, 7), Place(A, 20))
    assert {place.offset: at for place, at in found.items()} == {
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
    found = times(log, Place(A, 3), Place(B, 3))
    assert found == {Place(A, 3): UnreadRecord(3, 30), Place(B, 3): UnreadRecord(3, 30)}
    assert log.partition_bytes[-1] == 1, "alone, the first batch comes whole"


def test_many_places_of_a_partition() -> None:
    batches = [(n, encode_batch([record(n)], base_offset=n)) for n in range(50)]
    places = [Place(A, n) for n in range(50)]
    found = times(one_partition(*batches), *places)
    assert found == {place: UnreadRecord(place.offset, place.offset * 10) for place in places}


@pytest.mark.parametrize("data", [b"\x00" * 61, b"garbage that is long enough to look like a batch" * 3])
def test_damage_is_unknown(data: bytes) -> None:
    found = times(one_partition((5, data)), Place(A, 5))
    assert isinstance(found[Place(A, 5)], Unknown)


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
    found = times(log, Place(A, 5))[Place(A, 5)]
    assert isinstance(found, Unknown)
    assert found.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
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
