"""Offsets by time: what ListOffsets asks of a log, in all its versions."""

from __future__ import annotations

from engine.common.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from engine.protocol.records.header import BatchHeader
from engine.protocol.records.iterate import iter_batch_records
from engine.storage.file_range import read_fully
from engine.storage.log_core import LogCore
from engine.storage.results import OffsetAtTime
from engine.storage.segment import LogSegment
from engine.storage.time_index import NO_TIMESTAMP


class LogTimes(LogCore):
    """Questions about time that a ``Log`` answers."""

    __slots__ = ()

    def offset_for_timestamp(self, timestamp_ms: int) -> OffsetAtTime | None:
        """Return the first record whose timestamp is at least ``timestamp_ms``, or None.

        Segments without timestamps (messages of v0) count by when their file was last written, as in Kafka.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails; CORRUPT_MESSAGE, INVALID_RECORD for bad records.
        """
        self._check_online()
        try:
            for segment in self._segments:
                if segment.largest_timestamp_ms() >= timestamp_ms:
                    found = self._search(segment, timestamp_ms)
                    # Its only such record may be before the log's start: then Kafka gives up, and this looks on.
                    if found is not None:
                        return found
        except OSError as error:
            raise self._storage_error("searching a timestamp", error) from error
        return None

    def offset_of_max_timestamp(self) -> OffsetAtTime | None:
        """Return the first record that has the log's largest timestamp, or None where none has one (KIP-734)."""
        self._check_online()
        try:
            segment = max(self._segments, key=lambda one: one.load_max_timestamp().timestamp_ms)
            timestamp_ms, offset = segment.load_max_timestamp()
            if timestamp_ms == NO_TIMESTAMP:
                return None
            for position, header in segment.iter_batches(segment.offset_index.lookup(offset).position):
                if header.max_timestamp == timestamp_ms:
                    return _first_at_least(_batch_bytes(segment, position, header), header, timestamp_ms, 0)
        except OSError as error:
            raise self._storage_error("searching the largest timestamp", error) from error
        return None

    def earliest_offset(self) -> OffsetAtTime:
        """Return the log's start, with the epoch it was written under where the epoch cache reaches back so far."""
        earliest = self.leader_epochs.earliest_entry
        is_known = earliest is not None and earliest.start_offset <= self.log_start_offset
        leader_epoch = earliest.leader_epoch if earliest is not None and is_known else None
        return OffsetAtTime(self.log_start_offset, NO_TIMESTAMP, leader_epoch)

    def latest_offset(self) -> OffsetAtTime:
        """Return the log's end, with the latest epoch."""
        latest = self.leader_epochs.latest_entry
        return OffsetAtTime(self.log_end_offset, NO_TIMESTAMP, None if latest is None else latest.leader_epoch)

    def segment_offsets_before(self, timestamp_ms: int, max_count: int) -> list[int]:
        """Answer ListOffsets version 0: base offsets of segments written by then, newest first, the end included.

        ``timestamp_ms`` may be -1 (latest) or -2 (earliest).
        """
        try:
            candidates = [
                (max(segment.base_offset, self.log_start_offset), segment.last_modified_ms())
                for segment in self._segments
            ]
        except OSError as error:
            raise self._storage_error("looking at segments", error) from error
        if self._active.size_bytes > 0:
            candidates.append((self.log_end_offset, self._environment.clock.now_ms()))
        if timestamp_ms == EARLIEST_TIMESTAMP:
            candidates = candidates[:1]
        elif timestamp_ms != LATEST_TIMESTAMP:
            last = max((index for index, (_, time_ms) in enumerate(candidates) if time_ms <= timestamp_ms), default=-1)
            candidates = candidates[: last + 1]
        return sorted((offset for offset, _ in candidates[-max_count:]), reverse=True) if max_count > 0 else []

    def _search(self, segment: LogSegment, timestamp_ms: int) -> OffsetAtTime | None:
        start_offset = self.log_start_offset
        indexed = segment.time_index.lookup(timestamp_ms)
        start = segment.offset_index.lookup(max(indexed.offset, start_offset)).position
        for position, header in segment.iter_batches(start):
            if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
                found = _first_at_least(_batch_bytes(segment, position, header), header, timestamp_ms, start_offset)
                if found is not None:
                    return found
        return None


def _batch_bytes(segment: LogSegment, position: int, header: BatchHeader) -> bytes:
    return read_fully(segment.file().fd, position, header.size_bytes)


def _first_at_least(data: bytes, header: BatchHeader, timestamp_ms: int, start_offset: int) -> OffsetAtTime | None:
    leader_epoch = header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None
    for record in iter_batch_records(data, 0, header):
        if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
            return OffsetAtTime(record.offset, record.timestamp_ms, leader_epoch)
    return None
