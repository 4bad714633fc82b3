"""Real consumers that are in a group while a test looks at it. A thread of its own polls each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer

DEADLINE_S = 60.0


def fill(servers: str, topic: str, partitions: int, each: int) -> None:
    """Write this many records into each partition."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 2})
    for number in range(partitions * each):
        producer.produce(topic, b"v%d" % number, partition=number % partitions)
    assert producer.flush(40) == 0


def commit(servers: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets as a consumer that assigns its partitions itself: the group has no protocol."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False, "log_level": 2})
    try:
        wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        committed = consumer.commit(offsets=wanted, asynchronous=False)
        assert committed is not None
        assert [partition.error for partition in committed] == [None] * len(wanted)
    finally:
        consumer.close()


@contextmanager
def librdkafka_member(servers: str, topic: str, group: str, *, instance: str) -> Iterator[None]:
    """A static member of librdkafka. After closing it stays in the group until its session ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.instance.id": instance,
            "client.id": f"app-of-{instance}",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 3000,
            "heartbeat.interval.ms": 300,
            "auto.commit.interval.ms": 100,
            "log_level": 2,
        }
    )
    consumer.subscribe([topic])
    with _polled(lambda: consumer.poll(0.1), consumer.close, "a member of librdkafka"):
        yield


@contextmanager
def new_protocol_member(servers: str, topic: str, group: str, *, instance: str) -> Iterator[None]:
    """A static member of librdkafka with the new protocol (KIP-848). After closing its place is kept for a while."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": "consumer",
            "group.instance.id": instance,
            "client.id": f"app-of-{instance}",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "log_level": 2,
        }
    )
    consumer.subscribe([topic])
    with _polled(lambda: consumer.poll(0.1), consumer.close, "a member of the new protocol"):
        yield


@contextmanager
def kafka_python_member(servers: str, topic: str, group: str) -> Iterator[None]:
    """A dynamic member of kafka-python. It leaves the group when it is closed."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        client_id="app-py",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
    )
    with _polled(lambda: consumer.poll(timeout_ms=poll_ms(consumer)), consumer.close, "a member of kafka-python"):
        yield


def poll_ms(consumer: KafkaConsumer) -> int:
    """Return how long to poll a member of kafka-python (3.0): long until it has partitions.

    A leader that assigns a topic before it knows of it joins again once it does. If a poll ends between the request for
    the new assignment and its answer, the next poll believes that it has joined, never looks at the answer, and sends
    no heartbeats.
    """
    return 100 if consumer.assignment() else 10_000


@contextmanager
def _polled(poll: Callable[[], object], close: Callable[[], object], name: str) -> Iterator[None]:
    end = threading.Event()

    def run() -> None:
        while not end.is_set():
            poll()
        close()

    thread = threading.Thread(target=run, name=name)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(DEADLINE_S)
