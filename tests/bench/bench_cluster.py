"""Three brokers of ours and three of Apache Kafka 3.9.1, one cluster after the other on this machine (B2).

It measures the creation of many partitions, failover, replicated throughput, memory, and the cost of an idle broker
with many replicas. Both are warm: each load first runs ``WARM_UPS`` times. ``KLAMM_BENCH_ENGINES=klamm`` measures ours
alone.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from apache_kafka import fetch_jars, missing_for_kafka
from bench_broker import anonymous_mb, cpu_seconds, row
from confluent_kafka import Message, Producer
from wire_client import WireClient, create_topic, describe_topic

from engine.local.cluster import LocalCluster
from engine.local.java import find_java
from engine.local.probe import four_letter_word

PARTITIONS = int(os.environ.get("KLAMM_BENCH_PARTITIONS", "300"))
RECORDS = int(os.environ.get("KLAMM_BENCH_RECORDS", "2000000"))
ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "3"))
WARM_UPS = int(os.environ.get("KLAMM_BENCH_WARM_UPS", "3"))
ENGINES = os.environ.get("KLAMM_BENCH_ENGINES", "klamm,kafka").split(",")
IDLE_S = 10.0
RECORD_BYTES = 100
LOAD = ("acks=all", "batch.size=1000000", "batch.num.messages=100000", "linger.ms=50")
SETTINGS = {"zookeeper.session.timeout.ms": "6000", "min.insync.replicas": "2"}

Figures = dict[str, tuple[float, str, str]]
"""For each measurement: value, unit, and the wanted ratio."""


def _kafka_command(folder: Path) -> list[str]:
    log4j = folder / "log4j.properties"
    log4j.write_text("log4j.rootLogger=ERROR, stderr\nlog4j.appender.stderr=org.apache.log4j.ConsoleAppender\n")
    options = ["-Xmx1g", "-Xms1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", f"-Dlog4j.configuration=file:{log4j}"]
    return [str(find_java().program), *options, "-cp", f"{fetch_jars()}/*", "kafka.Kafka"]


def three_brokers(engine: str, folder: Path) -> LocalCluster:
    """Return a cluster of a kind, not started yet."""
    folder.mkdir(parents=True)
    commands = {} if engine == "klamm" else dict.fromkeys(range(3), _kafka_command(folder))
    return LocalCluster(3, directory=folder / "cluster", config=SETTINGS, commands=commands, start_timeout_s=120)


def _pids(cluster: LocalCluster) -> list[int]:
    return [broker.pid for broker in cluster.brokers.values() if broker.pid is not None]


def cpu_s(cluster: LocalCluster) -> float:
    """Return the CPU that its brokers have used."""
    return sum(map(cpu_seconds, _pids(cluster)))


def _wait(is_done: Callable[[], bool], timeout_s: float = 120.0) -> float:
    begin = time.perf_counter()
    while not is_done():
        if time.perf_counter() - begin > timeout_s:
            raise RuntimeError(f"not done within {timeout_s:.0f} s")
        time.sleep(0.02)
    return time.perf_counter() - begin


def _is_led(cluster: LocalCluster, by: int, topic: str, count: int, *, without: int = -1) -> bool:
    """Return whether a broker tells clients a live leader for every partition."""
    with WireClient(cluster.broker(by).address) as client:
        leaders = [p.leader_id for p in describe_topic(client, topic).partitions]
    return len(leaders) == count and not {-1, without} & set(leaders)


def _creation_s(cluster: LocalCluster, topic: str) -> float:
    begin = time.perf_counter()
    create_topic(cluster.broker(0).address, topic, partitions=PARTITIONS, replication_factor=3)
    for broker_id in cluster.brokers:
        _wait(lambda b=broker_id: _is_led(cluster, b, topic, PARTITIONS))  # type: ignore[misc]
    return time.perf_counter() - begin


def _failover_s(cluster: LocalCluster, topic: str) -> float:
    """Kill a broker that is not the controller; return the time from its session's end until all is led again."""
    controller = cluster.controller_id()
    victim, witness = (b for b in cluster.brokers if b != controller)
    cluster.kill_broker(victim)
    server = cluster.zookeeper
    path = f"/brokers/ids/{victim}"
    _wait(lambda: path not in four_letter_word(server.host, server.port, "dump").split())
    took_s = _wait(lambda: _is_led(cluster, witness, topic, PARTITIONS, without=victim))
    cluster.start_broker(victim)
    return took_s


