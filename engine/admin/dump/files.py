"""The content of a broker's file, Kafka's or klamm's, as rows for ``klamm dump``. Asks no broker, prints nothing.

The file's name says what kind it is, as in Kafka. Also reads files that wait for deletion, and the cleaner's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.dump.indexes import IndexOptions, dump_offset_index, dump_time_index, dump_transaction_index
from engine.admin.dump.payloads import FileBatch, PayloadDecoder, Undecodable, decode_payload, read_file_batches
from engine.admin.dump.rows import (
    BatchRow,
    Finding,
    FindingKind,
    LeaderEpochRow,
    OffsetCheckpointRow,
    ProducerRow,
    PropertyRow,
    RecordRow,
    Row,
    SegmentRow,
)
from engine.common.errors import CorruptFileError, KafkaError
from engine.common.topic_id import topic_id_text
from engine.kafka.formats.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    decode_leader_epoch_checkpoint,
    decode_offset_checkpoint,
)
from engine.kafka.formats.clean_shutdown import CLEAN_SHUTDOWN_FILE, decode_clean_shutdown
from engine.kafka.formats.control_records import (
    ControlRecordType,
    control_record_type,
    control_record_type_id,
    decode_end_transaction_marker,
)
from engine.kafka.formats.log_dir_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_of_file_name,
)
from engine.kafka.formats.meta_properties import META_PROPERTIES_FILE, decode_meta_properties
from engine.kafka.formats.partition_metadata import PARTITION_METADATA_FILE, decode_partition_metadata
from engine.kafka.formats.producer_snapshot import ProducerSnapshotEntry, decode_producer_snapshot
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.header import UNKNOWN_COUNT, BatchHeader
from engine.kafka.protocol.records.layout import CODEC_MASK
from engine.kafka.protocol.records.legacy import read_messages
from engine.kafka.protocol.records.record import Record

# The small files of a log dir and of a partition's folder: snapshots, checkpoints, properties.


def dump_producer_snapshot(path: Path) -> Iterator[Row]:
    """Yield the producers of a ``.snapshot`` file."""
    entries = decode_producer_snapshot(path.read_bytes())
    yield from map(_producer_row, entries)


def dump_offset_checkpoint(path: Path) -> Iterator[Row]:
    """Yield the partitions of a ``*-offset-checkpoint`` file."""
    offsets = decode_offset_checkpoint(_text(path), str(path))
    yield from (OffsetCheckpointRow(topic, partition, offset) for (topic, partition), offset in offsets.items())


def dump_leader_epoch_checkpoint(path: Path) -> Iterator[Row]:
    """Yield the epochs of a ``leader-epoch-checkpoint`` file."""
    entries = decode_leader_epoch_checkpoint(_text(path), str(path))
    yield from (LeaderEpochRow(*entry) for entry in entries)


def dump_partition_metadata(path: Path) -> Iterator[Row]:
    """Yield the topic id of a ``partition.metadata`` file."""
    topic_id = decode_partition_metadata(_text(path), str(path))
    yield PropertyRow("topic_id", topic_id_text(topic_id))


def dump_meta_properties(path: Path) -> Iterator[Row]:
    """Yield the settings of a ``meta.properties`` file."""
    properties = decode_meta_properties(_text(path), str(path))
    yield PropertyRow("version", properties.version)
    yield PropertyRow("broker.id" if properties.version == 0 else "node.id", properties.broker_id)
    yield PropertyRow("cluster.id", properties.cluster_id)
    if properties.directory_id is not None:
        yield PropertyRow("directory.id", properties.directory_id)


def dump_clean_shutdown(path: Path) -> Iterator[Row]:
    """Yield the broker epoch of a ``.kafka_cleanshutdown`` file; None in one of a Kafka before 3.7."""
    yield PropertyRow("broker_epoch", decode_clean_shutdown(_text(path)))


def _producer_row(entry: ProducerSnapshotEntry) -> ProducerRow:
    first_sequence = entry.last_sequence - entry.offset_delta
    return ProducerRow(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_first_offset=None if entry.current_txn_first_offset < 0 else entry.current_txn_first_offset,
        last_timestamp_ms=entry.timestamp_ms,
        first_sequence=first_sequence % _SEQUENCE_MODULUS if entry.last_sequence >= 0 else -1,
        last_sequence=entry.last_sequence,
        last_offset=entry.last_offset,
        offset_delta=entry.offset_delta,
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


_OFFSET_CHECKPOINT_SUFFIX = "-offset-checkpoint"
_INTERNAL_DECODERS = {
    "__consumer_offsets-": PayloadDecoder.OFFSETS,
    "__transaction_state-": PayloadDecoder.TRANSACTIONS,
}


class FileKind(StrEnum):
    SEGMENT = "segment"
    OFFSET_INDEX = "offset_index"
    TIME_INDEX = "time_index"
    TRANSACTION_INDEX = "transaction_index"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    OFFSET_CHECKPOINT = "offset_checkpoint"
    LEADER_EPOCH_CHECKPOINT = "leader_epoch_checkpoint"
    PARTITION_METADATA = "partition_metadata"
    META_PROPERTIES = "meta_properties"
    CLEAN_SHUTDOWN = "clean_shutdown"


_BY_SUFFIX = {
    LOG_SUFFIX: FileKind.SEGMENT,
    OFFSET_INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    TRANSACTION_INDEX_SUFFIX: FileKind.TRANSACTION_INDEX,
    SNAPSHOT_SUFFIX: FileKind.PRODUCER_SNAPSHOT,
}
_BY_NAME = {
    LEADER_EPOCH_CHECKPOINT: FileKind.LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA_FILE: FileKind.PARTITION_METADATA,
    META_PROPERTIES_FILE: FileKind.META_PROPERTIES,
    CLEAN_SHUTDOWN_FILE: FileKind.CLEAN_SHUTDOWN,
}


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What is wanted. Names follow kafka-dump-log's options.

    ``deep_iteration`` shows records, ``print_data_log`` their keys and values too. ``decoder`` None uses the one for
    the topic, which the folder's name contains; naming one shows keys and values. ``verify_index_only`` leaves out
    entries and shows what is wrong with them, ``index_sanity_check`` makes the check of a starting broker.
    """

    deep_iteration: bool = False
    print_data_log: bool = False
    decoder: PayloadDecoder | None = None
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_bytes: int | None = None

    @property
    def has_payloads(self) -> bool:
        return self.print_data_log or self.decoder is not None


