"""Segments that Apache Kafka 3.9.1 wrote for Java clients and librdkafka: every batch reads and rewrites the same.

The tests of ``engine.admin.dump.files`` compare the content of the records with the output of Kafka's own dump tool.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.compression import decompress
from engine.kafka.protocol.records.decode import iter_batch_records, iter_records, record_section
from engine.kafka.protocol.records.encode import encode_batch, encode_records
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.legacy import encode_message_set, read_messages
from engine.kafka.protocol.records.validate import scan_section

DISK = Path(__file__).parents[4] / "fixtures" / "disk"
SEGMENTS = sorted(path for path in DISK.glob("*/data/*/*.log") if path.stat().st_size)
IDS = [str(path.relative_to(DISK)).removesuffix(".log") for path in SEGMENTS]


def batches(path: Path) -> Iterator[tuple[bytes, int, BatchHeader]]:
    data = path.read_bytes()
    for position, header in iter_batches(data):
        yield data, position, header


def test_the_recording_has_every_codec_in_every_format() -> None:
    seen = {(header.magic, header.codec) for path in SEGMENTS for _, _, header in batches(path)}
    old = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
    assert seen == {(magic, codec) for magic in (0, 1) for codec in old} | {(2, codec) for codec in Codec}


@pytest.mark.parametrize("path", SEGMENTS, ids=IDS)
def test_checksums_match_and_offsets_rise(path: Path) -> None:
    previous = -1
    end = 0
    for data, position, header in batches(path):
        end = position + header.size_bytes
        assert verify_crc(data, position, header.size_bytes)
        if header.magic < 2:
            assert all(message.is_valid for message in read_messages(data, position, header))
        offsets = [record.offset for record in iter_batch_records(data, position, header)]
        assert offsets == sorted(set(offsets))
        assert not offsets or previous < offsets[0] <= offsets[-1] <= header.last_offset
        previous = header.last_offset
    assert end == path.stat().st_size


@pytest.mark.parametrize("path", SEGMENTS, ids=IDS)
def test_records_are_written_byte_for_byte_as_their_producers_wrote_them(path: Path) -> None:
    for data, position, header in batches(path):
        records = list(iter_batch_records(data, position, header))
        if header.magic < 2:
            assert_same_messages(data, position, header)
            continue
        section = record_section(data, position, header)
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            continue  # The bytes hold the records' own times, but the records do not.
        if records:
            assert bytes(encode_records(records, header.base_offset, header.base_timestamp).data) == section
        if records and not header.is_compressed:
            assert rewritten(header, records) == data[position : position + header.size_bytes]


def rewritten(header: BatchHeader, records: list) -> bytes:
    return encode_batch(
        records,
        base_offset=header.base_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        partition_leader_epoch=header.partition_leader_epoch,
        last_offset=header.last_offset,
        delete_horizon_ms=header.delete_horizon_ms,
    )


def assert_same_messages(data: bytes, position: int, header: BatchHeader) -> None:
    records = list(iter_batch_records(data, position, header))
    if not header.is_wrapper:
        assert encode_message_set(records, header.magic) == data[position : position + header.size_bytes]
        return
    value_at = position + (layout.LEGACY_KEY_V0 if header.magic == 0 else layout.LEGACY_KEY_V1) + 8
    packed = data[value_at : position + header.size_bytes]
    plain = decompress(header.codec, packed, magic=header.magic)
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    again = encode_message_set(
        records,
        header.magic,
        codec=header.codec,
        timestamp_type=header.timestamp_type,
        log_append_time_ms=append_time,
    )
    (_, new_header), *rest = iter_batches(again)
    assert not rest
    assert (new_header.base_offset, new_header.attributes) == (header.base_offset, header.attributes)
    assert new_header.max_timestamp == header.max_timestamp
    assert decompress(header.codec, again[value_at - position :], magic=header.magic) == without_append_time(
        plain, header
    )
    assert list(iter_records(again)) == records


def without_append_time(plain: bytes, header: BatchHeader) -> bytes:
    """Under LogAppendTime the producer's inner messages keep their times and type. Only the wrapper's count."""
    if header.timestamp_type is not TimestampType.LOG_APPEND_TIME:
        return plain
    return encode_message_set(
        list(iter_records(plain)),
        1,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time_ms=header.max_timestamp,
    )


@pytest.mark.parametrize("path", SEGMENTS, ids=IDS)
def test_a_scan_finds_what_the_records_say(path: Path) -> None:
    for data, position, header in batches(path):
        if header.magic < 2 or header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            continue
        records = list(iter_batch_records(data, position, header))
        facts = scan_section(header, record_section(data, position, header))
        times = [record.timestamp_ms for record in records if record.timestamp_ms != -1]
        assert (facts.min_timestamp, facts.max_timestamp) == ((min(times), max(times)) if times else (-1, -1))
        assert facts.has_null_key == any(record.key is None for record in records)
        assert facts.offsets_in_order == (
            [record.offset for record in records] == [header.base_offset + index for index in range(len(records))]
        )
        if records and not header.has_delete_horizon:
            assert facts.max_timestamp == header.max_timestamp
