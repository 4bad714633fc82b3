"""Which log to clean next, and how far: Kafka's rules.

A log may be cleaned up to its active segment, its last stable offset, and the first segment with a record younger than
``min.compaction.lag.ms``; whole segments only. It is due if more than ``min.cleanable.dirty.ratio`` of that is dirty,
or a dirty record is older than ``max.compaction.lag.ms``. Source: LogCleanerManager of Kafka 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from engine.broker.log.log import Log
from engine.kafka.config.values import LONG_MAX

logger = logging.getLogger("kafka.log.LogCleaner")


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log, and the part of it that is dirty: ``[first_dirty_offset, first_uncleanable_offset)``."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    compaction_delay_ms: int
    """By how many milliseconds its oldest dirty record exceeds ``max.compaction.lag.ms``."""

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        if self.compaction_delay_ms > 0 and self.cleanable_bytes > 0:
            return True
        return self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio


def may_be_cleaned(log: Log) -> bool:
    """Whether the cleaner may touch the log at all.

    It needs the last record of every producer. A log that was cut may have to read these first, which takes seconds:
    it is cleaned in a later round.
    """
    state = log.cleaning
    return log.config.is_compacted and not (
        state.is_in_progress or state.is_uncleanable or log.is_offline or log.is_retired or log.has_stale_producers
    )


def measure(log: Log, now_ms: int) -> LogToClean:
    """Measure which part of a log is dirty and may be cleaned; reset a checkpoint that the log contradicts.

    Raises:
        OSError: the disk fails.
    """
    first_dirty_offset = _first_dirty_offset(log)
    if log.cleaning.first_dirty_offset is not None:
        log.cleaning.first_dirty_offset = first_dirty_offset
    bound = max(_uncleanable_from(log, first_dirty_offset, now_ms), first_dirty_offset)
    floor = log.segment_of(bound)
    first_uncleanable_offset = floor.base_offset
    dirty = log.segments_between(min(first_dirty_offset, first_uncleanable_offset), first_uncleanable_offset)
    return LogToClean(
        log,
        first_dirty_offset,
        first_uncleanable_offset,
        sum(segment.size_bytes for segment in log.segments_between(0, first_dirty_offset)),
        sum(segment.size_bytes for segment in dirty),
        _compaction_delay_ms(log, first_dirty_offset, now_ms),
    )


def filthiest(candidates: Iterable[LogToClean]) -> LogToClean | None:
    """Return the log with the largest dirty share among those that are due."""
    due = [candidate for candidate in candidates if candidate.is_due]
    return max(due, key=lambda log: log.cleanable_ratio, default=None)


def _first_dirty_offset(log: Log) -> int:
    checkpoint, start = log.cleaning.first_dirty_offset, log.log_start_offset
    if checkpoint is None:
        return start
    if checkpoint < start:
        if not log.config.is_deleted_by_retention:
            logger.warning(
                "Resetting first dirty offset of %s to log start offset %d since the checkpointed offset %d is "
                "invalid.",
                log.dir.name,
                start,
                checkpoint,
            )
        return start
    if checkpoint > log.log_end_offset:
        logger.warning(
            "The last checkpoint dirty offset for partition %s is %d, which is larger than the log end offset %d. "
            "Resetting to the log start offset %d.",
            log.dir.name,
            checkpoint,
            log.log_end_offset,
            start,
        )
        return start
    return checkpoint


def _uncleanable_from(log: Log, first_dirty_offset: int, now_ms: int) -> int:
    bound = min(log.last_stable_offset, log.active_segment.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in log.segments_between(first_dirty_offset, log.active_segment.base_offset):
            if segment.largest_timestamp_ms() > now_ms - lag_ms:
                return min(bound, segment.base_offset)
    return bound


def _compaction_delay_ms(log: Log, first_dirty_offset: int, now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= LONG_MAX - now_ms:
        return 0
    dirty = log.segments_between(first_dirty_offset, log.active_segment.base_offset)
    oldest_ms = min((ms for ms in (segment.first_batch_timestamp_ms() for segment in dirty) if ms > 0), default=now_ms)
    return max(now_ms - lag_ms - oldest_ms, 0)
