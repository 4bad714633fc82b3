"""Logs merged out of and into object stores: S3 by moto and Google's by an emulator, through pyarrow in the workers."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from klamm_program import in_process
from merged_logs import BEGIN, entry, locally, plan_of, write_logs
from store_servers import BUCKET, PLACE, gs_server, s3_server

from engine.admin.cluster.errors import Unreachable
from engine.common.errors import OperationError
from engine.spark import log_merge
from engine.spark.log_merge import merge_logs
from engine.spark.store_path import StorePath

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=["s3", "gs"])
def bucket(request: pytest.FixtureRequest) -> Iterator[str]:
    with s3_server() if request.param == "s3" else gs_server():
        yield f"s3a://{BUCKET}" if request.param == "s3" else PLACE


@pytest.fixture
def store(bucket: str, tmp_path: Path) -> StorePath:
    """A folder of the bucket for one test."""
    return StorePath.of(f"{bucket}/{tmp_path.name}")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs Spark's tasks and collects the results in this process."""

    def run(spark: object, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        return [pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(task))))) for task in tasks]

    monkeypatch.setattr(log_merge, "run_in_workers", run)


def upload(folder: Path, target: StorePath) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with (target / path.relative_to(folder)).open("wb") as file:
                file.write(path.read_bytes())


def read(path: StorePath) -> bytes:
    with path.open("rb") as file:
        return bytes(file.read())


def names_in(folder: StorePath) -> list[str]:
    """Return the names in the store below a folder, without the markers of folders."""
    return sorted(str(root / name)[len(str(folder)) + 1 :] for root, _, names in folder.walk() for name in names)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("is_gzip", [False, True])
def test_parts_come_in_their_order_and_success_last(store: StorePath, tmp_path: Path, is_gzip: bool) -> None:
    write_logs(tmp_path / "logs", random.Random(1), brokers=2, entries=300, disorder=3, is_gzip=is_gzip)
    upload(tmp_path / "logs", store / "logs")
    out = store / "merged"
    result = merge_logs(None, plan_of(store / "logs"), out, piece_bytes=20_000)  # type: ignore[arg-type]
    assert result.reason is None and len(result.parts) > 3
    parts = [name for name in names_in(out) if name != "_SUCCESS"]
    assert [str(part) for part in result.parts] == [f"{out}/{name}" for name in parts]
    assert b"".join(read(out / name) for name in parts) == locally(plan_of(tmp_path / "logs"))
    assert {name.partition("/")[0] for name in names_in(store)} == {"logs", "merged"}, "nothing is left behind"


@pytest.mark.usefixtures("here")
def test_parts_of_which_some_are_empty_and_a_line_far_from_its_place(store: StorePath, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    write_logs(folder, random.Random(2), brokers=2, entries=1000, disorder=0)
    upload(folder, store / "logs")
    few = merge_logs(None, plan_of(store / "logs", topics=["absent"]), store / "few", piece_bytes=60_000)  # type: ignore[arg-type]
    assert (few.parts, names_in(store / "few")) == ((), ["_SUCCESS"])
    path = folder / "broker-1" / "state-change.log"
    path.write_text(path.read_text().rstrip("\n") + "\n" + entry(BEGIN, 1, "long ago"))
    upload(folder, store / "logs")
    result = merge_logs(None, plan_of(store / "logs"), store / "all", piece_bytes=60_000)  # type: ignore[arg-type]
    assert result.reason is not None
    assert names_in(store / "all") == ["_SUCCESS", "part-00000.log"], "parts of the first attempt are gone"
    assert read(store / "all" / "part-00000.log") == locally(plan_of(folder))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("is_single", [False, True])
def test_what_failed_leaves_nothing(
    store: StorePath, tmp_path: Path, is_single: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_logs(tmp_path / "logs", random.Random(3), brokers=2, entries=1000, disorder=0)

    def fail(*words: Any) -> None:
        raise RuntimeError("not today")

    monkeypatch.setattr(log_merge, "_why_unsound", fail)
    with pytest.raises(RuntimeError, match="not today"):
        merge_logs(None, plan_of(tmp_path / "logs"), store / "out", is_single=is_single, piece_bytes=50_000)  # type: ignore[arg-type]
    assert not (store / "out").exists()
    with (store / "out").open("wb") as file:
        file.write(b"mine")
    with pytest.raises(OperationError, match="the output exists"):
        merge_logs(None, plan_of(tmp_path / "logs"), store / "out", is_single=is_single, piece_bytes=50_000)  # type: ignore[arg-type]
    assert read(store / "out") == b"mine"


def test_the_command_in_workers_of_spark(
    spark: Any, store: StorePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "CLOUD_STORAGE_"))]:
        # Workers have the environment that the session began with, and this.
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    write_logs(tmp_path / "logs", random.Random(4), brokers=2, entries=2000, disorder=2, is_gzip=True)
    upload(tmp_path / "logs", store / "logs")
    words = ("spark", "merge", str(store / "logs"), "--out", str(store / "night.log"), "--single", "-o", "json")
    ran = in_process(*words, capture=capsys)
    assert ran.code == 0, ran.err
    expected = locally(plan_of(tmp_path / "logs"))
    assert ran.json == [{"path": f"{store}/night.log", "size_bytes": len(expected)}]
    assert read(store / "night.log") == expected
    again = in_process(*words, capture=capsys)
    assert (again.code, again.error["message"]) == (2, f"the output exists: {store}/night.log")


def test_places_that_cannot_be_reached(
    spark: Any, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = in_process("spark", "merge", f"{bucket}/absent", "--out", tmp_path / "x", "-o", "json", capture=capsys)
    assert (absent.code, absent.error["message"]) == (2, f"no such file or folder: {bucket}/absent")
    spark._jsc.hadoopConfiguration().set("ipc.client.connect.max.retries", "0")
    with pytest.raises(Unreachable, match=r"HDFS at 127\.0\.93\.2:9 cannot be reached: Connection refused") as caught:
        StorePath("hdfs://127.0.93.2:9/logs").exists()
    assert "HADOOP_CONF_DIR" in str(caught.value.hint)
