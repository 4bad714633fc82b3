"""The offset checkpoints of all log dirs: recovery points, log starts, high watermarks, first dirty offsets.

A deleted log leaves them before its deletion is reported, and a log is created only if none of them has its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from engine.broker.log.checkpoint_file import CheckpointFile
from engine.broker.log.disk_jobs import DiskJob
from engine.broker.log.environment import LogEnvironment
from engine.broker.log.log import Log
from engine.broker.log.log_dirs import LogDirs
from engine.broker.log.partition_folder import shared_path
from engine.common.model import TopicPartition
from engine.kafka.formats.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)


def _deleted_start(log: Log) -> int | None:
    """Return the log's start if the first segment does not imply it."""
    return log.log_start_offset if log.log_start_offset > log.first_segment_base_offset else None


def _recovery_point(log: Log) -> int:
    """Return where the next start begins to recover: a gap that no follower has cut off yet must be found again."""
    return log.recovery_point if log.gap is None else min(log.recovery_point, log.gap.offset)


_OFFSET_OF: Final[Mapping[str, Callable[[Log], int | None]]] = {
    RECOVERY_POINT_CHECKPOINT: _recovery_point,
    LOG_START_OFFSET_CHECKPOINT: _deleted_start,
    HIGH_WATERMARK_CHECKPOINT: lambda log: log.high_watermark,
    CLEANER_OFFSET_CHECKPOINT: lambda log: log.cleaning.first_dirty_offset,
}
"""For each file, the value of a log, None for no entry."""


class LogCheckpoints:
    """The checkpoint files of a broker's log dirs, made from the state of its logs when a job is created."""

    def __init__(
        self,
        environment: LogEnvironment,
        dirs: LogDirs,
        logs: Mapping[TopicPartition, Log],
        future_logs: Mapping[TopicPartition, Log],
    ) -> None:
        self._environment = environment
        self._dirs = dirs
        self._logs = logs
        self._future_logs = future_logs

    def jobs(self, path: Path) -> list[DiskJob]:
        """Return the jobs that write all checkpoints of a dir."""
        return [self.job(path, name) for name in _OFFSET_OF if self._is_worth_a_file(path, name)]

    def job(self, path: Path, name: str) -> DiskJob:
        """Return the job that writes one checkpoint of a dir."""
        return self._file(path, name).job(self._environment, self._offsets(path, name))

    def jobs_without(self, path: Path, topic_partitions: Collection[TopicPartition]) -> list[DiskJob]:
        """Return the jobs that write a dir's checkpoints which may still name these partitions, now without a log."""
        return [self.job(path, name) for name in _OFFSET_OF if self._file(path, name).names_any(topic_partitions)]

    def may_name(self, topic_partition: TopicPartition) -> bool:
        """Return whether a checkpoint of a live dir may still name the partition."""
        return any(
            topic_partition in file.names
            for path in self._dirs.live
            for file in self._dirs[path].checkpoint_files.values()
        )

    def settling_jobs(self, logs: Collection[Log]) -> list[DiskJob]:
        """Return the jobs that must reach the disk before anything is appended to logs that were cut.

        Otherwise a power failure could bring back what was cut, before or after the records appended since, and a
        recovery would begin beyond both.
        """
        cut = [log for log in logs if log.has_unsettled_cut]
        replays = [log.replay_job() for log in logs]
        flushes = [log.begin_flush() for log in cut]
        checkpoints = [self.job(path, RECOVERY_POINT_CHECKPOINT) for path in sorted({log.log_dir for log in cut})]
        return [*(job for job in (*replays, *flushes) if job is not None), *checkpoints]

    def _file(self, path: Path, name: str) -> CheckpointFile:
        return self._dirs[path].checkpoint_files[name]

    def _is_worth_a_file(self, path: Path, name: str) -> bool:
        """If no log was ever cleaned, nobody needs a file that says so."""
        return name != CLEANER_OFFSET_CHECKPOINT or bool(self._file(path, name).names or self._offsets(path, name))

    def _offsets(self, path: Path, name: str) -> dict[TopicPartition, int]:
        offset_of = _OFFSET_OF[name]
        found = ((log.topic_partition, offset_of(log)) for log in self.logs_in(path))
        return {topic_partition: offset for topic_partition, offset in found if offset is not None}

    def logs_in(self, path: Path) -> list[Log]:
        where = shared_path(path)
        return [log for logs in (self._logs, self._future_logs) for log in logs.values() if log.folder.log_dir is where]
