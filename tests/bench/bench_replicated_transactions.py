"""Transactions of librdkafka on three brokers of ours, then on three of Apache Kafka 3.9.1 (E18).

Each producer writes a record to three of six partitions, all of which have three replicas, and commits. So an outcome
waits for followers, and markers travel. ``KLAMM_BENCH_ENGINES=klamm`` leaves Kafka out.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from pathlib import Path

from bench_broker import row
from bench_cluster import cpu_s, three_brokers
from bench_groups import ENGINES, SCALE
from confluent_kafka import Producer
from wire_client import create_topic

PARTITIONS, TOPIC = 6, "written"
ROUNDS = ((1, 150), (8, 80))
"""Producers, and transactions of each."""


def transact(address: str, name: str, count: int, times_ms: list[float]) -> None:
    """Run transactions one after the other, and note the time of each."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "linger.ms": 0, "log_level": 0})
    producer.init_transactions(60)
    for number in range(count):
        begun_s = time.perf_counter()
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(TOPIC, b"v" * 100, partition=(number + partition) % PARTITIONS)
        producer.commit_transaction(60)
        times_ms.append((time.perf_counter() - begun_s) * 1000)


def measure(engine: str, folder: Path) -> list[tuple[float, float, float, float]]:
    """Return rate, median and 99th percentile in ms, and CPU of the brokers in us, for each round."""
    measured = []
    with three_brokers(engine, folder) as cluster:
        address = cluster.bootstrap_servers
        create_topic(address.split(",")[0], TOPIC, partitions=PARTITIONS, replication_factor=3)
        transact(address, "warm-up", int(60 * SCALE), [])

        for producers, each_count in ROUNDS:
            times_ms: list[float] = []
            threads = [
                threading.Thread(
                    target=transact, args=(address, f"bench-{producers}-{number}", int(each_count * SCALE), times_ms)
                )
                for number in range(producers)
            ]
            begun_s, begun_cpu_s = time.perf_counter(), cpu_s(cluster)
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            elapsed_s, count = time.perf_counter() - begun_s, len(times_ms)
            times_ms.sort()
            cpu_us = (cpu_s(cluster) - begun_cpu_s) * 1e6 / count
            measured.append((count / elapsed_s, times_ms[count // 2], times_ms[int(count * 0.99)], cpu_us))
    return measured


def main() -> None:
    """Measure both, and print."""
    folder = Path(tempfile.mkdtemp(prefix="klamm-bench-"))
    try:
        figures = {engine: measure(engine, folder / engine) for engine in ENGINES}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    nothing = [(float("nan"),) * 4] * len(ROUNDS)
    print(f"{'':44} {'klamm':>12} {'Kafka 3.9.1':>12} {'':12} {'ratio':>7}")
    for (producers, _), ours, kafkas in zip(
        ROUNDS, figures.get("klamm", nothing), figures.get("kafka", nothing), strict=True
    ):
        row(f"transactions, {producers} producers", ours[0], kafkas[0], "/s", ">= 1.5")
        row("  a transaction, p50", ours[1], kafkas[1], "ms", "<= 1.0")
        row("  a transaction, p99", ours[2], kafkas[2], "ms", "<= 1.0")
        row("  CPU of the brokers", ours[3], kafkas[3], "us each", "<= 0.6")