def kind_of_file(path: Path) -> FileKind | None:
    """Return what the file's name says it is; None for files that are not Kafka's."""
    name = path.name
    for suffix in (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX):
        name = name.removesuffix(suffix)
    if name.endswith(_OFFSET_CHECKPOINT_SUFFIX):
        return FileKind.OFFSET_CHECKPOINT
    if name in _BY_NAME:
        return _BY_NAME[name]
    return _BY_SUFFIX.get(Path(name).suffix) if offset_of_file_name(name) is not None else None


def decoder_for(path: Path, options: DumpOptions) -> PayloadDecoder:
    """Return how to read the segment's records."""
    if options.decoder is not None:
        return options.decoder
    folder = path.absolute().parent.name
    return next((value for start, value in _INTERNAL_DECODERS.items() if folder.startswith(start)), PayloadDecoder.TEXT)


def files_to_dump(path: Path) -> list[Path]:
    """Return the path itself, or for a folder the files in it that can be dumped, by name.

    Raises:
        NotFound: there is no such path. BadRequest: it cannot be read.
    """
    try:
        return _files_to_dump(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _files_to_dump(path: Path) -> list[Path]:
    if not path.exists():
        raise NotFound("no such file or folder", where=str(path))
    if path.is_dir():
        paths = sorted(each for each in path.iterdir() if each.is_file() and kind_of_file(each) is not None)
        if not paths:
            hint = "name a log dir, or the folder of a partition in it, such as orders-0"
            raise NotFound("no file of Kafka's log dirs in the folder", where=str(path), hint=hint)
        return paths
    return [path]


def dump_file(path: Path, options: DumpOptions | None = None) -> Iterator[Row]:
    """Yield the rows of one file as it is read. What is wrong with the file comes as ``Finding`` rows.

    Raises:
        NotFound: there is no such file. BadRequest: it is not one of Kafka's, or cannot be read.
    """
    if not path.exists():
        raise NotFound("no such file", where=str(path))
    kind = kind_of_file(path)
    if kind is None or path.is_dir():
        raise BadRequest(
            "not a file of Kafka's log dirs",
            where=str(path),
            hint="segments end in .log, indexes in .index, .timeindex or .txnindex, snapshots in .snapshot; "
            "checkpoints, partition.metadata and meta.properties are known by their names",
        )
    try:
        yield from _rows(kind, path, DumpOptions() if options is None else options)
    except CorruptFileError as error:
        yield Finding(FindingKind.CORRUPT, message=str(error))
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> BadRequest:
    return BadRequest(f"cannot be read: {error.strerror}", where=str(path))


def _rows(kind: FileKind, path: Path, options: DumpOptions) -> Iterator[Row]:
    index = IndexOptions(options.verify_index_only, options.index_sanity_check)
    match kind:
        case FileKind.SEGMENT:
            has_payloads = options.has_payloads
            segment = SegmentOptions(
                options.deep_iteration or has_payloads, has_payloads, decoder_for(path, options), options.max_bytes
            )
            return dump_segment(path, segment)
        case FileKind.OFFSET_INDEX:
            return dump_offset_index(path, index)
        case FileKind.TIME_INDEX:
            return dump_time_index(path, index)
        case FileKind.TRANSACTION_INDEX:
            return dump_transaction_index(path, index)
        case FileKind.PRODUCER_SNAPSHOT:
            return dump_producer_snapshot(path)
        case FileKind.OFFSET_CHECKPOINT:
            return dump_offset_checkpoint(path)
        case FileKind.LEADER_EPOCH_CHECKPOINT:
            return dump_leader_epoch_checkpoint(path)
        case FileKind.PARTITION_METADATA:
            return dump_partition_metadata(path)
        case FileKind.META_PROPERTIES:
            return dump_meta_properties(path)
        case FileKind.CLEAN_SHUTDOWN:
            return dump_clean_shutdown(path)


# A segment, batch by batch and record by record, with what is wrong with it.

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
