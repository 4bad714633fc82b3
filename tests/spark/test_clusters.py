"""Executors in separate processes whose Python has no klamm: the job brings what they need."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from klamm_program import klamm
from merged_logs import locally, plan_of, write_logs
from own_packages import WANTED, package_settings
from spark_sessions import SETTINGS, SPARK_HOME, plain_python

from engine.local.cluster import LocalCluster
from engine.local.java import find_java

__all__ = ["plain_python"]

pytestmark = pytest.mark.timeout(900)

JOB = """\
import json
import sys
from pathlib import Path

import dying
import klamm._path
from klamm.spark import register
from pyspark.sql.functions import udf

from cli.main import main
from engine.admin.state_changes.log_files import find_logs
from engine.admin.state_changes.log_files import look_at_logs
from engine.admin.state_changes.merge import MergeWish, plan_merge
from engine.spark import log_merge
from engine.spark.log_merge import merge_logs
from engine.spark.session import SparkOptions, spark_session


def has_klamm(_):
    import importlib.util

    return [importlib.util.find_spec(name) is not None for name in ("engine", "cramjam", "crc32c")]


given = json.loads(sys.argv[1])
options = SparkOptions(given["master"], tuple(map(tuple, given["conf"])), tuple(given["packages"]))
with spark_session("test", options, java_home=Path(given["java_home"])) as spark:
    missing = spark.sparkContext.parallelize([0], 1).map(has_klamm).collect()[0]
    loader = spark._jvm.Thread.currentThread().getContextClassLoader()
    fetched = [name for name in ("wanted.txt", "needed.txt") if loader.getResource(name) is not None]
    register(spark)
    data = spark.read.format("klamm-kafka").options(**given["options"]).load()
    values = sorted(bytes(row.value).decode() for row in data.collect())
    streamed = None
    spark.sparkContext.addPyFile(dying.__file__)
    if given["dies"] == "reading":
        stream = spark.readStream.format("klamm-kafka").options(**given["options"], startingOffsets="earliest").load()
        read = stream.select(udf(dying.read, "binary", useArrow=False)("value").alias("value")).writeStream
        read.format("memory").queryName("streamed").trigger(availableNow=True).start().awaitTermination()
        streamed = sorted(bytes(row.value).decode() for row in spark.table("streamed").collect())
    else:
        words = ["--single", "--topic", "orders", "--partition", "7", "--quiet"]
        assert main(["spark", "merge", given["logs"], "--out", given["out"] + "-7", *words]) == 0
        log_merge.write_part = dying.write_part
    plan = plan_merge(look_at_logs(find_logs([Path(given["logs"])])), MergeWish())
    result = merge_logs(spark, plan, Path(given["out"]), piece_bytes=50_000)
parts = [part.name for part in result.parts]
found = {"found": missing, "fetched": fetched, "values": values, "streamed": streamed, "parts": parts}
print(json.dumps(found))
"""
DYING = """\
import os
import signal
from pathlib import Path

import klamm._path


def read(value):
    \"""Passes a value on; the first that comes here takes the executor with it.\"""
    die("reading")
    return value


def write_part(task):
    \"""Writes a part; the first that writes the third one takes its executor with it when a piece of it is written.\"""
    from engine.spark import log_merge

    text_chunks = log_merge.text_chunks

    def until_death(batches):
        yield next(chunks := text_chunks(batches))
        die("merging")
        yield from chunks

    if task.path.name == "part-00002.log":
        log_merge.text_chunks = until_death
    return log_merge.write_part(task)


def die(when):
    try:
        (FOLDER / when).touch(exist_ok=False)
    except FileExistsError:
        return
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    for process in (executor, daemon, os.getpid()):
        os.kill(process, signal.SIGKILL)
"""


