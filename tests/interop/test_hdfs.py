"""Checkpoints and event logs on a real HDFS: klamm says the same of them as of the same files on a disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hdfs_server import hdfs_server
from spark_sessions import spark
from spark_traces import RECORDED, restore

from engine.admin.cluster.errors import NotFound
from engine.admin.lag.stores import Store
from engine.admin.lag.traces import QueryTraces
from engine.pipeline.hadoop_store import HadoopStore

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(1200)

EVENTS = RECORDED / "4.0.0/killed/events"


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hdfs_server(tmp_path_factory.mktemp("hdfs")) as uri:
        yield uri


@pytest.fixture
def files(spark: Any, hdfs: str) -> Any:
    """Hadoop's own client of that HDFS."""
    root = spark._jvm.org.apache.hadoop.fs.Path(hdfs)
    return root.getFileSystem(spark._jsc.hadoopConfiguration())


def test_queries_are_read_as_from_a_disk(spark: Any, hdfs: str, files: Any, tmp_path: Path) -> None:
    path = spark._jvm.org.apache.hadoop.fs.Path
    restore(RECORDED / "4.0.0/killed/killed", tmp_path / "all")
    files.copyFromLocalFile(path(str(tmp_path / "all")), path(f"{hdfs}/all"))
    for file in (tmp_path / "all").rglob("*"):
        there = path(f"{hdfs}/all/{file.relative_to(tmp_path / 'all')}")
        files.setTimes(there, file.stat().st_mtime_ns // 1_000_000, -1)
    files.copyFromLocalFile(path(str(EVENTS)), path(f"{hdfs}/events"))

    def others(uri: str) -> tuple[Store, str]:
        return HadoopStore(spark), uri

    here, _ = QueryTraces((f"{tmp_path}/all/*",), (str(EVENTS),)).read()
    found, failures = QueryTraces((f"{hdfs}/all/*", f"{hdfs}/absent"), (f"{hdfs}/events",), others).read()
    assert [type(one) for one in failures] == [NotFound]
    assert next(one.path for one in found) == f"{hdfs}/all/killed"
    assert len(found) == len(here) == 2
    for one, other in zip(found, here, strict=True):
        assert one.batches == other.batches
        assert [(at.planned, at.committed) for at in one.positions()] == [
            (at.planned, at.committed) for at in other.positions()
        ]


def test_what_a_file_that_is_still_being_written_has(spark: Any, hdfs: str, files: Any) -> None:
    stream = files.create(spark._jvm.org.apache.hadoop.fs.Path(f"{hdfs}/growing/log"))
    store = HadoopStore(spark)
    try:
        stream.write(bytearray(b"first\n"))
        stream.hflush()
        assert store.read(f"{hdfs}/growing/log") == b"first\n"
        stream.write(bytearray(b"second\n"))
        stream.hflush()
        assert store.read(f"{hdfs}/growing/log") == b"first\nsecond\n"
        assert [entry.name for entry in store.list(f"{hdfs}/growing")] == ["log"]
    finally:
        stream.close()
