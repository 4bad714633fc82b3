"""Transactional producers of three client libraries behind one small interface. None of them is ours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.structs import OffsetAndMetadata as AioOffset
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.structs import OffsetAndMetadata as PythonOffset

DEADLINE_S = 60.0


class Fenced(Exception):
    """Another producer has the transactional id."""


class TransactionalProducer(Protocol):
    """One producer. Its constructor has waited until it may begin."""

    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, value: bytes) -> None:
        """Send a record, and wait until it is acknowledged."""

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Commit an offset of a group as part of the transaction."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            retry_backoff_ms=20,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        try:
            self._producer.send(topic, value, partition=partition).get(timeout=DEADLINE_S)
        except Exception as error:
            raise _fenced(error) from error

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        offsets = {PythonTopicPartition(topic, partition): PythonOffset(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, group)

    def commit(self) -> None:
        try:
            self._producer.commit_transaction()
        except Exception as error:
            raise _fenced(error) from error

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)


class Aio:
    """aiokafka, with an event loop of its own."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._runner = asyncio.Runner()
        self._run(self._start(bootstrap, transactional_id, timeout_ms))

    async def _start(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            retry_backoff_ms=20,
        )
        await self._producer.start()

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            self._runner.run(asyncio.wait_for(work, DEADLINE_S))
        except Exception as error:
            raise _fenced(error) from error

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        offsets = {AioTopicPartition(topic, partition): AioOffset(offset, "")}
        self._run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self._producer.stop())
        finally:
            self._runner.close()


class Confluent:
    """librdkafka, as confluent-kafka bundles it."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": min(timeout_ms, 30_000),
                "retry.backoff.ms": 20,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(DEADLINE_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        errors: list[KafkaError | None] = []
        self._producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
        until = time.monotonic() + DEADLINE_S
        while not errors and time.monotonic() < until:
            self._producer.poll(0.05)
        if errors != [None]:
            raise _fenced(KafkaException(errors[0]))

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        self._producer.send_offsets_to_transaction(
            [TopicPartition(topic, partition, offset)], _group_metadata(self._bootstrap, group), DEADLINE_S
        )

    def commit(self) -> None:
        try:
            self._producer.commit_transaction(DEADLINE_S)
        except KafkaException as error:
            raise _fenced(error) from error

    def abort(self) -> None:
        self._producer.abort_transaction(DEADLINE_S)

    def close(self) -> None:
        """The producer ends with its last reference."""
        del self._producer


CLIENTS: dict[str, type[TransactionalProducer]] = {
    "kafka-python": KafkaPython,
    "aiokafka": Aio,
    "confluent-kafka": Confluent,
}


def _group_metadata(bootstrap: str, group: str) -> Any:
    """Return what the client calls a group without members, once its coordinator answers.

    librdkafka 2.16 may wait forever in ``send_offsets_to_transaction`` when it does not (its issue 5456).
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        consumer.committed([TopicPartition("any", 0)], DEADLINE_S)
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def _fenced(error: Exception) -> Exception:
    """Return Fenced for the ways in which clients say so, else the error itself."""
    said = f"{type(error).__name__} {error}".lower()
    return Fenced(said) if any(word in said for word in ("fenced", "producerepoch", "producer_epoch")) else error


class Read(NamedTuple):
    """A record that was read."""

    key: bytes
    value: bytes


def read_values(bootstrap: str, topic: str, partitions: int, *, committed: bool = True) -> list[bytes]:
    """Return all values up to the end of the partitions, as a reader of committed, or of all, records sees them."""
    by_partition = read_records(bootstrap, topic, partitions, committed=committed)
    return sorted(record.value for records in by_partition for record in records)


def read_records(
    bootstrap: str, topic: str, partitions: int, *, committed: bool = True, starts: Sequence[int] | None = None
) -> list[list[Read]]:
    """Return the records of each partition, in their order, as a reader of committed, or of all, records sees them.

    Args:
        starts: the offset of each partition where it begins; None begins at 0.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads without a group",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, index, starts[index] if starts else 0) for index in range(partitions)])
        read: list[list[Read]] = [[] for _ in range(partitions)]
        left = set(range(partitions))
        until = time.monotonic() + DEADLINE_S
        while left:
            assert time.monotonic() < until, f"partitions {left} of {topic} have no end"
            for message in consumer.consume(500, 0.1):
                partition, error = message.partition() or 0, message.error()
                if error is None:
                    read[partition].append(Read(message.key() or b"", message.value() or b""))
                    left.add(partition)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(partition)
        return read
    finally:
        consumer.close()


def committed_offset(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """Return a group's offset, once it is stable; -1001 if there is none."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed", "log_level": 0}
    )
    try:
        offsets = consumer.committed([TopicPartition(topic, partition)], DEADLINE_S)
        return int(offsets[0].offset)
    finally:
        consumer.close()
