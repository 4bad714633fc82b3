"""Reading from a log: ranges of segment files, and where offsets are.

Positions on the active segment that reads began and ended at are remembered, for that is where the next ones begin:
consumers and followers that keep up cost no search.
"""

from __future__ import annotations

from engine.common.errors import ErrorCode, KafkaError
from engine.formats.index_entries import AbortedTransaction
from engine.storage.batch_scan import batch_size_at
from engine.storage.file_range import FileRange, OpenFile
from engine.storage.log_core import LogCore
from engine.storage.results import LogPosition, LogRead
from engine.storage.segment import LogSegment


class LogReads(LogCore):
    """The reading side of ``Log``."""

    __slots__ = ()

    def read(self, offset: int, max_bytes: int, *, limit_offset: int, min_one_batch: bool) -> LogRead:
        """Return the batches from ``offset`` to below ``limit_offset``, at most ``max_bytes`` of one segment.

        ``limit_offset`` is the high watermark, the last stable offset or the log's end. With ``min_one_batch`` the
        first batch comes whole, even if it is larger. The range may end within a batch.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE; UNKNOWN_SERVER_ERROR where there is something to read and ``max_bytes`` is
                less than 0; KAFKA_STORAGE_ERROR when the disk fails.
        """
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise self._out_of_range(offset)
        if limit_offset > end_offset:
            limit_offset = end_offset
        if offset >= limit_offset:
            return LogRead(None, self.position_of(offset))
        active = self._active
        position = active.known_position(offset)
        if position < 0:
            return self._read_searching(offset, max_bytes, limit_offset, min_one_batch)
        segment = active.segment
        if limit_offset == end_offset:
            limit = segment.size_bytes
        else:
            limit = active.known_position(limit_offset)
            if limit < 0:
                limit = self.position_of(limit_offset).position
        size_bytes = limit - position
        if not 0 < size_bytes <= max_bytes:
            return self._read_part(segment, position, limit, max_bytes, min_one_batch)
        active.remember(limit_offset, limit)
        return LogRead(FileRange(segment.file(), position, size_bytes), LogPosition(segment.base_offset, position))

    def position_of(self, offset: int) -> LogPosition:
        """Return where the batch that holds ``offset`` begins, or where it will; the log's end for the end offset.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE beyond the log's end; KAFKA_STORAGE_ERROR when the disk fails.
        """
        active = self._active.segment
        position = active.size_bytes if offset == self.log_end_offset else self._active.known_position(offset)
        if position >= 0:
            return LogPosition(active.base_offset, position)
        if offset > self.log_end_offset:
            raise self._out_of_range(offset)
        self._check_online()
        try:
            segment, position = self._find(offset)
        except OSError as error:
            raise self._storage_error("reading", error) from error
        if segment is active:
            self._active.remember(offset, position)
        return LogPosition(segment.base_offset, position)

    def collect_aborted_transactions(self, start_offset: int, limit_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that a read of ``[start_offset, limit_offset)`` must hide.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        found: list[AbortedTransaction] = []
        try:
            for segment in self._segments.reaching(start_offset):
                aborted, is_complete = segment.transaction_index.collect(start_offset, limit_offset)
                found += aborted
                if is_complete:
                    break
        except OSError as error:
            raise self._storage_error("reading aborted transactions", error) from error
        return found

    def upper_bound_offset(self, read: LogRead) -> int:
        """Return an offset that is beyond all that ``read`` holds: up to there aborted transactions matter."""
        segment = self._segments.floor(read.position.segment_base_offset) or self._active.segment
        try:
            bound = segment.offset_index.first_offset_after(read.position.position + read.size_bytes - 1)
        except OSError as error:
            raise self._storage_error("reading an index", error) from error
        if bound is not None:
            return bound
        following = self._segments.after(segment)
        return self.log_end_offset if following is None else following.base_offset

    def _find(self, offset: int) -> tuple[LogSegment, int]:
        """Search the first batch that reaches ``offset``; the log's end where the rest of the log is empty."""
        segment = self._segments.floor(offset)
        while segment is not None:
            position = segment.find(offset)
            if position >= 0:
                return segment, position
            segment = self._segments.after(segment)
        return self._active.segment, self._active.segment.size_bytes

    def _read_searching(self, offset: int, max_bytes: int, limit_offset: int, min_one_batch: bool) -> LogRead:
        start = self.position_of(offset)
        limit = self.position_of(limit_offset)
        segment = self._segments.floor(start.segment_base_offset) or self._active.segment
        if limit.segment_base_offset < segment.base_offset:
            return LogRead(None, start)
        end = limit.position if limit.segment_base_offset == segment.base_offset else segment.size_bytes
        size_bytes = end - start.position
        if not 0 < size_bytes <= max_bytes:
            return self._read_part(segment, start.position, end, max_bytes, min_one_batch)
        return LogRead(FileRange(self._open(segment), start.position, size_bytes), start)

    def _read_part(self, segment: LogSegment, position: int, end: int, max_bytes: int, min_one_batch: bool) -> LogRead:
        """Read as far as ``max_bytes`` allows, the first batch whole if wanted; nothing where there is nothing."""
        where = LogPosition(segment.base_offset, position)
        if position >= end:
            return LogRead(None, where)
        if max_bytes < 0:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"Invalid max size {max_bytes} for log read from segment {segment!r}"
            )
        file = self._open(segment)
        try:
            first_bytes = batch_size_at(file.fd, position)
        except OSError as error:
            raise self._storage_error("reading", error) from error
        size_bytes = max(max_bytes, first_bytes) if min_one_batch else max_bytes
        if size_bytes <= 0:
            return LogRead(None, where)
        return LogRead(FileRange(file, position, min(size_bytes, end - position)), where, size_bytes < first_bytes)

    def _open(self, segment: LogSegment) -> OpenFile:
        self._check_online()
        try:
            return segment.file()
        except OSError as error:
            raise self._storage_error("opening a segment", error) from error

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Received request for offset {offset} for partition {self.topic_partition}, but we only have log segments "
            f"in the range {self.log_start_offset} to {self.log_end_offset}.",
        )
