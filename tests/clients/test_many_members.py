"""Groups of fifty real members, eager and cooperative, and static members that restart."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from patience import within
from wire_client import WireClient, create_topic

from engine.kafka.protocol.apis.describe_groups import DescribeGroupsRequest
from engine.local.cluster import LocalCluster

MEMBERS = 50
PARTITIONS = 100
RECORDS = 200
DEADLINE_S = 90.0


class Member:
    """A consumer of librdkafka that the test polls."""

    def __init__(self, servers: str, topic: str, *, strategy: str, instance_id: str | None = None) -> None:
        settings = {
            "bootstrap.servers": servers,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "enable.auto.commit": False,
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 500,
            "log_level": 2,
            "on_commit": self._told,
        }
        if instance_id is not None:
            settings["group.instance.id"] = instance_id
        self.owned: set[int] = set()
        self.gains = 0
        self.values: list[bytes] = []
        self._is_cooperative = strategy == "cooperative-sticky"
        self._is_static = instance_id is not None
        self._is_closed = False
        self._owes_commit = False
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.gains += 1
        gained = {p.partition for p in partitions}
        self.owned = self.owned | gained if self._is_cooperative else gained

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {p.partition for p in partitions}

    def poll(self) -> None:
        """Read what is there, and commit it."""
        messages = [m for m in self.consumer.consume(100, 0) if m.error() is None]
        self.values += [m.value() for m in messages]
        if messages or self._owes_commit:
            self._owes_commit = False
            self.consumer.commit(asynchronous=True)

    def _told(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Note that a commit was refused: one that a rebalance overtakes must be sent again."""
        errors = [error, *(partition.error for partition in partitions)]
        self._owes_commit = any(e is not None and e.code() != KafkaError._NO_OFFSET for e in errors)

    def committed(self, topic: str) -> int:
        """Return how many records the group has committed."""
        asked = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        return sum(max(0, p.offset) for p in self.consumer.committed(asked, timeout=30))

    def close(self) -> None:
        """Close the consumer. A member without an instance id leaves the group."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._is_static:
            # librdkafka 2.16 may wait for itself without end when close() has to revoke during a rebalance.
            self.consumer.unsubscribe()
            poll_until([self], lambda: not self.owned, "it has nothing any more")
        self.consumer.close()
        self.owned = set()


def poll_until(members: list[Member], condition: Callable[[], bool], what: str) -> None:
    """Poll all members in turn until the condition holds."""
    is_in_time = within(DEADLINE_S)
    while not condition():
        assert is_in_time(), f"not within {DEADLINE_S} s: {what}; {[len(m.owned) for m in members]}"
        for member in members:
            member.poll()
        time.sleep(0.01)


def is_shared(members: list[Member]) -> bool:
    """Whether each partition has one owner, and no member has more than its share."""
    owners = Counter(partition for member in members for partition in member.owned)
    most = -(-PARTITIONS // len(members))
    return len(owners) == PARTITIONS == owners.total() and max(len(m.owned) for m in members) <= most


def produce(servers: str, topic: str, first: int) -> set[bytes]:
    """Write records into all partitions; return their values."""
    producer = Producer({"bootstrap.servers": servers})
    values = [b"v%d" % number for number in range(first, first + RECORDS)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return set(values)


@pytest.fixture
def topic(group_cluster: LocalCluster) -> str:
    name = f"t-{uuid.uuid4().hex[:10]}"
    create_topic(group_cluster.bootstrap_servers, name, partitions=PARTITIONS)
    return name


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_fifty_members(group_cluster: LocalCluster, topic: str, strategy: str) -> None:
    servers = group_cluster.bootstrap_servers
    sent = produce(servers, topic, 0)
    with ExitStack() as stack:
        members = [Member(servers, topic, strategy=strategy) for _ in range(MEMBERS)]
        for member in members:
            stack.callback(member.close)

        def read() -> list[bytes]:
            return [value for member in members for value in member.values]

        poll_until(members, lambda: is_shared(members), "fifty members share the partitions")
        poll_until(members, lambda: set(read()) == sent, "all records arrive")
        gone, left = members[::5], [m for n, m in enumerate(members) if n % 5]
        for member in gone:
            member.close()
        sent |= produce(servers, topic, RECORDS)
        poll_until(left, lambda: is_shared(left), "forty share what the ten had")
        poll_until(left, lambda: set(read()) == sent, "what was written meanwhile arrives")
        poll_until(left, lambda: left[0].committed(topic) == len(sent), "all of it is committed")


def test_static_members_are_bounced_without_a_rebalance(group_cluster: LocalCluster, topic: str) -> None:
    servers = group_cluster.bootstrap_servers
    sent = produce(servers, topic, 0)
    with ExitStack() as stack:
        members = [Member(servers, topic, strategy="range", instance_id=f"i{n}") for n in range(4)]
        for member in members:
            stack.callback(member.close)
        poll_until(members, lambda: is_shared(members), "four members share the partitions")
        poll_until(members, lambda: {v for m in members for v in m.values} == sent, "all records arrive")
        poll_until(members, lambda: members[0].committed(topic) == len(sent), "all of it is committed")
        for number in range(4):
            others = [m for n, m in enumerate(members) if n != number]
            had, gains = members[number].owned, [m.gains for m in others]
            members[number].close()
            back = members[number] = Member(servers, topic, strategy="range", instance_id=f"i{number}")
            stack.callback(back.close)
            poll_until(members, lambda back=back, had=had: back.owned == had, "it has its partitions again")
            assert [m.gains for m in others] == gains, "nobody else heard of it"
        new = produce(servers, topic, RECORDS)
        poll_until(members, lambda: new <= {v for m in members for v in m.values}, "what is new arrives")
        assert sum(len(m.values) for m in members) == len(new), "nothing that was committed is read again"
        with WireClient(servers) as client:
            (group,) = client.ask(DescribeGroupsRequest(groups=[f"g-{topic}"]), 4).groups
        assert (group.group_state, len(group.members)) == ("Stable", 4)
