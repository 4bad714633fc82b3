"""How soon a test has sent and read its first record (T15): ``klamm.testing`` beside Apache Kafka on one ZooKeeper."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from apache_kafka import ApacheKafkaBroker, fetch_jars
from confluent_kafka import Consumer, Producer, TopicPartition

from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper
from klamm.testing import LocalCluster

ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "7"))
PHASES = ("started", "written", "read back", "ended")


def write_and_read(bootstrap: str) -> tuple[float, float]:
    """Send a record to a topic that does not exist yet and read it; return when it was acknowledged and read."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    producer.produce("orders", b"1", partition=0)
    assert producer.flush(60) == 0
    written = time.perf_counter()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})
    consumer.assign([TopicPartition("orders", 0, 0)])
    record = consumer.poll(60)
    assert record is not None
    assert record.value() == b"1"
    read = time.perf_counter()
    consumer.close()
    return written, read


def ours() -> list[float]:
    """Return the times of the phases since the start, with klamm."""
    begin = time.perf_counter()
    with LocalCluster(1) as cluster:
        started = time.perf_counter()
        written, read = write_and_read(cluster.bootstrap_servers)
        ending = time.perf_counter()
    ended = time.perf_counter() - ending
    return [started - begin, written - begin, read - begin, ended]


def theirs() -> list[float]:
    """Return the same with Apache Kafka on the ZooKeeper that klamm starts."""
    host = own_loopback_address()
    begin = time.perf_counter()
    with EmbeddedZooKeeper(host=host, fsync=False) as zookeeper, tempfile.TemporaryDirectory() as folder:
        with ApacheKafkaBroker(
            Path(folder), broker_id=0, host=host, port=9092, zookeeper_connect=zookeeper.connect_string
        ) as broker:
            started = time.perf_counter()
            written, read = write_and_read(broker.bootstrap)
            ending = time.perf_counter()
        ended = time.perf_counter() - ending
    return [started - begin, written - begin, read - begin, ended]


def main() -> None:
    """Measure both in turns."""
    fetch_jars()
    runs: dict[str, list[list[float]]] = {"klamm": [], "Apache Kafka": []}
    for _ in range(ROUNDS):
        runs["klamm"].append(ours())
        runs["Apache Kafka"].append(theirs())
    print(f"medians of {ROUNDS}, load {os.getloadavg()[0]:.1f}")
    print(f"{'s':14}" + "".join(f"{phase:>12}" for phase in PHASES))
    for name, run in runs.items():
        columns = [statistics.median(column) for column in zip(*run, strict=True)]
        print(f"{name:14}" + "".join(f"{column:12.2f}" for column in columns), flush=True)
