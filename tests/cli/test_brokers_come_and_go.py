"""Commands while brokers come and go: a performance test counts every record once, and lag hides nothing it knows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from ended_sessions import kill_for_good
from group_members import commit, fill
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


def test_a_partition_without_leader_hides_nothing_else(
    three_brokers: LocalCluster, by_wire: Klamm, topic_name: str
) -> None:
    assert by_wire("topics", "create", topic_name, "--replica-assignment", "0,1").code == 0
    servers, name = three_brokers.bootstrap_servers, f"{topic_name}-g"
    fill(servers, topic_name, 2, 50)
    commit(servers, name, {(topic_name, 0): 10, (topic_name, 1): 10})
    commit(servers, f"{name}-read-all", {(topic_name, 0): 50, (topic_name, 1): 10})
    three_brokers.stop_broker(1)
    try:
        ran = by_wire("lag", name, "--samples", "1", "--partitions", "--fail-on", "unknown", "-o", "json")
        (at_the_end,) = by_wire("lag", f"{name}-read-all", "--samples", "1", "-o", "json").json
    finally:
        three_brokers.start_broker(1)
    (group,) = ran.json
    led, leaderless = group["partitions"]
    assert ran.code == 1
    assert (led["lag"], led["reason"]) == (40, "too_few_samples")
    assert led["time_lag_ms"] > 0
    unknown = [leaderless[key] for key in ("log_end_offset", "lag", "time_lag_ms", "span_ms", "clear_in_ms")]
    assert (leaderless["reason"], leaderless["committed_offset"], unknown) == ("no_leader", 10, [None] * 5)
    assert (group["lag"], group["unknown_partition_count"], group["status"]) == (40, 1, "UNKNOWN")
    assert (at_the_end["lag"], at_the_end["time_lag_ms"], at_the_end["reason"]) == (None, None, "no_leader")
