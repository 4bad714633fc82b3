"""Compaction of the same logs by us and by Apache Kafka 3.9.1: MB/s, CPU, and its effect on concurrent produces.

Each broker gets the same folders, written once. The topics' settings make it compact them one after the other. Bytes
and seconds come from each broker's own log, which has the same lines on both sides. The first log is a warm-up, because
the JVM compiles as it runs. CPU includes the broker's cleaner process.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from apache_kafka import ApacheKafkaBroker
from bench_broker import SCALE, Broker, KlammBroker, cpu_seconds, create_topic, latency_ms, percentile
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tabulate import tabulate
from wire_client import wait_until_led

from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.common.clock import SystemClock
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

SEGMENT_BYTES = 64 * 1024 * 1024
BATCH_RECORDS = 100
RECORDS = int(1_500_000 * SCALE)
VALUE_BYTES = 80
SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
BROKER_SETTINGS = {"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "1"}
_CLEANED = re.compile(
    r"cleaned log (\S+)-0 \(dirty section = \[\d+, (\d+)\]\)\n"
    r"\t([\d,.]+) MB of log processed in ([\d,.]+) seconds .*\n\tIndexed .*\n"
    r"\tBuffer .*\n\tCleaned .*\n\tStart size: .* \(([\d,]+) messages\)"
)


@dataclass(frozen=True)
class Shape:
    """A log to be compacted."""

    topic: str
    name: str
    keys: int
    codec: Codec
    are_sizes_mixed: bool = False
    """Values of half to one and a half times the usual size; elsewhere all are of one."""


SHAPES = (
    Shape("warm-up", "", 10_000, Codec.NONE),
    Shape("few-keys", "1,000 keys", 1_000, Codec.NONE),
    Shape("many-keys", "100,000 keys", 100_000, Codec.NONE),
    Shape("new-keys", "hardly a key twice", 10**9, Codec.NONE),
    Shape("mixed-sizes", "100,000 keys, sizes mixed", 100_000, Codec.NONE, are_sizes_mixed=True),
    Shape("few-keys-lz4", "1,000 keys, lz4", 1_000, Codec.LZ4),
    Shape("many-keys-lz4", "100,000 keys, lz4", 100_000, Codec.LZ4),
    Shape("many-keys-zstd", "100,000 keys, zstd", 100_000, Codec.ZSTD),
    Shape("beside", "", 100_000, Codec.NONE),
)


@dataclass(frozen=True)
class Cleaned:
    """What a broker reported of one cleaning, and the CPU seconds it took."""

    mb: float
    elapsed_s: float
    records: int
    cpu_s: float


def main() -> None:
    """Write the logs, let both brokers compact them, and print the tables."""
    folder = Path(tempfile.mkdtemp(prefix="klamm-bench-compaction-"))
    host = own_loopback_address()
    try:
        write_logs(folder / "made")
        with EmbeddedZooKeeper(host=host) as zookeeper:
            ours = KlammBroker(folder / "klamm", host, 19092, f"{zookeeper.connect_string}/klamm")
            properties = folder / "klamm" / "server.properties"
            properties.write_text(
                properties.read_text() + "".join(f"{key}={value}\n" for key, value in BROKER_SETTINGS.items())
            )
            kafka = ApacheKafkaBroker(
                folder / "kafka",
                broker_id=0,
                host=host,
                port=19093,
                zookeeper_connect=f"{zookeeper.connect_string}/kafka",
                overrides=BROKER_SETTINGS,
            )
            figures = {
                "klamm": measure(ours, folder / "klamm", "broker.out", folder / "made"),
                "kafka": measure(kafka, folder / "kafka", "server.log", folder / "made"),
            }
        print_tables(figures)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_logs(data: Path) -> None:
    """Make a folder per shape, as a clean shutdown of a broker leaves it."""
    numbers = random.Random(7)
    config = LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1)
    manager = LogManager(LogManagerConfig((data,)), lambda topic: config, SystemClock(), lambda path: None)
    manager.load()
    for shape in SHAPES:
        log = manager.get_or_create(TopicPartition(shape.topic, 0), is_new=True)
        now_ms = SystemClock().now_ms()
        spread = range(-VALUE_BYTES // 2, VALUE_BYTES // 2) if shape.are_sizes_mixed else (0,)
        for first in range(0, RECORDS, BATCH_RECORDS):
            records = [
                Record(
                    key=b"key-%010d" % numbers.randrange(shape.keys),
                    value=b"%0*d" % (VALUE_BYTES + numbers.choice(spread), number),
                    timestamp_ms=now_ms + number % BATCH_RECORDS,
                )
                for number in range(first, first + BATCH_RECORDS)
            ]
            log.append_as_leader(memoryview(bytearray(encode_batch(records, codec=shape.codec))), 0)
        log.roll()
        log.append_as_leader(memoryview(bytearray(encode_batch([Record(key=b"end", timestamp_ms=now_ms)]))), 0)
    manager.shutdown()


def measure(broker: Broker, folder: Path, said_in: str, made: Path) -> tuple[dict[str, Cleaned], list[float]]:
    """Give a broker the logs and let it compact them; return its reports, and latencies during the last one."""
    try:
        broker.start()
        admin = admin_of(broker)
        topics = [NewTopic(shape.topic, 1, 1, config=SETTINGS) for shape in SHAPES]
        for future in admin.create_topics(topics).values():
            future.result(30)
        create_topic(broker, "latency")
        broker.stop()
        for shape in SHAPES:
            for path in (made / f"{shape.topic}-0").iterdir():
                if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
                    shutil.copy2(path, folder / "data" / f"{shape.topic}-0")
        broker.start()
        wait_until_led(broker.bootstrap, "latency", *(shape.topic for shape in SHAPES))
        latency_ms(broker, "latency")
        quiet = latency_ms(broker, "latency")
        figures = {shape.topic: compact(broker, shape.topic, folder / said_in) for shape in SHAPES[:-1]}
        beside: list[float] = []
        sending = threading.Thread(target=lambda: beside.extend(latency_ms(broker, "latency")))
        sending.start()
        figures["beside"] = compact(broker, SHAPES[-1].topic, folder / said_in)
        sending.join()
        return figures, [percentile(quiet, 0.99), percentile(beside, 0.99)]
    finally:
        broker.stop()


def compact(broker: Broker, topic: str, said: Path) -> Cleaned:
    """Let a broker compact a log, and wait for its report."""
    before = cpu_of(broker.process.pid)
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = admin_of(broker)
    admin.incremental_alter_configs([resource])[resource].result(30)
    mb, elapsed_s, records = wait_for(lambda: told_of(topic, said), f"the cleaning of {topic}")
    return Cleaned(mb, elapsed_s, records, cpu_of(broker.process.pid) - before)


def admin_of(broker: Broker) -> AdminClient:
    """Return a client of a broker that knows the controller. Otherwise it would not ask again for minutes."""
    deadline = time.monotonic() + 30
    while True:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        if admin.list_topics(timeout=10).controller_id >= 0:
            return admin
        if time.monotonic() > deadline:
            raise RuntimeError(f"{broker.bootstrap} knows no controller")
        time.sleep(0.1)


def told_of(topic: str, said: Path) -> tuple[float, float, int] | None:
    sums = [0.0, 0.0, 0.0]
    for name, end_offset, *figures in _CLEANED.findall(said.read_text()):
        if name == topic:
            # There are more keys than the map holds: the rounds add up, but the log size is that of the first.
            mb, elapsed_s, records = (float(figure.replace(",", "")) for figure in figures)
            sums = [sums[0] or mb, sums[1] + elapsed_s, sums[2] or records]
            if int(end_offset) >= RECORDS:
                return sums[0], sums[1], int(sums[2])
    return None


def wait_for(look: Callable[[], tuple[float, float, int] | None], what: str) -> tuple[float, float, int]:
    deadline = time.monotonic() + 300
    while (result := look()) is None:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not come to an end")
        time.sleep(0.1)
    return result


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process and its live children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_seconds(pid) + sum(cpu_seconds(int(child)) for child in children if os.path.exists(f"/proc/{child}"))


def print_tables(found: dict[str, tuple[dict[str, Cleaned], list[float]]]) -> None:
    """Print both tables."""
    rows = []
    for shape in SHAPES[1:-1]:
        ours, kafka = (found[name][0][shape.topic] for name in ("klamm", "kafka"))
        speed, kafkas = (engine.mb / max(engine.elapsed_s, 0.05) for engine in (ours, kafka))
        records, kafkas_records = (engine.records / max(engine.elapsed_s, 0.05) / 1e3 for engine in (ours, kafka))
        rows.append(
            [shape.name, ours.mb, speed, kafkas, speed / kafkas, records, kafkas_records, ours.cpu_s, kafka.cpu_s]
        )
    headers = [
        "log",
        "MB",
        "klamm MB/s",
        "Kafka MB/s",
        "ratio",
        "klamm k rec/s",
        "Kafka k rec/s",
        "CPU s",
        "Kafka CPU s",
    ]
    print(tabulate(rows, headers, floatfmt=",.2f"))
    print()
    latencies = [[name, *found[name][1], found[name][1][1] / found[name][1][0]] for name in ("klamm", "kafka")]
    print(tabulate(latencies, ["p99 of 1,000 produces/s", "alone ms", "beside ms", "ratio"], floatfmt=",.2f"))
