"""Messages of v0 and v1: wrappers, their offsets and times, and bytes that are no messages."""

from __future__ import annotations

import struct
import zlib

import pytest

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.compression import compress
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.header import UNKNOWN_COUNT, read_batch_header
from engine.kafka.protocol.records.legacy import encode_message, encode_message_set, read_messages
from engine.kafka.protocol.records.record import Record

RECORDS = [Record(20, 100, b"a", b"1"), Record(21, 300, None, b"2"), Record(25, 200, b"c", None)]


def wrapper(magic: int, offset: int, inner: bytes, codec: Codec = Codec.GZIP, **options: TimestampType) -> bytes:
    return encode_message(offset, magic, 500, None, compress(codec, inner, magic=magic), codec=codec, **options)


def inner_set(magic: int, offsets: list[int]) -> bytes:
    return b"".join(encode_message(offset, magic, 100 + offset, b"k", b"v") for offset in offsets)


def test_single_messages_have_the_documented_layout() -> None:
    """Field by field, against bytes that the test builds itself."""
    body_v0 = b"\x00\x00" + struct.pack(">i", 1) + b"k" + struct.pack(">i", -1)
    body_v1 = b"\x01\x08" + struct.pack(">q", 77) + struct.pack(">i", -1) + struct.pack(">i", 2) + b"vv"
    expected_v0 = struct.pack(">qiI", 5, len(body_v0) + 4, zlib.crc32(body_v0)) + body_v0
    expected_v1 = struct.pack(">qiI", 6, len(body_v1) + 4, zlib.crc32(body_v1)) + body_v1
    assert encode_message(5, 0, 77, b"k", None) == expected_v0
    assert encode_message(6, 1, 77, None, b"vv", timestamp_type=TimestampType.LOG_APPEND_TIME) == expected_v1
    assert list(iter_records(expected_v0 + expected_v1)) == [Record(5, -1, b"k", None), Record(6, 77, None, b"vv")]


def test_headers_of_messages() -> None:
    single = read_batch_header(encode_message(5, 1, 77, b"k", b"v"))
    assert (single.base_offset, single.last_offset, single.next_offset, single.record_count) == (5, 5, 6, 1)
    assert (single.magic, single.max_timestamp, single.timestamp_type) == (1, 77, TimestampType.CREATE_TIME)
    assert (single.producer_id, single.base_sequence, single.last_sequence, single.partition_leader_epoch) == (-1,) * 4
    assert not single.is_wrapper
    assert not single.is_transactional
    assert not single.is_control
    v0 = read_batch_header(encode_message(5, 0, 77, b"k", b"v"))
    assert (v0.max_timestamp, v0.timestamp_type) == (-1, TimestampType.NO_TIMESTAMP_TYPE)
    packed = read_batch_header(encode_message_set(RECORDS, 1, codec=Codec.GZIP))
    assert packed.is_wrapper
    assert (packed.last_offset, packed.record_count, packed.max_timestamp) == (25, UNKNOWN_COUNT, 300)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_offsets_with_holes_survive(magic: int, codec: Codec) -> None:
    data = encode_message_set(RECORDS, magic, codec=codec)
    times = [-1, -1, -1] if magic == 0 else [100, 300, 200]
    assert [(each.offset, each.timestamp_ms) for each in iter_records(data)] == list(
        zip([20, 21, 25], times, strict=True)
    )


def test_v1_wrappers_hold_relative_offsets() -> None:
    assert [each.offset for each in iter_records(wrapper(1, 52, inner_set(1, [0, 1, 2])))] == [50, 51, 52]
    assert [each.offset for each in iter_records(wrapper(1, 59, inner_set(1, [3, 9])))] == [53, 59]


def test_v1_wrapper_with_offset_zero_counts_from_zero() -> None:
    """Early librdkafka leaves the offsets to the broker."""
    assert [each.offset for each in iter_records(wrapper(1, 0, inner_set(1, [0, 1, 2])))] == [0, 1, 2]


def test_v0_wrappers_hold_absolute_offsets() -> None:
    assert [each.offset for each in iter_records(wrapper(0, 99, inner_set(0, [97, 98, 99])))] == [97, 98, 99]


def test_append_time_of_the_wrapper_is_that_of_its_messages() -> None:
    data = wrapper(1, 2, inner_set(1, [0, 1, 2]), timestamp_type=TimestampType.LOG_APPEND_TIME)
    messages = read_messages(data, 0, read_batch_header(data))
    assert {(each.timestamp_ms, each.timestamp_type) for each in messages} == {(500, TimestampType.LOG_APPEND_TIME)}


def test_inner_checksums_are_reported() -> None:
    inner = bytearray(inner_set(1, [0, 1]))
    inner[-1] ^= 1
    data = wrapper(1, 1, bytes(inner))
    assert verify_crc(data, 0, len(data))
    assert [each.is_valid for each in read_messages(data, 0, read_batch_header(data))] == [True, False]


def test_a_set_cut_in_its_last_inner_message_is_read_up_to_there() -> None:
    assert [each.offset for each in iter_records(wrapper(0, 9, inner_set(0, [7, 8, 9])[:-3]))] == [7, 8]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (wrapper(1, 1, inner_set(1, [0, 5])), ErrorCode.INVALID_RECORD),
        (wrapper(1, 5, b""), ErrorCode.INVALID_RECORD),
        (wrapper(1, 5, b"too short"), ErrorCode.INVALID_RECORD),
        (wrapper(1, 5, wrapper(1, 5, inner_set(1, [0]))), ErrorCode.INVALID_RECORD),
        (encode_message(5, 1, 1, None, None, codec=Codec.GZIP), ErrorCode.INVALID_RECORD),
        (encode_message(5, 1, 1, None, b"not gzip", codec=Codec.GZIP), ErrorCode.CORRUPT_MESSAGE),
        (encode_message(5, 1, 1, None, b"zstd", codec=Codec.ZSTD), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_wrappers_that_make_no_sense_are_refused(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        list(iter_records(data))
    assert caught.value.code is code


@pytest.mark.parametrize("position", [18, 26])
@pytest.mark.parametrize("length", [2**31 - 1, 100])
def test_lengths_beyond_the_message_are_corrupt(position: int, length: int) -> None:
    data = bytearray(encode_message(5, 0, 1, b"keyy", b"value"))
    data[position : position + 4] = struct.pack(">i", length)
    with pytest.raises(KafkaError) as caught:
        list(iter_records(data))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_an_empty_set_is_empty() -> None:
    assert encode_message_set([], 1, codec=Codec.GZIP) == b""