def _idle_percent(cluster: LocalCluster) -> float:
    """Return the CPU of the busiest broker while nothing happens, in per cent of a core."""
    time.sleep(5)
    before = {pid: cpu_seconds(pid) for pid in _pids(cluster)}
    time.sleep(IDLE_S)
    return max((cpu_seconds(pid) - spent) / IDLE_S * 100 for pid, spent in before.items())


def _produce(cluster: LocalCluster, topic: str) -> tuple[float, float]:
    """Run one load; return elapsed seconds and the CPU seconds of the three brokers."""
    before = cpu_s(cluster)
    command = [sys.executable, str(Path(__file__).with_name("rdkafka.py")), "--topic", topic, "--count", str(RECORDS)]
    command += ["--size", str(RECORD_BYTES), "--partitions", "6", f"bootstrap.servers={cluster.bootstrap_servers}"]
    command += ["queue.buffering.max.messages=1000000", *LOAD]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    return float(json.loads(said)["elapsed_s"]), cpu_s(cluster) - before


def _pause_ms(cluster: LocalCluster, topic: str) -> float:
    """Return the longest wait of a producer with acks=all for a partition while a broker was shut down."""
    answered: dict[int, list[float]] = {partition: [] for partition in range(6)}
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 0, "log_level": 0}
    producer = Producer(
        settings | {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
    )

    def on_delivery(error: object, message: Message) -> None:
        if error is None:
            answered[message.partition()].append(time.perf_counter())

    victim = next(b for b in cluster.brokers if b != cluster.controller_id())
    stopper = threading.Thread(target=cluster.stop_broker, args=(victim,))
    begin = time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < 6:
        if elapsed > 2 and stopper.ident is None:
            stopper.start()
        for partition in answered:
            producer.produce(topic, b"x" * RECORD_BYTES, partition=partition, on_delivery=on_delivery)
        producer.poll(0.005)
    producer.flush(30)
    stopper.join()
    cluster.start_broker(victim)
    # The first second belongs to the producer's start.
    steady = [[t for t in times if t > begin + 1] for times in answered.values()]
    return max(b - a for times in steady for a, b in itertools.pairwise(times)) * 1000


def _measure(cluster: LocalCluster) -> Figures:
    create_topic(cluster.broker(0).address, "load", partitions=6, replication_factor=3)
    for _ in range(WARM_UPS):
        _produce(cluster, "load")
    seen = [_produce(cluster, "load") for _ in range(ROUNDS)]
    elapsed_s, cpu_s = (statistics.median(each[i] for each in seen) for i in range(2))
    memory = sum(map(anonymous_mb, _pids(cluster)))
    pause_ms = statistics.median(_pause_ms(cluster, "load") for _ in range(ROUNDS))
    _creation_s(cluster, "warm-up")
    created_s = _creation_s(cluster, "many")
    idle = _idle_percent(cluster)
    failover_s = _failover_s(cluster, "many")
    return {
        "RF 3, acks=all, 100-byte records": (RECORDS / elapsed_s / 1e3, "k records/s", ">= 1.2"),
        "  CPU of three brokers": (cpu_s / (RECORDS * RECORD_BYTES / 1e9), "s/GB", "<= 0.7"),
        "  memory of three brokers (RssAnon)": (memory, "MB", "<= 0.2"),
        "longest wait during a controlled shutdown": (pause_ms, "ms", "<= 1.0"),
        f"{PARTITIONS} partitions x 3 created and led": (created_s, "s", "<= 1.0"),
        f"idle broker, {2 * PARTITIONS} replicas": (idle, "% of a core", "< 5 %"),
        f"{PARTITIONS} partitions led again after a kill": (failover_s, "s", "<= 1.0"),
    }


def main() -> None:
    """Measure one cluster, then the other; print the table."""
    figures: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder:
        for engine in ENGINES:
            if engine == "kafka" and (missing := missing_for_kafka()) is not None:
                print(f"Apache Kafka is left out: {missing}")
                continue
            with three_brokers(engine, Path(folder) / engine) as cluster:
                figures[engine] = _measure(cluster)
                for broker in cluster.brokers.values():
                    broker.kill()
    print(f"{'':44} {'klamm':>12} {'Kafka 3.9.1':>12} {'':12} {'ratio':>7}")
    for name, (value, unit, wanted) in figures.get("klamm", {}).items():
        row(name, value, figures.get("kafka", {}).get(name, (float("nan"), "", ""))[0], unit, wanted)
