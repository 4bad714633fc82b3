"""``make demo``: the main job from end to end, on a fresh machine, with nothing left behind.

Real Apache ZooKeeper, three brokers of ours, the CLI as a user types it, and librdkafka (confluent-kafka) as client.
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
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

TOPIC = "orders"
PARTITIONS = 6
ARCHIVE = "archive"
ARCHIVED = 20_000
RECORDS = int(os.environ.get("KLAMM_DEMO_RECORDS", "100000"))
KLAMM = str(Path(sys.executable).with_name("klamm"))
DEADLINE_S = 120.0


class DemoFailed(Exception):
    """A step did not do what it should; the text says which."""


def say(text: str) -> None:
    """Print a headline."""
    print(f"\n\033[1m▌ {text}\033[0m" if sys.stdout.isatty() else f"\n# {text}", flush=True)


def klamm(*words: str, show: bool = True, code: int = 0, until_code: bool = False, stdin: str = "") -> str:
    """Run a klamm command as a user would and return its stdout.

    It has to end with ``code``; with ``until_code`` it is asked again until it does.
    """
    if show:
        print(f"$ klamm {' '.join(words)}", flush=True)
    deadline = time.monotonic() + DEADLINE_S
    while True:
        done = subprocess.run(
            [KLAMM, *words], input=stdin, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False
        )
        if done.returncode == code:
            break
        if not until_code or time.monotonic() > deadline:
            raise DemoFailed(f"klamm {' '.join(words)} ended with code {done.returncode}")
    if show and done.stdout.strip():
        print(done.stdout.rstrip(), flush=True)
    return done.stdout


def orders() -> Iterator[tuple[bytes, bytes]]:
    """Yield what is sent: orders of 5,000 customers, keyed by customer."""
    for number in range(RECORDS):
        customer = f"customer-{number * 7919 % 5000:04}"
        order = {"order": number, "customer": customer, "cents": number * 31 % 99_900 + 100, "state": "placed"}
        yield customer.encode(), json.dumps(order).encode()


def produce(bootstrap: str) -> Digest:
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
    return digest


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


def check_read(bootstrap: str, sent: int, digest: Digest) -> None:
    """Read all records back and compare them with what was sent."""
    begin = time.monotonic()
    count, read = read_back(bootstrap)
    elapsed_s = time.monotonic() - begin
    print(f"  {count:,} records read in {elapsed_s:.1f} s, digest {read}")
    if (count, read) != (sent, str(digest)):
        raise DemoFailed(f"sent {sent} records with digest {digest}, read {count} with {read}")
    print("  every record came back: none lost, none twice")


class Load:
    """A producer that keeps sending while brokers die; librdkafka tries again until a record is where it must be."""

    def __init__(self, bootstrap: str, digest: Digest) -> None:
        self.sent = 0
        self._failed: list[str] = []
        self._digest = digest
        self._is_over = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._producer.flush(DEADLINE_S) or self._failed:
            raise DemoFailed(f"{len(self._failed)} records under load were not acknowledged: {self._failed[:1]}")

    def _run(self) -> None:
        while not self._is_over.wait(0.001):
            value = f"under load {self.sent}".encode()
            self._producer.produce(TOPIC, value, on_delivery=lambda error, _: error and self._failed.append(str(error)))
            self._producer.poll(0)
            self._digest.add(value)
            self.sent += 1


def steps(folder: Path) -> None:
    """The demo itself."""
    say("A real ZooKeeper and three brokers, on this machine")
    klamm("local", "up", "--brokers", "3", "--detach")
    status = json.loads(klamm("local", "status", "--output", "json", show=False))
    bootstrap = status["bootstrap_servers"]

    say("A topic: six partitions on three brokers, a write counts when two have it")
    klamm(
        "topics", "create", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3",
        "--config", "min.insync.replicas=2",
    )  # fmt: skip

    say(f"{RECORDS:,} orders sent by librdkafka (idempotent, acks=all, lz4), and every one read back")
    begin = time.monotonic()
    digest = produce(bootstrap)
    print(f"  {RECORDS:,} records acknowledged in {time.monotonic() - begin:.1f} s, digest {digest}")
    check_read(bootstrap, RECORDS, digest)

    say("The topic as ZooKeeper's live metadata describes it")
    klamm("topics", "describe", TOPIC, "--zookeeper", status["zookeeper"], "--output", "table")

    say("kill -9 under load: broker 1 dies while a producer writes")
    with Load(bootstrap, digest) as load:
        klamm("local", "kill", "1")
        klamm("cluster", "health", "--output", "table", code=1, until_code=True)
        klamm("topics", "describe", "--under-replicated-partitions", "--exclude-internal", "--output", "table")
        klamm("local", "start", "1")
        klamm("cluster", "health", "--wait", "--timeout", "60", "--output", "table")
    print(f"  {load.sent:,} records were acknowledged meanwhile")
    check_read(bootstrap, RECORDS + load.sent, digest)

    say("Leadership goes back where it belongs")
    klamm("elect", "preferred", "--topic", TOPIC, "--yes", "--output", "table")

    say("Broker 0 is drained: a plan, its way back, a throttle, and the proof")
    klamm("topics", "create", ARCHIVE, "--replica-assignment", "0:1,0:2,1:0,2:0")
    klamm("produce", ARCHIVE, "--compression", "zstd", stdin="".join(f"{n}\n" for n in range(ARCHIVED)))
    (folder / "topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": ARCHIVE}]}))
    klamm(
        "reassign", "generate", "--topics-to-move-json-file", "topics.json", "--broker-list", "1,2",
        "--seed", "7", "--proposed", "plan.json",
    )  # fmt: skip
    klamm("reassign", "execute", "--reassignment-json-file", "plan.json", "--throttle", "50000000", "--wait", "--yes")
    klamm("reassign", "verify", "--reassignment-json-file", "plan.json", "--output", "table")
    archived = klamm("consume", ARCHIVE, "--from-beginning", "--max-messages", str(ARCHIVED), show=False)
    if sorted(map(int, archived.split())) != list(range(ARCHIVED)):
        raise DemoFailed(f"not all of {ARCHIVED} archived records came back")
    print(f"  {ARCHIVED:,} records read from where they are now")
    check_read(bootstrap, RECORDS + load.sent, digest)


def main() -> int:
    """Run the demo in a temporary folder; end and remove everything, also after Ctrl-C."""
    folder = Path(tempfile.mkdtemp(prefix="klamm-demo-"))
    begin = time.monotonic()
    home = Path.cwd()
    try:
        # The CLI finds the cluster that was started in the folder it runs in.
        os.chdir(folder)
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
            [KLAMM, "local", "down", "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
        os.chdir(home)
        shutil.rmtree(folder, ignore_errors=True)
    say(f"Done in {time.monotonic() - begin:.0f} s; nothing is left running")
    return 0


if __name__ == "__main__":
    sys.exit(main())
