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

from engine.broker.log.disk_jobs import DirKeeper, DiskJob, SyncJob
from engine.broker.log.log import Log
from engine.common.errors import StorageError
from engine.common.model import TopicPartition

logger = logging.getLogger("kafka.log.LogManager")

MOVED_MARK: Final = "moved-from-another-log-dir"
"""Name of a file in the folder of a replica that has just moved. It stays until the old folder is renamed.

It holds how many older folders of the replica there may be in other dirs: if one of them has the mark too, it holds
less.
"""


def older_folders(log: Log) -> int:
    """Return how many older folders of the replica there may be in other dirs: 0 if the log has no mark.

    Raises:
        OSError: the mark cannot be read.
    """
    try:
        text = (log.dir / MOVED_MARK).read_text("utf-8")
    except FileNotFoundError:
        return 0
    # Earlier versions left it empty.
    return int(text) if text.isdecimal() else 1


def mark_moved(current: Log, future: Log) -> Path:
    """Mark a log that is about to replace another one; return the mark. Raises OSError."""
    mark = future.dir / MOVED_MARK
    mark.write_text(str(older_folders(current) + 1), "utf-8")
    future.folder.is_unsynced = True
    return mark


def unmark_moved(log: Log) -> None:
    """Remove the mark. A mark that cannot be removed does no harm."""
    try:
        (log.dir / MOVED_MARK).unlink(missing_ok=True)
        log.folder.is_unsynced = True
    except OSError as error:
        logger.warning("The mark of a moved replica could not be removed path=%s: %s", log.dir / MOVED_MARK, error)


def choose_of_two(log: Log, other: Log) -> tuple[Log, Log]:
    """Of a replica's two folders, return the one that counts, then the leftover.

    A move left it over, or it has no record: its dir failed while the log was created in it, so the log was created
    elsewhere.

    Raises:
        StorageError: neither reason applies.
    """
    if older_folders(log) == older_folders(other):
        if other.log_end_offset == 0:
            log, other = other, log
        if log.log_end_offset == 0:
            logger.warning("Deleting a second folder of %s, which has no records dir=%s", log.topic_partition, log.dir)
            return other, log
        raise StorageError(
            f"Duplicate log directories for {log.topic_partition} are found in both {other.dir} and {log.dir}. "
            "Delete the log in the log dir that is known to have failed recently.",
            path=str(other.dir),
        )
    left_over, chosen = sorted((log, other), key=older_folders)
    logger.warning(
        "A move between log dirs of %s was cut off at its very end; it counts as done kept=%s deleted=%s",
        log.topic_partition,
        chosen.dir,
        left_over.dir,
    )
    return chosen, left_over


@dataclass(slots=True, eq=False)
class _Replaced:
    old: Log
    new: Log
    keeps_mark: bool
    is_new_synced: bool = False
    is_old_renamed: bool = False

    def new_is_synced(self) -> None:
        self.is_new_synced = True


class ReplacedLogs:
    """All replacements under way. A start may find several older folders of one partition."""

    def __init__(self, keeper: DirKeeper, retire: Callable[[Log], None]) -> None:
        self._keeper = keeper
        self._retire = retire
        self._all: list[_Replaced] = []

    def add(self, old: Log, new: Log, *, keeps_mark: bool) -> None:
        """Take a log out of use; ``keeps_mark`` if the replica may have yet another folder somewhere."""
        old.is_retired = True
        old.abandon()
        self._all.append(_Replaced(old, new, keeps_mark))

    def jobs(self, topic_partition: TopicPartition | None = None) -> Iterator[DiskJob]:
        """Yield the jobs for all partitions, or for one. The caller must do each job before it asks for the next."""
        for replaced in list(self._all):
            if topic_partition in (None, replaced.old.topic_partition) and replaced in self._all:
                yield from self._jobs(replaced)

    def _jobs(self, replaced: _Replaced) -> Iterator[DiskJob]:
        new_dir, old_dir = replaced.new.log_dir, replaced.old.log_dir
        if not replaced.is_new_synced:
            yield SyncJob(self._keeper, new_dir, [replaced.new.dir, new_dir], replaced.new_is_synced)
        if replaced not in self._all or not replaced.is_new_synced:
            return
        if not replaced.is_old_renamed:
            replaced.is_old_renamed = True
            self._rename(replaced)
        if replaced in self._all:
            yield SyncJob(self._keeper, old_dir, [old_dir], lambda: self._end(replaced))

    def _rename(self, replaced: _Replaced) -> None:
        try:
            self._retire(replaced.old)
        except Exception as error:
            # Usually its dir is offline by now. The mark stays, and shows the next start which log counts.
            self._forget(replaced)
            logger.warning("The replaced log of %s could not be renamed", replaced.old.topic_partition, exc_info=error)

    def _end(self, replaced: _Replaced) -> None:
        if self._forget(replaced) and not replaced.keeps_mark:
            unmark_moved(replaced.new)

    def give_up(self, topic_partition: TopicPartition) -> None:
        """Delete the old folder at once: the new one is being deleted too."""
        for replaced in [replaced for replaced in self._all if replaced.old.topic_partition == topic_partition]:
            self._give_up(replaced)

    def dir_failed(self, log_dir: Path) -> None:
        """React to a failed log dir. If the new log is gone, the old one must not come back in its place."""
        for replaced in list(self._all):
            if replaced.old.log_dir == log_dir:
                self._forget(replaced)
            elif replaced.new.log_dir == log_dir:
                self._give_up(replaced)

    def _give_up(self, replaced: _Replaced) -> None:
        if self._forget(replaced) and not replaced.is_old_renamed:
            self._rename(replaced)

    def _forget(self, replaced: _Replaced) -> bool:
        """Drop a replacement; return whether it was still under way."""
        if replaced not in self._all:
            return False
        self._all.remove(replaced)
        return True
