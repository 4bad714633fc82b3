"""How long a record takes beside heavy work: end-to-end p50 and p99 at 1,000 records a second.

The peer is the same broker without other work, measured right before. The heavy jobs run one after the other: a child
process that decodes records as a cleaner does, another broker's recovery after kill -9, and 5,000 guarded ZooKeeper
writes of this broker's own controller (a topic with 1,700 partitions).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench_broker import KlammBroker, Load, create_topic, latency_ms, percentile, produce
from confluent_kafka.admin import AdminClient, NewTopic

from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

RATE = 1000
RECORDS = 6000
RECOVERED_RECORDS = 4_000_000
PARTITIONS_OF_LARGE_TOPIC = 1700

_CLEANER = """
import sys, time
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
batch = encode_batch([Record(key=b"%d" % n, value=bytes(100)) for n in range(5000)])
deadline = time.monotonic() + float(sys.argv[1])
while time.monotonic() < deadline:
    for record in iter_records(batch):
        pass
"""


def main() -> None:
    """Measure without other work, then with each job."""
    folder = Path(tempfile.mkdtemp(prefix="klamm-bench-"))
    host = own_loopback_address()
    try:
        with EmbeddedZooKeeper(host=host) as zookeeper:
            broker = KlammBroker(folder / "a", host, 19092, f"{zookeeper.connect_string}/a")
            other = KlammBroker(folder / "b", host, 19093, f"{zookeeper.connect_string}/b")
            try:
                broker.start()
                other.start()
                _measure(broker, other)
            finally:
                broker.stop()
                other.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(broker: KlammBroker, other: KlammBroker) -> None:
    create_topic(broker, "latency")
    create_topic(other, "filled")
    produce(other, "filled", Load("fill", RECOVERED_RECORDS, ("batch.size=1000000", "linger.ms=50", "acks=1")))
    latency_ms(broker, "latency", RATE, RECORDS)
    print(f"{'':36} {'p50 ms':>8} {'p99 ms':>8} {'p99 against nothing beside':>28}")
    quiet = _row("nothing beside", broker, None, 0.0)
    _row("cleaner-sized job in a child", broker, _clean, quiet)
    _row("another broker recovering", broker, lambda: _recover(other), quiet)
    _row("5,000 ZooKeeper writes", broker, lambda: _create_large_topic(broker), quiet)


def _row(name: str, broker: KlammBroker, beside: Callable[[], None] | None, quiet_p99_ms: float) -> float:
    job = None if beside is None else threading.Thread(target=beside)
    if job is not None:
        job.start()
    taken = latency_ms(broker, "latency", RATE, RECORDS)
    if job is not None:
        job.join()
    p50, p99 = percentile(taken, 0.5), percentile(taken, 0.99)
    ratio = f"{p99 / quiet_p99_ms:.1f}x" if quiet_p99_ms else ""
    print(f"{name:36} {p50:8.2f} {p99:8.2f} {ratio:>28}", flush=True)
    return p99


def _clean() -> None:
    subprocess.run([sys.executable, "-c", _CLEANER, str(RECORDS / RATE)], check=True)


def _recover(other: KlammBroker) -> None:
    other.process.kill()
    other.start()


def _create_large_topic(broker: KlammBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    time.sleep(1)
    admin.create_topics([NewTopic("large", PARTITIONS_OF_LARGE_TOPIC, 1)])["large"].result(60)
