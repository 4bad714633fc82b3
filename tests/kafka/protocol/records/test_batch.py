"""Version 2 batches: a batch reads back as it was written, headers match it, and iteration stops where it must."""

from __future__ import annotations

import pytest

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.checksum import stamp_crc, verify_crc
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import empty_batch, encode_batch, encode_single
from engine.kafka.protocol.records.header import BatchHeader, iter_batches, read_batch_header
from engine.kafka.protocol.records.record import Record

RECORDS = [
    Record(7, 1_000, b"key", b"value", [("h", b"1"), ("empty", b""), ("null", None), ("ü", b"\x00")]),
    Record(8, 999, None, b"v" * 300),
    Record(11, 5_000_000, b"", None),
    Record(12, -1, b"k" * 200, b""),
]


@pytest.mark.parametrize("codec", Codec)
def test_what_is_encoded_is_read_back(codec: Codec) -> None:
    batch = encode_batch(RECORDS, base_offset=7, codec=codec)
    assert list(iter_records(batch)) == RECORDS
    header = read_batch_header(batch)
    assert header.codec is codec
    assert (header.base_offset, header.last_offset, header.next_offset, header.record_count) == (7, 12, 13, 4)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 5_000_000)
    assert header.size_bytes == len(batch)
    assert verify_crc(batch, 0, len(batch))


def test_header_fields() -> None:
    batch = encode_batch(
        RECORDS[:2],
        base_offset=7,
        producer_id=9,
        producer_epoch=3,
        base_sequence=2**31 - 1,
        transactional=True,
        partition_leader_epoch=5,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time_ms=77,
    )
    header = read_batch_header(batch)
    assert header.is_transactional
    assert header.has_producer_id
    assert not header.is_control
    assert not header.has_delete_horizon
    assert not header.is_compressed
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.producer_id, header.producer_epoch, header.partition_leader_epoch) == (9, 3, 5)
    assert header.last_sequence == 0, "sequences wrap from 2^31-1 to 0"
    assert [record.timestamp_ms for record in iter_records(batch)] == [77, 77]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 100, 8_191, 70_000])
def test_a_single_record_is_encoded_as_in_any_batch(size: int) -> None:
    key, value = b"k" * (size // 2), b"v" * size
    record = Record(timestamp_ms=1_700_000_000_000, key=key, value=value)
    assert encode_single(key, value, record.timestamp_ms) == encode_batch([record])


def test_records_without_offset_are_numbered_from_the_base() -> None:
    batch = encode_batch([Record(value=b"a"), Record(value=b"b"), Record(40, value=b"c"), Record()], base_offset=30)
    assert [record.offset for record in iter_records(batch)] == [30, 31, 40, 41]


def test_delete_horizon_takes_the_base_timestamps_place() -> None:
    batch = encode_batch([Record(0, 50, b"k", None)], delete_horizon_ms=9_000)
    header = read_batch_header(batch)
    assert header.delete_horizon_ms == 9_000
    assert [record.timestamp_ms for record in iter_records(batch)] == [50]


def test_emptied_batch_keeps_offsets_and_producer_state() -> None:
    batch = encode_batch(RECORDS, base_offset=7, codec=Codec.GZIP, producer_id=4, producer_epoch=1, base_sequence=10)
    before = read_batch_header(batch)
    emptied = empty_batch(before)
    after = read_batch_header(emptied)
    assert len(emptied) == layout.BATCH_OVERHEAD
    assert verify_crc(emptied, 0, len(emptied))
    assert (after.last_offset, after.last_sequence, after.max_timestamp) == (12, 15, 5_000_000)
    assert (after.record_count, after.base_timestamp, after.codec) == (0, -1, Codec.NONE)
    assert list(iter_records(emptied)) == []


@pytest.mark.parametrize(
    "records",
    [
        [Record(5), Record(5)],
        [Record(5), Record(4)],
        [Record(2)],
        [Record(3), Record(3 + 2**31)],
    ],
)
def test_offsets_that_no_batch_can_hold_are_refused(records: list[Record]) -> None:
    with pytest.raises(KafkaError) as caught:
        encode_batch(records, base_offset=3)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_walk_yields_whole_batches_and_stops_at_a_torn_one() -> None:
    first = encode_batch(RECORDS, base_offset=7)
    second = encode_batch(RECORDS[3:], base_offset=12)
    both = first + second
    assert [position for position, _ in iter_batches(both)] == [0, len(first)]
    for size in range(len(first), len(both)):
        assert [position for position, _ in iter_batches(both[:size])] == [0]


@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(view: type) -> None:
    batch = encode_batch(RECORDS, base_offset=7, codec=Codec.LZ4)
    buffer = view(b"xyz" + batch)
    header = read_batch_header(buffer, 3)
    assert isinstance(header, BatchHeader)
    assert verify_crc(buffer, 3, header.size_bytes)
    assert list(iter_records(view(batch))) == RECORDS


def test_crc_covers_attributes_to_end_but_not_offset_and_leader_epoch() -> None:
    batch = bytearray(encode_batch(RECORDS, base_offset=7))
    batch[layout.BASE_OFFSET + 7] ^= 1
    batch[layout.PARTITION_LEADER_EPOCH] ^= 1
    assert verify_crc(batch, 0, len(batch))
    for position in (layout.ATTRIBUTES, layout.MAX_TIMESTAMP, len(batch) - 1):
        batch[position] ^= 1
        assert not verify_crc(batch, 0, len(batch))
        stamp_crc(batch, 0, len(batch))
        assert verify_crc(batch, 0, len(batch))


def with_length(batch: bytes, length: int) -> bytes:
    return batch[:8] + length.to_bytes(4, "big", signed=True) + batch[12:]


@pytest.mark.parametrize(
    "bad",
    [
        encode_batch(RECORDS, base_offset=7)[:20],
        b"",
        encode_batch(RECORDS, base_offset=7)[:16] + b"\x03" + bytes(60),
        encode_batch(RECORDS, base_offset=7)[:16] + b"\xff" + bytes(60),
        with_length(encode_batch(RECORDS, base_offset=7), 48),
        with_length(encode_batch(RECORDS, base_offset=7), -1),
    ],
)
def test_senseless_headers_are_corrupt(bad: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        read_batch_header(bad)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-1, 0, 13, -(2**31)])
def test_walk_refuses_lengths_that_no_batch_has(length: int) -> None:
    with pytest.raises(KafkaError) as caught:
        list(iter_batches(with_length(encode_batch(RECORDS, base_offset=7), length)))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_wrong_record_counts_are_invalid() -> None:
    batch = bytearray(encode_batch(RECORDS, base_offset=7))
    for count in (-1, 3, 5, 2**31 - 1):
        batch[layout.RECORD_COUNT : layout.RECORD_COUNT + 4] = count.to_bytes(4, "big", signed=True)
        with pytest.raises(KafkaError) as caught:
            list(iter_records(batch))
        assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("number", [5, 6, 7])
def test_unknown_codec_is_corrupt(number: int) -> None:
    batch = bytearray(encode_batch(RECORDS, base_offset=7))
    batch[layout.ATTRIBUTES + 1] |= number
    with pytest.raises(KafkaError) as caught:
        list(iter_records(batch))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
