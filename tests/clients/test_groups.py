"""Real clients in groups: they share partitions, rebalance when members come and go, and resume where they left off."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Iterable

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from group_members import poll_ms
from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from patience import wait_for

from engine.local.cluster import LocalCluster

PARTITIONS = 6
COUNT = 60
DEADLINE_S = 60.0


@pytest.fixture
def filled(group_cluster: LocalCluster) -> str:
    """A topic with ten records in each of its partitions."""
    topic = f"t-{uuid.uuid4().hex[:10]}"
    servers = group_cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(40)
    produce(servers, topic)
    return topic


def produce(servers: str, topic: str) -> None:
    """Write ten records into each partition."""
    producer = Producer({"bootstrap.servers": servers})
    for number in range(COUNT):
        producer.produce(topic, b"v%d" % number, partition=number % PARTITIONS)
    assert producer.flush(40) == 0


class Member:
    """A consumer of librdkafka or kafka-python. A thread of its own polls it."""

    def __init__(self, servers: str, topic: str, group: str, library: str) -> None:
        self.assigned: frozenset[int] = frozenset()
        self.values: list[bytes] = []
        self._end = threading.Event()
        run = self._run_confluent if library == "confluent-kafka" else self._run_kafka_python
        self._thread = threading.Thread(target=run, args=(servers, topic, group))
        self._thread.start()

    def close(self) -> None:
        """Leave the group."""
        self._end.set()
        self._thread.join(DEADLINE_S)
        self.assigned = frozenset()

    def _run_confluent(self, servers: str, topic: str, group: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
            }
        )
        consumer.subscribe([topic])
        while not self._end.is_set():
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.values.append(message.value())
            self.assigned = frozenset(p.partition for p in consumer.assignment())
        consumer.close()

    def _run_kafka_python(self, servers: str, topic: str, group: str) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
        )
        consumer.subscribe([topic], listener=_Assigned(self))
        while not self._end.is_set():
            for records in consumer.poll(timeout_ms=poll_ms(consumer)).values():
                self.values += [record.value for record in records]
        consumer.close()


class _Assigned(ConsumerRebalanceListener):
    """Notes what kafka-python reports about a member's partitions."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._member.assigned = frozenset(p.partition for p in assigned)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._member.assigned = frozenset()


def is_shared(members: list[Member]) -> bool:
    """Whether exactly one member has each partition, and each member has its share."""
    counts = [len(member.assigned) for member in members]
    together = frozenset().union(*(member.assigned for member in members))
    return sum(counts) == PARTITIONS == len(together) and min(counts) == PARTITIONS // len(members)


@pytest.mark.parametrize("library", ["confluent-kafka", "kafka-python"])
def test_three_members_share_leave_and_resume(group_cluster: LocalCluster, filled: str, library: str) -> None:
    servers, group = group_cluster.bootstrap_servers, f"g-{filled}"
    with contextlib.ExitStack() as stack:
        members = []
        for _ in range(3):
            members.append(Member(servers, filled, group, library))
            stack.callback(members[-1].close)
        wait_for(lambda: is_shared(members), "three members share the partitions")
        wait_for(lambda: {v for m in members for v in m.values} == sent_values(), "all records arrive")
        members[0].close()
        wait_for(lambda: is_shared(members[1:]), "two members share after one has left")
    late = Member(servers, filled, group, library)
    try:
        wait_for(lambda: len(late.assigned) == PARTITIONS, "a new member gets everything")
        produce(servers, filled)
        wait_for(lambda: len(late.values) >= COUNT, "what is new arrives")
        assert len(late.values) == COUNT, "the group goes on where it left off"
    finally:
        late.close()


def sent_values() -> set[bytes]:
    """Return the values that ``produce`` writes."""
    return {b"v%d" % number for number in range(COUNT)}


def test_aiokafka_shares_commits_and_resumes(group_cluster: LocalCluster, filled: str) -> None:
    asyncio.run(_aiokafka(group_cluster.bootstrap_servers, filled, f"g-{filled}"))


async def _aiokafka(servers: str, topic: str, group: str) -> None:
    def consumer() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
        )

    async with asyncio.timeout(DEADLINE_S), contextlib.AsyncExitStack() as stack:
        members = [consumer() for _ in range(3)]
        values: set[bytes] = set()
        for member in members:
            await member.start()
            stack.push_async_callback(member.stop)
        while len(values) < COUNT or [len(m.assignment()) for m in members] != [2, 2, 2]:
            for member in members:
                for records in (await member.getmany(timeout_ms=20)).values():
                    values.update(record.value for record in records)
        assert values == sent_values()
        assert len(frozenset().union(*(m.assignment() for m in members))) == PARTITIONS
    async with asyncio.timeout(DEADLINE_S):
        late = consumer()
        await late.start()
        try:
            await asyncio.to_thread(produce, servers, topic)
            received = 0
            while received < COUNT:
                for records in (await late.getmany(timeout_ms=50)).values():
                    received += len(records)
            assert received == COUNT, "the group goes on where it left off"
        finally:
            await late.stop()
