"""One segment of a log: a file of batches, and its offset, time and transaction index.

It knows positions and sizes, but nothing about leaders, producers or retention. The log file opens on first use.
Readers keep it open through their file ranges, whatever happens to the segment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.broker.log.batch_scan import find_batch, scan_batches
from engine.broker.log.file_range import OpenFile, write_fully
from engine.broker.log.indexes import NO_TIMESTAMP, OffsetIndex, TimeIndex, TransactionIndex
from engine.kafka.formats.index_entries import RELATIVE_OFFSET_MAX, AbortedTransaction, TimestampOffset
from engine.kafka.formats.log_dir_names import INDEX_SUFFIXES, LOG_SUFFIX, SEGMENT_SUFFIXES, SegmentPaths
from engine.kafka.protocol.records.header import BatchHeader
from engine.runtime.descriptors import is_out_of_descriptors, open_file

UNKNOWN_TIMESTAMP = -2
"""The largest timestamp is not known yet: the time index has it."""


class LogSegment:
    """Batches from ``base_offset`` on. ``size_bytes`` is where the next batch goes."""

    __slots__ = (
        "_file",
        "_offset_index",
        "_rolling_timestamp_ms",
        "_time_index",
        "_transaction_index",
        "_was_read",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "has_unsynced_index",
        "index_capacity_bytes",
        "index_interval_bytes",
        "is_index_full",
        "is_preallocated",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "paths",
        "roll_jitter_ms",
        "size_bytes",
    )

    def __init__(
        self,
        paths: SegmentPaths,
        size_bytes: int,
        *,
        index_capacity_bytes: int,
        index_interval_bytes: int,
        roll_jitter_ms: int,
        created_ms: int,
        has_transaction_index: bool,
    ) -> None:
        self.paths = paths
        self.base_offset = paths.base_offset
        self.size_bytes = size_bytes
        self.index_capacity_bytes = index_capacity_bytes
        self.index_interval_bytes = index_interval_bytes
        self.roll_jitter_ms = roll_jitter_ms
        self.created_ms = created_ms
        self.bytes_since_index_entry = 0
        self.is_index_full = False
        self.is_preallocated = False
        """The log file is longer than the batches in it, until it is cut."""
        self.has_unsynced_index = False
        """An index has changed since a flush last brought all of them to the disk."""
        self.max_timestamp_ms = UNKNOWN_TIMESTAMP
        self.max_timestamp_offset = paths.base_offset
        self._rolling_timestamp_ms: int | None = None
        self._file: OpenFile | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index = TransactionIndex(paths, exists=has_transaction_index)
        self._was_read = False

    def __repr__(self) -> str:
        return f"LogSegment(baseOffset={self.base_offset}, size={self.size_bytes}, folder={self.paths.folder})"

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            self._offset_index = OffsetIndex.load(self.paths, self.index_capacity_bytes)
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._time_index = TimeIndex.load(self.paths, self.index_capacity_bytes)
        return self._time_index

    @property
    def transaction_index(self) -> TransactionIndex:
        return self._transaction_index

    @property
    def path(self) -> Path:
        return self.paths.path(LOG_SUFFIX)

    # --- the file

    def file(self) -> OpenFile:
        self._was_read = True
        if self._file is None:
            self._file = OpenFile(open_file(self.path, os.O_RDWR))
        return self._file

    def create_files(self, *, preallocated_bytes: int = 0) -> None:
        """Create an empty log file and preallocated indexes; replace files of the same names."""
        self._file = OpenFile(open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        if preallocated_bytes:
            os.ftruncate(self._file.fd, preallocated_bytes)
            self.is_preallocated = True
        self.create_indexes()
        self.max_timestamp_ms = NO_TIMESTAMP

    def create_indexes(self) -> None:
        """Create empty, preallocated indexes."""
        self._offset_index = OffsetIndex(self.paths, self.index_capacity_bytes)
        self._time_index = TimeIndex(self.paths, self.index_capacity_bytes)
        self.preallocate_indexes()
        self.has_unsynced_index = True

    def release_idle(self) -> None:
        """Release the file and caches, unless they were used since the last call."""
        if self._was_read:
            self._was_read = False
            return
        self._file = None
        self._transaction_index.release()
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.release()

    def last_modified_ms(self) -> int:
        """Return when the log file was last written, according to the file system."""
        return self.path.stat().st_mtime_ns // 1_000_000

    # --- append

    def append(
        self,
        records: bytes | bytearray | memoryview,
        size_bytes: int,
        last_offset: int,
        max_timestamp_ms: int,
        max_timestamp_offset: int,
    ) -> None:
        """Write whole batches at the end.

        ``max_timestamp_offset`` is the last offset of the batch that has ``max_timestamp_ms``.

        Raises:
            OSError: the disk did not take all; call ``cut_back`` with the size from before.
        """
        position = self.size_bytes
        file = self._file or self.file()
        written = os.pwrite(file.fd, records, position)
        if written != size_bytes:
            write_fully(file.fd, memoryview(records)[written:], position + written)
        self.size_bytes = position + size_bytes
        if position == 0:
            self._rolling_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self.max_timestamp_ms:
            self._note_max_timestamp(max_timestamp_ms, max_timestamp_offset)
        if self.bytes_since_index_entry > self.index_interval_bytes:
            self._add_due_index_entries(last_offset, position)
        self.bytes_since_index_entry += size_bytes

    def append_batches(
        self, records: bytes | bytearray | memoryview, size_bytes: int, headers: Sequence[tuple[int, BatchHeader]]
    ) -> None:
        """Write several batches with one call; each counts for the indexes by itself, as in Kafka 3.9.1.

        ``headers`` hold the batches' positions in ``records``.

        Raises:
            OSError: the disk did not take all; call ``cut_back`` with the size from before.
        """
        start = self.size_bytes
        file = self._file or self.file()
        written = os.pwrite(file.fd, records, start)
        if written != size_bytes:
            write_fully(file.fd, memoryview(records)[written:], start + written)
        self.size_bytes = start + size_bytes
        if start == 0:
            self._rolling_timestamp_ms = headers[0][1].max_timestamp
        for position, header in headers:
            if header.max_timestamp > self.max_timestamp_ms:
                self._note_max_timestamp(header.max_timestamp, header.last_offset)
            if self.bytes_since_index_entry > self.index_interval_bytes and not self.is_index_full:
                self._add_due_index_entries(header.last_offset, start + position)
            self.bytes_since_index_entry += header.size_bytes

    def _add_due_index_entries(self, last_offset: int, position: int) -> None:
        try:
            self.add_index_entries(last_offset, position)
            self.bytes_since_index_entry = 0
        except OSError as error:
            if not is_out_of_descriptors(error):
                raise
            # The records are written. The next append tries again; one missing entry only makes a search longer.

    def _note_max_timestamp(self, timestamp_ms: int, offset: int) -> None:
        if self.max_timestamp_ms == UNKNOWN_TIMESTAMP:
            self.load_max_timestamp()
            if timestamp_ms <= self.max_timestamp_ms:
                return
        self.max_timestamp_ms = timestamp_ms
        self.max_timestamp_offset = offset

    def add_index_entries(self, last_offset: int, position: int) -> None:
        """Add to the indexes that the append ending with ``last_offset`` began at ``position``."""
        offset_index, time_index = self.offset_index, self.time_index
        # The time index first: without its entry, none of the offset index may say that it is complete so far.
        time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
        offset_index.append(last_offset, position)
        self._note_room_in_indexes()
        self.has_unsynced_index = True

    def _note_room_in_indexes(self) -> None:
        self.is_index_full = self.offset_index.is_full or self.time_index.is_full

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction whose marker is in this segment."""
        self.transaction_index.append(transaction)
        self.has_unsynced_index = True

    def write_pending(self) -> list[Path]:
        """Write index entries held in memory to their files; return the paths of all index files."""
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.write_pending()
        return [self.paths.path(kind) for kind in INDEX_SUFFIXES]

    def cut_back(self, size_bytes: int) -> None:
        """Remove what a failed append left beyond ``size_bytes``. May raise OSError."""
        os.ftruncate(self.file().fd, size_bytes)

    # --- roll

    def takes(self, last_offset: int) -> bool:
        """Return whether ``last_offset`` fits relative to the base offset."""
        return 0 <= last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def waited_for_roll_ms(self, now_ms: int, timestamp_ms: int) -> int:
        """Return the segment's age: by timestamps if its first batch has one, else by the clock."""
        first_ms = self.first_batch_timestamp_ms()
        return timestamp_ms - first_ms if first_ms >= 0 else now_ms - self.created_ms

    def first_batch_timestamp_ms(self) -> int:
        """Return the first batch's largest timestamp; -1 if there is no batch or it has no timestamp."""
        if self._rolling_timestamp_ms is None:
            if self.size_bytes == 0:
                return NO_TIMESTAMP
            first = next(self.iter_batches(), None)
            if first is not None:
                self._rolling_timestamp_ms = first[1].max_timestamp
        return NO_TIMESTAMP if self._rolling_timestamp_ms is None else self._rolling_timestamp_ms

    def become_inactive(self) -> None:
        """Complete the indexes and cut off preallocated space: no more appends will come."""
        self.load_max_timestamp()
        self._complete_time_index()
        self.trim()

    def _complete_time_index(self) -> None:
        # A segment of an old Kafka may have offsets that no entry can hold: searches scan for those.
        if self.takes(self.max_timestamp_offset):
            count = self.time_index.count
            self.time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
            self.has_unsynced_index |= self.time_index.count != count

    def trim(self) -> None:
        """Write pending entries, and cut off preallocated space. Untouched files stay as they are."""
        if self._offset_index is not None:
            self._offset_index.trim()
        if self._time_index is not None:
            self._time_index.trim()
        if self.is_preallocated:
            os.ftruncate(self.file().fd, self.size_bytes)
            self.is_preallocated = False

    def preallocate_indexes(self) -> None:
        """Grow the index files to their maximum size. What is in them may leave no room all the same."""
        self.offset_index.preallocate()
        self.time_index.preallocate()
        self._note_room_in_indexes()

    # --- timestamps

    def load_max_timestamp(self) -> TimestampOffset:
        """Return the largest timestamp and the last offset of the first batch that has it; -1 if there is none."""
        if self.max_timestamp_ms == UNKNOWN_TIMESTAMP:
            self.max_timestamp_ms, self.max_timestamp_offset = self.time_index.last_entry
        return TimestampOffset(self.max_timestamp_ms, self.max_timestamp_offset)

    def largest_timestamp_ms(self) -> int:
        """Return the largest timestamp, or the file's last modification if no record has one."""
        timestamp_ms = self.load_max_timestamp().timestamp_ms
        return timestamp_ms if timestamp_ms >= 0 else self.last_modified_ms()

    # --- positions

    def iter_batches(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the position and header of each batch from ``position`` to ``end`` (the segment's end by default)."""
        return scan_batches(self.file().fd, position, self.size_bytes if end is None else end)

    def find(self, offset: int) -> int:
        """Return the position of the first batch that reaches ``offset``; -1 if none does."""
        start = self.offset_index.lookup(offset).position
        return find_batch(self.file().fd, start, self.size_bytes, offset)

    def read_next_offset(self) -> int:
        """Return the offset after the last batch; the base offset if there is none."""
        return self.read_end()[0]

    def read_end(self) -> tuple[int, int]:
        """Return the offset after the last whole batch, and the position where that batch ends."""
        next_offset, end = self.base_offset, 0
        if self.size_bytes == 0:
            return next_offset, end
        index = self.offset_index
        end = index.lookup(index.last_offset).position
        for position, header in self.iter_batches(end):
            next_offset, end = header.next_offset, position + header.size_bytes
        return next_offset, end

    # --- cut, rename, sync

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop the batch that holds ``offset`` and all after it; return the number of bytes dropped."""
        position = self.find(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.preallocate_indexes()
        self.has_unsynced_index = True
        dropped_bytes = 0
        if position >= 0:
            dropped_bytes = self.size_bytes - position
            os.ftruncate(self.file().fd, position)
            self.size_bytes = position
        if self.size_bytes == 0:
            self.created_ms = now_ms
            self._rolling_timestamp_ms = None
        self.bytes_since_index_entry = 0
        if self.load_max_timestamp().timestamp_ms >= 0:
            self._reread_max_timestamp()
        return dropped_bytes

    def _reread_max_timestamp(self) -> None:
        """Take the largest timestamp from the time index and the batches after the last entry of the offset index.

        Both indexes get their entries together, and the time index leaves one out if no timestamp was larger.
        """
        timestamp_ms, offset = self.time_index.last_entry
        for _, header in self.iter_batches(self.offset_index.lookup(self.offset_index.last_offset).position):
            if header.max_timestamp > timestamp_ms:
                timestamp_ms, offset = header.max_timestamp, header.last_offset
        self.max_timestamp_ms, self.max_timestamp_offset = timestamp_ms, offset

    def move_to(self, folder: Path) -> None:
        """Take the new paths after a rename of the partition's folder."""
        self.paths.folder = folder

    def change_suffix(self, suffix: str) -> None:
        """Rename the files; skip those that do not exist (usually the transaction index)."""
        for kind in SEGMENT_SUFFIXES:
            source = self.paths.path(kind)
            target = SegmentPaths(self.paths.folder, self.base_offset, suffix).path(kind)
            with contextlib.suppress(FileNotFoundError):
                source.rename(target)
        self.paths.suffix = suffix

    def file_paths(self) -> list[Path]:
        """Return the paths of all files the segment may have."""
        return [self.paths.path(kind) for kind in SEGMENT_SUFFIXES]

    def close(self) -> None:
        """Complete the indexes for a clean stop, cut off preallocated space, and release the file."""
        if self.max_timestamp_ms != UNKNOWN_TIMESTAMP:
            self._complete_time_index()
        self.trim()
        self._file = None

    def close_file(self) -> None:
        """Release the open file; the next use opens it again."""
        self._file = None
