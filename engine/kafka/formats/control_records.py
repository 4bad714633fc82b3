"""Control records, the content of control batches. Reads and writes commit and abort markers, and names others."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.header import BatchHeader
from engine.kafka.protocol.records.layout import (
    BATCH_HEADER,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_BIT,
    LOG_OVERHEAD,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    Buffer,
)
from engine.kafka.protocol.records.record import Record

_KEY = struct.Struct(">hh")
"""version, type"""
_END_TRANSACTION = struct.Struct(">hi")
"""version, coordinator epoch"""
_VERSION = 0
_MAGIC = 2
_PLAIN_MARKER = struct.Struct(">5shhBhiB")
"""The record of a marker that has nothing but what every marker has."""
PLAIN_MARKER_BYTES = BATCH_OVERHEAD + _PLAIN_MARKER.size
_PLAIN_START = bytes((0x20, 0, 0, 0, 2 * _KEY.size))
"""Length, attributes, differences of timestamp and offset, and length of the key."""


class ControlRecordType(IntEnum):
    """The type of a control record. Types from 2 on exist only in KRaft logs."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of a producer's transaction in one partition."""

    type: ControlRecordType
    """COMMIT or ABORT."""
    coordinator_epoch: int

    @property
    def is_abort(self) -> bool:
        return self.type is ControlRecordType.ABORT


def control_record_type_id(key: bytes | None) -> int:
    """Return the number of a control record's type from its key; reads later key versions as version 0.

    Raises:
        KafkaError: INVALID_RECORD for a key that is too short or has a negative version.
    """
    if key is None or len(key) < _KEY.size:
        raise _invalid(f"a control record's key has {0 if key is None else len(key)} bytes, fewer than {_KEY.size}")
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise _invalid(f"a control record's key has version {version}")
    return int(type_id)


def control_record_type(key: bytes | None) -> ControlRecordType:
    """Return a control record's type; UNKNOWN for a newer type, which readers ignore. Errors as above."""
    type_id = control_record_type_id(key)
    return ControlRecordType(type_id) if type_id in _KNOWN else ControlRecordType.UNKNOWN


def decode_end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """Return the marker in a control record; None if the record has another type.

    Raises:
        KafkaError: INVALID_RECORD for a malformed key or value.
    """
    type = control_record_type(record.key)
    if type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return None
    value = record.value or b""
    if len(value) < _END_TRANSACTION.size:
        raise _invalid(f"an end transaction marker has {len(value)} bytes, fewer than {_END_TRANSACTION.size}")
    version, coordinator_epoch = _END_TRANSACTION.unpack_from(value)
    if version < 0:
        raise _invalid(f"an end transaction marker has version {version}")
    return EndTransactionMarker(type, coordinator_epoch)


def read_end_transaction_marker(buffer: Buffer, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """Return the marker in a control batch; None if the cleaner has removed it or it has another type.

    Raises:
        KafkaError: INVALID_RECORD if the control record is malformed.
    """
    if header.size_bytes == PLAIN_MARKER_BYTES and not header.attributes & CODEC_MASK:
        marker = read_plain_marker(buffer, position)
        if marker is not None:
            return marker
    record = next(iter(iter_batch_records(buffer, position, header)), None)
    return None if record is None else decode_end_transaction_marker(record)


def read_plain_marker(buffer: Buffer, position: int) -> EndTransactionMarker | None:
    """Return the marker in an uncompressed control batch at ``position``; None if it is not written as usual.

    The buffer must have the whole of a usual batch, which is 78 bytes.
    """
    start, version, type_id, value_bytes, value_version, coordinator_epoch, headers = _PLAIN_MARKER.unpack_from(
        buffer, position + BATCH_OVERHEAD
    )
    if start != _PLAIN_START or value_bytes != 2 * _END_TRANSACTION.size or headers:
        return None
    if version != _VERSION or value_version != _VERSION or type_id not in _OUTCOMES:
        return None
    return EndTransactionMarker(_OUTCOMES[type_id], coordinator_epoch)


def encode_end_transaction_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Return the control batch that ends a producer's transaction, as the leader appends it for WriteTxnMarkers."""
    record = _PLAIN_MARKER.pack(
        _PLAIN_START, _VERSION, marker.type, 2 * _END_TRANSACTION.size, _VERSION, marker.coordinator_epoch, 0
    )
    header = BATCH_HEADER.pack(
        0,
        PLAIN_MARKER_BYTES - LOG_OVERHEAD,
        partition_leader_epoch,
        _MAGIC,
        0,
        TRANSACTIONAL_BIT | CONTROL_BIT,
        0,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
    )
    batch = bytearray(header + record)
    stamp_crc(batch, 0, PLAIN_MARKER_BYTES)
    return bytes(batch)


_KNOWN = frozenset(ControlRecordType)
_OUTCOMES = {int(outcome): outcome for outcome in (ControlRecordType.ABORT, ControlRecordType.COMMIT)}


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
