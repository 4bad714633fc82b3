"""What a log's reads return, and their searches: where an offset is, and which part of a segment a read takes.

A reader that keeps up with the log's end needs no search: ``Log.read`` serves it.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.broker.log.active_segment import ActiveSegment
from engine.broker.log.batch_scan import batch_size_at
from engine.broker.log.file_range import FileRange, OpenFile
from engine.broker.log.partition_folder import PartitionFolder
from engine.broker.log.segment import LogSegment
from engine.broker.log.segment_list import SegmentList
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.formats.index_entries import AbortedTransaction


class LogPosition(NamedTuple):
    """Where an offset is: its segment, and the byte in it. Positions compare in log order."""

    segment_base_offset: int
    position: int


class LogRead:
    """What a read found. ``records`` is None if there are none below the limit.

    ``position`` is where the first batch begins. That batch holds the offset asked for and may begin before it. The
    bytes may end within a batch.
    """

    __slots__ = ("is_first_batch_incomplete", "position", "records")

    def __init__(
        self, records: FileRange | None, position: LogPosition, is_first_batch_incomplete: bool = False
    ) -> None:
        self.records = records
        self.position = position
        self.is_first_batch_incomplete = is_first_batch_incomplete

    def __repr__(self) -> str:
        return f"LogRead(records={self.records!r}, position={self.position})"

    @property
    def size_bytes(self) -> int:
        return 0 if self.records is None else self.records.size_bytes


class SegmentSearch:
    """Searches the segments of one log. It changes only what the active segment remembers.

    The caller says where the log ends, and asks for no offset beyond that. Methods raise KafkaError
    KAFKA_STORAGE_ERROR if the disk fails.
    """

    __slots__ = ("_active", "_folder", "_segments")

    def __init__(self, folder: PartitionFolder, segments: SegmentList, active: ActiveSegment) -> None:
        self._folder = folder
        self._segments = segments
        self._active = active

    def position_of(self, offset: int, end_offset: int) -> LogPosition:
        """Return where the batch that holds ``offset`` begins, or will begin."""
        active = self._active.segment
        position = active.size_bytes if offset == end_offset else self._active.known_position(offset)
        if position >= 0:
            return LogPosition(active.base_offset, position)
        self._folder.check_online()
        try:
            segment, position = self._find(offset)
        except OSError as error:
            raise self._folder.failed("reading", error) from error
        if segment is active:
            self._active.remember(offset, position)
        return LogPosition(segment.base_offset, position)

    def collect_aborted_transactions(self, start_offset: int, limit_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that a read of ``[start_offset, limit_offset)`` must hide."""
        collected: list[AbortedTransaction] = []
        try:
            for segment in self._segments.reaching(start_offset):
                aborted, is_complete = segment.transaction_index.collect(start_offset, limit_offset)
                collected += aborted
                if is_complete:
                    break
        except OSError as error:
            raise self._folder.failed("reading aborted transactions", error) from error
        return collected

    def upper_bound_offset(self, read: LogRead, end_offset: int) -> int:
        """Return an offset beyond everything that ``read`` holds: aborted transactions matter up to there."""
        segment = self._segments.floor(read.position.segment_base_offset) or self._active.segment
        try:
            bound = segment.offset_index.first_offset_after(read.position.position + read.size_bytes - 1)
        except OSError as error:
            raise self._folder.failed("reading an index", error) from error
        if bound is not None:
            return bound
        following = self._segments.after(segment)
        return end_offset if following is None else following.base_offset

    def read(self, offset: int, max_bytes: int, *, limit_offset: int, end_offset: int, min_one_batch: bool) -> LogRead:
        """Do what ``Log.read`` does, with a search for both ends."""
        start = self.position_of(offset, end_offset)
        limit = self.position_of(limit_offset, end_offset)
        segment = self._segments.floor(start.segment_base_offset) or self._active.segment
        if limit.segment_base_offset < segment.base_offset:
            return LogRead(None, start)
        end = limit.position if limit.segment_base_offset == segment.base_offset else segment.size_bytes
        size_bytes = end - start.position
        if not 0 < size_bytes <= max_bytes:
            return self.read_part(segment, start.position, end, max_bytes, min_one_batch=min_one_batch)
        return LogRead(FileRange(self._open(segment), start.position, size_bytes), start)

    def read_part(
        self, segment: LogSegment, position: int, end: int, max_bytes: int, *, min_one_batch: bool
    ) -> LogRead:
        """Read up to ``max_bytes``, with the first batch whole if wanted; return no records if there are none."""
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
            raise self._folder.failed("reading", error) from error
        size_bytes = max(max_bytes, first_bytes) if min_one_batch else max_bytes
        if size_bytes <= 0:
            return LogRead(None, where)
        return LogRead(FileRange(file, position, min(size_bytes, end - position)), where, size_bytes < first_bytes)

    def _find(self, offset: int) -> tuple[LogSegment, int]:
        """Find the first batch that reaches ``offset``, or the log's end if the rest of the log is empty."""
        segment = self._segments.floor(offset)
        while segment is not None:
            position = segment.find(offset)
            if position >= 0:
                return segment, position
            segment = self._segments.after(segment)
        return self._active.segment, self._active.segment.size_bytes

    def _open(self, segment: LogSegment) -> OpenFile:
        self._folder.check_online()
        try:
            return segment.file()
        except OSError as error:
            raise self._folder.failed("opening a segment", error) from error
