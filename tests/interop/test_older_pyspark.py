"""``klamm-kafka`` on older releases of PySpark: what works on each, and how it behaves beside Spark's own connector."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from class_archive import SHORT_LIVED
from confluent_kafka import Producer
from older_pyspark import connector_jars, pyspark_folder
from spark_sessions import JAVA_OPTIONS, SETTINGS
from wire_client import create_topic

from engine.local.cluster import LocalCluster
from engine.local.java import find_java
from tests.support.paths import FOLDERS

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
TOO_OLD = """\
import pyspark
from klamm.spark import KafkaSourceError, register

assert pyspark.__version__ == "3.5.1"
try:
    register(None)
except KafkaSourceError as error:
    print(error)
"""
SESSION = """\
import json
import sys
from contextlib import closing
from pathlib import Path

import pyspark
from klamm.spark_listener import LagListener
from klamm_program import klamm
from pyspark.sql import SparkSession
from query_ways import all_ways_agree, produce, start

given = json.loads(sys.argv[1])
servers, topic, watched, folder = given["servers"], given["topic"], given["watched"], Path(given["folder"])
(folder / "events").mkdir(parents=True)
builder = SparkSession.builder.master("local[2]").config("spark.jars", given["jars"])
logged = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(folder / "events")}
for name, value in (given["conf"] | logged).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()


def program(*words):
    return klamm(*words, folder=folder, env={"KLAMM_BOOTSTRAP_SERVER": servers})


with closing(LagListener(folder / "told")) as listener:
    spark.streams.addListener(listener)
    query = start(spark, servers, watched, watched, folder / "checkpoint", kind="kafka", maxOffsetsPerTrigger=40)
    for _ in range(2):
        produce(servers, watched, 100)
        query.processAllAvailable()
    own = all_ways_agree(spark, query, program, folder / "checkpoint", folder / "told")
    query.stop()
    produce(servers, watched, 20)
    behind = program("lag", "--checkpoint", folder / "checkpoint", "--event-log", folder / "told", "-o", "json").json
    spark.streams.removeListener(listener)
ends = {str(partition): end for partition, end in own[max(own)].items()}
told = {"version": pyspark.__version__, "batches": len(own), "ends": ends}
told["lags"] = {row["kind"]: row["lag"] for row in behind}

from klamm.spark import klamm_kafka, register

chosen = klamm_kafka(spark)
register(spark)


def read(source, kind, **options):
    source = source.format(kind).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return source.option("includeHeaders", "true").options(**options).load()


def rows(kind):
    columns = "partition", "offset", "key", "value", "headers", "timestamp", "timestampType"
    found = read(spark.read, kind).orderBy("partition", "offset").select(*columns).collect()
    return [str(row) for row in found]


def write(data, writer):
    return writer.format("klamm-kafka").option("kafka.bootstrap.servers", servers).option("topic", topic)


ours, connectors = rows("klamm-kafka"), rows("kafka")
data = read(spark.read, "klamm-kafka").selectExpr("key", "value", "headers")
write(data, data.write).mode("append").save()
after_batch = rows("kafka")
stream = read(spark.readStream, "klamm-kafka", startingOffsets="earliest").selectExpr("key", "value", "headers")
query = write(stream, stream.writeStream).option("checkpointLocation", str(folder / "left")).trigger(availableNow=True)
query.start().awaitTermination()
after_stream = rows("kafka")
try:
    limited = read(spark.readStream, "klamm-kafka", maxOffsetsPerTrigger="5")
    limited.writeStream.format("noop").start().awaitTermination()
    refusal = ""
except Exception as error:
    refusal = str(error)
told |= {"chosen": chosen, "ours": ours, "connectors": connectors}
print(json.dumps(told | {"after_batch": after_batch, "after_stream": after_stream, "refusal": refusal}))
"""
"""A query of Spark's own connector whose only part of klamm is the listener. Then what klamm's source and sink do."""


def run(version: str, program: str, *words: str, folder: Path) -> str:
    paths = os.pathsep.join(map(str, (pyspark_folder(version), ROOT, *FOLDERS)))
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    env |= {"PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable}
    env["JAVA_HOME"] = str(find_java(user="Spark").program.resolve().parents[1])
    (folder / "job.py").write_text(program)
    command = [sys.executable, "job.py", *words]
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def on_4_0(live_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the session of 4.0 tells, where the connector's jars are available. A topic of 200 records waits for it."""
    folder, servers = tmp_path_factory.mktemp("older-pyspark"), live_cluster.bootstrap_servers
    for name in ("older-pyspark", "older-pyspark-watched"):
        create_topic(servers.split(",")[0], name, assignment={0: [0], 1: [1]})
    producer = Producer({"bootstrap.servers": servers, "compression.type": "zstd"})
    for number in range(200):
        headers: Any = [("a", b"%d" % number), ("b", None)] if number % 3 == 0 else None
        key, value = b"%d" % number if number % 2 else None, None if number % 7 == 0 else b"v" * number
        producer.produce("older-pyspark", value, key, partition=number % 2, headers=headers)
    assert producer.flush(30) == 0
    given = {
        "servers": servers,
        "topic": "older-pyspark",
        "watched": "older-pyspark-watched",
        "folder": str(folder / "made"),
        "jars": ",".join(map(str, connector_jars("4.0.0"))),
        # The archive is that of the newest PySpark.
        "conf": dict(SETTINGS) | dict.fromkeys(JAVA_OPTIONS, SHORT_LIVED),
    }
    return json.loads(run("4.0.0", SESSION, json.dumps(given), folder=folder).splitlines()[-1])


def test_3_5_is_told_what_it_lacks(tmp_path: Path) -> None:
    lines, hint = run("3.5.1", TOO_OLD, folder=tmp_path).splitlines()
    assert lines == "PySpark 3.5.1 has no Python data sources, which came with 4.0"
    assert "pip install 'pyspark>=4.0'" in hint


def test_4_0_reads_and_writes_what_the_connector_reads(on_4_0: Any) -> None:
    """It cannot limit its batches, and says so. Where the connector's jar is there, Spark uses the connector."""
    assert (on_4_0["version"], on_4_0["chosen"]) == ("4.0.0", "kafka")
    assert len(on_4_0["ours"]) == 200
    assert on_4_0["ours"] == on_4_0["connectors"]
    assert [len(on_4_0[name]) for name in ("after_batch", "after_stream")] == [400, 800]
    assert set(on_4_0["ours"]) < set(on_4_0["after_batch"]) < set(on_4_0["after_stream"])
    assert "PySpark 4.0.0 cannot limit the batches of a Python source, which came with 4.2" in on_4_0["refusal"]


def test_all_ways_agree_where_the_connector_reads(on_4_0: Any) -> None:
    """The checkpoint, event log and listener of a query whose only part of klamm is the listener."""
    topic = "older-pyspark-watched"
    assert (on_4_0["version"], on_4_0["ends"]) == ("4.0.0", {f"{topic}-0": 100, f"{topic}-1": 100})
    assert on_4_0["batches"] >= 5, "a batch has 40 records at most"
    assert on_4_0["lags"] == {"checkpoint": 20}
