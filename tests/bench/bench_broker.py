"""One broker of ours beside one of Apache Kafka 3.9.1 in the same run (B2): throughput, CPU, latency, memory, start.

The client is librdkafka (producer: from the confluent-kafka wheel through ctypes; consumer: kcat). Client and broker
share the machine. Each load first runs ``WARM_UPS`` times on both, because the JVM compiles as it runs. The brokers
take turns, so that a noisy minute hits both.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from apache_kafka import ApacheKafkaBroker
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from engine.local.addresses import own_loopback_address
from engine.local.processes import LocalProcess, start_process
from engine.local.zookeeper import EmbeddedZooKeeper
from engine.runtime.own_process import module_command

PARTITIONS = 6
RECORD_BYTES = 100
ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "3"))
WARM_UPS = int(os.environ.get("KLAMM_BENCH_WARM_UPS", "3"))
SCALE = float(os.environ.get("KLAMM_BENCH_SCALE", "1"))
"""Multiplies the number of records of every load."""
ONLY = os.environ.get("KLAMM_BENCH_ONLY", "")
"""Comma-separated names of loads to run; empty means all."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Load:
    """One kind of traffic: librdkafka's settings and the number of records per round."""

    name: str
    count: int
    settings: tuple[str, ...]
    records_per_request: float = 0.0


PRODUCE_LOADS = (
    Load("one record per request", 60_000, ("batch.num.messages=1", "linger.ms=0", "acks=1"), 1),
    Load("8 KB batches", 1_500_000, ("batch.size=8192", "linger.ms=5", "acks=1"), 75),
    Load("large batches", 5_000_000, ("batch.size=1000000", "batch.num.messages=100000", "linger.ms=50", "acks=1")),
)


class KlammBroker:
    """One of our brokers, started as a user would start it."""

    def __init__(
        self, folder: Path, host: str, port: int, zookeeper_connect: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self.bootstrap = f"{host}:{port}"
        self._folder = folder
        folder.mkdir(parents=True)
        own = {
            "broker.id": "0",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(folder / "data"),
            "zookeeper.connect": zookeeper_connect,
        }
        lines = [f"{key}={value}\n" for key, value in (own | dict(settings or {})).items()]
        (folder / "server.properties").write_text("".join(lines))
        self._process: LocalProcess | None = None

    @property
    def process(self) -> LocalProcess:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start it and wait for the line that says so."""
        output = self._folder / "broker.out"
        begin = len(output.read_text()) if output.exists() else 0
        command = [*module_command("engine.broker.server"), self._folder / "server.properties"]
        self._process = start_process(command, output=output)
        deadline = time.monotonic() + 30
        while not (output.exists() and "started" in output.read_text()[begin:]):
            if not self._process.is_alive or time.monotonic() > deadline:
                raise RuntimeError(f"klamm's broker did not start: {output.read_text()[-2000:]}")
            time.sleep(0.005)

    def stop(self) -> None:
        """Stop it with TERM."""
        if self._process is not None:
            self._process.stop(30)


Broker = KlammBroker | ApacheKafkaBroker
Run = tuple[str, str]
"""A way to a broker, and the broker."""
Figures = tuple[float, float]
"""Seconds that passed, and CPU seconds of the broker."""


def _without_security(broker: Broker) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap}


@dataclass(frozen=True)
class Way:
    """How the measured clients reach a broker."""

    name: str = "plaintext"
    client_of: Callable[[Broker], dict[str, str]] = _without_security
    """librdkafka's settings. Topics are made and counted over PLAINTEXT, whatever these are."""
    cpu_goal: str = ""
    """What the broker's CPU should be beside Kafka's, if it is not each row's own goal."""


PLAINTEXT = Way()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def anonymous_mb(pid: int) -> float:
    """Return the memory that a process has for itself (RssAnon), in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def create_topic(broker: Broker, topic: str) -> None:
    """Create a topic and wait until all its partitions have leaders."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        known = admin.list_topics(topic, timeout=10).topics[topic].partitions
        if len(known) == PARTITIONS and all(p.leader >= 0 for p in known.values()):
            return
    raise RuntimeError(f"topic {topic} was not led in time")


def end_offsets(broker: Broker, topic: str) -> int:
    """Return the number of records a topic holds."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bench", "enable.auto.commit": False})
    total = 0
    for partition in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        total += high - low
    consumer.close()
    return total


def produce(broker: Broker, topic: str, load: Load, way: Way = PLAINTEXT) -> tuple[float, float]:
    """Run one round; return (elapsed seconds, broker CPU seconds)."""
    count = int(load.count * SCALE)
    before = cpu_seconds(broker.process.pid)
    command = [sys.executable, str(HERE / "rdkafka.py"), "--topic", topic, "--count", str(count)]
    chunk = "100" if load.records_per_request == 1 else "5000"
    command += ["--size", str(RECORD_BYTES), "--partitions", str(PARTITIONS), "--chunk", chunk]
    command += [f"{key}={value}" for key, value in way.client_of(broker).items()]
    command += ["queue.buffering.max.messages=1000000", *load.settings]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    return float(json.loads(said)["elapsed_s"]), cpu_seconds(broker.process.pid) - before


def consume(broker: Broker, topic: str, count: int, way: Way = PLAINTEXT) -> tuple[float, float]:
    """Read a topic from the beginning with kcat; return (elapsed seconds, broker CPU seconds)."""
    command = ["kcat", "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "", "-c", str(count)]
    for key, value in way.client_of(broker).items():
        command += ["-X", f"{key}={value}"]
    before = cpu_seconds(broker.process.pid)
    begin = time.perf_counter()
    subprocess.run(command, check=True, timeout=600, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin, cpu_seconds(broker.process.pid) - before


def latency_ms(broker: Broker, topic: str, rate: int = 1000, count: int = 5000, way: Way = PLAINTEXT) -> list[float]:
    """Send at a fixed rate; return the milliseconds from each record's ``produce`` to its reader."""
    client = way.client_of(broker)
    consumer = Consumer(
        {
            **client,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, 0, _end(consumer, topic))])
    consumer.poll(1.0)
    producer = Producer({**client, "linger.ms": 0, "acks": 1})
    count = int(count * min(1.0, SCALE))
    taken: list[float] = []
    begin = time.perf_counter()
    sent = 0
    while len(taken) < count and time.perf_counter() - begin < 60:
        while sent < count and begin + sent / rate <= time.perf_counter():
            producer.produce(topic, str(time.perf_counter()).encode().ljust(RECORD_BYTES), partition=0)
            sent += 1
        producer.poll(0)
        message = consumer.poll(0.0002)
        if message is not None and not message.error():
            taken.append((time.perf_counter() - float(message.value())) * 1000)
    consumer.close()
    return taken[len(taken) // 10 :]


def _end(consumer: Consumer, topic: str) -> int:
    return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])


