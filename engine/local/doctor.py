"""Checks what klamm needs on this machine, and says how to get what is missing. Changes nothing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from engine.common.errors import OperationError
from engine.common.quantities import size_text
from engine.local.java import find_java
from engine.local.zookeeper_jars import find_zookeeper_jars

OPEN_FILES_MIN = 4096
"""Below this a broker with a few hundred partitions and clients runs out of file descriptors."""

DISK_FREE_MIN_BYTES = 2 * 1024**3


class CheckStatus(StrEnum):
    OK = "ok"
    OPTIONAL = "optional"
    """Missing, and only some things need it."""
    MISSING = "missing"
    """Missing, and klamm's main uses need it."""
    FAILED = "failed"
    """A step on the way to a cluster that does not work."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing checked. ``needed_for`` says what does not work without it, ``how_to_get`` how to fix that."""

    name: str
    status: CheckStatus
    found: str
    needed_for: str
    how_to_get: str | None = None


def examine(data_dir: Path) -> list[Check]:
    """Return all checks, in the order in which a newcomer would fix them."""
    return [
        _python(),
        *_libraries(),
        *_local_cluster(),
        _open_files(),
        _disk(data_dir),
        _program("kcat", ["kcat", "-V"], "trying the cluster with another client", "apt install kcat"),
        _program("mvn", ["mvn", "-v"], "comparing with Apache Kafka (make interop)", "apt install maven"),
    ]


def _python() -> Check:
    version = ".".join(str(part) for part in sys.version_info[:3])
    is_good = sys.version_info >= (3, 11)
    how = None if is_good else "install Python 3.11 or newer and create the environment again"
    return Check("python", CheckStatus.OK if is_good else CheckStatus.MISSING, version, "everything", how)


_EXTRAS = {"pyspark": "'klamm[spark]'", "pyarrow": "'klamm[spark]'", "highspy": "'klamm[plan]'"}
"""Packages that come with an extra."""


def _libraries() -> Iterator[Check]:
    for package, needed_for, is_required in (
        ("kazoo", "everything that reads ZooKeeper", True),
        ("crc32c", "produce, consume, brokers", True),
        ("cramjam", "compressed records", True),
        ("uvloop", "a faster event loop in brokers", False),
        ("pyspark", "Spark jobs; its wheel also carries ZooKeeper's jars", False),
        ("pyarrow", "Spark jobs, and Parquet files", False),
        ("highspy", "plans with the fewest moves, proven so", False),
    ):
        if importlib.util.find_spec(package) is None:
            status = CheckStatus.MISSING if is_required else CheckStatus.OPTIONAL
            extra = _EXTRAS.get(package, package)
            yield Check(package, status, "not installed", needed_for, f"pip install {extra}")
        else:
            yield Check(package, CheckStatus.OK, importlib.metadata.version(package), needed_for)


def _local_cluster() -> Iterator[Check]:
    needed_for = "local up, zookeeper start"
    if sys.platform != "linux":
        how = "use a Linux machine or a container for these"
        yield Check("linux", CheckStatus.OPTIONAL, f"this is {sys.platform}", needed_for, how)
        return
    yield _probe("java", _java, needed_for)
    yield _probe("zookeeper jars", _zookeeper_jars, needed_for)


def _probe(name: str, probe: Callable[[], str], needed_for: str) -> Check:
    try:
        return Check(name, CheckStatus.OK, probe(), needed_for)
    except OperationError as error:
        return Check(name, CheckStatus.MISSING, str(error), needed_for, error.hint)


def _java() -> str:
    java = find_java()
    return f"{java.major} ({java.program}, from {java.found_in})"


def _zookeeper_jars() -> str:
    jars = find_zookeeper_jars()
    named = next((jar for jar in jars if jar.name.startswith("zookeeper-")), None)
    return f"{named.name} ({named.parent})" if named else "not here yet: mvn fetches them (7 MB) at the first start"


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_enough = hard == resource.RLIM_INFINITY or hard >= OPEN_FILES_MIN
    limits = f"{_limit(soft)} (hard limit {_limit(hard)})"
    how = None if is_enough else f"raise the hard limit to {OPEN_FILES_MIN} or more: ulimit -Hn, limits.conf"
    status = CheckStatus.OK if is_enough else CheckStatus.OPTIONAL
    return Check("open files", status, limits, "brokers with many partitions and clients", how)


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _disk(data_dir: Path) -> Check:
    place = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    usage = shutil.disk_usage(place)
    is_writable = os.access(place, os.W_OK)
    is_good = usage.free >= DISK_FREE_MIN_BYTES and is_writable
    room = f"{size_text(usage.free)} free in {place}" + ("" if is_writable else ", not writable")
    how = None if is_good else "free some space, or choose another folder: klamm local up --dir DIR"
    return Check("disk", CheckStatus.OK if is_good else CheckStatus.OPTIONAL, room, "local up", how)


def _program(name: str, command: list[str], needed_for: str, how_to_get: str) -> Check:
    path = shutil.which(command[0])
    if path is None:
        return Check(name, CheckStatus.OPTIONAL, "not found", needed_for, how_to_get)
    try:
        ran = subprocess.run([path, *command[1:]], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name, CheckStatus.OPTIONAL, f"{path} does not run: {error}", needed_for, how_to_get)
    version = re.search(r"\d+\.\d[\w.-]*", ran.stdout + ran.stderr)
    return Check(name, CheckStatus.OK, f"{version[0]} ({path})" if version else path, needed_for)
