"""Performance tests continue while leaders come and go: every record counts once, and nobody must start again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from ended_sessions import kill_for_good
from klamm_program import PROGRAM, environment
from operated_cluster import Klamm

from engine.local.cluster import LocalCluster

RECORDS = 8_000


def started(tmp_path: Path, cluster: LocalCluster, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PROGRAM, "perf", *words, "-b", cluster.bootstrap_servers, "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )


def test_leaders_come_and_go(three_brokers: LocalCluster, by_wire: Klamm, topic_name: str, tmp_path: Path) -> None:
    assert by_wire("topics", "create", topic_name, "--replica-assignment", "0:1:2,1:2:0,2:0:1").code == 0
    load = ("--num-records", str(RECORDS), "--record-size", "20", "--throughput", "2000", "--print-metrics")
    producer = started(tmp_path, three_brokers, "producer", topic_name, *load)
    consumer = started(tmp_path, three_brokers, "consumer", topic_name, "--messages", str(RECORDS), "--timeout", "60")
    three_brokers.stop_broker(1)
    three_brokers.start_broker(1)
    kill_for_good(three_brokers, 2)
    sent, complaints = producer.communicate(timeout=90)
    assert producer.returncode == 0, complaints
    figures = json.loads(sent)
    assert figures["records_sent"] == RECORDS
    read, complaints = consumer.communicate(timeout=90)
    assert consumer.returncode == 0, complaints
    assert json.loads(read)["consumed_records"] == RECORDS, "none was stored twice"
    three_brokers.start_broker(2)
    assert by_wire("cluster", "health", "--wait", "--timeout", "60").code == 0
    assert len(by_wire("consume", topic_name, "--until-end").out.splitlines()) == RECORDS
