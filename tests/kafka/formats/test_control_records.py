"""Control records: the markers that Kafka wrote, ours in the same form, and keys and values that are no markers."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.formats.control_records import (
    ControlRecordType,
    EndTransactionMarker,
    control_record_type,
    control_record_type_id,
    decode_end_transaction_marker,
    encode_end_transaction_batch,
)
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.header import iter_batches, read_batch_header
from engine.kafka.protocol.records.record import Record

SEGMENT = Path(__file__).parents[3] / "fixtures/disk/clean/data/tx-0/00000000000000000000.log"


def test_recorded_markers_are_written_byte_for_byte_as_kafka_wrote_them() -> None:
    data = SEGMENT.read_bytes()
    markers = []
    for position, header in iter_batches(data):
        if not header.is_control:
            continue
        (record,) = iter_batch_records(data, position, header)
        marker = decode_end_transaction_marker(record)
        assert marker is not None
        markers.append(marker)
        ours = bytearray(
            encode_end_transaction_batch(
                marker,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                timestamp_ms=record.timestamp_ms,
                partition_leader_epoch=header.partition_leader_epoch,
            )
        )
        ours[:8] = header.base_offset.to_bytes(8, "big")
        assert ours == data[position : position + header.size_bytes]
    assert {marker.type for marker in markers} == {ControlRecordType.COMMIT, ControlRecordType.ABORT}


def test_markers() -> None:
    batch = encode_end_transaction_batch(
        EndTransactionMarker(ControlRecordType.ABORT, 7), producer_id=3, producer_epoch=1, timestamp_ms=55
    )
    header = read_batch_header(batch)
    assert verify_crc(batch, 0, len(batch))
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.max_timestamp) == (3, 1, -1, 55)
    (record,) = iter_batch_records(batch, 0, header)
    marker = decode_end_transaction_marker(record)
    assert marker == EndTransactionMarker(ControlRecordType.ABORT, 7)
    assert marker.is_abort


def test_types_that_came_later_are_unknown_and_others_are_no_markers() -> None:
    assert control_record_type(b"\0\0\0\x63") is ControlRecordType.UNKNOWN
    assert control_record_type_id(b"\0\0\0\x63") == 99
    assert control_record_type(b"\0\5\0\1rest") is ControlRecordType.COMMIT, "later versions of the key are read"
    assert decode_end_transaction_marker(Record(key=b"\0\0\0\2", value=b"leader change")) is None
    assert decode_end_transaction_marker(Record(key=b"\0\0\x03\xe8")) is None


@pytest.mark.parametrize(
    "record",
    [
        Record(),
        Record(key=b"\0\0\0"),
        Record(key=b"\xff\xff\0\1", value=bytes(6)),
        Record(key=b"\0\0\0\1"),
        Record(key=b"\0\0\0\1", value=bytes(5)),
        Record(key=b"\0\0\0\0", value=b"\xff\xff" + bytes(4)),
    ],
)
def test_malformed_markers_are_invalid(record: Record) -> None:
    with pytest.raises(KafkaError) as caught:
        decode_end_transaction_marker(record)
    assert caught.value.code is ErrorCode.INVALID_RECORD
