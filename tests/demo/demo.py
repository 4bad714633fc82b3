"""``make demo``: the main job from end to end, on a fresh machine, with nothing left behind.

Real Apache ZooKeeper, a broker of ours, the CLI as a user types it, and librdkafka (confluent-kafka) as the client.
Each step prints the command it runs, so that the demo teaches. Exit code 0 means that every record came back.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

TOPIC = "orders"
PARTITIONS = 6
RECORDS = int(os.environ.get("KLAMM_DEMO_RECORDS", "100000"))
KLAMM = str(Path(sys.executable).with_name("klamm"))
DEADLINE_S = 120.0


class DemoFailed(Exception):
    """A step did not do what it should; the text says which."""


def say(text: str) -> None:
    """Print a headline."""
    print(f"\n\033[1m▌ {text}\033[0m" if sys.stdout.isatty() else f"\n# {text}", flush=True)


def klamm(*words: str, show: bool = True) -> str:
    """Run a klamm command as a user would and return its stdout."""
    if show:
        print(f"$ klamm {' '.join(words)}", flush=True)
    done = subprocess.run([KLAMM, *words], stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False)
    if show and done.stdout.strip():
        print(done.stdout.rstrip(), flush=True)
    if done.returncode != 0:
        raise DemoFailed(f"klamm {' '.join(words)} ended with code {done.returncode}")
    return done.stdout


def orders() -> Iterator[tuple[bytes, bytes]]:
    """Yield what is sent: orders of 5,000 customers, keyed by customer."""
    for number in range(RECORDS):
        customer = f"customer-{number * 7919 % 5000:04}"
        order = {"order": number, "customer": customer, "cents": number * 31 % 99_900 + 100, "state": "placed"}
        yield customer.encode(), json.dumps(order).encode()


def produce(bootstrap: str) -> str:
    """Send all orders by librdkafka (idempotent, acks=all, lz4); return the digest of what was acknowledged."""
    failed: list[str] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "lz4", "linger.ms": 20}
    )
    digest = Digest()
    for key, value in orders():
        while True:
            try:
                producer.produce(TOPIC, value, key, on_delivery=lambda error, _: error and failed.append(str(error)))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        digest.add(value)
    if producer.flush(DEADLINE_S) or failed:
        raise DemoFailed(f"{len(failed)} records were not acknowledged: {failed[:1]}")
    return str(digest)


def read_back(bootstrap: str) -> tuple[int, str]:
    """Read every record of the topic; return their number and digest."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False})
    partitions = [TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in range(PARTITIONS)]
    wanted = sum(consumer.get_watermark_offsets(p, timeout=30)[1] for p in partitions)
    consumer.assign(partitions)
    digest, count, deadline = Digest(), 0, time.monotonic() + DEADLINE_S
    while count < wanted:
        if time.monotonic() > deadline:
            raise DemoFailed(f"only {count} of {wanted} records could be read in time")
        for message in consumer.consume(10_000, 0.2):
            if message.error():
                raise DemoFailed(f"reading failed: {message.error()}")
            digest.add(message.value())
            count += 1
    consumer.close()
    return count, str(digest)


class Digest:
    """A digest of a set of records, whatever their order across partitions."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, value: bytes) -> None:
        """Take one record in."""
        self._sum = (self._sum + int.from_bytes(hashlib.blake2b(value, digest_size=16).digest(), "big")) % 2**128

    def __str__(self) -> str:
        return f"{self._sum:032x}"


def check_read(bootstrap: str, digest: str) -> None:
    """Read all records back and compare them with what was sent."""
    begin = time.monotonic()
    count, read = read_back(bootstrap)
    elapsed_s = time.monotonic() - begin
    print(f"  {count:,} records read in {elapsed_s:.1f} s, digest {read}")
    if (count, read) != (RECORDS, digest):
        raise DemoFailed(f"sent {RECORDS} records with digest {digest}, read {count} with {read}")
    print("  every record came back: none lost, none twice")


def steps(folder: Path) -> None:
    """The demo itself."""
    say("A real ZooKeeper and one broker, on this machine")
    klamm("local", "up", "--brokers", "1", "--dir", str(folder), "--detach")
    status = json.loads(klamm("local", "status", "--dir", str(folder), "--output", "json", show=False))
    bootstrap, zookeeper = status["bootstrap_servers"], status["zookeeper"]

    say("A topic with six partitions")
    klamm(
        "topics", "create", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "1",
        "--bootstrap-server", bootstrap,
    )  # fmt: skip

    say(f"{RECORDS:,} orders sent by librdkafka (idempotent, acks=all, lz4), and every one read back")
    begin = time.monotonic()
    digest = produce(bootstrap)
    print(f"  {RECORDS:,} records acknowledged in {time.monotonic() - begin:.1f} s, digest {digest}")
    check_read(bootstrap, digest)

    say("The topic as ZooKeeper's live metadata describes it")
    klamm("topics", "describe", TOPIC, "--zookeeper", zookeeper, "--output", "table")

    say("kill -9, and a new start")
    broker_id = str(status["brokers"][0]["id"])
    klamm("local", "kill", broker_id, "--dir", str(folder))
    begin = time.monotonic()
    klamm("local", "start", broker_id, "--dir", str(folder))
    print(f"  serving again after {time.monotonic() - begin:.1f} s (the old session had to end first)")
    check_read(bootstrap, digest)


def main() -> int:
    """Run the demo in a temporary folder; end and remove everything, also after Ctrl-C."""
    folder = Path(tempfile.mkdtemp(prefix="klamm-demo-"))
    begin = time.monotonic()
    try:
        steps(folder)
    except (DemoFailed, KafkaException, subprocess.TimeoutExpired) as error:
        print(
            f"error: the demo failed: {error}\nhint: the logs of ZooKeeper and brokers were in {folder}",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("interrupted: ending what was started", file=sys.stderr)
        return 130
    finally:
        subprocess.run(
            [KLAMM, "local", "down", "--dir", str(folder), "--quiet"], stdout=subprocess.DEVNULL, check=False
        )
        shutil.rmtree(folder, ignore_errors=True)
    say(f"Done in {time.monotonic() - begin:.0f} s; nothing is left running")
    return 0


if __name__ == "__main__":
    sys.exit(main())
