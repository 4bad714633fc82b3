"""One cleaning as the broker's event loop sees it: frozen into a plan, then each finished group put in its place.

Everything that a plan depends on may change while the process works: the log may be truncated, deleted or moved to
another dir, or its dir may fail. ``is_valid`` checks this at each report of the process, so nothing has to notify it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

from engine.broker.log.cleaner.choice import LogToClean
from engine.broker.log.cleaner.messages import (
    CleaningLimits,
    CleaningPlan,
    GroupCleaned,
    LastOfProducer,
    SegmentToClean,
)
from engine.broker.log.segment import LogSegment
from engine.common.model import TopicPartition

logger = logging.getLogger("kafka.log.LogCleaner")

RATE_MAX = 1e18
"""No bound, without the infinity that JSON and clocks cannot express."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """Names are Kafka's keys without ``log.cleaner.``. ``threads`` are processes here, which share the rest."""

    enable: bool = True
    threads: int = 1
    dedupe_buffer_size: int = 134_217_728
    io_buffer_size: int = 524_288
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = RATE_MAX
    backoff_ms: int = 15_000

    @property
    def map_bytes(self) -> int:
        """How many bytes one key map may take."""
        return max(int(self.dedupe_buffer_size / max(self.threads, 1) * self.io_buffer_load_factor), 1)

    @property
    def buffer_bytes(self) -> int:
        """How much one process reads or writes at once; it has one buffer for reads and one for writes."""
        return max(self.io_buffer_size // max(self.threads, 1) // 2, 4096)

    @property
    def bytes_per_second(self) -> float:
        """How much one process may read and write per second."""
        return max(min(self.io_max_bytes_per_second / max(self.threads, 1), RATE_MAX), 1.0)


class CleaningJob:
    """A log that is being cleaned. It is marked as such from the creation of the job until ``end``."""

    def __init__(
        self, chosen: LogToClean, settings: CleanerSettings, future_logs: Collection[TopicPartition], now_ms: int
    ) -> None:
        """``future_logs`` are the partitions that are moving to another log dir, which are left alone.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        self.log = chosen.log
        self.log_name = chosen.log.dir.name
        self.chosen = chosen
        self._future_logs = future_logs
        self._truncations = chosen.log.truncation_count
        self._segments: dict[int, LogSegment] = {}
        self.plan = self._freeze(settings, now_ms)
        self.log.cleaning.is_in_progress = True

    def _freeze(self, settings: CleanerSettings, now_ms: int) -> CleaningPlan:
        log, end_offset = self.log, self.chosen.first_uncleanable_offset
        segments = log.segments_between(0, end_offset)
        self._segments = {segment.base_offset: segment for segment in segments}
        bases = [*self._segments, end_offset]
        config = log.config
        return CleaningPlan(
            folder=str(log.dir),
            now_ms=now_ms,
            first_dirty_offset=self.chosen.first_dirty_offset,
            first_uncleanable_offset=end_offset,
            segments=tuple(SegmentToClean(*pair) for pair in pairwise(bases)),
            aborted=tuple(log.collect_aborted_transactions(bases[0], end_offset)),
            producers={
                entry.producer_id: LastOfProducer(entry.last_offset, entry.producer_epoch)
                for entry in log.producers.producers.values()
            },
            limits=CleaningLimits(
                segment_bytes=config.segment_bytes,
                segment_index_bytes=config.segment_index_bytes,
                index_interval_bytes=config.index_interval_bytes,
                delete_retention_ms=config.delete_retention_ms,
                map_bytes=settings.map_bytes,
                io_buffer_bytes=settings.buffer_bytes,
                io_bytes_per_second=settings.bytes_per_second,
            ),
        )

    @property
    def is_valid(self) -> bool:
        """Whether the log still matches the plan."""
        log = self.log
        return not (
            log.is_offline
            or log.is_retired
            or not log.config.is_compacted
            or log.truncation_count != self._truncations
            or log.topic_partition in self._future_logs
            or any(log.segment_of(base) is not segment for base, segment in self._segments.items())
        )

    def swap(self, group: GroupCleaned) -> None:
        """Replace the source segments by the cleaned ones. Only while ``is_valid``.

        Raises:
            StorageError: the files are not there; nothing is changed.
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        replaced = [self._segments.pop(base_offset) for base_offset in group.base_offsets]
        cleaned = self.log.replace_segments(replaced, group.new)
        logger.info(
            "Swapped in cleaned segment(s) %r for %d segment(s) in log %s", cleaned, len(replaced), self.log_name
        )

    def end(self, end_offset: int | None) -> None:
        """Note that the log is clean up to ``end_offset``; None if the cleaning failed."""
        state = self.log.cleaning
        state.is_in_progress = False
        if end_offset is not None and self.is_valid:
            state.first_dirty_offset = end_offset
            state.crashes = 0
