"""Commands of klamm beside Kafka's own tools, on one cluster in one run (B3): wall and CPU time of cold processes."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from apache_kafka import fetch_jars

from engine.local.cluster import LocalCluster
from engine.local.java import find_java

ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "7"))
KLAMM = str(Path(sys.executable).with_name("klamm"))


def timed(command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return its wall and CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall_s = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def row(name: str, ours: Sequence[str], theirs: Sequence[str] | None) -> None:
    """Measure both in turns and print a line with the medians."""
    mine: list[tuple[float, float]] = []
    kafka: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        mine.append(timed(ours))
        if theirs is not None:
            kafka.append(timed(theirs))
    wall_s, cpu_s = (statistics.median(column) for column in zip(*mine, strict=True))
    line = f"{name:36} {wall_s:8.2f} {cpu_s:8.2f}"
    if kafka:
        kafka_wall_s, kafka_cpu_s = (statistics.median(column) for column in zip(*kafka, strict=True))
        line += f" {kafka_wall_s:8.2f} {kafka_cpu_s:8.2f} {wall_s / kafka_wall_s:7.2f}x {cpu_s / kafka_cpu_s:7.2f}x"
    print(line, flush=True)


def main() -> None:
    """Measure against a local cluster of one broker."""
    jars = fetch_jars()
    java = [str(find_java().program), "-Xmx256m", "-cp", f"{jars}/*"]
    with LocalCluster(1) as cluster:
        bootstrap = ("--bootstrap-server", cluster.bootstrap_servers)
        zookeeper = ("--zookeeper", cluster.zookeeper_connect)
        subprocess.run([KLAMM, "topics", "create", "orders", "--partitions", "6", *bootstrap], check=True)
        print(f"{'':36} {'klamm s':>8} {'CPU s':>8} {'Kafka s':>8} {'CPU s':>8} {'wall':>8} {'CPU':>8}")
        topics = "org.apache.kafka.tools.TopicCommand"
        describe, listed = (topics, "--describe", "--topic", "orders"), (topics, "--list")
        elect = ("org.apache.kafka.tools.LeaderElectionCommand", "--election-type", "preferred")
        moves = ("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--list")
        row("--help", [KLAMM, "--help"], None)
        row(
            "topics describe (wire)",
            [KLAMM, "topics", "describe", "orders", *bootstrap],
            [*java, *describe, *bootstrap],
        )
        row("topics describe (ZooKeeper)", [KLAMM, "topics", "describe", "orders", *zookeeper], None)
        row("topics list", [KLAMM, "topics", "list", *bootstrap], [*java, *listed, *bootstrap])
        row(
            "elect preferred",
            [KLAMM, "elect", "preferred", "--topic", "orders", "--yes", *bootstrap],
            [*java, *elect, "--all-topic-partitions", *bootstrap],
        )
        row("reassign list", [KLAMM, "reassign", "list", *bootstrap], [*java, *moves, *bootstrap])
