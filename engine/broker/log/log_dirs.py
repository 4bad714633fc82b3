"""A broker's ``log.dirs`` together: opens and locks them, and knows which are usable and whose they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from engine.broker.log.disk_jobs import DiskJob, SyncJob
from engine.broker.log.environment import LogEnvironment
from engine.broker.log.log_dir import LogDir
from engine.common.errors import StorageError
from engine.kafka.formats.meta_properties import META_PROPERTIES_FILE, MetaProperties, check_meta_properties

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
