"""The JVM through which a Python process of a job reaches Hadoop's file systems: all that Spark knows there.

The driver uses the session's. A worker has none, so it starts a small one, with its executor's Java and class path, and
with the settings of the driver's session. That JVM ends with the worker.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from functools import cache
from importlib import util
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JVM_WORDS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_shared: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()
_received: list[bytes] = []


def share_settings(spark: SparkSession) -> None:
    """Let tasks reach what the session reaches: send Hadoop's settings with each of them from now on."""
    context = spark.sparkContext
    if context not in _shared:
        text = context._jvm.java.io.StringWriter()  # type: ignore[union-attr]
        context._jsc.hadoopConfiguration().writeXml(text)
        _shared[context] = zlib.compress(text.toString().encode())


def shared_settings(spark: SparkSession) -> bytes | None:
    """Return what to send with a task; None if no task needs it."""
    return _shared.get(spark.sparkContext)


def receive_settings(settings: bytes) -> None:
    """Keep what came with a task, for the JVM of this process."""
    _received[:] = [settings]


def hadoop() -> tuple[Any, Any]:
    """Return a JVM and Hadoop's configuration in it.

    Raises:
        OSError: it does not start.
    """
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    return _of_worker() if context is None else (context._jvm, context._jsc.hadoopConfiguration())


@cache
def _of_worker() -> tuple[Any, Any]:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkFiles

    java = java_of_worker()
    # Spark puts the jars of a job there, those of --packages too.
    places = [*java.class_path.split(os.pathsep), f"{SparkFiles.getRootDirectory()}/*"]
    # What py4j wants to see: it is in Spark's own jars.
    existing = (place for place in (Path(java.folder, place.rstrip("*")) for place in places) if place.exists())
    if user := os.environ.get("SPARK_USER"):
        os.environ.setdefault("HADOOP_USER_NAME", user)
    try:
        jvm = JavaGateway.launch_gateway(
            jarpath=str(next(existing)), classpath=os.pathsep.join(places), javaopts=[*_JVM_WORDS, *java.words],
            java_path=java.program, cwd=java.folder, die_on_exit=True, enable_auth=True,
        ).jvm  # fmt: skip
    except Exception as error:
        raise OSError(f"the JVM for Hadoop's file systems does not start: {java.program}: {error}") from error
    conf = jvm.org.apache.hadoop.conf.Configuration()
    for settings in _received:
        conf.addResource(jvm.java.io.ByteArrayInputStream(zlib.decompress(settings)))
    return jvm, conf


@dataclass(frozen=True, slots=True)
class WorkersJava:
    """How to run a JVM like the executor's: the program, words that open its modules, where its classes are."""

    program: str
    words: tuple[str, ...]
    class_path: str
    folder: str


def java_of_worker() -> WorkersJava:
    """Return that of the executor which this process works for."""
    process = os.getppid()
    while process > 1 and Path(f"/proc/{process}/exe").exists():
        place = Path(f"/proc/{process}")
        program = (place / "exe").readlink()
        if program.name == "java":
            words = place.joinpath("cmdline").read_text().split("\0")
            named = (after for word, after in pairwise(words) if word in ("-cp", "-classpath", "--class-path"))
            class_path = next(named, "") or _variable(place, "CLASSPATH")
            opening = tuple(word for word in words if word.startswith("--add-"))
            return WorkersJava(str(program), opening, class_path, str((place / "cwd").readlink()))
        process = int(place.joinpath("stat").read_text().rpartition(")")[2].split()[1])
    # Here one cannot look at other processes.
    spec = util.find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or str(Path(str(spec and spec.origin)).parent)
    java_home = os.environ.get("JAVA_HOME")
    return WorkersJava(f"{java_home}/bin/java" if java_home else "java", (), f"{home}/jars/*", "/")


def _variable(place: Path, name: str) -> str:
    pairs = (setting.partition("=") for setting in place.joinpath("environ").read_text().split("\0"))
    return next((value for key, _, value in pairs if key == name), "")
