"""Logs that copies in other log dirs have replaced, until the change is on both disks.

The names change on two disks, and a power failure may undo either change. So the old log's folder keeps its name
until the new log's name is on its disk, and the new log keeps its mark until the old log's rename is on its disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.common.errors import StorageError
from engine.common.model import TopicPartition
from engine.storage.disk_jobs import DirKeeper, DiskJob, SyncJob
from engine.storage.log import Log

logger = logging.getLogger("kafka.log.LogManager")

MOVED_MARK: Final = "moved-from-another-log-dir"
"""Name of an empty file in the folder of a replica that has just moved. It stays until the old folder is renamed."""


def is_moved(log: Log) -> bool:
    """Return whether the log has the mark: another dir may hold an older folder of the replica."""
    return (log.dir / MOVED_MARK).exists()


def unmark_moved(log: Log) -> None:
    """Remove the mark. A mark that cannot be removed does no harm."""
    try:
        (log.dir / MOVED_MARK).unlink(missing_ok=True)
        log.folder.is_unsynced = True
    except OSError as error:
        logger.warning("The mark of a moved replica could not be removed path=%s: %s", log.dir / MOVED_MARK, error)


def choose_of_two(one: Log, other: Log) -> tuple[Log, Log]:
    """Of a replica's two folders, return the one that counts, then the leftover.

    A move left it over, or it has no record: its dir failed while the log was created in it, so the log was created
    elsewhere.

    Raises:
        StorageError: neither reason applies.
    """
    if is_moved(one) == is_moved(other):
        if other.log_end_offset == 0:
            one, other = other, one
        if one.log_end_offset == 0:
            logger.warning("Deleting a second folder of %s, which has no records dir=%s", one.topic_partition, one.dir)
            return other, one
        raise StorageError(
            f"Duplicate log directories for {one.topic_partition} are found in both {other.dir} and {one.dir}. "
            "Delete the one in the log dir that is known to have failed recently.",
            path=str(other.dir),
        )
    chosen, left_over = (one, other) if is_moved(one) else (other, one)
    logger.warning(
        "A move between log dirs of %s was cut off at its very end; it counts as done kept=%s deleted=%s",
        one.topic_partition,
        chosen.dir,
        left_over.dir,
    )
    return chosen, left_over


@dataclass(slots=True)
class _Replaced:
    old: Log
    new: Log
    keeps_mark: bool
    is_new_synced: bool = False
    is_old_renamed: bool = False

    def new_is_synced(self) -> None:
        self.is_new_synced = True


class ReplacedLogs:
    """All replacements under way, by partition."""

    def __init__(self, keeper: DirKeeper, retire: Callable[[Log], None]) -> None:
        self._keeper = keeper
        self._retire = retire
        self._logs: dict[TopicPartition, _Replaced] = {}

    def add(self, old: Log, new: Log, *, keeps_mark: bool) -> None:
        """Take a log out of use; ``keeps_mark`` if the replica may have yet another folder somewhere."""
        old.is_retired = True
        old.abandon()
        self._logs[old.topic_partition] = _Replaced(old, new, keeps_mark)

    def jobs(self, topic_partition: TopicPartition | None = None) -> Iterator[DiskJob]:
        """Yield the jobs for all partitions, or for one. The caller must do each job before it asks for the next."""
        for name in list(self._logs) if topic_partition is None else [topic_partition]:
            one = self._logs.get(name)
            if one is not None:
                yield from self._jobs(one)

    def _jobs(self, one: _Replaced) -> Iterator[DiskJob]:
        name, new_dir, old_dir = one.old.topic_partition, one.new.log_dir, one.old.log_dir
        if not one.is_new_synced:
            yield SyncJob(self._keeper, new_dir, [one.new.dir, new_dir], one.new_is_synced)
        if self._logs.get(name) is not one or not one.is_new_synced:
            return
        if not one.is_old_renamed:
            one.is_old_renamed = True
            self._rename(one)
        if self._logs.get(name) is one:
            yield SyncJob(self._keeper, old_dir, [old_dir], lambda: self._end(one))

    def _rename(self, one: _Replaced) -> None:
        try:
            self._retire(one.old)
        except Exception as error:
            # Usually its dir is offline by now. The mark stays, and shows the next start which log counts.
            self._logs.pop(one.old.topic_partition, None)
            logger.warning("The replaced log of %s could not be renamed", one.old.topic_partition, exc_info=error)

    def _end(self, one: _Replaced) -> None:
        if self._logs.get(one.old.topic_partition) is one:
            del self._logs[one.old.topic_partition]
            if not one.keeps_mark:
                unmark_moved(one.new)

    def give_up(self, topic_partition: TopicPartition) -> None:
        """Delete the old folder at once: the new one is being deleted too."""
        one = self._logs.pop(topic_partition, None)
        if one is not None and not one.is_old_renamed:
            self._rename(one)

    def dir_failed(self, log_dir: Path) -> None:
        """React to a failed log dir. If the new log is gone, the old one must not come back in its place."""
        for name, one in list(self._logs.items()):
            if one.old.log_dir == log_dir:
                del self._logs[name]
            elif one.new.log_dir == log_dir:
                self.give_up(name)
