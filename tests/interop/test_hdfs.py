"""Checkpoints, event logs and state-change logs on a real HDFS: klamm says and makes of them what it does on a disk."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from group_members import fill
from hdfs_server import hdfs_server
from klamm_program import in_process, klamm
from merged_logs import locally, plan_of, write_logs
from pyarrow import parquet
from spark_sessions import SETTINGS, SPARK_HOME, plain_python
from spark_traces import RECORDED, one_source, restore, write_checkpoint

from engine.admin.cluster.errors import NotFound
from engine.admin.lag.spark_traces import QueryTraces
from engine.admin.lag.stores import Store
from engine.local.cluster import LocalCluster
from engine.spark import log_merge
from engine.spark.hadoop_store import HadoopStore
from engine.spark.store_path import StorePath

__all__ = ["plain_python"]

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
        return HadoopStore(), uri

    here, _ = QueryTraces((f"{tmp_path}/all/*",), (str(EVENTS),)).read()
    queries, failures = QueryTraces((f"{hdfs}/all/*", f"{hdfs}/absent"), (f"{hdfs}/events",), others).read()
    assert [type(failure) for failure in failures] == [NotFound]
    assert next(entry.path for entry in queries) == f"{hdfs}/all/killed"
    assert len(queries) == len(here) == 1
    for entry, other in zip(queries, here, strict=True):
        assert entry.batches == other.batches
        assert [(at.planned, at.committed) for at in entry.positions()] == [
            (at.planned, at.committed) for at in other.positions()
        ]


def test_what_a_file_that_is_still_being_written_has(spark: Any, hdfs: str, files: Any) -> None:
    stream = files.create(spark._jvm.org.apache.hadoop.fs.Path(f"{hdfs}/growing/log"))
    store = HadoopStore()
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


def put(spark: Any, files: Any, folder: Path, uri: str) -> None:
    path = spark._jvm.org.apache.hadoop.fs.Path
    files.copyFromLocalFile(path(str(folder)), path(uri))


def content(path: StorePath) -> bytes:
    with path.open("rb") as file:
        return bytes(file.read())


def below(folder: StorePath) -> list[str]:
    return sorted(str(parent / name)[len(str(folder)) + 1 :] for parent, _, names in folder.walk() for name in names)


def test_a_merge_that_fails_there_leaves_nothing(
    spark: Any, hdfs: str, files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_logs(tmp_path / "logs", random.Random(7), brokers=2, entries=500, disorder=0, is_gzip=True)
    root = StorePath.of(f"{hdfs}/failed")
    put(spark, files, tmp_path / "logs", str(root / "logs"))
    written: list[list[str]] = []

    def fail(*words: Any) -> None:
        written.append(below(root))
        raise RuntimeError("not today")

    monkeypatch.setattr(log_merge, "_why_unsound", fail)
    before = below(root)
    with pytest.raises(RuntimeError, match="not today"):
        log_merge.merge_logs(spark, plan_of(root / "logs"), root / "out")
    assert {name.partition("/")[0] for name in written[0]} > {"logs", "out"}, "parts, and logs that were unpacked"
    assert below(root) == before
    assert not (root / "out").exists()


@pytest.mark.parametrize("is_gzip", [False, True])
def test_a_merge_from_there_to_there(
    spark: Any, hdfs: str, files: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_gzip: bool
) -> None:
    write_logs(tmp_path / "logs", random.Random(5), brokers=3, entries=3000, disorder=2, is_gzip=is_gzip)
    root = StorePath.of(f"{hdfs}/night-{is_gzip}")
    put(spark, files, tmp_path / "logs", str(root / "logs"))
    expected = locally(plan_of(tmp_path / "logs"))
    words = ("spark", "merge", str(root / "logs"), "-o", "json", "--out")
    ran = in_process(*words, str(root / "merged"), capture=capsys)
    assert ran.code == 0, ran.err
    parts = [StorePath.of(part["path"]) for part in ran.json]
    assert [name for name in below(root / "merged") if name != "_SUCCESS"] == [part.name for part in parts]
    assert b"".join(content(part) for part in parts) == expected
    assert {name.partition("/")[0] for name in below(root)} == {"logs", "merged"}, "nothing is left behind"
    assert in_process(*words, str(root / "night.log"), "--single", capture=capsys).code == 0
    assert content(root / "night.log") == expected
    here = tmp_path / "here.log"
    assert in_process(*words, here, "--single", capture=capsys).code == 0
    assert here.read_bytes() == expected
    again = in_process(*words, str(root / "night.log"), "--single", capture=capsys)
    assert (again.code, again.error["message"]) == (2, f"the output exists: {root}/night.log")
    absent = in_process("spark", "merge", f"{root}/absent", "--out", here.with_name("x"), "-o", "json", capture=capsys)
    assert (absent.code, absent.error["message"]) == (2, f"no such file or folder: {root}/absent")


def test_executors_without_klamm_know_the_settings_of_the_session(
    spark: Any, hdfs: str, files: Any, plain_python: Path, tmp_path: Path
) -> None:
    """A ViewFS, and a URI without a host: only what the command is given says where both are."""
    write_logs(tmp_path / "logs", random.Random(6), brokers=2, entries=2000, disorder=2)
    put(spark, files, tmp_path / "logs", f"{hdfs}/viewed/logs")
    given = {
        **dict(SETTINGS), "spark.pyspark.python": str(plain_python), "spark.executor.memory": "512m",
        "spark.hadoop.fs.defaultFS": hdfs, "spark.hadoop.fs.viewfs.mounttable.lake.link./night": f"{hdfs}/viewed",
    }  # fmt: skip
    ran = klamm(
        "spark", "merge", "viewfs://lake/night/logs", "--out", "hdfs:///viewed/merged", "--master",
        "local-cluster[1,2,1024]", *(word for pair in given.items() for word in ("--conf", "=".join(pair))),
        "-o", "json", folder=tmp_path, timeout_s=600, env={"SPARK_HOME": str(SPARK_HOME)},
    )  # fmt: skip
    assert ran.code == 0, ran.err
    parts = [StorePath.of(part["path"]) for part in ran.json]
    assert str(parts[0]) == f"{hdfs}/viewed/merged/part-00000.log"
    assert b"".join(content(part) for part in parts) == locally(plan_of(tmp_path / "logs"))


def test_lag_of_a_checkpoint_there(
    spark: Any, hdfs: str, files: Any, live_cluster: LocalCluster, topic_name: str, tmp_path: Path
) -> None:
    """By the command, and in a history, whose samples workers take."""
    cluster = ("-b", live_cluster.bootstrap_servers)
    made = klamm("topics", "create", topic_name, "--partitions", "2", *cluster, folder=tmp_path)
    assert made.code == 0, made.err
    fill(live_cluster.bootstrap_servers, topic_name, 2, 100)
    now_ms = time.time_ns() // 1_000_000
    write_checkpoint(tmp_path / "orders", [one_source(now_ms - 9, now_ms - 8, topic_name, 40, 60)])
    put(spark, files, tmp_path / "orders", f"{hdfs}/checkpoints/orders")
    place = ("--checkpoint", f"{hdfs}/checkpoints")
    ran = klamm("lag", *place, *cluster, "--timeout", "500", "-o", "json", folder=tmp_path, timeout_s=600)
    (query,) = json.loads(ran.out)
    assert (query["kind"], query["group"], query["path"]) == ("checkpoint", "orders", f"{hdfs}/checkpoints/orders")
    assert (ran.code, query["lag"]) == (0, 100), ran.err
    conf = (word for pair in SETTINGS for word in ("--conf", "=".join(pair)))
    words = ("--out", tmp_path / "lag", "--samples", "1", "--interval", "1s", "--master", "local[2]", *conf)
    kept = klamm("spark", "lag", *place, *cluster, *words, folder=tmp_path, timeout_s=600)
    assert kept.code == 0, kept.err
    rows = [row for file in (tmp_path / "lag").glob("day=*/*") for row in parquet.read_table(file).to_pylist()]
    committed = {(row["path"], row["partition"]): row["committed"] for row in rows if row["kind"] == "checkpoint"}
    assert committed == {(f"{hdfs}/checkpoints/orders", 0): 40, (f"{hdfs}/checkpoints/orders", 1): 60}
