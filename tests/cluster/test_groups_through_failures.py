"""Coordinators are killed during rebalances and between commits, members are killed and resumed.

No record is skipped, and no commit goes back. There are three brokers, and a killed one is started again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from broker_logs import assert_no_fault
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from guest_cluster import GuestCluster
from patience import within
from wire_client import WireClient, create_topic

from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

DEADLINE_S = 60.0
PARTITIONS = 6
PER_ROUND = 60

_KILLED_MEMBER = """
import sys
from confluent_kafka import Consumer
servers, group, topic, count = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest",
    "enable.auto.commit": False, "session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "log_level": 2})
consumer.subscribe([topic])
seen = 0
while True:
    message = consumer.poll(0.1)
    if message is None or message.error() is not None:
        continue
    seen += 1
    if seen <= int(count):
        consumer.commit(message=message, asynchronous=False)
    print(message.value().decode(), "committed" if seen <= int(count) else "read", flush=True)
"""
"""Commits its first records one by one, then reads on without committing until it is killed."""


@pytest.fixture(scope="module")
def three_brokers(zookeeper: EmbeddedZooKeeper) -> Iterator[LocalCluster]:
    settings = {
        "offsets.topic.num.partitions": "3",
        "group.min.session.timeout.ms": "1000",
        "zookeeper.session.timeout.ms": "4000",
    }
    with GuestCluster(zookeeper, 3, config=settings) as running:
        yield running
        for broker in running.brokers.values():
            assert_no_fault(broker.logs_path)
            # It must not hand anything over now, which a clean close would try.
            broker.kill()


class Reading:
    """A topic, a group that reads it, and all that was written and seen."""

    def __init__(self, cluster: LocalCluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self.servers = cluster.bootstrap_servers
        self.topic = f"t-{uuid.uuid4().hex[:8]}"
        self.group = f"g-{self.topic}"
        self.sent: set[bytes] = set()
        self.seen: list[bytes] = []
        self.members: list[Consumer] = []
        self._uncommitted: set[Consumer] = set()
        self._highest = [0] * PARTITIONS
        self._stack = stack
        create_topic(self.servers.split(",")[0], self.topic, partitions=PARTITIONS, replication_factor=3)

    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "log_level": 2})
        for number in range(PER_ROUND):
            value = b"v%d" % (len(self.sent) + 1)
            self.sent.add(value)
            producer.produce(self.topic, value, partition=number % PARTITIONS)
        assert producer.flush(DEADLINE_S) == 0

    def add_member(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 300,
                "log_level": 2,
            }
        )
        self._stack.callback(consumer.close)
        consumer.subscribe([self.topic])
        self.members.append(consumer)
        return consumer

    def poll(self) -> None:
        """Let each member read, and commit what it read. A failed commit is repeated with the next poll."""
        for consumer in self.members:
            messages = [m for m in consumer.consume(100, 0.05) if m.error() is None]
            self.seen += [m.value() for m in messages]
            if messages or consumer in self._uncommitted:
                self._commit(consumer)

    def _commit(self, consumer: Consumer) -> None:
        self._uncommitted.add(consumer)
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                # The coordinator is changing, or the member lost its partitions: their new owner reads them again.
                return
        self._uncommitted.discard(consumer)

    def poll_until(self, condition: Callable[[], bool], what: str) -> None:
        is_in_time = within(DEADLINE_S)
        while not condition():
            assert is_in_time(), f"not within {DEADLINE_S} s: {what}; {len(set(self.seen))} are read"
            self.poll()
            self.check_committed()

    def check_committed(self) -> int:
        """Check that no offset has gone back; return how many records are committed."""
        asked = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]
        try:
            offsets = [max(0, p.offset) for p in self.members[0].committed(asked, timeout=2)]
        except KafkaException:
            return -1
        for partition, offset in enumerate(offsets):
            assert offset >= self._highest[partition], f"partition {partition} went back to {offset}"
            self._highest[partition] = offset
        return sum(offsets)

    def is_all_committed(self) -> bool:
        return set(self.seen) == self.sent and self.check_committed() == len(self.sent)

    def coordinator(self) -> int:
        for broker in self.cluster.brokers.values():
            if broker.is_alive:
                with WireClient(broker.address) as wire:
                    node_id: int = wire.ask(FindCoordinatorRequest(key=self.group), 3).node_id
                    return node_id
        raise AssertionError("no broker is alive")


@pytest.fixture
def reading(three_brokers: LocalCluster) -> Iterator[Reading]:
    with ExitStack() as stack:
        yield Reading(three_brokers, stack)


def test_a_coordinator_is_killed_between_commits(reading: Reading) -> None:
    reading.add_member()
    reading.produce()
    reading.poll_until(reading.is_all_committed, "all is read and committed")
    killed = reading.coordinator()
    reading.cluster.kill_broker(killed)
    reading.produce()
    reading.poll_until(reading.is_all_committed, "all is read and committed with another coordinator")
    # Another broker may learn later than the clients who coordinates.
    reading.poll_until(lambda: reading.coordinator() not in (killed, -1), "every client is told of another coordinator")
    reading.cluster.start_broker(killed)


def test_a_coordinator_is_killed_during_a_rebalance(reading: Reading) -> None:
    reading.add_member()
    reading.add_member()
    reading.produce()
    reading.poll_until(reading.is_all_committed, "all is read and committed")
    killed = reading.coordinator()
    reading.produce()
    reading.add_member()
    # The new member has joined, the others have not yet. Their coordinator goes now.
    reading.members[-1].poll(0.3)
    reading.cluster.kill_broker(killed)
    reading.produce()
    reading.poll_until(
        lambda: sorted(len(m.assignment()) for m in reading.members) == [2, 2, 2], "three members share the partitions"
    )
    reading.poll_until(reading.is_all_committed, "all is read and committed with another coordinator")
    reading.cluster.start_broker(killed)


def test_a_member_is_killed_and_resumed(reading: Reading, tmp_path: Path) -> None:
    reading.produce()
    committed = 20
    arguments = [reading.servers, reading.group, reading.topic, str(committed)]
    output = tmp_path / "member.out"
    with output.open("wb") as out:
        member = subprocess.Popen([sys.executable, "-c", _KILLED_MEMBER, *arguments], stdout=out)
    try:
        is_in_time = within(DEADLINE_S)
        while len(output.read_text().splitlines()) < PER_ROUND - 10:
            assert is_in_time() and member.poll() is None
            time.sleep(0.05)
    finally:
        os.kill(member.pid, signal.SIGKILL)
        member.wait()
    lines = [line.split() for line in output.read_text().splitlines()]
    kept = {value.encode() for value, sentence in lines if sentence == "committed"}
    assert len(kept) == committed
    reading.add_member()
    reading.poll_until(lambda: set(reading.seen) | kept == reading.sent, "the next one reads what was not committed")
    assert len(reading.seen) == len(set(reading.seen)) == PER_ROUND - committed, "and nothing that was"
