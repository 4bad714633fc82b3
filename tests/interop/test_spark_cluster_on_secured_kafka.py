"""Two executors of a standalone Spark, which have no file of the driver's but those that ``--files`` sends them.

They read, write, sample lag, verify and merge; Kafka asks for TLS with a client's certificate.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

import pytest
from klamm_program import in_process, klamm
from merged_logs import locally, plan_of, write_logs
from secured_kafka import secured_kafka
from spark_sessions import SETTINGS
from standalone_spark import standalone, submitted

from engine.admin.lag.history_folder import COLUMNS, Lake

KEY_PASSWORD = "k3y-Secr3t"
JOB = """\
import json
import os
import sys
import time

import klamm._path
from klamm.spark import register
from pyspark.sql import SparkSession

from cli.main import main


def look(_):
    time.sleep(0.5)
    return os.getcwd(), os.path.exists(given["ca"])


given = json.loads(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
seen = spark.sparkContext.parallelize(range(8), 8).map(look).collect()
register(spark)
options = given["options"]
rows = spark.range(100).repartition(4).selectExpr("cast(id as string) as value")
rows.write.format("klamm-kafka").options(**options).option("topic", "sent").mode("append").save()
read = spark.read.format("klamm-kafka").options(**options, subscribe="sent").load()
values = sorted(int(row.value) for row in read.selectExpr("cast(value as string) as value").collect())
stream = spark.readStream.format("klamm-kafka").options(**options, subscribe="sent", startingOffsets="earliest").load()
query = stream.writeStream.format("memory").queryName("streamed").option("checkpointLocation", given["checkpoint"])
assert query.trigger(availableNow=True).start().awaitTermination(120)
streamed = spark.table("streamed").count()
where = ["-b", given["address"], "--command-config", given["config"], "--quiet"]
lag = ["--out", given["lag"], "--samples", "1", "--interval", "1s", "--checkpoint", given["checkpoint"]]
codes = [
    main(["spark", "lag", *lag, *where]),
    main(["spark", "verify", "--topic", "sent", *where]),
    main(["spark", "merge", given["logs"], "--out", given["merged"], "--quiet"]),
]
print(json.dumps({"seen": sorted(set(seen)), "values": values, "streamed": streamed, "codes": codes}))
"""


def test_stores_come_by_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "driver").mkdir()
    (tmp_path / "spark").mkdir()
    write_logs(tmp_path / "logs", random.Random(8), brokers=2, entries=500, disorder=2)
    with (
        secured_kafka(tmp_path / "driver") as kafka,
        standalone(tmp_path / "spark", hidden=kafka.folder) as master,
    ):
        ca, own = kafka.folder / "ca.pem", kafka.folder / "admin.pem"
        kafka.ca.sign("admin").write_pem(own, KEY_PASSWORD)
        stores = {
            "security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM",
            "ssl.key.password": KEY_PASSWORD,
        }  # fmt: skip
        config = kafka.folder / "admin.properties"
        here = stores | {"ssl.truststore.location": str(ca), "ssl.keystore.location": str(own)}
        config.write_text("".join(f"{key}={value}\n" for key, value in here.items()))
        sent = stores | {"ssl.truststore.location": "ca.pem", "ssl.keystore.location": "admin.pem"}
        address = kafka.address("MUTUAL")
        where = ("-b", address, "--command-config", config)
        made = in_process("topics", "create", "sent", "--partitions", "2", *where, capture=capsys)
        assert made.code == 0, made.err
        given = {
            "options": {"kafka.bootstrap.servers": address} | {f"kafka.{key}": value for key, value in sent.items()},
            "address": address,
            "config": str(config),
            "ca": str(ca),
            "checkpoint": str(tmp_path / "checkpoint"),
            "lag": str(tmp_path / "lag"),
            "logs": str(tmp_path / "logs"),
            "merged": str(tmp_path / "merged"),
        }
        (tmp_path / "job.py").write_text(JOB)
        ran = submitted(master, tmp_path, dict(SETTINGS) | {"spark.executor.cores": "1"}, [ca, own], given)
        settings = dict(SETTINGS) | {
            "spark.files": f"{ca},{own}", "spark.executor.memory": "512m", "spark.cores.max": "1",
        }  # fmt: skip
        confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        again = klamm(
            "spark", "lag", "--out", "again", "--samples", "1", "--interval", "1s", "--checkpoint", "checkpoint",
            "--master", master, *confs, *where, folder=tmp_path, env={"PYSPARK_PYTHON": sys.executable},
        )  # fmt: skip
    assert again.code == 0, again.err
    assert KEY_PASSWORD not in ran.stdout + ran.stderr
    result = json.loads(ran.stdout.splitlines()[-1])
    folders = {folder for folder, _ in result["seen"]}
    assert len(folders) == 2, "each executor has a folder of its own"
    assert not any(sees_it for _, sees_it in result["seen"]), "executors do not see the driver's files"
    assert (result["values"], result["streamed"], result["codes"]) == ([*range(100)], 100, [0, 0, 0])
    for out in ("lag", "again"):
        lake = Lake(str(tmp_path / out))
        samples = lake.read(lake.files(0, time.time_ns() // 1_000_000), list(COLUMNS)).to_pylist()
        rows = [(row["topic"], row["partition"], row["lag"], row["error"]) for row in samples if row["topic"]]
        assert sorted(rows) == [("sent", 0, 0, None), ("sent", 1, 0, None)], samples
    merged = sorted(path for path in (tmp_path / "merged").iterdir() if path.suffix == ".log")
    assert b"".join(path.read_bytes() for path in merged) == locally(plan_of(tmp_path / "logs"))
