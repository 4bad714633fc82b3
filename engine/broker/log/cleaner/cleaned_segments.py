"""The segment that a cleaning writes, under ``.cleaned`` names until it is completely on the disk.

If its batches reach further than indexes can count, as in a segment of an old Kafka (KAFKA-6264), it becomes several.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.broker.log.cleaner.messages import CleaningLimits
from engine.broker.log.cleaner.throttle import Pace
from engine.broker.log.file_range import write_fully
from engine.broker.log.segment import LogSegment
from engine.broker.log.segment_paths import SegmentPaths
from engine.broker.log.segment_split import first_offset_of
from engine.broker.log.segment_swap import NewSegment
from engine.broker.log.small_files import sync_path
from engine.common.errors import StorageError
from engine.kafka.formats.index_entries import AbortedTransaction
from engine.kafka.formats.segment_files import CLEANED_SUFFIX, INDEX_SUFFIXES, LOG_SUFFIX
from engine.kafka.protocol.records.header import BatchHeader, read_batch_header


class CleanedSegments:
    """Takes batches in order, and writes them to as many segments as needed, usually one."""

    def __init__(self, folder: Path, bounds: tuple[int, int], limits: CleaningLimits, pace: Pace) -> None:
        """``bounds`` are the first offset and the one after the last that a batch may have."""
        self._folder = folder
        self._limits = limits
        self._pace = pace
        base_offset, self._end_offset = bounds
        self._current = _CleanedSegment(folder, base_offset, limits, pace)
        self._segments = [self._current]

    def add(self, batch: bytes) -> None:
        """Append a batch.

        Raises:
            StorageError: its offset cannot be right.
            OSError: the disk fails.
        """
        header = read_batch_header(batch)
        if not self._current.takes(header.last_offset):
            if not self._current.base_offset <= header.last_offset < self._end_offset:
                raise StorageError(
                    f"Offset {header.last_offset} is too far from the base offset {self._current.base_offset} of its "
                    "segment",
                    path=str(self._current.path),
                )
            self._current = _CleanedSegment(self._folder, first_offset_of(batch, header), self._limits, self._pace)
            self._segments.append(self._current)
        self._current.add(batch, header)

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Note an aborted transaction whose marker is the batch that was added last."""
        self._current.add_aborted(transaction)

    def finish(self, modified_ns: int) -> tuple[NewSegment, ...]:
        """Flush everything to the disk, and give the files the time at which their newest source was written."""
        return tuple(segment.finish(modified_ns) for segment in self._segments)


class _CleanedSegment:
    """One cleaned segment, with its indexes."""

    def __init__(self, folder: Path, base_offset: int, limits: CleaningLimits, pace: Pace) -> None:
        """Create the files, and replace those that an earlier cleaning left."""
        paths = SegmentPaths(folder, base_offset, CLEANED_SUFFIX)
        for kind in (LOG_SUFFIX, *INDEX_SUFFIXES):
            paths.path(kind).unlink(missing_ok=True)
        self._segment = LogSegment(
            paths,
            0,
            index_capacity_bytes=limits.segment_index_bytes,
            index_interval_bytes=limits.index_interval_bytes,
            roll_jitter_ms=0,
            created_ms=0,
            has_transaction_index=False,
        )
        self._segment.create_files()
        self._pace = pace
        self._buffer = bytearray()
        self._buffer_bytes_max = limits.io_buffer_bytes
        self._size_bytes = 0
        self._has_transaction_index = False
        self.base_offset = base_offset
        self.path = self._segment.path
        self.takes = self._segment.takes

    def add(self, batch: bytes, header: BatchHeader) -> None:
        """Append a batch whose offset fits this segment."""
        segment = self._segment
        last_offset, max_timestamp = header.last_offset, header.max_timestamp
        if max_timestamp > segment.max_timestamp_ms:
            segment.max_timestamp_ms, segment.max_timestamp_offset = max_timestamp, last_offset
        if segment.bytes_since_index_entry > segment.index_interval_bytes and not segment.is_index_full:
            segment.add_index_entries(last_offset, self._size_bytes)
            segment.bytes_since_index_entry = 0
        segment.bytes_since_index_entry += len(batch)
        self._buffer += batch
        self._size_bytes += len(batch)
        if len(self._buffer) >= self._buffer_bytes_max:
            self._write()

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Note an aborted transaction whose marker is in this segment."""
        self._segment.add_aborted(transaction)
        self._has_transaction_index = True

    def finish(self, modified_ns: int) -> NewSegment:
        """Flush the segment and its indexes to the disk."""
        self._write()
        self._segment.become_inactive()
        for path in self._segment.file_paths():
            if path.exists():
                sync_path(path)
                os.utime(path, ns=(modified_ns, modified_ns))
        self._segment.close_file()
        return NewSegment(self.base_offset, self._size_bytes, self._has_transaction_index)

    def _write(self) -> None:
        if self._buffer:
            write_fully(self._segment.file().fd, self._buffer, self._segment.size_bytes)
            self._pace.spend(len(self._buffer))
            self._segment.size_bytes = self._size_bytes
            self._buffer = bytearray()
