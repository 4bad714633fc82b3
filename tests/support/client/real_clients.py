"""Real clients behind one small interface: send these records, read that many back. Assigned partitions only.

None of them is ours: librdkafka through confluent-kafka, kafka-python, aiokafka, and kcat (an older librdkafka).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition

DEADLINE_S = 60.0


class Sent(NamedTuple):
    """The content of a record. Two are equal if what went in also came out."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class RealClient(Protocol):
    """One client library."""

    def produce(self, bootstrap: str, topic: str, codec: str, records: Sequence[Sent]) -> None:
        """Send records with acks=all and wait for every acknowledgement."""

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Sent]:
        """Read ``count`` records from the beginning of the first ``partitions`` partitions."""


class ConfluentKafka:
    """librdkafka as confluent-kafka bundles it."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def produce(self, bootstrap: str, topic: str, codec: str, records: Sequence[Sent]) -> None:
        errors: list[object] = []
        settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, "log_level": 2}
        producer = Producer({**settings, **self._settings})
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                headers=list(record.headers),
                on_delivery=lambda error, _: errors.append(error),
            )
        assert producer.flush(DEADLINE_S) == 0
        assert errors == [None] * len(records)

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Sent]:
        settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 2}
        consumer = Consumer({**settings, **self._settings})
        # An offset by number: librdkafka looks up "beginning" only half a second after the request.
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        records: list[Sent] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(records) < count and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                headers = tuple((name, value) for name, value in message.headers() or ())
                records.append(Sent(message.partition(), message.key(), message.value(), headers))
        consumer.close()
        return records


class KafkaPython:
    """kafka-python."""

    def produce(self, bootstrap: str, topic: str, codec: str, records: Sequence[Sent]) -> None:
        compression = None if codec == "none" else codec
        producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, linger_ms=20, acks="all")
        try:
            futures = [
                producer.send(topic, r.value, r.key, headers=list(r.headers), partition=r.partition) for r in records
            ]
            producer.flush(DEADLINE_S)
            for future in futures:
                future.get(DEADLINE_S)
        finally:
            producer.close(DEADLINE_S)

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Sent]:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
        try:
            assigned = [PythonTopicPartition(topic, index) for index in range(partitions)]
            consumer.assign(assigned)
            consumer.seek_to_beginning(*assigned)
            read: list[Sent] = []
            deadline = time.monotonic() + DEADLINE_S
            while len(read) < count and time.monotonic() < deadline:
                for records in consumer.poll(timeout_ms=200).values():
                    read += [Sent(r.partition, r.key, r.value, tuple(map(tuple, r.headers))) for r in records]
            return read
        finally:
            consumer.close()


class AioKafka:
    """aiokafka."""

    def produce(self, bootstrap: str, topic: str, codec: str, records: Sequence[Sent]) -> None:
        asyncio.run(self._produce(bootstrap, topic, codec, records))

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Sent]:
        return asyncio.run(self._consume(bootstrap, topic, partitions, count))

    async def _produce(self, bootstrap: str, topic: str, codec: str, records: Sequence[Sent]) -> None:
        compression = None if codec == "none" else codec
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, linger_ms=20, acks="all")
        await producer.start()
        try:
            futures = [
                await producer.send(topic, r.value, r.key, headers=list(r.headers), partition=r.partition)
                for r in records
            ]
            await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)
        finally:
            await producer.stop()

    async def _consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Sent]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        assigned = [AioTopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(assigned)
        await consumer.start()
        try:
            await consumer.seek_to_beginning(*assigned)
            consumed: list[Sent] = []
            async with asyncio.timeout(DEADLINE_S):
                while len(consumed) < count:
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        consumed += [Sent(r.partition, r.key, r.value, tuple(map(tuple, r.headers))) for r in records]
            return consumed
        finally:
            await consumer.stop()


class Kcat:
    """kcat, the program. It sends text lines: no null values, and options for keys and headers."""

    def produce(self, bootstrap: str, topic: str, codec: str, records: Sequence[Sent]) -> None:
        for partition in sorted({record.partition for record in records}):
            self._produce(bootstrap, topic, codec, [r for r in records if r.partition == partition])

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> list[Sent]:
        read = []
        for partition in range(partitions):
            command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", str(partition), "-o", "0", "-e", "-q"]
            done = subprocess.run(
                [*command, "-J", "-X", "fetch.wait.max.ms=10"],
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=True,
            )
            for line in done.stdout.splitlines():
                record = json.loads(line)
                pairs = record.get("headers", [])
                headers = tuple((name, value.encode()) for name, value in zip(pairs[::2], pairs[1::2], strict=True))
                read.append(Sent(record["partition"], _bytes(record["key"]), _bytes(record["payload"]), headers))
        return read

    def _produce(self, bootstrap: str, topic: str, codec: str, records: Sequence[Sent]) -> None:
        (headers,) = {record.headers for record in records}
        command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", str(records[0].partition), "-z", codec, "-K", "\t"]
        command += [word for name, value in headers for word in ("-H", f"{name}={value.decode()}")]
        lines = b"".join(b"%b\t%b\n" % (record.key, record.value) for record in records)
        done = subprocess.run(
            [*command, "-X", "linger.ms=20", "-X", "acks=all"],
            input=lines,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
