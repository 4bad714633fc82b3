"""A coordinator is killed between commits: its groups go on at another broker, and nothing committed is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from wire_client import WireClient, create_topic

from engine.local.cluster import LocalCluster
from engine.protocol.apis.find_coordinator import FindCoordinatorRequest

DEADLINE_S = 60.0
GROUP = "survivors"
TOPIC = "read"
PARTITIONS = 4


@pytest.fixture
def three_brokers() -> Iterator[LocalCluster]:
    with LocalCluster(3, config={"offsets.topic.num.partitions": "3"}) as running:
        yield running


def coordinator_id(address: str) -> int:
    """Return the coordinator of the group as one broker knows it; -1 for none."""
    with WireClient(address) as wire:
        found: int = wire.ask(FindCoordinatorRequest(key=GROUP), 3).node_id
        return found


def test_a_killed_coordinator_loses_no_commit(three_brokers: LocalCluster) -> None:
    servers = three_brokers.bootstrap_servers
    create_topic(servers.split(",")[0], TOPIC, partitions=PARTITIONS, replication_factor=3)
    produce(servers, PARTITIONS * 10)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 300,
        }
    )
    try:
        consumer.subscribe([TOPIC])
        seen = read(consumer, PARTITIONS * 10)
        commit(consumer)
        killed = coordinator_id(servers.split(",")[0])
        three_brokers.kill_broker(killed)
        produce(servers, PARTITIONS * 5)
        seen += read(consumer, PARTITIONS * 5)
        commit(consumer)
        assert len(set(seen)) == PARTITIONS * 15
        assert committed(consumer) == PARTITIONS * 15
        alive = three_brokers.broker((killed + 1) % 3).address
        assert coordinator_id(alive) not in (killed, -1)
    finally:
        consumer.close()


def produce(servers: str, count: int) -> None:
    """Write records, evenly over the partitions."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for number in range(count):
        producer.produce(TOPIC, b"v", partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """Read so many records; return partition and offset of each."""
    deadline = time.monotonic() + DEADLINE_S
    seen: list[tuple[int, int]] = []
    while len(seen) < count:
        assert time.monotonic() < deadline, f"{len(seen)} of {count} records"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.append((message.partition(), message.offset()))
    return seen


def commit(consumer: Consumer) -> None:
    """Commit what was read; the coordinator may be changing."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException:
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        else:
            return


def committed(consumer: Consumer) -> int:
    """Return how many records the group has committed."""
    asked = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    return sum(partition.offset for partition in consumer.committed(asked, timeout=DEADLINE_S))
