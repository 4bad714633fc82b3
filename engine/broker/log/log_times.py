"""Offsets by time: what ListOffsets asks of a log, in all its versions."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from engine.broker.log.file_range import read_fully
from engine.broker.log.indexes import NO_TIMESTAMP
from engine.broker.log.leader_epoch_cache import LeaderEpochCache
from engine.broker.log.partition_folder import PartitionFolder
from engine.broker.log.segment import LogSegment
from engine.common.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.header import BatchHeader

HEADERS_AT_ONCE_MAX = 500
"""Maximum batches to look at in one step: timestamps out of order can make a search long."""


class OffsetAtTime(NamedTuple):
    """An offset, the timestamp of its record (-1: none), and the leader epoch it was written under (None: unknown)."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None


class BatchToSearch(NamedTuple):
    """A batch that should have a record of at least ``timestamp_ms``. It is a value: any thread may search it."""

    data: bytes
    header: BatchHeader
    timestamp_ms: int
    start_offset: int

    def first_record(self) -> OffsetAtTime | None:
        """Return the first record at or after the time and offset; None if the header promised too much.

        It decompresses, and walks through the records up to that one.

        Raises:
            KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE for bad records.
        """
        header = self.header
        leader_epoch = header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None
        for record in iter_batch_records(self.data, 0, header):
            if record.timestamp_ms >= self.timestamp_ms and record.offset >= self.start_offset:
                return OffsetAtTime(record.offset, record.timestamp_ms, leader_epoch)
        return None


class TimeStep(NamedTuple):
    """One step of a search by time: the batch it found, if any, and the offset where the next step continues."""

    batch: BatchToSearch | None
    next_offset: int


class SearchedLog(Protocol):
    """The part of a log that searches by time use."""

    @property
    def folder(self) -> PartitionFolder: ...

    @property
    def segments(self) -> tuple[LogSegment, ...]: ...

    def segments_between(self, start: int, end: int) -> list[LogSegment]:
        """Return the segment of offset ``start`` and the following ones that begin before ``end``."""

    @property
    def leader_epochs(self) -> LeaderEpochCache: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...


def step_by_time(log: SearchedLog, timestamp_ms: int, from_offset: int) -> TimeStep | None:
    """Look for the next batch that has a record of at least ``timestamp_ms``; None if there is none left.

    A search begins at offset 0 and ends with the first batch whose records keep what its header promises. The log
    may change between two steps. For segments without timestamps (messages of v0), the time of the last write to the
    file counts, as in Kafka.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR if the disk fails.
    """
    log.folder.check_online()
    start_offset = max(from_offset, log.log_start_offset)
    with log.folder.reporting("searching a timestamp"):
        for segment in log.segments_between(start_offset, log.log_end_offset + 1):
            if segment.largest_timestamp_ms() >= timestamp_ms:
                step = _step(segment, timestamp_ms, start_offset)
                # Its only such record may be before the log's start: Kafka then gives up, and this code searches on.
                if step is not None:
                    return step
    return None


def newest_batch(log: SearchedLog) -> BatchToSearch | None:
    """Return the first batch with the log's largest timestamp (KIP-734), or None if there is no batch, or only v0's.

    If no record has a timestamp, -1 is the largest, as in Kafka.
    """
    log.folder.check_online()
    with log.folder.reporting("searching the largest timestamp"):
        segment = max(log.segments, key=lambda segment: segment.load_max_timestamp().timestamp_ms)
        timestamp_ms, offset = segment.load_max_timestamp()
        for position, header in segment.iter_batches(segment.offset_index.lookup(offset).position):
            if header.max_timestamp == timestamp_ms and header.magic > 0:
                return BatchToSearch(_batch_bytes(segment, position, header), header, timestamp_ms, 0)
    return None


def earliest_offset(log: SearchedLog) -> OffsetAtTime:
    """Return the log's start, with its leader epoch if the epoch cache reaches back that far."""
    earliest = log.leader_epochs.earliest_entry
    is_known = earliest is not None and earliest.start_offset <= log.log_start_offset
    leader_epoch = earliest.leader_epoch if earliest is not None and is_known else None
    return OffsetAtTime(log.log_start_offset, NO_TIMESTAMP, leader_epoch)


def segment_offsets_before(log: SearchedLog, timestamp_ms: int, max_count: int, now_ms: int) -> list[int]:
    """Answer ListOffsets version 0: base offsets of segments written by then, newest first, including the log's end.

    ``timestamp_ms`` may be -1 (latest) or -2 (earliest).
    """
    with log.folder.reporting("looking at segments"):
        candidates = [
            (max(segment.base_offset, log.log_start_offset), segment.last_modified_ms()) for segment in log.segments
        ]
    if log.segments[-1].size_bytes > 0:
        candidates.append((log.log_end_offset, now_ms))
    if timestamp_ms == EARLIEST_TIMESTAMP:
        candidates = candidates[:1]
    elif timestamp_ms != LATEST_TIMESTAMP:
        last = max((index for index, (_, time_ms) in enumerate(candidates) if time_ms <= timestamp_ms), default=-1)
        candidates = candidates[: last + 1]
    return sorted((offset for offset, _ in candidates[-max_count:]), reverse=True) if max_count > 0 else []


def _step(segment: LogSegment, timestamp_ms: int, start_offset: int) -> TimeStep | None:
    indexed = segment.time_index.lookup(timestamp_ms)
    start = segment.offset_index.lookup(max(indexed.offset, start_offset)).position
    for count, (position, header) in enumerate(segment.iter_batches(start)):
        next_offset = header.last_offset + 1
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
            data = _batch_bytes(segment, position, header)
            return TimeStep(BatchToSearch(data, header, timestamp_ms, start_offset), next_offset)
        if count >= HEADERS_AT_ONCE_MAX and next_offset > start_offset:
            return TimeStep(None, next_offset)
    return None


def _batch_bytes(segment: LogSegment, position: int, header: BatchHeader) -> bytes:
    return read_fully(segment.file().fd, position, header.size_bytes)
