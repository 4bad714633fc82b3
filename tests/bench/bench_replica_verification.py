"""``klamm replicas verify`` beside Kafka's ReplicaVerificationTool: same topics, same brokers, cold processes.

Kafka's tool never ends; its time counts until it says that nothing lags. It compares the checksums in the batches'
headers; klamm recomputes them. ``KLAMM_BENCH_MB`` is the size of the records in one replica.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from apache_kafka import fetch_jars, missing_for_kafka

from engine.local.cluster import LocalCluster
from engine.local.java import find_java

ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "3"))
SIZE_MB = int(os.environ.get("KLAMM_BENCH_MB", "300"))
PARTITIONS, REPLICAS, RECORD_BYTES = 6, 3, 1000
KLAMM = str(Path(sys.executable).with_name("klamm"))
TOPIC = "verified"


@dataclass(frozen=True)
class Run:
    """What one run took; memory is the peak of its process."""

    wall_s: float
    cpu_s: float
    memory_mb: float


def main() -> None:
    """Print rate, CPU and memory of both."""
    settings = {"min.insync.replicas": "3", "group.initial.rebalance.delay.ms": "0"}
    with LocalCluster(REPLICAS, config=settings) as cluster:
        bootstrap = cluster.bootstrap_servers
        create = ["topics", "create", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", str(REPLICAS)]
        subprocess.run([KLAMM, *create, "-b", bootstrap, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        fill(bootstrap)
        print(f"{PARTITIONS} partitions × {REPLICAS} replicas, {SIZE_MB} MB in one replica; medians of {ROUNDS}")
        print(f"{'':32} {'wall s':>8} {'MB/s':>8} {'CPU s':>8} {'MB held':>8}")
        ours = row("klamm replicas verify", lambda: klamm(bootstrap))
        missing = missing_for_kafka()
        if missing is not None:
            print(f"ReplicaVerificationTool: {missing}")
            return
        theirs = row("ReplicaVerificationTool", lambda: kafka(bootstrap))
        ratios = (ours.wall_s / theirs.wall_s, ours.cpu_s / theirs.cpu_s, ours.memory_mb / theirs.memory_mb)
        print(f"{'klamm / Kafka':32} {ratios[0]:8.2f} {1 / ratios[0]:8.2f} {ratios[1]:8.2f} {ratios[2]:8.2f}")


def fill(bootstrap: str) -> None:
    """Send the records, acknowledged by all replicas, from a separate process: children inherit this one's memory."""
    sizes = ["--num-records", str(SIZE_MB * 1_000_000 // RECORD_BYTES), "--record-size", str(RECORD_BYTES)]
    words = ["perf", "producer", "--topic", TOPIC, *sizes, "--acks", "all", "-b", bootstrap, "--quiet"]
    subprocess.run([KLAMM, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def row(name: str, measure: Callable[[], Run]) -> Run:
    """Print the medians of several runs; the rate counts the bytes of all replicas."""
    runs = [measure() for _ in range(ROUNDS)]
    run = Run(
        statistics.median(run.wall_s for run in runs),
        statistics.median(run.cpu_s for run in runs),
        max(run.memory_mb for run in runs),
    )
    rate = SIZE_MB * REPLICAS / run.wall_s
    print(f"{name:32} {run.wall_s:8.2f} {rate:8.0f} {run.cpu_s:8.2f} {run.memory_mb:8.0f}", flush=True)
    return run


def klamm(bootstrap: str) -> Run:
    """Let klamm compare all replicas, which agree."""
    process = subprocess.Popen(
        [KLAMM, "replicas", "verify", "--topic", TOPIC, "-b", bootstrap, "--quiet"], stdout=subprocess.DEVNULL
    )
    return measured(process, time.perf_counter(), lambda: None)


def kafka(bootstrap: str) -> Run:
    """Run Kafka's tool from the earliest offset until nothing lags."""
    tool = "org.apache.kafka.tools.ReplicaVerificationTool"
    options = ["--topics-include", TOPIC, "--time", "-2", "--report-interval-ms", "100"]
    java = [str(find_java().program), "-Xmx512m", "-cp", f"{fetch_jars()}/*", tool, "--broker-list", bootstrap]
    process = subprocess.Popen([*java, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    begin = time.perf_counter()

    def wait_until_nothing_lags() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lag_line = re.search(r"max lag is (\d+) for partition \S+ at offset (\d+)", line)
            if lag_line is not None and lag_line[1] == "0" and lag_line[2] != "0":
                return
        raise AssertionError("Kafka's tool ended by itself")

    return measured(process, begin, wait_until_nothing_lags)


def measured(process: subprocess.Popen[str] | subprocess.Popen[bytes], begin: float, wait: Callable[[], None]) -> Run:
    """Wait for a process and return what it took. A process that never ends is stopped after ``wait``."""
    wait()
    wall_s = time.perf_counter() - begin
    if process.stdout is not None:
        process.kill()
    _, status, usage = os.wait4(process.pid, 0)
    if process.stdout is None:
        wall_s = time.perf_counter() - begin
        assert os.waitstatus_to_exitcode(status) == 0
    return Run(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
