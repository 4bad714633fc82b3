"""A real HDFS on loopback with a name node and a data node: Hadoop's own test cluster, whose jar comes through mvn."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apache_kafka import fetched_once, jars_folder, run_maven
from class_archive import SHORT_LIVED, SPARK_HOME
from patience import within

from engine.local.java import find_java

_JARS = SPARK_HOME / "jars"
_START_TIMEOUT_S = 600.0
"""Its start takes eight seconds of CPU time."""


def cluster_jar() -> Path:
    """Return the jar with both servers, in the Hadoop release whose other jars Spark has."""
    (client,) = _JARS.glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")

    def fetch(work: Path) -> Path:
        artifact = f"org.apache.hadoop:hadoop-client-minicluster:{version}"
        run_maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={work / 'libs'}")
        return work / "libs"

    folder = fetched_once(jars_folder().with_name(f"hadoop-cluster-{version}"), fetch)
    return folder / f"hadoop-client-minicluster-{version}.jar"


@contextmanager
def hdfs_server(folder: Path) -> Iterator[str]:
    """Yield the URI of a file system whose blocks are in a folder."""
    path = folder / "told.json"
    command = [
        find_java(user="Hadoop").program, *SHORT_LIVED.split(), "-Xmx300m", "-cp", f"{cluster_jar()}:{_JARS}/*",
        "org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1",
        "-D", f"hdfs.minidfs.basedir={folder / 'data'}", "-writeDetails", str(path),
    ]  # fmt: skip
    with (folder / "hdfs.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        is_in_time = within(_START_TIMEOUT_S)
        while not (path.exists() and path.stat().st_size):
            assert process.poll() is None, (folder / "hdfs.log").read_text()
            assert is_in_time(), "HDFS does not start"
            time.sleep(0.1)
        yield f"hdfs://127.0.0.1:{json.loads(path.read_text())['namenode_port']}"
    finally:
        process.kill()
        process.wait()
