"""Offset, time and transaction indexes, compared with the segment beside them.

The zeros of a preallocated tail are not entries. Kafka's tool counts the first of them as one, its sanity check all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from engine.admin.dump.payloads import FileBatch, read_file_batches
from engine.admin.dump.rows import AbortedTransactionRow, Finding, FindingKind, OffsetIndexRow, Row, TimeIndexRow
from engine.common.errors import KafkaError
from engine.kafka.formats.index_entries import (
    ABORTED_TRANSACTION_ENTRY,
    ABORTED_TRANSACTION_VERSION,
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedTransaction,
    OffsetPosition,
    TimestampOffset,
    iter_aborted_transactions,
    iter_offset_index,
    iter_time_index,
)
from engine.kafka.formats.log_dir_names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, offset_of_file_name, segment_file_name
from engine.kafka.protocol.records.decode import iter_batch_records


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """``is_quiet``: only findings. ``is_sanity_check``: only the check that a broker makes when it starts."""

    is_quiet: bool = False
    is_sanity_check: bool = False


def dump_offset_index(path: Path, options: IndexOptions) -> Iterator[Row]:
    """Yield the rows of an ``.index`` file; each entry is looked up in the segment."""
    data = path.read_bytes()
    base_offset = offset_of_file_name(path.name) or 0
    if options.is_sanity_check:
        yield _offset_sanity(data)
        return
    entries = _offset_entries(data, base_offset)
    if not entries:
        yield Finding(FindingKind.EMPTY)
        return
    segment = segment_beside(path)
    if segment is None:
        yield _no_segment(path)
        if not options.is_quiet:
            yield from (OffsetIndexRow(*entry) for entry in entries)
        return
    with segment.open("rb") as log:
        for entry in entries:
            yield from _checked_offset(log, entry)
            if not options.is_quiet:
                yield OffsetIndexRow(entry.offset, entry.position)


def dump_time_index(path: Path, options: IndexOptions) -> Iterator[Row]:
    """Yield the rows of a ``.timeindex`` file; each entry is looked up in the segment, through its offset index."""
    data = path.read_bytes()
    base_offset = offset_of_file_name(path.name) or 0
    if options.is_sanity_check:
        yield _time_sanity(data)
        return
    entries = _time_entries(data, base_offset)
    if not entries:
        yield Finding(FindingKind.EMPTY)
        return
    segment = segment_beside(path)
    if segment is None:
        yield _no_segment(path)
        if not options.is_quiet:
            yield from (TimeIndexRow(*entry) for entry in entries)
        return
    positions = _positions_beside(path, base_offset)
    previous = -1
    with segment.open("rb") as log:
        for entry in entries:
            yield from _checked_time(log, entry, positions, previous)
            previous = entry.timestamp_ms
            if not options.is_quiet:
                yield TimeIndexRow(entry.timestamp_ms, entry.offset)


def dump_transaction_index(path: Path, options: IndexOptions) -> Iterator[Row]:
    """Yield the rows of a ``.txnindex`` file."""
    data = path.read_bytes()
    if not data:
        yield Finding(FindingKind.EMPTY)
        return
    entries = list(iter_aborted_transactions(data))
    if options.is_sanity_check or len(data) % ABORTED_TRANSACTION_ENTRY.size:
        yield _transaction_sanity(data, entries)
    if not options.is_sanity_check and not options.is_quiet:
        yield from (AbortedTransactionRow(ABORTED_TRANSACTION_VERSION, *entry) for entry in entries)


def segment_beside(path: Path) -> Path | None:
    """Return the segment that an index belongs to; None when it is not there."""
    base_offset = offset_of_file_name(path.name)
    segment = None if base_offset is None else path.with_name(segment_file_name(base_offset, LOG_SUFFIX))
    return segment if segment is not None and segment.exists() else None


def _offset_entries(data: bytes, base_offset: int) -> list[OffsetPosition]:
    """All entries before the zero tail; a first entry at position 0 is never written, so it is part of the tail."""
    entries: list[OffsetPosition] = []
    for entry in iter_offset_index(data, base_offset):
        if entry.offset == base_offset and (entries or entry.position == 0):
            break
        entries.append(entry)
    return entries


def _time_entries(data: bytes, base_offset: int) -> list[TimestampOffset]:
    entries: list[TimestampOffset] = []
    for entry in iter_time_index(data, base_offset):
        if entry.offset == base_offset and (entries or entry.timestamp_ms == 0):
            break
        entries.append(entry)
    return entries


def _positions_beside(path: Path, base_offset: int) -> list[OffsetPosition]:
    index = path.with_name(segment_file_name(base_offset, OFFSET_INDEX_SUFFIX))
    return _offset_entries(index.read_bytes(), base_offset) if index.exists() else []


def _offset_sanity(data: bytes) -> Finding:
    """What Kafka checks before it trusts an offset index (OffsetIndex.sanityCheck)."""
    count = len(data) // OFFSET_ENTRY.size
    if not count:
        return Finding(FindingKind.EMPTY)
    relative_offset, _ = OFFSET_ENTRY.unpack_from(data, (count - 1) * OFFSET_ENTRY.size)
    return _below_base(relative_offset) or _whole_entries(data, OFFSET_ENTRY.size)


def _time_sanity(data: bytes) -> Finding:
    """What Kafka checks before it trusts a time index (TimeIndex.sanityCheck); an empty one is sound."""
    count = len(data) // TIME_ENTRY.size
    if count:
        first_ms, _ = TIME_ENTRY.unpack_from(data, 0)
        last_ms, relative_offset = TIME_ENTRY.unpack_from(data, (count - 1) * TIME_ENTRY.size)
        if last_ms < first_ms:
            why = "" if last_ms else ": the file ends in zeros, as it does while a broker uses it"
            message = f"the last timestamp ({last_ms}) is below the first ({first_ms}){why}"
            return Finding(FindingKind.CORRUPT, message=message)
        if below := _below_base(relative_offset):
            return below
    return _whole_entries(data, TIME_ENTRY.size)


def _transaction_sanity(data: bytes, entries: Sequence[AbortedTransaction]) -> Finding:
    """Whole entries, and the last not below the first."""
    if entries and entries[-1].last_offset < entries[0].last_offset:
        message = f"the last entry ({entries[-1].last_offset}) is below the first ({entries[0].last_offset})"
        return Finding(FindingKind.CORRUPT, message=message)
    return _whole_entries(data, ABORTED_TRANSACTION_ENTRY.size)


def _below_base(relative_offset: int) -> Finding | None:
    if relative_offset >= 0:
        return None
    return Finding(FindingKind.CORRUPT, message=f"the last offset is {-relative_offset} below the base offset")


def _whole_entries(data: bytes, entry_size: int) -> Finding:
    if len(data) % entry_size:
        message = f"{len(data)} bytes are not a multiple of the {entry_size} bytes of an entry"
        return Finding(FindingKind.CORRUPT, message=message)
    return Finding(FindingKind.SANE)


def _checked_offset(log: BinaryIO, entry: OffsetPosition) -> Iterator[Finding]:
    if entry.position < 0:
        yield Finding(FindingKind.INDEX_MISMATCH, entry.offset, -1, f"the entry's position is {entry.position}")
        return
    try:
        batch = next(read_file_batches(log, entry.position), None)
    except KafkaError as error:
        yield Finding(FindingKind.INDEX_MISMATCH, entry.offset, -1, error.message)
        return
    last_offset = -1 if batch is None else batch.header.last_offset
    if last_offset != entry.offset:
        yield Finding(FindingKind.INDEX_MISMATCH, entry.offset, last_offset)


def _checked_time(
    log: BinaryIO, entry: TimestampOffset, positions: list[OffsetPosition], previous_timestamp: int
) -> Iterator[Finding]:
    try:
        batch = _batch_that_ends_at(log, entry.offset, positions)
        if batch is None or batch.header.last_offset != entry.offset:
            yield Finding(FindingKind.OFFSET_NOT_FOUND, entry.offset, -1 if batch is None else batch.header.last_offset)
            return
        timestamp = max((record.timestamp_ms for record in iter_batch_records(batch.data, 0, batch.header)), default=-1)
    except KafkaError as error:
        yield Finding(FindingKind.OFFSET_NOT_FOUND, entry.offset, -1, error.message)
        return
    if timestamp != entry.timestamp_ms:
        yield Finding(FindingKind.TIMESTAMP_MISMATCH, entry.timestamp_ms, timestamp)
    if previous_timestamp >= entry.timestamp_ms:
        yield Finding(FindingKind.TIMESTAMP_OUT_OF_ORDER, entry.timestamp_ms, previous_timestamp)


def _batch_that_ends_at(log: BinaryIO, offset: int, positions: list[OffsetPosition]) -> FileBatch | None:
    """Return the first batch that does not end before the offset."""
    nearest = bisect_right(positions, offset, key=lambda entry: entry.offset) - 1
    start = max(0, positions[nearest].position) if nearest >= 0 else 0
    return next((batch for batch in read_file_batches(log, start) if batch.header.last_offset >= offset), None)


def _no_segment(path: Path) -> Finding:
    name = f"{path.name.partition('.')[0]}{LOG_SUFFIX}"
    return Finding(FindingKind.UNVERIFIED, message=f"there is no {name} next to it to compare the entries with")
