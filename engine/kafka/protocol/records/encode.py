"""Builds version 2 batches from records, for producers, coordinators, the cleaner and the converters."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.compression import compress
from engine.kafka.protocol.records.header import BatchHeader
from engine.kafka.protocol.records.record import Header, Record
from engine.kafka.protocol.records.varint import VARINTS

_INT32_MAX = 2**31 - 1
_MAGIC = 2


class RecordSection(NamedTuple):
    """Encoded, uncompressed records, and the facts about them for the batch's header."""

    data: bytes | bytearray | memoryview
    record_count: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int | None = None) -> RecordSection:
    """Encode the records of a batch. A record with offset -1 gets the offset after the previous record's.

    If ``base_timestamp`` is None, it is the first record's, as in Kafka.

    Raises:
        KafkaError: INVALID_RECORD if offsets do not ascend, or are below ``base_offset`` or 2^31 or more above it.
    """
    varints = VARINTS
    join = b"".join
    out = bytearray()
    count = 0
    last_offset = base_offset - 1
    max_timestamp = layout.NO_TIMESTAMP
    for record in records:
        offset = record.offset
        if offset < 0:
            offset = last_offset + 1
        elif offset <= last_offset:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"offset {offset} cannot follow offset {last_offset} in a batch")
        last_offset = offset
        timestamp = record.timestamp_ms
        if base_timestamp is None:
            base_timestamp = timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        key = record.key
        value = record.value
        headers = record.headers
        body = join(
            (
                b"\x00",
                varints[timestamp - base_timestamp],
                varints[offset - base_offset],
                b"\x01" if key is None else varints[len(key)],
                key or b"",
                b"\x01" if value is None else varints[len(value)],
                value or b"",
                _encode_headers(headers) if headers else b"\x00",
            )
        )
        out += varints[len(body)]
        out += body
        count += 1
    if last_offset - base_offset > _INT32_MAX:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"offsets {base_offset} to {last_offset} are too far apart for one batch"
        )
    if base_timestamp is None:
        base_timestamp = layout.NO_TIMESTAMP
    return RecordSection(out, count, last_offset, base_timestamp, max_timestamp)


def encode_batch(
    records: Iterable[Record] | RecordSection,
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    producer_id: int = layout.NO_PRODUCER_ID,
    producer_epoch: int = layout.NO_PRODUCER_EPOCH,
    base_sequence: int = layout.NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    partition_leader_epoch: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    level: int | None = None,
    log_append_time_ms: int | None = None,
    last_offset: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Build one version 2 batch from the records, which may already be encoded for this ``base_offset``.

    ``log_append_time_ms`` is the batch's maximum timestamp under ``LOG_APPEND_TIME``; the records keep their own in the
    bytes, as in Kafka. ``last_offset`` keeps a batch's end if compaction took the last record; ``delete_horizon_ms``
    takes the base timestamp's place (KIP-534).

    Raises:
        KafkaError: INVALID_RECORD for offsets that one batch cannot hold.
    """
    if isinstance(records, RecordSection):
        section = records
    else:
        section = encode_records(records, base_offset, delete_horizon_ms)
    data = section.data if codec is Codec.NONE else compress(codec, section.data, level)
    # A plain tuple: coordinators encode a batch for each step of a transaction, and a BatchHeader costs more than it.
    return _sealed(
        (
            base_offset,
            layout.BATCH_OVERHEAD - layout.LOG_OVERHEAD + len(data),
            partition_leader_epoch,
            _MAGIC,
            0,
            _attributes(codec, timestamp_type, transactional, control, delete_horizon_ms is not None),
            (section.last_offset if last_offset is None else last_offset) - base_offset,
            section.base_timestamp,
            section.max_timestamp if log_append_time_ms is None else log_append_time_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            section.record_count,
        ),
        data,
    )


def encode_single(key: bytes, value: bytes, timestamp_ms: int) -> bytearray:
    """Build what ``encode_batch`` builds of one plain record, for a third of the cost: coordinators write many such."""
    body = b"".join((b"\x00\x00\x00", VARINTS[len(key)], key, VARINTS[len(value)], value, b"\x00"))
    prefix = VARINTS[len(body)]
    length = layout.BATCH_OVERHEAD - layout.LOG_OVERHEAD + len(prefix) + len(body)
    header = layout.BATCH_HEADER.pack(0, length, -1, _MAGIC, 0, 0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1)
    batch = bytearray().join((header, prefix, body))
    stamp_crc(batch, 0, len(batch))
    return batch


def empty_batch(header: BatchHeader) -> bytes:
    """Return what compaction leaves of a batch when it has removed every record: offsets and producer state stay.

    It is as Kafka writes it: no codec, base timestamp or delete horizon, and count 0; maximum timestamp and last
    offset stay.
    """
    attributes = header.attributes & ~(layout.CODEC_MASK | layout.DELETE_HORIZON_BIT)
    return seal_batch(header._replace(attributes=attributes, base_timestamp=layout.NO_TIMESTAMP, record_count=0), b"")


def seal_batch(header: BatchHeader, section: bytes | bytearray | memoryview) -> bytes:
    """Join header and (compressed) record section; compute length and checksum."""
    size_bytes = layout.BATCH_OVERHEAD + len(section)
    return _sealed(header._replace(batch_length=size_bytes - layout.LOG_OVERHEAD, crc=0), section)


def _sealed(header: tuple[int, ...], section: bytes | bytearray | memoryview) -> bytes:
    batch = bytearray(layout.BATCH_OVERHEAD)
    batch += section
    write_header(batch, header)
    stamp_crc(batch, 0, len(batch))
    return bytes(batch)


def write_header(target: bytearray | memoryview, header: tuple[int, ...]) -> None:
    """Write the header, a ``BatchHeader`` or its values, over the first bytes of the target.

    Raises:
        KafkaError: INVALID_RECORD for a value that its field cannot hold, such as a sum of a producer's deltas.
    """
    try:
        layout.BATCH_HEADER.pack_into(target, 0, *header)
    except struct.error as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a batch's header cannot hold its values: {error}") from None


def _attributes(
    codec: Codec, timestamp_type: TimestampType, transactional: bool, control: bool, has_delete_horizon: bool
) -> int:
    return (
        codec
        | (layout.TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (layout.TRANSACTIONAL_BIT if transactional else 0)
        | (layout.CONTROL_BIT if control else 0)
        | (layout.DELETE_HORIZON_BIT if has_delete_horizon else 0)
    )


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [VARINTS[len(headers)]]
    for key, value in headers:
        name = _header_key(key)
        parts += (VARINTS[len(name)], name)
        if value is None:
            parts.append(VARINTS[-1])
        else:
            parts += (VARINTS[len(value)], value)
    return b"".join(parts)


def _header_key(key: str) -> bytes:
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the header key {key!r} cannot be written as UTF-8") from None
