"""klamm's Kafka source and sink for PySpark beside Spark's own connector, and the merge of logs on ``local[2]``.

The connector 4.0.0 runs on PySpark 4.0.0 in an environment of its own, which ``KLAMM_BENCH_PEER_PYTHON`` names, with
its jars in the folder ``KLAMM_BENCH_PEER_JARS``. Ours runs there too, and on this environment's PySpark. Without these
variables the bench measures only ours. There are ``KLAMM_BENCH_RECORDS`` records of 100 bytes in two partitions, and
``KLAMM_BENCH_MB`` of logs.

Streams are measured three times: as a new query that finds two records, which is the cost of a start; as a new query
that reads them all and ends; and as batches of one running query.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_state_changes import line_of_3_9, make_logs

from engine.local.cluster import LocalCluster
from engine.local.java import find_java

RECORDS = int(os.environ.get("KLAMM_BENCH_RECORDS", "2000000"))
ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "3"))
PEER_PYTHON = os.environ.get("KLAMM_BENCH_PEER_PYTHON")
PEER_JARS = os.environ.get("KLAMM_BENCH_PEER_JARS")
KLAMM = str(Path(sys.executable).with_name("klamm"))
ROOT = Path(__file__).parents[2]


def main() -> None:
    """Print all figures."""
    with LocalCluster(1) as cluster:
        for topic, count in (("read", RECORDS), ("few", 2)):
            create(cluster, topic)
            fill(cluster, topic, count)
        sources(cluster)
        running_queries(cluster)
        sinks(cluster)
    merges()


def create(cluster: LocalCluster, topic: str) -> None:
    words = ["topics", "create", topic, "--partitions", "2", "--replication-factor", "1"]
    command = [KLAMM, *words, "-b", cluster.bootstrap_servers, "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def fill(cluster: LocalCluster, topic: str, count: int) -> None:
    bootstrap = ["-b", cluster.bootstrap_servers, "--quiet"]
    quiet: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = ["--num-records", str(count), "--record-size", "100", "--throughput", "-1"]
    subprocess.run([KLAMM, "perf", "producer", "--topic", topic, *words, *bootstrap], **quiet)


def contenders() -> list[tuple[str, str, str, str | None]]:
    """Return name, Python, format and jars of each."""
    rows: list[tuple[str, str, str, str | None]] = [("klamm, this PySpark", sys.executable, "klamm-kafka", None)]
    if PEER_PYTHON and PEER_JARS:
        jars = ",".join(map(str, sorted(Path(PEER_JARS).glob("*.jar"))))
        rows += [
            ("klamm, PySpark 4.0.0", PEER_PYTHON, "klamm-kafka", None),
            ("connector 4.0.0", PEER_PYTHON, "kafka", jars),
        ]
    return rows


def sources(cluster: LocalCluster) -> None:
    print(f"{RECORDS} records of 100 bytes, 2 partitions, local[2], to noop; best of {ROUNDS} warm rounds")
    print(f"{'':44} {'start s':>8} {'first s':>8} {'warm s':>8} {'M rows/s':>9}")
    for way, topic in (("batch", "read"), ("stream", "few"), ("stream", "read")):
        for columns in ("all", "value") if topic == "read" else ("all",):
            for name, python, kind, jars in contenders():
                given = {"what": way, "columns": columns, "topic": topic}
                title = f"{way}, {columns if topic == 'read' else 'two records'}: {name}"
                records = RECORDS if topic == "read" else 0
                row(title, cluster, python, {**given, "format": kind, "jars": jars}, records)


def running_queries(cluster: LocalCluster) -> None:
    """Measure ``RECORDS`` more for each batch of a running query."""
    for number, (name, python, kind, jars) in enumerate(contenders()):
        topic = f"steady-{number}"
        create(cluster, topic)
        fill(cluster, topic, RECORDS)
        given = {"what": "steady", "columns": "all", "topic": topic, "format": kind, "jars": jars, "records": RECORDS}
        row(f"running query, all: {name}", cluster, python, given, feed=lambda name=topic: fill(cluster, name, RECORDS))


def sinks(cluster: LocalCluster) -> None:
    for number, (name, python, kind, jars) in enumerate(contenders()):
        topic = f"write-{number}"
        create(cluster, topic)
        given = {"what": "sink", "topic": topic, "format": kind, "jars": jars, "records": RECORDS // 4}
        row(f"sink, key and value: {name}", cluster, python, given, records=RECORDS // 4)


def row(
    name: str,
    cluster: LocalCluster,
    python: str,
    given: dict[str, Any],
    records: int = RECORDS,
    feed: Callable[[], None] | None = None,
) -> None:
    """Run one program and print what it took: a first round, then warm ones. ``feed`` makes a round's records."""
    program = [python, str(Path(__file__).with_name("spark_work.py"))]
    whole = given | {"bootstrap": cluster.bootstrap_servers, "rounds": ROUNDS + 1}
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": python,
        "JAVA_HOME": str(find_java().program.resolve().parents[1]),
    }
    output: list[str] = []
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [*program, json.dumps(whole)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        ) as running,
    ):  # fmt: skip
        assert running.stdin is not None and running.stdout is not None
        for line in running.stdout:
            output.append(line)
            if line == "ready\n" and feed is not None:
                feed()
                running.stdin.write("go on\n")
                running.stdin.flush()
        running.wait()
        errors.seek(0)
        complaints = errors.read().splitlines()
    if running.returncode:
        reasons = [line for line in complaints if re.match(r"\S*(Error|Exception)\b", line)]
        print(f"{name:44} failed: {(reasons or complaints)[-1]}", flush=True)
        return
    result = json.loads(output[-1])
    best = min(result["seconds"][1:])
    rate = f"{records / best / 1e6:9.2f}" if records else ""
    print(f"{name:44} {result['start_s']:8.1f} {result['seconds'][0]:8.2f} {best:8.2f} {rate}", flush=True)


