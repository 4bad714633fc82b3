"""The classes that Spark loads, as a file that the tests' JVMs map: a session costs half the CPU.

``make test`` and ``make interop`` make it once for an environment, by running this file. Without it, or with one that
does not fit, a JVM loads its classes itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib import util
from pathlib import Path

from engine.local.java import find_java

SPARK_HOME = Path(next(iter(util.find_spec("pyspark").submodule_search_locations)))  # type: ignore[union-attr,arg-type]

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A test's JVM ends before it is warm. A second compiler and a collector with many threads would only take cores from
the other tests."""

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""An archive that does not fit is no news."""

_JOB = """\
import sys
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.functions import udf

class Reader(DataSourceReader, DataSourceStreamReader):
    def read(self, partition): yield (1, b"a")
    def partitions(self, start=None, end=None): return [InputPartition(0)]
    def initialOffset(self): return {"at": 0}
    def latestOffset(self): return {"at": 1}

class Source(DataSource):
    @classmethod
    def name(cls): return "numbers"
    def schema(self): return "id long, value binary"
    def reader(self, schema): return Reader()
    def streamReader(self, schema): return Reader()

spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(Source)
spark.sparkContext.parallelize([1, 2], 2).map(lambda number: number + 1).collect()
frame = spark.read.format("numbers").load()
frame.groupBy("id").count().orderBy("count").collect()
frame.select(udf(lambda number: number + 1, "long", useArrow=False)("id")).collect()
frame.write.parquet(f"{sys.argv[1]}/parquet")
spark.read.parquet(f"{sys.argv[1]}/parquet").filter("id > 0").collect()
stream = spark.readStream.format("numbers").load().writeStream.option("checkpointLocation", sys.argv[1])
stream.trigger(availableNow=True).foreachBatch(lambda batch, number: batch.count()).start().awaitTermination()
spark.stop()
"""


def archive_of(java: Path, jars: Iterable[Path]) -> Path:
    """Return where the archive for a Java and these jars is, or will be."""
    files = [java, *sorted(jars)]
    words = "".join(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}\n" for file in files)
    return Path(sys.prefix, "share", f"spark-{hashlib.sha256(words.encode()).hexdigest()[:16]}.jsa")


def short_lived_with_archive() -> str:
    """Return Java's options for a JVM of Spark, which maps the archive if it is there."""
    archive = _archive()
    # A JVM that is told of a file which does not exist would not map Java's own archive either.
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={archive} {_QUIET}" if archive.exists() else SHORT_LIVED


def make() -> None:
    """Make the archive unless it is there, or another process is making it."""
    archive = _archive()
    archive.parent.mkdir(exist_ok=True)
    with archive.with_name("spark.lock").open("w") as lock, tempfile.TemporaryDirectory() as folder:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not archive.exists():
            new = archive.with_suffix(".new")
            _run_job(Path(folder), new)
            for old in archive.parent.glob("spark-*.jsa"):
                old.unlink()
            new.rename(archive)


def _run_job(folder: Path, new: Path) -> None:
    """Load the classes in a JVM that writes them to ``new`` as it ends."""
    (folder / "job.py").write_text(_JOB)
    settings = {
        "spark.driver.extraJavaOptions": f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={new} {_QUIET}",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder),
        "spark.ui.enabled": "false",
    }
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    submit = [SPARK_HOME / "bin" / "spark-submit", "--master", "local[2]", *words, folder / "job.py", folder / "out"]
    places = {"SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(_java().parents[1])}
    python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    subprocess.run(submit, env=os.environ | places | python, check=True, capture_output=True)


def _java() -> Path:
    return find_java(user="Spark").program.resolve()


def _archive() -> Path:
    return archive_of(_java(), (SPARK_HOME / "jars").glob("*.jar"))


if __name__ == "__main__":
    make()
