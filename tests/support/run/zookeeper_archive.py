"""Lets the tests' ZooKeepers map an archive of their loaded classes, which saves a third of a start. A pytest plugin.

The first start of a run makes the archive, in pytest's cache. Those of ``tests/local`` start as a user's do.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.common.errors import OperationError
from engine.local.addresses import own_loopback_address
from engine.local.java import find_java
from engine.local.zookeeper import EmbeddedZooKeeper
from engine.local.zookeeper_jars import zookeeper_classpath

_java_options = EmbeddedZooKeeper._java_options


class Archive:
    """The archive for this machine's Java and ZooKeeper."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._option: tuple[str, ...] | None = None
        self.is_used = True

    def options(self) -> Sequence[str]:
        """Return the option of Java; none while another process makes the archive, or if it cannot be made."""
        if not self.is_used:
            return ()
        if self._option is None:
            java = find_java()
            words = f"{java.program.resolve()} {java.program.stat().st_mtime_ns} {zookeeper_classpath()}"
            path = self._folder / f"{hashlib.sha256(words.encode()).hexdigest()[:16]}.jsa"
            if not path.exists() and not self._made(path):
                return ()
            self._option = (f"-XX:SharedArchiveFile={path}",)
        return self._option

    def _made(self, path: Path) -> bool:
        with (self._folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            new = path.with_suffix(".new")
            self.is_used = False
            try:
                if not path.exists():
                    server = EmbeddedZooKeeper(
                        host=own_loopback_address(), java_options=(f"-XX:ArchiveClassesAtExit={new}",)
                    )
                    server.start()
                    server.stop(60)
                    new.rename(path)
            except (OperationError, OSError):
                self._option = ()
                return False
            finally:
                self.is_used = True
        return True


class _Plugin:
    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._archive.is_used = not item.nodeid.startswith("tests/local/")


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config, "cache", None) is None:
        return
    archive = Archive(config.cache.mkdir("zookeeper"))
    config.pluginmanager.register(_Plugin(archive))

    def java_options(self: EmbeddedZooKeeper) -> list[str]:
        return [*_java_options(self), *archive.options()]

    EmbeddedZooKeeper._java_options = java_options  # type: ignore[method-assign]
