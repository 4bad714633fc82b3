"""The segment that a cleaning writes, under ``.cleaned`` names until all of it is on the disk."""

from __future__ import annotations

import os
from pathlib import Path

from engine.common.errors import StorageError
from engine.formats.index_entries import AbortedTransaction
from engine.formats.segment_files import CLEANED_SUFFIX, INDEX_SUFFIXES, LOG_SUFFIX
from engine.protocol.records.header import read_batch_header
from engine.storage.cleaner.messages import CleaningLimits
from engine.storage.cleaner.throttle import Pace
from engine.storage.file_range import write_fully
from engine.storage.segment import LogSegment
from engine.storage.segment_paths import SegmentPaths
from engine.storage.small_files import sync_path


class CleanedSegment:
    """Takes batches in order, and writes them with their indexes."""

    def __init__(self, folder: Path, base_offset: int, limits: CleaningLimits, pace: Pace) -> None:
        """Make the files; those an earlier cleaning left are replaced."""
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
        self.size_bytes = 0
        self.has_transaction_index = False

    def add(self, batch: bytes) -> None:
        """Append a batch.

        Raises:
            StorageError: its offset is too far from the segment's base for an index.
            OSError: the disk fails.
        """
        segment = self._segment
        header = read_batch_header(batch)
        last_offset, max_timestamp = header.last_offset, header.max_timestamp
        if not segment.takes(last_offset):
            raise StorageError(
                f"Offset {last_offset} is too far from the base offset {segment.base_offset} of its segment",
                path=str(segment.path),
            )
        if max_timestamp > segment.max_timestamp_ms:
            segment.max_timestamp_ms, segment.max_timestamp_offset = max_timestamp, last_offset
        if segment.bytes_since_index_entry > segment.index_interval_bytes and not segment.is_index_full:
            segment.add_index_entries(last_offset, self.size_bytes)
            segment.bytes_since_index_entry = 0
        segment.bytes_since_index_entry += len(batch)
        self._buffer += batch
        self.size_bytes += len(batch)
        if len(self._buffer) >= self._buffer_bytes_max:
            self._write()

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Note an aborted transaction whose marker is in this segment."""
        self._segment.add_aborted(transaction)
        self.has_transaction_index = True

    def finish(self, modified_ns: int) -> None:
        """Bring all of it to the disk, as of the time at which the newest of its sources was written."""
        self._write()
        self._segment.become_inactive()
        for path in self._segment.file_paths():
            if path.exists():
                sync_path(path)
                os.utime(path, ns=(modified_ns, modified_ns))
        self._segment.close_file()

    def _write(self) -> None:
        if self._buffer:
            write_fully(self._segment.file().fd, self._buffer, self._segment.size_bytes)
            self._pace.spend(len(self._buffer))
            self._segment.size_bytes = self.size_bytes
            self._buffer = bytearray()
