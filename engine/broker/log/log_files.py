"""Creates, replaces, removes, renames and closes the files of a log's segments, and keeps their place in the log."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from pathlib import Path

from engine.broker.log.environment import LogEnvironment
from engine.broker.log.partition_folder import PartitionFolder
from engine.broker.log.producer_snapshots import ProducerSnapshots
from engine.broker.log.segment import LogSegment
from engine.broker.log.segment_list import SegmentList
from engine.broker.log.segment_swap import NewSegment, swap_in
from engine.common.errors import StorageError
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.log_dir_names import CLEANED_SUFFIX, DELETED_SUFFIX, SEGMENT_SUFFIXES, SegmentPaths

logger = logging.getLogger(__name__)


class LogFiles:
    """The segments of one log as files of its folder. Methods raise OSError if the disk fails."""

    __slots__ = ("_environment", "_folder", "_segments", "_snapshots", "config")

    def __init__(
        self,
        folder: PartitionFolder,
        segments: SegmentList,
        snapshots: ProducerSnapshots,
        config: LogConfig,
        environment: LogEnvironment,
    ) -> None:
        self._folder = folder
        self._segments = segments
        self._snapshots = snapshots
        self._environment = environment
        self.config = config
        """The topic's settings; a change replaces this value."""

    def add(self, base_offset: int) -> LogSegment:
        """Create an empty segment. Existing files of that name are deleted."""
        self._remove_leftovers(base_offset)
        segment = open_segment(
            self._folder.path,
            base_offset,
            0,
            self.config,
            now_ms=self._environment.clock.now_ms(),
            has_transaction_index=False,
        )
        segment.create_files(preallocated_bytes=self.config.segment_bytes if self.config.preallocate else 0)
        self._folder.is_unsynced = True
        self._segments.add(segment)
        return segment

    def _remove_leftovers(self, base_offset: int) -> None:
        paths = SegmentPaths(self._folder.path, base_offset)
        for path in (paths.path(kind) for kind in SEGMENT_SUFFIXES):
            if path.exists():
                logger.warning("A file of the new segment exists already and is deleted path=%s", path)
                path.unlink()

    def remove(self, segments: Sequence[LogSegment]) -> None:
        """Remove segments and their snapshots from the log; the files go after ``file.delete.delay.ms``."""
        paths: list[Path] = []
        self._folder.is_unsynced = True
        for segment in segments:
            self._segments.remove(segment)
            segment.change_suffix(DELETED_SUFFIX)
            segment.close_file()
            paths += segment.file_paths()
            paths += self._snapshot_to_delete(segment.base_offset)
        self._delete_later(paths)

    def replace(self, replaced: Sequence[LogSegment], new: Sequence[NewSegment]) -> list[LogSegment]:
        """Replace segments by the ``.cleaned`` files that were made from them; return the new segments.

        Raises:
            StorageError: the files are not there; nothing is changed.
        """
        cleaned = [self._cleaned_segment(segment) for segment in new]
        bases = {segment.base_offset for segment in cleaned}
        self._folder.is_unsynced = True
        paths = swap_in(cleaned, list(replaced))
        for segment in replaced:
            self._segments.remove(segment)
            if segment.base_offset not in bases:
                paths += self._snapshot_to_delete(segment.base_offset)
        for segment in cleaned:
            self._segments.add(segment)
        self._delete_later(paths)
        return cleaned

    def _cleaned_segment(self, new: NewSegment) -> LogSegment:
        segment = open_segment(
            self._folder.path,
            new.base_offset,
            new.size_bytes,
            self.config,
            now_ms=self._environment.clock.now_ms(),
            has_transaction_index=new.has_transaction_index,
            suffix=CLEANED_SUFFIX,
        )
        if not segment.path.exists() or segment.path.stat().st_size != new.size_bytes:
            raise StorageError("The cleaned segment is not what was reported", path=str(segment.path))
        return segment

    def _snapshot_to_delete(self, base_offset: int) -> list[Path]:
        snapshot = self._snapshots.mark_deleted(base_offset)
        return [] if snapshot is None else [snapshot]

    def _delete_later(self, paths: list[Path]) -> None:
        self._environment.delete_later(self._folder.log_dir, paths, self.config.file_delete_delay_ms)

    def follow_rename(self) -> None:
        """Follow a rename of the folder."""
        for segment in self._segments:
            segment.move_to(self._folder.path)

    def release_idle(self) -> None:
        """Close files that were not used since the last call."""
        for segment in self._segments:
            segment.release_idle()

    def close(self) -> None:
        """Complete and trim the indexes, and close all files."""
        for segment in self._segments:
            segment.close()

    def abandon(self) -> None:
        """Close all files as they are."""
        for segment in self._segments:
            segment.close_file()


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
    """Return a segment whose files exist (or will be created)."""
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
