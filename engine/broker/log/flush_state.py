"""How much of a log is on disk, and what the next flush has to bring there.

It alone keeps this state. The log reports rolls, cuts and moves of its start; code that flushes asks it for a job.
``DueFlushes`` are the flushes that no request waits for: after rolls, and by ``flush.ms``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.broker.log.disk_jobs import DiskJob, FlushJob, FlushOrder
from engine.broker.log.environment import Flushable, LogEnvironment
from engine.broker.log.leader_epoch_cache import LeaderEpochCache
from engine.broker.log.partition_folder import PartitionFolder
from engine.broker.log.producer_snapshots import ProducerSnapshots
from engine.broker.log.segment import LogSegment
from engine.broker.log.segment_list import SegmentList
from engine.kafka.config.log_config import LogConfig
from engine.kafka.config.values import LONG_MAX

logger = logging.getLogger(__name__)


class FlushState:
    """The recovery point of one log, and which changes of the log a power failure could still undo."""

    __slots__ = (
        "_environment",
        "_flush_messages",
        "_folder",
        "_leader_epochs",
        "_order",
        "_rolled",
        "_segments",
        "_snapshots",
        "cuts",
        "due_at_offset",
        "is_end_unsynced",
        "last_flush_ms",
        "recovery_point",
    )

    def __init__(
        self,
        folder: PartitionFolder,
        segments: SegmentList,
        leader_epochs: LeaderEpochCache,
        snapshots: ProducerSnapshots,
        environment: LogEnvironment,
        config: LogConfig,
        recovery_point: int,
    ) -> None:
        self._folder = folder
        self._segments = segments
        self._leader_epochs = leader_epochs
        self._snapshots = snapshots
        self._environment = environment
        self._order = FlushOrder()
        self._rolled = [segment for segment in segments if segment.has_unsynced_index]
        """Segments that were rolled since the last flush: their indexes are not all on disk."""
        self.cuts = 0
        """How often the log was cut. A flush that began before a cut says nothing about the current content."""
        self.recovery_point = recovery_point
        """All records before it are on disk."""
        self.is_end_unsynced = False
        """The active segment was cut, or a recovery may have cut it: a flush includes it whatever it holds."""
        self.last_flush_ms = environment.clock.now_ms()
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        self._flush_messages = config.flush_messages
        self._schedule()

    def _schedule(self) -> None:
        messages = self._flush_messages
        self.due_at_offset = LONG_MAX if messages == LONG_MAX else self.recovery_point + messages

    # --- what the log reports

    def on_roll(self, segment: LogSegment) -> None:
        """Note that ``segment`` is no longer appended to."""
        self._rolled.append(segment)

    def on_start(self, offset: int) -> None:
        """Note that the log now starts at ``offset``: nothing before it needs a flush."""
        self.is_end_unsynced |= offset > self.recovery_point
        self.recovery_point = max(self.recovery_point, offset)
        self._schedule()

    def on_cut(self) -> None:
        """Note that records are about to be cut off the end."""
        self.cuts += 1
        self.is_end_unsynced = True

    def on_end(self, offset: int) -> None:
        """Note that the log ends at ``offset`` after a cut."""
        self.recovery_point = min(self.recovery_point, offset)
        self._schedule()

    def begin_anew(self, offset: int) -> None:
        """Note that the log is empty and continues at ``offset``."""
        self.recovery_point = offset
        self._schedule()

    def nothing_is_synced(self) -> None:
        """Note that nothing besides the records is known to be on disk, whatever a flush under way achieves."""
        self._leader_epochs.is_unsynced = True
        self._folder.nothing_is_synced()
        self._snapshots.nothing_is_synced()

    # --- flushes

    def begin(self, target: int, *, is_closing: bool) -> FlushJob | None:
        """Prepare to bring everything before ``target`` to the disk; None if it is there already. Raises OSError.

        The recovery point moves when the job is finished, unless the log was cut meanwhile. The active segment's
        indexes are written but not synced before it is rolled or closed: after a crash they are rebuilt in any case.
        """
        unflushed = self._segments.between(self.recovery_point, target)
        if self.is_end_unsynced and self._segments.last not in unflushed:
            unflushed.append(self._segments.last)
        indexed = self._unsynced_indexes(unflushed, target, is_closing=is_closing)
        files = [segment.file() for segment in unflushed]
        for segment in unflushed:
            segment.write_pending()
        paths = [path for segment in indexed for path in segment.write_pending()]
        paths += self._unsynced_paths()
        self.is_end_unsynced = False
        if not files and not paths:
            return None
        state = (self.cuts, self._folder.path)
        return FlushJob(
            self._environment,
            self._folder.log_dir,
            f"flushing {self._folder.topic_partition}",
            files,
            self._snapshots.pending,
            paths,
            lambda: self._done(target, state, indexed),
            self._failed,
            self._order,
        )

    def _unsynced_indexes(self, unflushed: list[LogSegment], target: int, *, is_closing: bool) -> list[LogSegment]:
        """Return the segments before ``target`` whose indexes a crash would no longer have rebuilt."""
        active = self._segments.last
        last = [active] if is_closing else []
        return [
            segment
            for segment in dict.fromkeys([*self._rolled, *unflushed, *last])
            if segment.has_unsynced_index and segment.base_offset < target and (is_closing or segment is not active)
        ]

    def _unsynced_paths(self) -> list[Path]:
        """Return the small files and folders that are not on disk yet, and count them as if they were."""
        paths = self._snapshots.take_unsynced()
        if self._leader_epochs.is_unsynced:
            paths.append(self._leader_epochs.path)
            self._leader_epochs.is_unsynced = False
        return self._folder.take_unsynced(paths)

    def _failed(self) -> None:
        self.nothing_is_synced()
        self.is_end_unsynced = True

    def _done(self, offset: int, state: tuple[int, Path], indexed: list[LogSegment]) -> None:
        self._snapshots.forget_written()
        if state != (self.cuts, self._folder.path):
            # If the log was cut or renamed meanwhile, that was not flushed.
            return
        for segment in indexed:
            segment.has_unsynced_index = False
        self._rolled = [segment for segment in self._rolled if segment.has_unsynced_index]
        if offset > self.recovery_point:
            self.recovery_point = offset
            self.last_flush_ms = self._environment.clock.now_ms()
            self._schedule()


class DueFlushes:
    """The logs to flush, each up to an offset."""

    def __init__(self) -> None:
        self._logs: dict[int, tuple[Flushable, int]] = {}

    def add(self, log: Flushable, offset: int) -> None:
        """Put a log on the list."""
        self._logs[id(log)] = (log, offset)

    def jobs(self, logs: Iterable[Flushable], now_ms: int) -> Iterator[DiskJob]:
        """Yield the flush of each log on the list, and of those of ``logs`` whose ``flush.ms`` is over.

        Each begins only when the iterator reaches it, because it holds files open: do one before the next. One that
        cannot begin stays on the list.
        """
        wanted = list(self._logs.values())
        self._logs.clear()
        for log in logs:
            flush_ms = log.config.flush_ms
            if flush_ms != LONG_MAX and log.unflushed_records and now_ms - log.last_flush_ms >= flush_ms:
                wanted.append((log, log.log_end_offset))
        for log, offset in wanted:
            try:
                job = None if log.is_offline else log.begin_flush(offset)
            except Exception as error:
                # Whatever is wrong with one log, the others are flushed.
                logger.warning("A log could not be flushed partition=%s", log.topic_partition, exc_info=error)
                self._logs.setdefault(id(log), (log, offset))
                continue
            if job is not None:
                yield job