def merges() -> None:
    """Measure whole commands with the JVM, the job alone, and the local merge of the same logs."""
    from engine.admin.state_changes.log_files import find_logs, look_at_logs
    from engine.admin.state_changes.merge import MergeWish, plan_merge
    from engine.spark.log_merge import merge_logs
    from engine.spark.session import SparkOptions, spark_session

    with tempfile.TemporaryDirectory() as folder:
        logs = make_logs(Path(folder) / "logs", line_of_3_9)
        size_mb = sum(path.stat().st_size for path in logs) / 1e6
        os.sync()
        begin = time.perf_counter()
        with open(Path(folder) / "local", "wb") as out:
            subprocess.run([KLAMM, "state-changes", "merge", str(Path(folder) / "logs")], check=True, stdout=out)
        wall_s = time.perf_counter() - begin
        print(f"{len(logs)} logs, {size_mb:.0f} MB\n{'local merge':44} {wall_s:8.2f} s {size_mb / wall_s:8.0f} MB/s")
        java_home = find_java().program.resolve().parents[1]
        options = SparkOptions(
            "local[2]", (("spark.driver.host", "127.0.0.1"), ("spark.driver.bindAddress", "127.0.0.1"))
        )
        begin = time.perf_counter()
        with spark_session("bench", options, java_home=java_home) as spark:
            print(f"{'start of Spark':44} {time.perf_counter() - begin:8.2f} s")
            for number in range(ROUNDS + 1):
                plan = plan_merge(look_at_logs(find_logs([Path(folder) / "logs"])), MergeWish())
                # When too much is not on the disk yet, the system makes writers wait for it.
                os.sync()
                begin = time.perf_counter()
                merge_logs(spark, plan, Path(folder) / f"out-{number}")
                wall_s = time.perf_counter() - begin
                name = f"spark merge, {'warm' if number else 'first'}"
                print(f"{name:44} {wall_s:8.2f} s {size_mb / wall_s:8.0f} MB/s", flush=True)
                shutil.rmtree(Path(folder) / f"out-{number}")


if __name__ == "__main__":
    main()
