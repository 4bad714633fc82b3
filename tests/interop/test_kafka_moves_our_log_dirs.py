"""Kafka's own tool moves a replica between log dirs of our broker, and Kafka's broker takes the result over."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from apache_kafka import ApacheKafkaBroker
from kafka_tools import run_tool
from patience import within
from replica_files import record_bytes, replica_folder
from wire_client import WireClient, create_topic, produce, read_all, wait_until_led

from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.cluster import LocalCluster

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
QUICK = {"zookeeper.session.timeout.ms": "2000", "log.segment.bytes": "30000", "log.segment.delete.delay.ms": "100"}


def tool(cluster: LocalCluster, main_class: str, *arguments: str) -> str:
    done = run_tool(main_class, "--bootstrap-server", cluster.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def described(cluster: LocalCluster) -> list[dict[str, Any]]:
    """Return what kafka-log-dirs reports about each log dir."""
    lines = tool(cluster, LOG_DIRS, "--describe", "--topic-list", "t").splitlines()
    (text,) = [line for line in lines if line.startswith("{")]
    (broker,) = json.loads(text)["brokers"]
    return list(broker["logDirs"])


def test_kafka_moves_a_replica_and_goes_on_with_it(tmp_path: Path) -> None:
    with LocalCluster(1, directory=tmp_path / "cluster", config=QUICK, log_dir_count=2) as cluster:
        create_topic(cluster.bootstrap_servers, "t")
        with WireClient(cluster.bootstrap_servers) as client:
            for n in range(60):
                records = encode_batch([Record(0, time.time_ns() // 1_000_000, b"%d" % n, b"v" * 2000)])
                assert produce(client, "t", records).error_code == 0
        dirs = cluster.broker(0).spec.log_dirs
        before = replica_folder(dirs, "t", 0)
        wanted = b"".join(record_bytes(before))
        (there,) = set(dirs) - {before.parent}
        plan = tmp_path / "plan.json"
        move = {"topic": "t", "partition": 0, "replicas": [0], "log_dirs": [str(there)]}
        plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
        output = tool(cluster, REASSIGN, "--execute", "--reassignment-json-file", str(plan))
        assert f"directory to {there} for replica t-0 with broker 0" in output, output
        is_in_time = within(60)
        while "is still in progress" in (
            output := tool(cluster, REASSIGN, "--verify", "--reassignment-json-file", str(plan))
        ):
            assert is_in_time(), output
        assert "Reassignment of replica t-0-0 completed successfully." in output
        places = {entry["logDir"]: entry["partitions"] for entry in described(cluster)}
        (replica,) = places.pop(str(there))
        assert (replica["partition"], replica["isFuture"], replica["offsetLag"]) == ("t-0", False, 0)
        assert list(places.values()) == [[]]
        assert b"".join(record_bytes(replica_folder(dirs, "t", 0))) == wanted
        broker = cluster.broker(0)
        assert cluster.stop_broker(0)
        with ApacheKafkaBroker(
            tmp_path / "kafka",
            broker_id=0,
            host=broker.spec.host,
            port=broker.spec.port,
            zookeeper_connect=cluster.zookeeper_connect,
            overrides={"log.dirs": ",".join(map(str, dirs))},
            shares_jvm=True,
        ) as kafka:
            wait_until_led(kafka.bootstrap, "t")
            with WireClient(kafka.bootstrap) as client:
                assert [record.key for record in read_all(client, "t")] == [b"%d" % n for n in range(60)]
