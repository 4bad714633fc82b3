"""A broker's ``log.dirs``: the lock, checkpoint files and identity of each, which are usable, and whose they are."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from engine.broker.log.checkpoint_file import CheckpointFile
from engine.broker.log.disk_jobs import DiskJob, SyncJob
from engine.broker.log.environment import LogEnvironment
from engine.broker.log.small_files import remove_temporary_files, replace_file, sync_path
from engine.common.errors import CorruptFileError, StorageError
from engine.common.model import TopicPartition
from engine.common.topic_names import CLUSTER_METADATA_TOPIC
from engine.kafka.formats.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    decode_offset_checkpoint,
)
from engine.kafka.formats.clean_shutdown import CLEAN_SHUTDOWN_FILE, encode_clean_shutdown
from engine.kafka.formats.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    check_meta_properties,
    decode_meta_properties,
    encode_meta_properties,
)

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"

_NOT_REPLICAS = ("remote-log-index-cache", f"{CLUSTER_METADATA_TOPIC}-0")
"""Folders of Kafka's tiered storage and of KRaft. Kafka in ZooKeeper mode leaves them alone."""

OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)

_locked_here: set[tuple[int, int]] = set()
"""Device and inode of the lock files that this process holds: the system does not lock out the same process."""


class LogDir:
    """A log dir with ``log_count`` logs.

    ``had_clean_shutdown`` and ``is_loaded`` decide whether the next stop may be called clean.
    """

    __slots__ = (
        "_lock_fd",
        "_lock_key",
        "checkpoint_files",
        "had_clean_shutdown",
        "is_loaded",
        "is_online",
        "log_count",
        "path",
        "renames",
        "renames_synced",
    )

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_online = True
        self.log_count = 0
        self.is_loaded = False
        self.had_clean_shutdown = False
        self.renames = 1
        """How often a folder in here was renamed, and how many of these renames are on disk. It begins with one
        pending: a killed broker may have left some."""
        self.renames_synced = 0
        self.checkpoint_files = {name: CheckpointFile(path / name) for name in OFFSET_CHECKPOINTS}
        self._lock_fd = -1
        self._lock_key = (0, 0)

    def prepare(self) -> None:
        """Create the dir if it does not exist.

        Raises:
            OSError: it cannot be created or read.
        """
        if not self.path.exists():
            logger.info("A log dir does not exist and is created path=%s", self.path)
            self.path.mkdir(parents=True)
            sync_path(self.path.parent)
        if not self.path.is_dir() or not os.access(self.path, os.R_OK | os.X_OK):
            raise NotADirectoryError(f"{self.path} is not a readable log directory")

    # --- lock

    def lock(self) -> None:
        """Lock the dir for this process, also against Kafka brokers.

        Raises:
            StorageError: another broker has it.
            OSError: the disk fails.
        """
        fd = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        status = os.fstat(fd)
        key = (status.st_dev, status.st_ino)
        try:
            if key in _locked_here:
                raise BlockingIOError
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            if key not in _locked_here:
                os.close(fd)
            raise StorageError(
                f"Failed to acquire lock on file .lock in {self.path}. A broker in another process or thread is using "
                "this directory; stop it first, or give this broker a log dir of its own.",
                path=str(self.path),
            ) from error
        remove_temporary_files(self.path)
        _locked_here.add(key)
        self._lock_fd, self._lock_key = fd, key

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            _locked_here.discard(self._lock_key)
            os.close(self._lock_fd)
            self._lock_fd = -1

    def renamed(self, renames: int) -> None:
        """Note that this many renames are on disk."""
        self.renames_synced = max(renames, self.renames_synced)

    # --- identity

    def read_meta_properties(self) -> MetaProperties | None:
        """Return what ``meta.properties`` says, or None if there is none; CorruptFileError if it is damaged."""
        path = self.path / META_PROPERTIES_FILE
        try:
            text = path.read_text("iso-8859-1")
        except FileNotFoundError:
            return None
        return decode_meta_properties(text, str(path))

    def write_meta_properties(self, properties: MetaProperties, now_ms: int) -> None:
        """Write ``meta.properties`` and sync it."""
        replace_file(self.path / META_PROPERTIES_FILE, encode_meta_properties(properties, now_ms), sync=True)

    # --- checkpoints

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Return a checkpoint file's offsets; a damaged file is reported and counts as empty.

        Kafka does the same for recovery points and log start offsets. Without a high watermark a partition starts with
        its log start offset, and learns the right one from the in-sync replicas.
        """
        path = self.path / name
        try:
            offsets = decode_offset_checkpoint(path.read_text("utf-8"), str(path))
        except FileNotFoundError:
            return {}
        except (CorruptFileError, UnicodeDecodeError) as error:
            logger.warning("A checkpoint file is damaged, its offsets are taken as unknown path=%s: %s", path, error)
            return {}
        self.checkpoint_files[name].names = frozenset(offsets)
        return offsets

    # --- clean shutdown

    def take_clean_shutdown_mark(self) -> bool:
        """Return whether the last stop was orderly; remove the mark, because a crash may come before the next stop."""
        path = self.path / CLEAN_SHUTDOWN_FILE
        self.had_clean_shutdown = path.exists()
        if self.had_clean_shutdown:
            path.unlink(missing_ok=True)
            # If the machine crashes, the mark must not reappear: nothing would be recovered.
            sync_path(self.path)
        return self.had_clean_shutdown

    def write_clean_shutdown_mark(self) -> None:
        """Note that all logs of the dir were flushed and closed."""
        path = self.path / CLEAN_SHUTDOWN_FILE
        path.write_text(encode_clean_shutdown(), "utf-8")
        sync_path(path)

    def partition_folders(self) -> list[Path]:
        """Return the folders in the dir, which should all be partitions'; files and what Kafka skips are left out."""
        with os.scandir(self.path) as entries:
            return sorted(Path(e.path) for e in entries if e.is_dir() and e.name not in _NOT_REPLICAS)


