"""Lets the tests' JVMs map an archive of the classes that they load. A pytest plugin.

It saves a third of a start of ZooKeeper and half of one of Spark. The first start makes the archive, in pytest's
folder; Spark's is made beside the tests, and none waits for it. ZooKeepers of ``tests/local`` start as a user's do.
Apache Kafka has its own archives, in `apache_kafka.py`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.common.errors import OperationError
from engine.local.addresses import own_loopback_address
from engine.local.java import find_java
from engine.local.zookeeper import EmbeddedZooKeeper
from engine.local.zookeeper_jars import zookeeper_classpath

SPARK_PROGRAM = Path(__file__).with_name("spark_classes.py")

_OF_SPARK = ("tests/spark/", "tests/interop/test_spark", "tests/interop/test_hdfs")
"""The tests that start several JVMs of Spark. The others would not win back the minute of CPU that an archive takes."""


def _path(folder: Path, *words: str) -> Path:
    """Return the file for this machine's Java, and for ``words``: what the archive depends on beside it."""
    program = find_java().program.resolve()
    name = hashlib.sha256(f"{program} {program.stat().st_mtime_ns} {words}".encode()).hexdigest()[:16]
    return folder / f"{name}.jsa"


class ZooKeeperArchive:
    """The classes of ZooKeeper."""

    def __init__(self, folder: Path) -> None:
        self.path = _path(folder, zookeeper_classpath())
        self._has_failed = False
        self._is_making = False

    def is_there(self) -> bool:
        """Make it unless it is there. False while another process makes it, or if it cannot be made."""
        if not self.path.exists() and not self._has_failed and not self._is_making:
            self._is_making = True
            with self._alone() as is_alone:
                if is_alone and not self.path.exists():
                    self._has_failed = not self._made()
            self._is_making = False
        return self.path.exists()

    def _made(self) -> bool:
        new = self.path.with_suffix(".new")
        try:
            server = EmbeddedZooKeeper(host=own_loopback_address(), java_options=(f"-XX:ArchiveClassesAtExit={new}",))
            server.start()
            server.stop(60)
            new.rename(self.path)
        except (OperationError, OSError):
            return False
        return True

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        with self.path.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True


class SparkArchive:
    """The classes of Spark. A program makes the archive while tests run, and the JVMs that start later map it."""

    def __init__(self, folder: Path) -> None:
        where = find_spec("pyspark")
        assert where is not None
        self._path = _path(folder, version("pyspark"), str(where.origin), SPARK_PROGRAM.read_text())
        self._making: subprocess.Popen[bytes] | None = None
        if not self._path.exists():
            words = [sys.executable, str(SPARK_PROGRAM), str(self._path)]
            nowhere = subprocess.DEVNULL
            self._making = subprocess.Popen(words, stdout=nowhere, stderr=nowhere, start_new_session=True)

    def options(self) -> str:
        """Return what a JVM gets. One that finds no archive, or one of another Java, says nothing of it."""
        return f"-Xlog:disable -XX:SharedArchiveFile={self._path}"

    def close(self) -> None:
        """End the program, with its JVM, if it still runs."""
        if self._making is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._making.pid, signal.SIGKILL)
            self._making.wait()


class _Plugin:
    def __init__(self, folder: Path) -> None:
        self.zookeeper = ZooKeeperArchive(folder)
        self.starts_as_users_do = False
        self._spark: SparkArchive | None = None
        self._folder = folder

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.starts_as_users_do = item.nodeid.startswith("tests/local/")
        if item.nodeid.startswith(_OF_SPARK) and self._spark is None and find_spec("pyspark"):
            self._spark = SparkArchive(self._folder)
            # Spark gives these words to each JVM of a driver.
            os.environ["SPARK_SUBMIT_OPTS"] = self._spark.options()

    def pytest_unconfigure(self) -> None:
        if self._spark is not None:
            self._spark.close()


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config, "cache", None) is None:
        return
    # Not where ``-o cache_dir`` says: all targets of a CI run share the archives.
    folder = config.rootpath / ".pytest_cache" / "classes"
    folder.mkdir(parents=True, exist_ok=True)
    plugin = _Plugin(folder)
    config.pluginmanager.register(plugin)
    own_options = EmbeddedZooKeeper._java_options

    def java_options(self: EmbeddedZooKeeper) -> list[str]:
        is_mapped = not plugin.starts_as_users_do and plugin.zookeeper.is_there()
        return [*own_options(self), *([f"-XX:SharedArchiveFile={plugin.zookeeper.path}"] if is_mapped else [])]

    EmbeddedZooKeeper._java_options = java_options  # type: ignore[method-assign]
