"""Our performance tests beside Kafka's own, in turns on the same broker (T8): the rates they reach, and their CPU.

A tool that costs more CPU per record leaves less for the broker when both share a machine, and cannot saturate a broker
on another machine. ``KLAMM_BENCH_ENGINES=klamm`` leaves out Apache Kafka's broker (its tools stay).
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from apache_kafka import fetch_jars
from bench_groups import _kafka_command as kafka_command
from wire_client import create_topic

from engine.local.cluster import LocalCluster
from engine.local.java import find_java

ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "3"))
SCALE = float(os.environ.get("KLAMM_BENCH_SCALE", "1"))
ENGINES = os.environ.get("KLAMM_BENCH_ENGINES", "klamm,kafka").split(",")
KLAMM = str(Path(sys.executable).with_name("klamm"))
RECORDS = 2_000_000
PARTITIONS = 6
_SENT = re.compile(r"records sent, ([\d.]+) records/sec")

Figures = tuple[float, float]
"""Records per second, and the tool's CPU seconds per million records."""


def _run(command: Sequence[str], rate_of: Callable[[str], float]) -> Figures:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return rate_of(said), cpu_s / (RECORDS * SCALE / 1e6)


def _sent_rate(said: str) -> float:
    return float(_SENT.findall(said)[-1])


def _read_rate(said: str) -> float:
    """Return the rate of fetching, without the time to join a group."""
    rate = float(said.splitlines()[-1].split(", ")[-1])
    if "WARNING" in said or not rate:
        raise RuntimeError(f"the consumer did not get its records: {said}")
    return rate


def _tools(bootstrap: str) -> dict[str, tuple[list[str], list[str], Callable[[str], float]]]:
    java = [str(find_java().program), "-Xmx512m", "-cp", f"{fetch_jars()}/*"]
    count = str(int(RECORDS * SCALE))
    where = ["--bootstrap-server", bootstrap]

    def producing(size: int, *more: str, is_fresh: bool = False) -> tuple[list[str], list[str], Callable[[str], float]]:
        load = ["--topic", f"p{size}", "--num-records", count, "--record-size", str(size), "--throughput", "-1"]
        theirs = [*java, "org.apache.kafka.tools.ProducerPerformance", *load, "--producer-props"]
        props = [f"bootstrap.servers={bootstrap}", *more]
        anew = ["--fresh"] if is_fresh else []
        return [KLAMM, "perf", "producer", *load, *anew, "--producer-props", *props], [*theirs, *props], _sent_rate

    def consuming(*more: str) -> tuple[list[str], list[str], Callable[[str], float]]:
        read = ["--topic", "p100", "--messages", count, *where]
        # Its group must be created first. On a busy machine that takes longer than its default wait of 10 s.
        theirs = [*java, "org.apache.kafka.tools.ConsumerPerformance", *read, "--timeout", "60000"]
        return [KLAMM, "perf", "consumer", *read, *more], theirs, _read_rate

    return {
        "producer, 100 bytes, acks=1": producing(100, "acks=1"),
        "producer, 100 bytes, acks=all": producing(100),
        "producer, 100 bytes, acks=all, encoded anew": producing(100, is_fresh=True),
        "producer, 100 bytes, batches of 256 KB": producing(100, "batch.size=262144", "linger.ms=5"),
        "producer, 1000 bytes, zstd": producing(1000, "compression.type=zstd"),
        "consumer": consuming(),
        "consumer, every record looked at": consuming("--decode"),
    }


def _measure(engine: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    commands = None if engine == "klamm" else {0: kafka_command(folder)}
    with LocalCluster(1, directory=folder / "cluster", commands=commands, start_timeout_s=120) as cluster:
        for size in (100, 1000):
            create_topic(cluster.bootstrap_servers, f"p{size}", partitions=PARTITIONS)
        for name, (ours, theirs, rate_of) in _tools(cluster.bootstrap_servers).items():
            mine, kafkas = [], []
            for _ in range(ROUNDS):
                mine.append(_run(ours, rate_of))
                kafkas.append(_run(theirs, rate_of))
            (rate, cpu_s), (their_rate, their_cpu_s) = _median(mine), _median(kafkas)
            print(
                f"{engine:6} {name:40} {rate / 1e3:9.0f} {their_rate / 1e3:9.0f} {rate / their_rate:6.2f}x"
                f" {cpu_s:8.2f} {their_cpu_s:8.2f} {cpu_s / their_cpu_s:6.2f}x",
                flush=True,
            )


def _median(found: list[Figures]) -> Figures:
    return statistics.median(pair[0] for pair in found), statistics.median(pair[1] for pair in found)


def main() -> None:
    """Measure both brokers, each with both tools."""
    folder = Path(tempfile.mkdtemp(prefix="klamm-bench-"))
    print(
        f"{'broker':6} {'':40} {'klamm k/s':>9} {'Kafka k/s':>9} {'ratio':>7} {'CPU-s/M':>8} {'Kafka':>8} {'ratio':>7}"
    )
    try:
        for engine in ENGINES:
            _measure(engine, folder / engine)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
