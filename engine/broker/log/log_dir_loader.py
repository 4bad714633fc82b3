"""Opens all partitions of the log dirs at the start.

It loads cleanly closed dirs one after the other, because opening is all Python. It recovers the others in threads,
``num.recovery.threads.per.data.dir`` for each dir: there the disk and the checksums take most of the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engine.broker.log.environment import LogEnvironment
from engine.broker.log.log import Log
from engine.broker.log.log_dirs import LogDir
from engine.broker.log.log_loader import Checkpoints, load_log
from engine.common.errors import CorruptFileError
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from engine.kafka.formats.log_dir_names import LogDirKind, parse_log_dir_name

logger = logging.getLogger(__name__)

Loaded = tuple[Path, Log | OSError]
"""A log dir, and one of its logs or why the dir failed."""


@dataclass(frozen=True, slots=True)
class LogDirLoader:
    environment: LogEnvironment
    topic_config: Callable[[str], LogConfig]
    recovery_threads: int
    delete_delay_ms: int

    def load(self, log_dirs: list[LogDir]) -> Iterator[Loaded]:
        """Yield every log of the dirs, or once the error of a dir that failed.

        Raises:
            StorageError: a dir holds a folder that is not a partition's.
        """
        clock = self.environment.clock
        started_ms = clock.monotonic_ms()
        count = 0
        dirs = [_Dir(self, log_dir) for log_dir in log_dirs]
        try:
            for log_dir in dirs:
                yield from log_dir.begin()
            for log_dir in dirs:
                for loaded in log_dir.results():
                    count += isinstance(loaded[1], Log)
                    yield loaded
        finally:
            for log_dir in dirs:
                log_dir.stop()
        logger.info("Loaded all logs count=%d elapsed_ms=%d", count, clock.monotonic_ms() - started_ms)


class _Dir:
    """One log dir being loaded."""

    def __init__(self, loader: LogDirLoader, log_dir: LogDir) -> None:
        self._loader = loader
        self._dir = log_dir
        self._pool: ThreadPoolExecutor | None = None
        self._loads: list[Callable[[], Log]] = []
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_start_offsets: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._first_dirty_offsets: dict[TopicPartition, int] = {}

    def begin(self) -> Iterator[Loaded]:
        """Read the dir's own files, and start threads if it must be recovered; yields only a failure."""
        log_dir = self._dir
        try:
            is_clean = log_dir.take_clean_shutdown_mark()
            self._recovery_points = log_dir.read_checkpoint(RECOVERY_POINT_CHECKPOINT)
            self._log_start_offsets = log_dir.read_checkpoint(LOG_START_OFFSET_CHECKPOINT)
            self._high_watermarks = log_dir.read_checkpoint(HIGH_WATERMARK_CHECKPOINT)
            self._first_dirty_offsets = log_dir.read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
            folders = [folder for folder in log_dir.partition_folders() if self._is_wanted(folder)]
        except OSError as error:
            yield log_dir.path, error
            return
        logger.info("Loading a log dir path=%s logs=%d clean_shutdown=%s", log_dir.path, len(folders), is_clean)
        if is_clean:
            self._loads = [partial(self._load, folder) for folder in folders]
        else:
            self._pool = ThreadPoolExecutor(self._loader.recovery_threads, thread_name_prefix="log-recovery")
            self._loads = [self._pool.submit(self._load, folder).result for folder in folders]

    def results(self) -> Iterator[Loaded]:
        """Yield the logs as they are loaded; ends at the first failure."""
        for number, load in enumerate(self._loads, start=1):
            try:
                log = load()
            except (OSError, CorruptFileError) as error:
                yield self._dir.path, error if isinstance(error, OSError) else OSError(str(error))
                return
            level = logging.DEBUG if self._dir.had_clean_shutdown else logging.INFO
            logger.log(level, "Loaded %r segments=%d done=%d/%d", log, len(log.segments), number, len(self._loads))
            yield self._dir.path, log
        self._dir.is_loaded = True

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _is_wanted(self, folder: Path) -> bool:
        _, kind = parse_log_dir_name(folder.name)
        if kind is LogDirKind.DELETE:
            self._loader.environment.delete_later(self._dir.path, [folder], self._loader.delete_delay_ms)
        elif kind is LogDirKind.STRAY:
            logger.warning("A stray partition is left as it is; remove it by hand when sure path=%s", folder)
        return kind in (LogDirKind.CURRENT, LogDirKind.FUTURE)

    def _load(self, folder: Path) -> Log:
        topic_partition, _ = parse_log_dir_name(folder.name)
        checkpoints = Checkpoints(
            log_start_offset=self._log_start_offsets.get(topic_partition, 0),
            recovery_point=self._recovery_points.get(topic_partition, 0),
            had_clean_shutdown=self._dir.had_clean_shutdown,
            is_cleaned=topic_partition in self._first_dirty_offsets,
        )
        config = self._loader.topic_config(topic_partition.topic)
        log = load_log(folder, config, self._loader.environment, checkpoints)
        if log.log_start_offset >= checkpoints.log_start_offset:
            # Otherwise the checkpoints belong to an earlier topic of this name.
            log.update_high_watermark(self._high_watermarks.get(topic_partition, 0))
            log.cleaning.first_dirty_offset = self._first_dirty_offsets.get(topic_partition)
        return log