@pytest.fixture
def given(live_cluster: LocalCluster, topic_name: str, plain_python: Path, tmp_path: Path) -> dict[str, Any]:
    """Records, logs and the job's files, and the arguments of the job."""
    admin = AdminClient({"bootstrap.servers": live_cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic_name, num_partitions=2)])[topic_name].result(30)
    producer = Producer({"bootstrap.servers": live_cluster.bootstrap_servers, "compression.type": "lz4"})
    for number in range(100):
        producer.produce(topic_name, value=str(number), partition=number % 2)
    assert producer.flush(30) == 0
    write_logs(tmp_path / "logs", random.Random(8), brokers=2, entries=2000, disorder=2, is_gzip=True)
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "died").mkdir()
    (tmp_path / "dying.py").write_text(f"{DYING}\n\nFOLDER = Path({str(tmp_path / 'died')!r})\n")
    return {
        "conf": [*SETTINGS, ("spark.pyspark.python", str(plain_python)), ("spark.executor.memory", "512m")],
        "packages": [],
        "java_home": str(find_java().program.resolve().parents[1]),
        "options": {"kafka.bootstrap.servers": live_cluster.bootstrap_servers, "subscribe": topic_name},
        "logs": str(tmp_path / "logs"),
        "out": str(tmp_path / "out"),
    }


def check(given: dict[str, Any], command: list[str], folder: Path) -> dict[str, Any]:
    """Run the job; check what it does on each cluster, and return what it found."""
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=800,
        env=env | {"JAVA_HOME": given["java_home"], "SPARK_HOME": str(SPARK_HOME)}, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    result: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert result["found"] == [False, False, False], "the executors' Python must not have klamm, nor its libraries"
    assert result["values"] == sorted(str(number) for number in range(100))
    assert [path.name for path in (folder / "died").iterdir()] == [given["dies"]], "an executor died in the middle"
    written = sorted(path.name for path in (folder / "out").iterdir())
    assert written == ["_SUCCESS", *result["parts"]] and len(result["parts"]) > 2
    merged = b"".join((folder / "out" / name).read_bytes() for name in written)
    assert merged == locally(plan_of(folder / "logs"))
    assert not list(folder.glob(".out*")), "what a dead executor began is gone"
    return result


def test_executors_without_klamm_on_a_local_cluster(given: dict[str, Any], tmp_path: Path) -> None:
    """The job starts Spark itself, with a package; an executor dies while a stream reads."""
    given |= {"master": "local-cluster[1,2,1024]", "dies": "reading", "packages": [WANTED]}
    given["conf"] = [*(dict(given["conf"]) | package_settings(tmp_path)).items()]
    result = check(given, [sys.executable, "job.py", json.dumps(given)], tmp_path)
    assert result["fetched"] == ["wanted.txt", "needed.txt"], "the package, and what it needs itself"
    assert result["streamed"] == result["values"], "each record once"


def test_executors_without_klamm_of_a_session_that_is_there(given: dict[str, Any], tmp_path: Path) -> None:
    """``spark-submit`` starts the job in an existing session. An executor dies while it merges."""
    master = "local-cluster[1,2,1024]"
    given |= {"master": master, "dies": "merging"}
    conf = [*given["conf"], ("spark.pyspark.driver.python", sys.executable)]
    words = [word for name, value in conf for word in ("--conf", f"{name}={value}")]
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master, *words]
    check(given, [*submit, "job.py", json.dumps(given)], tmp_path)
    logs = plan_of(tmp_path / "logs", topics=["orders"], partitions=["7"])
    assert (tmp_path / "out-7").read_bytes() == locally(logs)


def test_the_archive_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one.zip", "two.zip"):
        ran = klamm("spark", "package", "--out", name, "-o", "json", folder=tmp_path)
        assert ran.code == 0, ran.err
        assert ran.json["path"] == name
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


@pytest.mark.parametrize(
    ("out", "expected"), [("absent/x.zip", "no such folder: absent"), ("there", "this is a folder: there")]
)
def test_an_archive_has_its_place(tmp_path: Path, out: str, expected: str) -> None:
    (tmp_path / "there").mkdir()
    ran = klamm("spark", "package", "--out", out, "-o", "json", folder=tmp_path)
    assert (ran.code, ran.error["message"]) == (2, expected)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