def percentile(values: list[float], share: float) -> float:
    """Return the value below which ``share`` of the values lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def row(name: str, ours: float, kafka: float, unit: str, wanted: str) -> None:
    """Print one line of the table."""
    ratio = ours / kafka if kafka else float("nan")
    print(f"{name:44} {ours:12.2f} {kafka:12.2f} {unit:12} {ratio:6.2f}x  wanted {wanted}", flush=True)


def timed_start(broker: Broker) -> float:
    """Start a broker; return the seconds until it serves."""
    begin = time.perf_counter()
    broker.start()
    return time.perf_counter() - begin


def rounds(runs: Mapping[Run, Callable[[], Figures]]) -> dict[Run, Figures]:
    """Run warm-ups, then rounds that take turns; return the medians of both figures for each run."""
    for _ in range(WARM_UPS):
        for once in runs.values():
            once()
    figures: dict[Run, list[Figures]] = {run: [] for run in runs}
    for _ in range(ROUNDS):
        for run, once in runs.items():
            figures[run].append(once())
    return {
        run: (statistics.median(f[0] for f in seen), statistics.median(f[1] for f in seen))
        for run, seen in figures.items()
    }


def measure(brokers: dict[str, Broker], ways: Sequence[Way] = (PLAINTEXT,)) -> None:
    """Run every load on both brokers and print the table. All ways to a broker take turns, so none has newer memory."""
    wanted_loads = [name.strip() for name in ONLY.split(",") if name.strip()]
    idle = {name: anonymous_mb(b.process.pid) for name, b in brokers.items()}
    row("idle memory (RssAnon)", idle["klamm"], idle["kafka"], "MB", "<= 60 MB")
    for number, load in enumerate(PRODUCE_LOADS):
        if not wanted_loads or load.name in wanted_loads:
            _measure_produce(brokers, ways, load, f"produced-{number}")
    if (not wanted_loads or "consume" in wanted_loads) and shutil.which("kcat"):
        _measure_consume(brokers, ways)
    if not wanted_loads or "latency" in wanted_loads:
        for way in ways:
            _measure_latency(brokers, way)
    loaded = {name: anonymous_mb(b.process.pid) for name, b in brokers.items()}
    row("memory after the load (RssAnon)", loaded["klamm"], loaded["kafka"], "MB", "<= 0.2")


def _measure_produce(brokers: dict[str, Broker], ways: Sequence[Way], load: Load, topic: str) -> None:
    for broker in brokers.values():
        create_topic(broker, topic)
    figures = rounds(
        {
            (way.name, name): partial(produce, broker, topic, load, way)
            for way in ways
            for name, broker in brokers.items()
        }
    )
    count = int(load.count * SCALE)
    for name, broker in brokers.items():
        expected = count * (WARM_UPS + ROUNDS) * len(ways)
        assert end_offsets(broker, topic) == expected, f"{name} lost records of {topic}"
    gb = count * RECORD_BYTES / 1e9
    for way in ways:
        (our_s, our_cpu_s), (kafkas_s, kafkas_cpu_s) = figures[way.name, "klamm"], figures[way.name, "kafka"]
        row(f"{load.name}, {way.name}", count / our_s / 1e3, count / kafkas_s / 1e3, "k records/s", ">= 1.0")
        if load.records_per_request:
            scale = 1e6 * load.records_per_request / count
            row("  broker CPU", our_cpu_s * scale, kafkas_cpu_s * scale, "us/request", way.cpu_goal or "<= 0.5")
        row("  broker CPU", our_cpu_s / gb, kafkas_cpu_s / gb, "s/GB", way.cpu_goal or "<= 0.9")


def _measure_consume(brokers: dict[str, Broker], ways: Sequence[Way]) -> None:
    count, topic = int(5_000_000 * SCALE), "consumed"
    for broker in brokers.values():
        create_topic(broker, topic)
        produce(broker, topic, Load("fill", 5_000_000, PRODUCE_LOADS[2].settings))
    figures = rounds(
        {
            (way.name, name): partial(consume, broker, topic, count, way)
            for way in ways
            for name, broker in brokers.items()
        }
    )
    gb = count * RECORD_BYTES / 1e9
    for way in ways:
        (our_s, our_cpu_s), (kafkas_s, kafkas_cpu_s) = figures[way.name, "klamm"], figures[way.name, "kafka"]
        row(f"consume, {way.name}", count / our_s / 1e3, count / kafkas_s / 1e3, "k records/s", ">= 1.0")
        row("  broker CPU", our_cpu_s / gb, kafkas_cpu_s / gb, "s/GB", way.cpu_goal or "<= 0.7")


def _measure_latency(brokers: dict[str, Broker], way: Way) -> None:
    seen: dict[str, list[float]] = {name: [] for name in brokers}
    topic = f"{way.name}-latency"
    for broker in brokers.values():
        create_topic(broker, topic)
        latency_ms(broker, topic, way=way)
    for _ in range(ROUNDS):
        for name, broker in brokers.items():
            seen[name] += latency_ms(broker, topic, way=way)
    for label, share in (("p50", 0.5), ("p99", 0.99)):
        ours, kafkas = (percentile(seen[name], share) for name in ("klamm", "kafka"))
        row(f"latency at 1000/s {label}, {way.name}", ours, kafkas, "ms", "<= 1.0")


def main() -> None:
    """Start ZooKeeper and both brokers, measure, and stop everything."""
    folder = Path(tempfile.mkdtemp(prefix="klamm-bench-"))
    host = own_loopback_address()
    print(f"{'':44} {'klamm':>12} {'Kafka 3.9.1':>12} {'':12} {'ratio':>7}")
    try:
        with EmbeddedZooKeeper(host=host) as zookeeper:
            ours = KlammBroker(folder / "klamm", host, 19092, f"{zookeeper.connect_string}/klamm")
            kafka = ApacheKafkaBroker(
                folder / "kafka",
                broker_id=0,
                host=host,
                port=19093,
                zookeeper_connect=f"{zookeeper.connect_string}/kafka",
            )
            try:
                row("start until it serves", timed_start(ours), timed_start(kafka), "s", "<= 0.5 s")
                measure({"klamm": ours, "kafka": kafka})
            finally:
                ours.stop()
                kafka.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
