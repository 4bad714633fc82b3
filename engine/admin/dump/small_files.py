"""The small files of a log dir and of a partition's folder: snapshots, checkpoints, properties."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.admin.dump.rows import (
    Finding,
    FindingKind,
    LeaderEpochRow,
    OffsetCheckpointRow,
    ProducerRow,
    PropertyRow,
    Row,
)
from engine.common.errors import CorruptFileError
from engine.common.topic_id import topic_id_text
from engine.kafka.formats.checkpoints import decode_leader_epoch_checkpoint, decode_offset_checkpoint
from engine.kafka.formats.clean_shutdown import decode_clean_shutdown
from engine.kafka.formats.meta_properties import decode_meta_properties
from engine.kafka.formats.partition_metadata import decode_partition_metadata
from engine.kafka.formats.producer_snapshot import ProducerSnapshotEntry, decode_producer_snapshot

_SEQUENCE_MODULUS = 2**31


def dump_producer_snapshot(path: Path) -> Iterator[Row]:
    """Yield the producers of a ``.snapshot`` file."""
    try:
        entries = decode_producer_snapshot(path.read_bytes())
    except CorruptFileError as error:
        yield Finding(FindingKind.CORRUPT, message=str(error))
        return
    yield from map(_producer_row, entries)


def dump_offset_checkpoint(path: Path) -> Iterator[Row]:
    """Yield the partitions of a ``*-offset-checkpoint`` file."""
    try:
        offsets = decode_offset_checkpoint(_text(path), str(path))
    except CorruptFileError as error:
        yield Finding(FindingKind.CORRUPT, message=str(error))
        return
    yield from (OffsetCheckpointRow(topic, partition, offset) for (topic, partition), offset in offsets.items())


def dump_leader_epoch_checkpoint(path: Path) -> Iterator[Row]:
    """Yield the epochs of a ``leader-epoch-checkpoint`` file."""
    try:
        entries = decode_leader_epoch_checkpoint(_text(path), str(path))
    except CorruptFileError as error:
        yield Finding(FindingKind.CORRUPT, message=str(error))
        return
    yield from (LeaderEpochRow(*entry) for entry in entries)


def dump_partition_metadata(path: Path) -> Iterator[Row]:
    """Yield the topic id of a ``partition.metadata`` file."""
    try:
        topic_id = decode_partition_metadata(_text(path), str(path))
    except CorruptFileError as error:
        yield Finding(FindingKind.CORRUPT, message=str(error))
        return
    yield PropertyRow("topic_id", topic_id_text(topic_id))


def dump_meta_properties(path: Path) -> Iterator[Row]:
    """Yield the settings of a ``meta.properties`` file."""
    try:
        properties = decode_meta_properties(_text(path), str(path))
    except CorruptFileError as error:
        yield Finding(FindingKind.CORRUPT, message=str(error))
        return
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
