"""kafka-python and aiokafka, two independent implementations, read what we write, and we read what they write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import aiokafka.record.default_records as aio_v2
import aiokafka.record.legacy_records as aio_old
import kafka.record.default_records as py_v2
import kafka.record.legacy_records as py_old
import pytest
from kafka.record.memory_records import MemoryRecords

from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches, read_batch_header
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
RECORDS = [
    Record(0, 1_600_000_000_000, b"key", b"value" * 100, [("trace", b"1"), ("null", None)]),
    Record(1, 1_600_000_000_050, None, b"no key"),
    Record(2, 1_599_999_999_000, b"tombstone", None),
    Record(3, 1_600_000_009_999, b"", b""),
    *(Record(4 + index, 1_600_000_000_000 + index, b"k%d" % index, b"the castle above " * 50) for index in range(200)),
]
PLAIN = [Record(record.offset, record.timestamp_ms, record.key, record.value) for record in RECORDS]


def seen(records: Iterator[Any]) -> list[Record]:
    return [Record(each.offset, each.timestamp, each.key, each.value, list(each.headers)) for each in records]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("reader", [py_v2.DefaultRecordBatch, aio_v2.DefaultRecordBatch])
def test_they_read_our_batches(codec: Codec, reader: Callable[[bytes], Any]) -> None:
    batch = encode_batch(
        RECORDS, codec=codec, producer_id=5, producer_epoch=2, base_sequence=9, transactional=True, level=None
    )
    theirs = reader(batch)
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.next_offset, theirs.producer_id) == (0, len(RECORDS), 5)
    assert theirs.is_transactional
    assert theirs.max_timestamp == 1_600_000_009_999
    assert seen(theirs) == RECORDS


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("builder", [py_v2.DefaultRecordBatchBuilder, aio_v2.DefaultRecordBatchBuilder])
def test_we_read_their_batches(codec: Codec, builder: Callable[..., Any]) -> None:
    building = builder(2, int(codec), True, 5, 2, 9, 1_000_000)
    for record in RECORDS:
        building.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = bytes(building.build())
    header = read_batch_header(batch)
    assert verify_crc(batch, 0, len(batch))
    assert (header.codec, header.record_count, header.producer_id) == (codec, len(RECORDS), 5)
    assert (header.producer_epoch, header.base_sequence, header.is_transactional) == (2, 9, True)
    assert list(iter_records(batch)) == RECORDS


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_we_read_their_message_sets(magic: int, codec: Codec) -> None:
    expected = [Record(each.offset, each.timestamp_ms if magic else -1, each.key, each.value) for each in PLAIN]
    builders = [py_old.LegacyRecordBatchBuilder, aio_old.LegacyRecordBatchBuilder]
    if (magic, codec) == (0, Codec.LZ4):
        builders.pop()  # aiokafka does not write it
    for builder in builders:
        building = builder(magic, int(codec), 1_000_000)
        for record in PLAIN:
            building.append(record.offset, record.timestamp_ms, record.key, record.value)
        data = bytes(building.build())
        assert all(verify_crc(data, position, header.size_bytes) for position, header in iter_batches(data))
        assert list(iter_records(data)) == expected


@pytest.mark.parametrize("timestamp_type", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("first_offset", [0, 70])
def test_they_read_our_message_sets(magic: int, codec: Codec, first_offset: int, timestamp_type: TimestampType) -> None:
    records = [
        Record(first_offset + index, each.timestamp_ms, each.key, each.value) for index, each in enumerate(PLAIN)
    ]
    append_time = 1_700_000_000_000 if timestamp_type is TimestampType.LOG_APPEND_TIME else None
    data = encode_message_set(
        records, magic, codec=codec, timestamp_type=timestamp_type, log_append_time_ms=append_time
    )
    theirs = MemoryRecords(data)
    read = []
    while theirs.has_next():
        batch = theirs.next_batch()
        assert batch.validate_crc()
        read += [(each.offset, each.timestamp, each.key, each.value) for each in batch]
    assert read == [
        (each.offset, None if magic == 0 else append_time or each.timestamp_ms, each.key, each.value)
        for each in records
    ]
