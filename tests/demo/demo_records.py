"""The records of the demo: librdkafka sends and reads them, under load too, and the counts show that none is lost."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

TOPIC = "orders"
PARTITIONS = 6
RECORDS = int(os.environ.get("KLAMM_DEMO_RECORDS", "100000"))
DEADLINE_S = 120.0


class DemoFailed(Exception):
    """A step did not do what it should; the text says which."""


def orders() -> Iterator[tuple[bytes, bytes]]:
    """Yield orders of 5,000 customers, keyed by customer."""
    for number in range(RECORDS):
        customer = f"customer-{number * 7919 % 5000:04}"
        order = {"order": number, "customer": customer, "cents": number * 31 % 99_900 + 100, "state": "placed"}
        yield customer.encode(), json.dumps(order).encode()


def produce(bootstrap: str) -> Digest:
    """Send all orders with librdkafka (idempotent, acks=all, lz4); return the digest of those acknowledged."""
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


def read_as_group(bootstrap: str, group: str, count: int) -> None:
    """Read at least this many records as a group member, commit that, and leave what a crashed consumer leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    done, deadline = 0, time.monotonic() + DEADLINE_S
    while done < count:
        if time.monotonic() > deadline:
            raise DemoFailed(f"group {group} read only {done} of {count} records in time")
        done += sum(message.error() is None for message in consumer.consume(count - done, 0.2))
    consumer.commit(asynchronous=False)
    consumer.close()
    print(f"  {done:,} records read and committed; then the consumer ended")


class Digest:
    """A digest of a set of records that does not depend on their order across partitions."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, value: bytes) -> None:
        """Add one record."""
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
    """A producer that keeps sending while brokers die. librdkafka retries until a record is where it must be."""

    def __init__(self, bootstrap: str, digest: Digest) -> None:
        self.sent = 0
        self._failed: list[str] = []
        self._digest = digest
        self._is_over = threading.Event()
        # A broker will die: librdkafka need not say so again and again.
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
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
