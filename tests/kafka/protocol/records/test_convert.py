"""Batches for old consumers: what they keep, what they lose, where they start."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka.record.memory_records import MemoryRecords

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.convert import down_convert
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record

DISK = Path(__file__).parents[4] / "fixtures" / "disk"
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
RECORDS = [
    Record(10, 500, b"a", b"1", [("lost", b"x")]),
    Record(11, 400, None, b"2"),
    Record(14, 600, b"c", None),
]


def plain(records: list[Record], magic: int) -> list[Record]:
    return [Record(each.offset, each.timestamp_ms if magic else -1, each.key, each.value) for each in records]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_records_are_kept_and_headers_lost(magic: int, codec: Codec) -> None:
    down = down_convert(encode_batch(RECORDS, base_offset=10, codec=codec), magic, 10)
    assert {(header.magic, header.codec) for _, header in iter_batches(down)} == {(magic, codec)}
    assert list(iter_records(down)) == plain(RECORDS, magic)


@pytest.mark.parametrize("magic", [0, 1])
def test_an_uncompressed_batch_starts_at_the_wanted_offset(magic: int) -> None:
    batch = encode_batch(RECORDS, base_offset=10)
    for first_offset, expected in [(9, [10, 11, 14]), (11, [11, 14]), (12, [14]), (15, [])]:
        assert [each.offset for each in iter_records(down_convert(batch, magic, first_offset))] == expected


def test_a_compressed_batch_stays_whole() -> None:
    down = down_convert(encode_batch(RECORDS, base_offset=10, codec=Codec.GZIP), 1, 12)
    assert [each.offset for each in iter_records(down)] == [10, 11, 14]


def test_only_the_batches_that_hold_earlier_records_are_cut() -> None:
    data = encode_batch(RECORDS, base_offset=10) + encode_batch([Record(15), Record(16)], base_offset=15)
    assert [each.offset for each in iter_records(down_convert(data, 1, 14))] == [14, 15, 16]


def test_control_batches_go_and_transactional_records_stay() -> None:
    records = encode_batch(
        RECORDS, base_offset=10, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0
    )
    marker = encode_batch(
        [Record(15, 1, b"\0\0\0\0", b"\0\0\0\0\0\0")], base_offset=15, control=True, transactional=True
    )
    assert [each.offset for each in iter_records(down_convert(records + marker, 1, 0))] == [10, 11, 14]
    assert down_convert(marker, 0, 0) == b""


def test_emptied_batches_of_compacted_logs_vanish() -> None:
    assert down_convert(encode_batch([], base_offset=3, last_offset=9), 1, 0) == b""


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_append_time_is_the_messages_time(magic: int, codec: Codec) -> None:
    batch = encode_batch(
        RECORDS, base_offset=10, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=9_999
    )
    down = down_convert(batch, magic, 0)
    assert {each.timestamp_ms for each in iter_records(down)} == {9_999 if magic else -1}
    expected = TimestampType.LOG_APPEND_TIME if magic else TimestampType.NO_TIMESTAMP_TYPE
    assert {header.timestamp_type for _, header in iter_batches(down)} == {expected}


def test_old_messages_pass_as_they_are_and_v1_becomes_v0() -> None:
    v0, v1 = (encode_message_set(RECORDS, magic, codec=Codec.GZIP) for magic in (0, 1))
    assert down_convert(v0 + v1, 1, 0) == v0 + v1
    assert down_convert(v0, 0, 0) == v0
    assert [(header.magic, header.codec) for _, header in iter_batches(down_convert(v1, 0, 0))] == [(0, Codec.GZIP)]
    assert list(iter_records(down_convert(v1, 0, 0))) == plain(RECORDS, 0)


def test_zstd_cannot_go_down() -> None:
    with pytest.raises(KafkaError) as caught:
        down_convert(encode_batch(RECORDS, base_offset=10, codec=Codec.ZSTD), 1, 0)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_what_stands_before_a_zstd_batch_is_given() -> None:
    first = encode_batch(RECORDS[:2], base_offset=10)
    zstd = encode_batch(RECORDS[2:], base_offset=14, codec=Codec.ZSTD)
    assert down_convert(first + zstd, 1, 0) == down_convert(first, 1, 0)


def test_an_incomplete_batch_at_the_end_is_left_out() -> None:
    batch = encode_batch(RECORDS, base_offset=10)
    assert down_convert(batch + batch[:70], 1, 0) == down_convert(batch, 1, 0)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("name", ["clean/data/codec-gzip-0", "clean/data/tx-0", "formats-mixed/data/v1-none-0"])
def test_an_independent_reader_reads_recorded_segments_converted(name: str, magic: int) -> None:
    data = (DISK / name / "00000000000000000000.log").read_bytes()
    expected = []
    for position, header in iter_batches(data):
        if not header.is_control:
            expected += list(iter_records(data[position : position + header.size_bytes]))
    theirs = MemoryRecords(down_convert(data, magic, 0))
    read = []
    while theirs.has_next():
        batch = theirs.next_batch()
        assert batch.validate_crc()
        read += [Record(each.offset, each.timestamp if magic else -1, each.key, each.value) for each in batch]
    assert read == [Record(each.offset, each.timestamp_ms if magic else -1, each.key, each.value) for each in expected]
