"""Executors in processes of their own, whose Python has no klamm: what they need comes with the job."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from klamm_program import klamm
from merged_logs import locally, plan_of, write_logs
from spark_sessions import SETTINGS

from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster
from engine.local.java import find_java

pytestmark = pytest.mark.timeout(900)

JOB = """\
import json
import sys
from pathlib import Path

import klamm._path
from klamm.spark import register

from engine.admin.state_changes.find_logs import find_logs
from engine.admin.state_changes.log_files import look_at_logs
from engine.admin.state_changes.merge import MergeWish, plan_merge
from engine.pipeline.log_merge import merge_logs
from engine.pipeline.session import SparkOptions, spark_session


def has_klamm(_):
    import importlib.util

    return [importlib.util.find_spec(name) is not None for name in ("engine", "cramjam", "crc32c")]


given = json.loads(sys.argv[1])
options = SparkOptions(given["master"], tuple(map(tuple, given["conf"])))
with spark_session("test", options, java_home=Path(given["java_home"])) as spark:
    missing = spark.sparkContext.parallelize([0], 1).map(has_klamm).collect()[0]
    register(spark)
    data = spark.read.format("klamm-kafka").options(**given["options"]).load()
    values = sorted(bytes(row.value).decode() for row in data.collect())
    plan = plan_merge(look_at_logs(find_logs([Path(given["logs"])])), MergeWish())
    result = merge_logs(spark, plan, Path(given["out"]), piece_bytes=50_000)
print(json.dumps({"found": missing, "values": values, "parts": [str(part) for part in result.parts]}))
"""


@pytest.fixture(scope="module")
def plain_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with PySpark and what that needs, and nothing of klamm's."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    for name in ("pyspark", "py4j", "pyarrow", "numpy"):
        spec = util.find_spec(name)
        assert spec is not None and spec.submodule_search_locations
        found = Path(next(iter(spec.submodule_search_locations)))
        (packages / name).symlink_to(found)
        for libraries in found.parent.glob(f"{name}.libs"):
            (packages / libraries.name).symlink_to(libraries)
    return folder / "bin" / "python"


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and one worker of Spark's own kind, on an address of their own."""
    host, port = own_loopback_address(), 7077
    started: list[subprocess.Popen[bytes]] = []
    spark_home = Path(next(iter(util.find_spec("pyspark").submodule_search_locations)))  # type: ignore[union-attr,arg-type]
    environment = os.environ | {
        "SPARK_HOME": str(spark_home),
        "JAVA_HOME": str(find_java().program.resolve().parents[1]),
        "SPARK_LOCAL_IP": host,
        "SPARK_WORKER_DIR": str(folder / "work"),
    }

    def start(kind: str, *words: str) -> None:
        command = [spark_home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", "--host", host, *words]
        with (folder / f"{kind}.log").open("wb") as log:
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    try:
        start("master.Master", "--port", str(port), "--webui-port", "8080")
        deadline = time.monotonic() + 60
        while not _listens(host, port):
            assert time.monotonic() < deadline and started[0].poll() is None, (folder / "master.Master.log").read_text()
            time.sleep(0.1)
        start(
            "worker.Worker", "--port", "7078", "--webui-port", "8081", "-c", "2", "-m", "1g", f"spark://{host}:{port}"
        )
        yield f"spark://{host}:{port}"
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def local_cluster(folder: Path) -> Iterator[str]:
    yield "local-cluster[2,1,1024]"


@pytest.mark.parametrize("cluster", [local_cluster, standalone])
def test_executors_without_klamm(
    cluster: object, plain_python: Path, live_cluster: LocalCluster, topic_name: str, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": live_cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic_name, num_partitions=2)])[topic_name].result(30)
    producer = Producer({"bootstrap.servers": live_cluster.bootstrap_servers, "compression.type": "lz4"})
    for number in range(100):
        producer.produce(topic_name, value=str(number), partition=number % 2)
    assert producer.flush(30) == 0
    logs = tmp_path / "logs"
    write_logs(logs, random.Random(8), brokers=2, entries=2000, disorder=2, is_gzip=True)
    (tmp_path / "job.py").write_text(JOB)
    with cluster(tmp_path) as master:  # type: ignore[operator]
        given = {
            "master": master,
            "conf": [*SETTINGS, ("spark.pyspark.python", str(plain_python)), ("spark.executor.memory", "512m")],
            "java_home": str(find_java().program.resolve().parents[1]),
            "options": {"kafka.bootstrap.servers": live_cluster.bootstrap_servers, "subscribe": topic_name},
            "logs": str(logs),
            "out": str(tmp_path / "out"),
        }
        ran = subprocess.run(
            [sys.executable, "job.py", json.dumps(given)], cwd=tmp_path, capture_output=True, text=True, timeout=800,
            env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}, check=False,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["found"] == [False, False, False], "the executors' Python must not have klamm, nor its libraries"
    assert found["values"] == sorted(str(number) for number in range(100))
    assert b"".join(Path(part).read_bytes() for part in found["parts"]) == locally(plan_of(logs))


def test_the_archive_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one.zip", "two.zip"):
        ran = klamm("spark", "package", "--out", name, "-o", "json", folder=tmp_path)
        assert ran.code == 0, ran.err
        assert ran.json["path"] == name
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
