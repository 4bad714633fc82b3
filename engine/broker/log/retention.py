"""Retention: which segments at the beginning of a log are before its start offset, too old or too many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.broker.log.segment import LogSegment
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig


class RetainedLog(Protocol):
    """The part of a log that retention uses."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def config(self) -> LogConfig: ...

    @property
    def segments(self) -> tuple[LogSegment, ...]: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def drop_first_segments(self, count: int, why: str) -> None:
        """Remove the first segments from the log, which then starts after them."""


DROPPED_AT_ONCE_MAX = 50
"""Dropping a segment renames three files and more: 2,000 at once would hold the event loop for 0.2 s."""

IsDeletable = Callable[[LogSegment, LogSegment | None], bool]
"""Decides whether a segment may go, given the one that follows it; none follows the active segment."""


def delete_old_segments(log: RetainedLog, now_ms: int) -> int:
    """Drop segments that are before the log's start, too old or too many; return how many.

    Of very many it drops some: whoever gets ``DROPPED_AT_ONCE_MAX`` or more calls again.

    Only segments wholly below the high watermark go. Their files follow after ``file.delete.delay.ms``.

    Raises:
        OSError: the disk fails.
        KafkaError: KAFKA_STORAGE_ERROR if the disk fails.
    """
    deleted = _delete_from_start(log, _is_before(log.log_start_offset), "its records are before the log start offset")
    if log.config.is_deleted_by_retention:
        deleted += _delete_by_size(log)
        deleted += _delete_by_time(log, now_ms)
    return deleted


def _is_before(log_start_offset: int) -> IsDeletable:
    return lambda _, following: following is not None and following.base_offset <= log_start_offset


def _delete_by_size(log: RetainedLog) -> int:
    retention_bytes = log.config.retention_bytes
    excess_bytes = log.size_bytes - retention_bytes
    if retention_bytes < 0 or excess_bytes < 0:
        return 0

    def is_excess(segment: LogSegment, _: LogSegment | None) -> bool:
        nonlocal excess_bytes
        if excess_bytes < segment.size_bytes:
            return False
        excess_bytes -= segment.size_bytes
        return True

    return _delete_from_start(log, is_excess, f"the log is larger than retention.bytes={retention_bytes}")


def _delete_by_time(log: RetainedLog, now_ms: int) -> int:
    retention_ms = log.config.retention_ms
    if retention_ms < 0:
        return 0
    why = f"its records are older than retention.ms={retention_ms}"
    return _delete_from_start(log, lambda segment, _: now_ms - segment.largest_timestamp_ms() > retention_ms, why)


def _delete_from_start(log: RetainedLog, is_deletable: IsDeletable, why: str) -> int:
    """Drop the leading segments that are ``is_deletable``; the active one only if it has records."""
    segments = log.segments
    count = 0
    for segment, following in zip(segments, (*segments[1:], None), strict=True):
        end_offset = log.log_end_offset if following is None else following.base_offset
        if log.high_watermark < end_offset or (following is None and segment.size_bytes == 0):
            break
        if count == DROPPED_AT_ONCE_MAX or not is_deletable(segment, following):
            break
        count += 1
    if count:
        log.drop_first_segments(count, why)
    return count
