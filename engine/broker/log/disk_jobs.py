"""Slow disk work: ``run`` in any thread, then ``finish`` on the event loop.

``run`` touches only the data from the job's creation, and never raises an OSError: ``finish`` finds it and tells the
keeper that the log dir failed, or takes over the result. A job that is finished before its run has ended (its waiter
was cancelled) counts as not done.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from engine.broker.log.file_range import OpenFile
from engine.broker.log.producer_snapshots import PendingSnapshot
from engine.broker.log.small_files import sync_path
from engine.common.errors import ErrorCode, KafkaError
from engine.runtime.descriptors import is_out_of_descriptors

Opened = TypeVar("Opened")

NEXT_TRY_MS = 1000
"""The delay before another try to remove something."""


class DirKeeper(Protocol):
    """The owner of the log dirs in which jobs work."""

    def fail_dir(self, log_dir: Path, message: str, error: OSError) -> None:
        """Note that a log dir cannot be used any more. Called on the event loop; must not raise."""

    def delete_later(self, log_dir: Path, paths: list[Path], delay_ms: int) -> None:
        """Remove files, which have been renamed already, after ``delay_ms``."""


class DiskJob(Protocol):
    """One piece of slow work."""

    @property
    def error(self) -> OSError | None:
        """Why the run failed."""

    def run(self) -> None:
        """Do the work. It may take as long as the disk does; safe in any thread."""

    def finish(self) -> None:
        """Take over the result on the event loop."""


def run_jobs(jobs: Iterable[DiskJob]) -> None:
    """Do jobs here and now, one after the other."""
    for job in jobs:
        job.run()
        job.finish()


class LogDirJob:
    """A job in one log dir. It keeps the error of a run for its finish."""

    __slots__ = ("_has_run", "_keeper", "_log_dir", "_what", "error")

    def __init__(self, keeper: DirKeeper, log_dir: Path, what: str) -> None:
        self._keeper = keeper
        self._log_dir = log_dir
        self._what = what
        self.error: OSError | None = None
        self._has_run = False

    def run(self) -> None:
        try:
            self._work()
        except OSError as error:
            self.error = error
        self._has_run = True

    def finish(self) -> None:
        if self.error is not None:
            self._keeper.fail_dir(self._log_dir, f"Error while {self._what}", self.error)
        elif self._has_run:
            self._done()

    def _work(self) -> None:
        """Overridden: the slow part."""

    def _done(self) -> None:
        """Overridden if there is a result to take over."""


class FlushOrder:
    """Separates the flushes of one log. After one has failed, none succeeds.

    The system reports a failed write to one ``fsync`` only: the next would claim success.
    """

    __slots__ = ("error", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.error: OSError | None = None


class FlushJob(LogDirJob):
    """Writes a log's producer snapshots and brings its files to the disk; then the log's recovery point moves."""

    __slots__ = ("_files", "_on_done", "_on_failed", "_order", "_paths", "_snapshots")

    def __init__(
        self,
        keeper: DirKeeper,
        log_dir: Path,
        what: str,
        files: list[OpenFile],
        snapshots: Sequence[PendingSnapshot],
        paths: list[Path],
        on_done: Callable[[], None],
        on_failed: Callable[[], None],
        order: FlushOrder,
    ) -> None:
        super().__init__(keeper, log_dir, what)
        self._on_failed = on_failed
        self._order = order
        self._files = files
        self._snapshots = snapshots
        self._paths = paths
        self._on_done = on_done

    def finish(self) -> None:
        super().finish()
        if self.error is not None:
            self._on_failed()

    def raise_error(self) -> None:
        """Raise KafkaError KAFKA_STORAGE_ERROR if the run failed: the records must not be acknowledged then."""
        if self.error is not None:
            message = f"Error while {self._what} in dir {self._log_dir}: {self.error.strerror or self.error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from self.error

    def _work(self) -> None:
        with self._order.lock:
            if self._order.error is not None:
                raise self._order.error
            try:
                self._sync()
            except OSError as error:
                if not is_out_of_descriptors(error):
                    self._order.error = error
                raise

    def _sync(self) -> None:
        for snapshot in self._snapshots:
            # If the folder is being renamed, the next flush syncs it.
            with contextlib.suppress(FileNotFoundError):
                snapshot.write()
        for file in self._files:
            os.fsync(file.fd)
        for path in self._paths:
            sync_path(path)

    def _done(self) -> None:
        self._on_done()


class SyncJob(LogDirJob):
    """Brings folders to the disk, in this order."""

    __slots__ = ("_on_done", "_paths")

    def __init__(self, keeper: DirKeeper, log_dir: Path, paths: Sequence[Path], on_done: Callable[[], None]) -> None:
        super().__init__(keeper, log_dir, f"flushing {', '.join(map(str, paths))}")
        self._paths = paths
        self._on_done = on_done

    def _work(self) -> None:
        for path in self._paths:
            sync_path(path)

    def _done(self) -> None:
        self._on_done()


class CreateJob(LogDirJob, Generic[Opened]):
    """Opens or creates partition folders in one log dir, after the jobs that have to come ``first``."""

    __slots__ = ("_first", "_folders", "_load", "_on_done", "_opened")

    def __init__(
        self,
        keeper: DirKeeper,
        log_dir: Path,
        folders: list[Path],
        load: Callable[[Path], Opened],
        on_done: Callable[[list[Opened]], None],
        first: Sequence[DiskJob],
    ) -> None:
        super().__init__(keeper, log_dir, f"creating logs in {log_dir}")
        self._first = first
        self._folders = folders
        self._load = load
        self._on_done = on_done
        self._opened: list[Opened] = []

    def _work(self) -> None:
        for job in self._first:
            job.run()
            if job.error is not None:
                raise job.error
        for folder in self._folders:
            self._opened.append(self._load(folder))

    def _done(self) -> None:
        for job in self._first:
            job.finish()
        self._on_done(self._opened)


class DeleteJob(LogDirJob):
    """Removes files, and folders that are empty then."""

    __slots__ = ("_left", "_paths")

    def __init__(self, keeper: DirKeeper, log_dir: Path, paths: list[Path]) -> None:
        super().__init__(keeper, log_dir, f"deleting {', '.join(map(str, paths[:3]))}")
        self._paths = paths
        self._left: list[Path] = []

    def finish(self) -> None:
        super().finish()
        if self._left:
            self._keeper.delete_later(self._log_dir, self._left, NEXT_TRY_MS)

    def _work(self) -> None:
        for number, path in enumerate(self._paths):
            try:
                self._remove(path)
            except OSError as error:
                # A cleaning that is not cancelled yet may put one more file into a folder.
                if error.errno != errno.ENOTEMPTY and not is_out_of_descriptors(error):
                    raise
                self._left = self._paths[number:]
                return

    def _remove(self, path: Path) -> None:
        if path.is_dir():
            for inner in path.iterdir():
                inner.unlink(missing_ok=True)
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