FailDir = Callable[[Path, str, OSError], None]
"""Takes a log dir offline: the dir, the operation, and why it failed."""


class LogDirs:
    """The log dirs by path, in the order of ``log.dirs``."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises StorageError if a dir is named twice."""
        if len({path.resolve() for path in paths}) < len(paths):
            raise StorageError(f"Duplicate log directory found: {', '.join(map(str, paths))}")
        self._dirs = {path.absolute(): LogDir(path.absolute()) for path in paths}

    def __getitem__(self, path: Path) -> LogDir:
        return self._dirs[path]

    def __contains__(self, path: Path) -> bool:
        return path in self._dirs

    @property
    def live(self) -> list[Path]:
        return [path for path, log_dir in self._dirs.items() if log_dir.is_online]

    @property
    def offline(self) -> list[Path]:
        return [path for path, log_dir in self._dirs.items() if not log_dir.is_online]

    @property
    def by_load(self) -> list[Path]:
        """Usable dirs, that with the fewest logs first; equals in the order of ``log.dirs``."""
        return sorted(self.live, key=lambda path: self._dirs[path].log_count)

    def open(self, fail_dir: FailDir) -> None:
        """Create and lock the dirs.

        Raises:
            StorageError: one is in use by another broker, or none can be used.
        """
        for path, log_dir in self._dirs.items():
            try:
                log_dir.prepare()
                log_dir.lock()
            except OSError as error:
                fail_dir(path, "Failed to create, validate or lock the log dir", error)
            except StorageError:
                self.release()
                raise
        self.check_any_is_live()

    def check_any_is_live(self) -> None:
        """Raise StorageError if no dir is usable: the broker needs at least one."""
        if not self.live:
            raise StorageError(f"None of the log dirs can be used: {', '.join(map(str, self._dirs))}")

    def release(self) -> None:
        for log_dir in self._dirs.values():
            log_dir.unlock()

    def renaming_jobs(self, environment: LogEnvironment) -> list[DiskJob]:
        """Return jobs that sync dirs whose folders were renamed, even if another one is under way."""
        return [
            SyncJob(environment, path, [path], partial(log_dir.renamed, log_dir.renames))
            for path, log_dir in self._dirs.items()
            if log_dir.is_online and log_dir.renames_synced < log_dir.renames
        ]

    def check_identity(
        self, cluster_id: str | None, broker_id: int | None, fail_dir: FailDir
    ) -> tuple[str | None, int | None]:
        """Check ``meta.properties`` of all dirs; return cluster and broker id as they are known now.

        Raises:
            ConfigError: a dir belongs to another broker or cluster, in Kafka's words.
            CorruptFileError: a file is damaged.
        """
        by_path: dict[str, MetaProperties] = {}
        for path in self.live:
            try:
                properties = self._dirs[path].read_meta_properties()
            except OSError as error:
                fail_dir(path, "Disk error while reading meta.properties", error)
                continue
            if properties is not None:
                by_path[str(path / META_PROPERTIES_FILE)] = properties
        return check_meta_properties(by_path, cluster_id=cluster_id, broker_id=broker_id)

    def write_identity(self, cluster_id: str, broker_id: int, now_ms: int, fail_dir: FailDir) -> None:
        """Write ``meta.properties`` if it is missing or incomplete."""
        for path in self.live:
            log_dir = self._dirs[path]
            try:
                old = log_dir.read_meta_properties() or MetaProperties()
                new = MetaProperties(0, broker_id, cluster_id, old.directory_id)
                if new != old:
                    log_dir.write_meta_properties(new, now_ms)
            except OSError as error:
                fail_dir(path, "Disk error while writing meta.properties", error)

    def mark_clean(self, path: Path, fail_dir: FailDir) -> None:
        """Mark a dir as cleanly closed."""
        try:
            self._dirs[path].write_clean_shutdown_mark()
        except OSError as error:
            fail_dir(path, "Error while writing the clean-shutdown mark", error)
