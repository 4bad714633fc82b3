"""A segment, batch by batch and record by record, with what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.admin.dump.payloads import PayloadDecoder, Undecodable, decode_payload
from engine.admin.dump.rows import BatchRow, Finding, FindingKind, RecordRow, Row, SegmentRow
from engine.admin.dump.segment_file import FileBatch, read_file_batches
from engine.common.errors import KafkaError
from engine.kafka.formats.control_records import (
    ControlRecordType,
    control_record_type,
    control_record_type_id,
    decode_end_transaction_marker,
)
from engine.kafka.formats.segment_files import offset_of_file_name
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.header import UNKNOWN_COUNT, BatchHeader
from engine.kafka.protocol.records.iterate import iter_batch_records
from engine.kafka.protocol.records.layout import CODEC_MASK
from engine.kafka.protocol.records.legacy import read_messages
from engine.kafka.protocol.records.record import Record

_SEQUENCE_MODULUS = 2**31
_CODECS = frozenset(Codec)


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """What to show of a segment. ``max_bytes`` bounds how much of the file is read."""

    has_records: bool = False
    has_payloads: bool = False
    decoder: PayloadDecoder = PayloadDecoder.TEXT
    max_bytes: int | None = None


def dump_segment(path: Path, options: SegmentOptions) -> Iterator[Row]:
    """Yield the rows of a ``.log`` file. What cannot be read becomes a finding; an invalid header ends the dump."""
    yield SegmentRow(offset_of_file_name(path.name))
    dump = _SegmentDump(options)
    with path.open("rb") as file:
        try:
            for batch in read_file_batches(file, end=options.max_bytes):
                yield from dump.batch(batch)
        except KafkaError as error:
            yield Finding(FindingKind.CORRUPT, dump.end, message=error.message)
            return
        size = file.seek(0, 2)
    if options.max_bytes is None and size > dump.end:
        yield Finding(FindingKind.TRAILING_BYTES, size - dump.end, dump.end)


class _SegmentDump:
    def __init__(self, options: SegmentOptions) -> None:
        self.end = 0
        self._options = options
        self._previous_offset: int | None = None

    def batch(self, batch: FileBatch) -> Iterator[Row]:
        yield _batch_row(batch)
        if self._options.has_records:
            try:
                yield from self._records(batch)
            except KafkaError as error:
                # The batch's length is known, so what follows it can still be shown.
                yield Finding(FindingKind.CORRUPT, batch.position, message=error.message)
        self.end = batch.position + batch.header.size_bytes

    def _records(self, batch: FileBatch) -> Iterator[Row]:
        header = batch.header
        if header.magic < 2:
            for message in read_messages(batch.data, 0, header):
                record = Record(message.offset, message.timestamp_ms, message.key, message.value)
                yield from self._record(header, record, message.is_valid, message.crc)
        else:
            for record in iter_batch_records(batch.data, 0, header):
                yield from self._record(header, record, None, None)

    def _record(self, header: BatchHeader, record: Record, is_valid: bool | None, crc: int | None) -> Iterator[Row]:
        previous = self._previous_offset
        if previous is not None and record.offset != previous + 1:
            yield Finding(FindingKind.NON_CONSECUTIVE_OFFSETS, previous, record.offset)
        self._previous_offset = record.offset
        key = value = None
        if self._options.has_payloads and not header.is_control:
            try:
                key, value = decode_payload(self._options.decoder, record)
            except Undecodable as error:
                yield Finding(FindingKind.UNDECODABLE, record.offset, message=str(error))
        control, type_id, coordinator_epoch = _control(record) if header.is_control else (None, None, None)
        yield RecordRow(
            offset=record.offset,
            timestamp_type=header.timestamp_type.kafka_name,
            timestamp_ms=record.timestamp_ms,
            key_size_bytes=-1 if record.key is None else len(record.key),
            value_size_bytes=-1 if record.value is None else len(record.value),
            sequence=None if header.magic < 2 else _sequence(header, record.offset),
            headers=[
                {"key": _printable(name), "value": None if data is None else data.decode("utf-8", "replace")}
                for name, data in record.headers
            ],
            is_valid=is_valid,
            crc=crc,
            control=control,
            control_type_id=type_id,
            coordinator_epoch=coordinator_epoch,
            key=key,
            value=value,
        )


def _batch_row(batch: FileBatch) -> BatchRow:
    header = batch.header
    return BatchRow(
        base_offset=None if header.is_wrapper else header.base_offset,
        last_offset=header.last_offset,
        count=None if header.record_count == UNKNOWN_COUNT and header.magic < 2 else header.record_count,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        partition_leader_epoch=header.partition_leader_epoch,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.delete_horizon_ms,
        position=batch.position,
        timestamp_type=header.timestamp_type.kafka_name,
        max_timestamp_ms=header.max_timestamp,
        size_bytes=header.size_bytes,
        magic=header.magic,
        codec=_codec_name(header),
        crc=header.crc,
        is_valid=verify_crc(batch.data, 0, header.size_bytes),
    )


def _codec_name(header: BatchHeader) -> str:
    number = header.attributes & CODEC_MASK
    return Codec(number).kafka_name if number in _CODECS else f"unknown({number})"


def _control(record: Record) -> tuple[str, int, int | None]:
    marker = decode_end_transaction_marker(record)
    if marker is not None:
        return marker.type.name, marker.type, marker.coordinator_epoch
    kind: ControlRecordType = control_record_type(record.key)
    return kind.name, control_record_type_id(record.key), None


def _sequence(header: BatchHeader, offset: int) -> int:
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + offset - header.base_offset) % _SEQUENCE_MODULUS


def _printable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
