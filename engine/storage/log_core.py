"""A log's state: its segments, its offsets, how it rolls and how it fails. What can be done with it builds on this.

Everything here runs on the broker's event loop; only the disk jobs it hands out run elsewhere.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

from engine.common.errors import ErrorCode, KafkaError, StorageError
from engine.common.model import TopicPartition
from engine.config.log_config import LogConfig
from engine.config.values import LONG_MAX
from engine.formats.partition_metadata import PARTITION_METADATA_FILE
from engine.formats.segment_files import SEGMENT_SUFFIXES
from engine.storage.active_segment import ActiveSegment
from engine.storage.cleaner.state import CleaningState
from engine.storage.disk_jobs import FlushJob, FlushOrder
from engine.storage.environment import LogEnvironment
from engine.storage.leader_epoch_cache import LeaderEpochCache
from engine.storage.placed_batches import AppendTerms
from engine.storage.producer_state import ProducerStateManager
from engine.storage.segment import LogSegment
from engine.storage.segment_list import SegmentList
from engine.storage.segment_paths import SegmentPaths

logger = logging.getLogger(__name__)


class LogCore:
    """State that all parts of ``Log`` share; see there."""

    __slots__ = (
        "_active",
        "_environment",
        "_flush_at_offset",
        "_flush_order",
        "_lowest_cut",
        "_rolled",
        "_segments",
        "_terms",
        "_truncations",
        "cleaning",
        "config",
        "dir",
        "first_unstable_offset",
        "has_unsettled_cut",
        "high_watermark",
        "is_end_unsynced",
        "is_entry_unsynced",
        "is_folder_unsynced",
        "is_metadata_unsynced",
        "is_offline",
        "is_retired",
        "last_flush_ms",
        "leader_epochs",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "on_start_moved",
        "producers",
        "recovery_point",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        folder: Path,
        config: LogConfig,
        environment: LogEnvironment,
        segments: SegmentList,
        leader_epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        topic_id: bytes | None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.dir = folder
        self.log_dir = folder.parent
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.log_start_offset = max(log_start_offset, segments.first.base_offset)
        self.log_end_offset = log_end_offset
        self.recovery_point = max(recovery_point, self.log_start_offset)
        self.high_watermark = self.log_start_offset
        self.first_unstable_offset: int | None = None
        self.on_start_moved: Callable[[], None] | None = None
        """Called when the log's start has moved; who leads the partition sets it."""
        self.is_offline = False
        self.is_retired = False
        """Deleted, or replaced by a copy in another log dir that has all its records."""
        self.is_metadata_unsynced = False
        self.has_unsettled_cut = False
        """It was cut below its recovery point. ``LogManager.settling_jobs`` come before the next append."""
        self.is_end_unsynced = False
        """The active segment was cut, or may have been by a recovery: it is to be flushed whatever it holds."""
        self.is_folder_unsynced = False
        """Files of the folder were made, renamed or removed since it was brought to the disk."""
        self.is_entry_unsynced = False
        """The folder was made or renamed since its log dir was brought to the disk."""
        self.cleaning = CleaningState()
        self._truncations = 0
        self._lowest_cut: int | None = None
        self._environment = environment
        self._segments = segments
        self.last_flush_ms = environment.clock.now_ms()
        self._flush_order = FlushOrder()
        self._rolled = [segment for segment in segments if segment.has_unsynced_index]
        """Segments that were rolled since the last flush: their indexes are not all on the disk."""
        self._active = ActiveSegment(segments.last, config)
        self._apply_config(config)
        self._refresh_first_unstable()

    def __repr__(self) -> str:
        return (
            f"Log(dir={self.dir}, high_watermark={self.high_watermark}, last_stable_offset={self.last_stable_offset}, "
            f"log_start_offset={self.log_start_offset}, log_end_offset={self.log_end_offset})"
        )

    # --- what it is

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments by base offset; the last is the active one."""
        return tuple(self._segments)

    @property
    def active_segment(self) -> LogSegment:
        """The segment that is appended to."""
        return self._active.segment

    def segments_between(self, start: int, end: int) -> list[LogSegment]:
        """Return the segment of offset ``start`` and those that follow, as far as they begin before ``end``."""
        return self._segments.between(start, end)

    def segment_of(self, offset: int) -> LogSegment:
        """Return the segment that ``offset`` belongs to; the first for what is before all."""
        return self._segments.floor(offset) or self._segments.first

    @property
    def first_segment_base_offset(self) -> int:
        return self._segments.first.base_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return self._segments.size_bytes

    @property
    def last_stable_offset(self) -> int:
        """Records before it belong to no open transaction, and are replicated."""
        unstable = self.first_unstable_offset
        return unstable if unstable is not None and unstable < self.high_watermark else self.high_watermark

    @property
    def unflushed_records(self) -> int:
        """Offsets that a crash of the machine may lose."""
        return self.log_end_offset - self.recovery_point

    @property
    def is_flush_due(self) -> bool:
        """Whether ``flush.messages`` is reached: whoever appended answers for the records after a flush only."""
        return self.log_end_offset >= self._flush_at_offset

    def update_config(self, config: LogConfig) -> None:
        """Take over changed settings of the topic."""
        self._active.update_config(config)
        self._apply_config(config)

    def _apply_config(self, config: LogConfig) -> None:
        self.config = config
        self._terms = AppendTerms.of(config)
        self._schedule_flush()

    # --- offsets

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, kept within the log, and return it."""
        bounded = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.high_watermark = bounded
        if self.producers.on_high_watermark(bounded):
            self._refresh_first_unstable()
        return bounded

    def _set_log_end_offset(self, offset: int) -> None:
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        if self.high_watermark > offset:
            self.update_high_watermark(offset)

    def _refresh_first_unstable(self) -> None:
        unstable = self.producers.first_unstable_offset
        self.first_unstable_offset = None if unstable is None else max(unstable, self.log_start_offset)

    def _schedule_flush(self) -> None:
        messages = self.config.flush_messages
        self._flush_at_offset = LONG_MAX if messages == LONG_MAX else self.recovery_point + messages

    # --- cuts

    @property
    def truncation_count(self) -> int:
        """How often the log was cut: what was read of it before and the next cut may be of another history."""
        return self._truncations

    def take_lowest_cut(self) -> int | None:
        """Return the lowest offset the log was cut to since the last call, None where it was not cut.

        For whoever copies the log: its copy is good up to there. A log that began anew was cut to 0.
        """
        lowest, self._lowest_cut = self._lowest_cut, None
        return lowest

    def _note_cut(self, offset: int) -> None:
        self._truncations += 1
        self.is_end_unsynced = True
        if offset < self.recovery_point:
            # A recovery that believed the old one would leave out what is written from here on.
            self.has_unsettled_cut = True
            self._environment.checkpoint_soon(self.log_dir)
        self.cleaning.on_cut(self.segment_of(offset).base_offset if offset else self.log_start_offset)
        self._lowest_cut = offset if self._lowest_cut is None else min(offset, self._lowest_cut)

    # --- segments

    def roll(self, next_offset: int | None = None) -> LogSegment:
        """Begin a new active segment at the log's end, or at ``next_offset`` where that is later.

        An empty active segment that begins there already stays. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        base_offset = max(self.log_end_offset, next_offset or 0)
        active = self._active.segment
        if active.size_bytes == 0 and active.base_offset == base_offset:
            return active
        if base_offset <= active.base_offset:
            raise StorageError(
                f"Trying to roll a new segment of {self.topic_partition} with start offset {base_offset}, which is not "
                f"beyond the active segment's {active.base_offset}",
                path=str(self.dir),
            )
        try:
            self._remove_leftovers(base_offset)
            active.become_inactive()
            segment = self._new_segment(base_offset)
            self.producers.map_end_offset = base_offset
            self.producers.take_snapshot(is_written_later=True)
        except OSError as error:
            raise self._storage_error("rolling a segment", error) from error
        self._rolled.append(active)
        self._segments.add(segment)
        self._active.replace(segment)
        logger.info("Rolled a new segment partition=%s base_offset=%d", self.topic_partition, base_offset)
        self._environment.flush_soon(self, base_offset)
        return segment

    def _new_segment(self, base_offset: int) -> LogSegment:
        segment = open_segment(
            self.dir, base_offset, 0, self.config, now_ms=self._environment.clock.now_ms(), has_transaction_index=False
        )
        segment.create_files(preallocated_bytes=self.config.segment_bytes if self.config.preallocate else 0)
        self.is_folder_unsynced = True
        return segment

    def _remove_leftovers(self, base_offset: int) -> None:
        paths = SegmentPaths(self.dir, base_offset)
        for path in (paths.path(kind) for kind in SEGMENT_SUFFIXES):
            if path.exists():
                logger.warning("A file of the new segment is there already and is deleted path=%s", path)
                path.unlink()

    # --- flush

    def begin_flush(self, offset: int | None = None, *, is_closing: bool = False) -> FlushJob | None:
        """Prepare to bring all before ``offset`` (the log's end by default) to the disk; None where it is there.

        The recovery point moves when the job is finished, unless the log was truncated meanwhile. A retired log has
        nothing left to flush. The active segment's indexes are written but not synced before it is rolled or closed:
        after a crash they are built anew in any case.
        """
        if self.is_retired:
            return None
        self._check_online()
        target = self.log_end_offset if offset is None else min(offset, self.log_end_offset)
        unflushed = self._segments.between(self.recovery_point, target)
        if self.is_end_unsynced and self._active.segment not in unflushed:
            unflushed.append(self._active.segment)
        indexed = self._unsynced_indexes(unflushed, target, is_closing=is_closing)
        try:
            files = [segment.file() for segment in unflushed]
            for segment in unflushed:
                segment.write_pending()
            paths = [path for segment in indexed for path in segment.write_pending()]
        except OSError as error:
            raise self._storage_error("flushing", error) from error
        paths += self._unsynced_paths()
        self.is_end_unsynced = False
        if not files and not paths:
            return None
        snapshots = self.producers.snapshots.pending
        state = (self._truncations, self.dir)
        what = f"flushing {self.topic_partition}"
        on_done = lambda: self._flushed(target, state, indexed)  # noqa: E731
        return FlushJob(
            self._environment,
            self.log_dir,
            what,
            files,
            snapshots,
            paths,
            on_done,
            self._flush_failed,
            self._flush_order,
        )

    def flush(self, offset: int | None = None) -> None:
        """Bring all before ``offset`` (the log's end by default) to the disk, here and now.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        job = self.begin_flush(offset)
        if job is not None:
            job.run()
            job.finish()
            job.raise_error()

    def _unsynced_indexes(self, unflushed: list[LogSegment], target: int, *, is_closing: bool) -> list[LogSegment]:
        """Return the segments before ``target`` whose indexes a crash would no longer have built anew."""
        last = [self._active.segment] if is_closing else []
        return [
            segment
            for segment in dict.fromkeys([*self._rolled, *unflushed, *last])
            if segment.has_unsynced_index
            and segment.base_offset < target
            and (is_closing or segment is not self._active.segment)
        ]

    def _unsynced_paths(self) -> list[Path]:
        """Return what beside the segments is not on the disk yet, and take it as if it were: small files, folders."""
        paths = self.producers.snapshots.take_unsynced()
        if self.leader_epochs.is_unsynced:
            paths.append(self.leader_epochs.path)
            self.leader_epochs.is_unsynced = False
        if self.is_metadata_unsynced:
            paths.append(self.dir / PARTITION_METADATA_FILE)
            self.is_metadata_unsynced = False
        if paths or self.is_folder_unsynced:
            paths.append(self.dir)
            self.is_folder_unsynced = False
        if self.is_entry_unsynced:
            paths.append(self.log_dir)
            self.is_entry_unsynced = False
        return paths

    def nothing_is_synced(self) -> None:
        """Note that nothing beside the records is known to be on the disk, whatever a flush under way achieves."""
        self.leader_epochs.is_unsynced = self.is_metadata_unsynced = True
        self.is_folder_unsynced = self.is_entry_unsynced = True
        self.producers.snapshots.nothing_is_synced()

    def _flush_failed(self) -> None:
        self.nothing_is_synced()
        self.is_end_unsynced = True

    def _flushed(self, offset: int, state: tuple[int, Path], indexed: list[LogSegment]) -> None:
        self.producers.snapshots.forget_written()
        if state != (self._truncations, self.dir):
            # What was cut meanwhile, or bears another name, was not flushed.
            return
        for segment in indexed:
            segment.has_unsynced_index = False
        self._rolled = [segment for segment in self._rolled if segment.has_unsynced_index]
        if offset > self.recovery_point:
            self.recovery_point = offset
            self.last_flush_ms = self._environment.clock.now_ms()
            self._schedule_flush()

    # --- failure

    def _storage_error(self, what: str, error: OSError) -> KafkaError:
        """Report that the log dir failed while ``what``, and return what to raise."""
        message = f"Error while {what} for {self.topic_partition} in dir {self.log_dir}: {error.strerror or error}"
        self._environment.fail_dir(self.log_dir, message, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def _check_online(self) -> None:
        if self.is_offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"The log dir {self.log_dir} of {self.topic_partition} is offline due to a previous failure",
            )


def open_segment(
    folder: Path,
    base_offset: int,
    size_bytes: int,
    config: LogConfig,
    *,
    now_ms: int,
    has_transaction_index: bool,
    suffix: str = "",
) -> LogSegment:
    """Return a segment whose files are there (or will be created)."""
    jitter_ms = random.randrange(min(config.segment_jitter_ms, config.segment_ms)) if config.segment_jitter_ms else 0
    return LogSegment(
        SegmentPaths(folder, base_offset, suffix),
        size_bytes,
        index_capacity_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        roll_jitter_ms=jitter_ms,
        created_ms=now_ms,
        has_transaction_index=has_transaction_index,
    )
