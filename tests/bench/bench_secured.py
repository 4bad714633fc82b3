"""A secured Apache Kafka: a cold start with TLS and SCRAM, 1 GB consumed over TLS beside kcat, and a dashboard at rest.

All of it is measured in turns on one broker. Goals: at most 60 ms of CPU above PLAINTEXT, 0.7 times kcat's rate, and at
most 10 % of a core for a dashboard that watches 5,000 partitions.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from dashboard_terminal import dashboard_terminal
from secured_kafka import SecuredKafka, secured_kafka
from wire_client import create_topic

ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "3"))
SCALE = float(os.environ.get("KLAMM_BENCH_SCALE", "1"))
KLAMM = str(Path(sys.executable).with_name("klamm"))
STARTS = 15
RECORD_BYTES = 1_000
TOPICS, PARTITIONS_OF_EACH = 50, 100
WARM_UP_S, REST_S = 20.0, 60.0


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder, secured_kafka(Path(folder)) as kafka:
        _cold_starts(kafka)
        _consumption(kafka)
        _dashboards(kafka, Path(folder))


def _cold_starts(kafka: SecuredKafka) -> None:
    ways = {
        "PLAINTEXT": ("PLAINTEXT", kafka.client("PLAINTEXT")),
        "SSL": ("TLS", kafka.client("TLS")),
        "SASL_PLAINTEXT, SCRAM-SHA-512": ("LOGIN", kafka.login("LOGIN", "SCRAM-SHA-512")),
        "SASL_SSL, SCRAM-SHA-512": ("SAFE", kafka.login("SAFE", "SCRAM-SHA-512")),
    }
    cpu_ms: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(STARTS):
        for name, (listener, config) in ways.items():
            words = [KLAMM, "topics", "list", "--quiet", "-b", kafka.address(listener), "--command-config", str(config)]
            cpu_ms[name].append(_cpu_s(words) * 1000)
    base = statistics.median(cpu_ms["PLAINTEXT"])
    print("klamm topics list, CPU of the process: median, and above PLAINTEXT")
    for name, figure in cpu_ms.items():
        print(f"  {name:32} {statistics.median(figure):6.0f} ms {statistics.median(figure) - base:+6.0f} ms")


def _consumption(kafka: SecuredKafka) -> None:
    count = int(1_000_000 * SCALE)
    config, address = kafka.client("TLS"), kafka.address("TLS")
    where = ["-b", address, "--command-config", str(config)]
    subprocess.run(
        [KLAMM, "topics", "create", "big", "--partitions", "6", *where], check=True, stdout=subprocess.DEVNULL
    )
    load = ["--topic", "big", "--num-records", str(count), "--record-size", str(RECORD_BYTES), "--throughput", "-1"]
    subprocess.run([KLAMM, "perf", "producer", *load, *where, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    plain = ["-b", kafka.address("PLAINTEXT")]
    read = ["-C", "-t", "big", "-o", "beginning", "-e", "-q"]
    tls = ["-X", "security.protocol=ssl", "-X", f"ssl.ca.location={kafka.folder / 'ca.pem'}"]
    consume = [KLAMM, "consume", "big", "--from-beginning", "--until-end", "--quiet"]
    perf = [KLAMM, "perf", "consumer", "--topic", "big", "--messages", str(count), "--quiet"]
    commands = {
        "kcat": ["kcat", *read, "-b", address, *tls],
        "klamm consume": [*consume, *where],
        "klamm perf consumer": [*perf, *where],
        "kcat, PLAINTEXT": ["kcat", *read, *plain],
        "klamm consume, PLAINTEXT": [*consume, *plain],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    cpu_s: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            began = time.monotonic()
            cpu_s[name].append(_cpu_s(command))
            seconds[name].append(time.monotonic() - began)
    peer = statistics.median(seconds["kcat"])
    size_mb = count * RECORD_BYTES / 1e6
    print(f"{size_mb:.0f} MB over TLS: rate with the start, ratio to kcat, CPU")
    for name in commands:
        took_s = statistics.median(seconds[name])
        cpu = statistics.median(cpu_s[name])
        print(f"  {name:25} {size_mb / took_s:7.0f} MB/s {peer / took_s:6.2f}x {cpu:6.2f} CPU-s")


def _dashboards(kafka: SecuredKafka, home: Path) -> None:
    for number in range(TOPICS):
        create_topic(kafka.address("PLAINTEXT"), f"watched-{number}", partitions=PARTITIONS_OF_EACH)
    ways = {
        "PLAINTEXT": ("PLAINTEXT", kafka.client("PLAINTEXT")),
        "SASL_SSL, SCRAM-SHA-512": ("SAFE", kafka.login("SAFE", "SCRAM-SHA-512")),
    }
    print(f"klamm top, {TOPICS * PARTITIONS_OF_EACH} partitions, nobody touches it for {REST_S:.0f} s")
    for name, (listener, config) in ways.items():
        with dashboard_terminal(["-b", kafka.address(listener), "--command-config", str(config)], home) as top:
            top.read_for(WARM_UP_S)
            used_s, began_s = top.cpu_s, time.monotonic()
            top.read_for(REST_S)
            share = (top.cpu_s - used_s) / (time.monotonic() - began_s)
            print(f"  {name:25} {share:7.1%} of a core {top.resident_mb:6.0f} MB")


def _cpu_s(command: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
