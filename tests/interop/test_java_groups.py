"""The Java consumer in groups of our broker, run by Kafka's own tools: eager, cooperative, static, killed, resumed."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import short_lived_java
from broker_logs import assert_no_fault
from confluent_kafka import Producer
from kafka_tools import run_tool
from patience import wait_for
from wire_client import WireClient, create_topic

from engine.kafka.protocol.apis.describe_groups import DescribeGroupsRequest
from engine.kafka.protocol.apis.offset_fetch import OffsetFetchRequest
from engine.local.cluster import LocalCluster
from engine.local.processes import start_process

PARTITIONS = 4
COUNT = 40
DEADLINE_S = 90.0
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(1, config={"offsets.topic.num.partitions": "3"}) as running:
        yield running
        assert_no_fault(running.broker(0).logs_path)


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    create_topic(cluster.bootstrap_servers, name, partitions=PARTITIONS)
    produce(cluster, name)
    return name


def produce(cluster: LocalCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(COUNT):
        producer.produce(topic, b"v%d" % number, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


class JavaMember:
    """A kafka-verifiable-consumer and its output, line by line."""

    def __init__(self, cluster: LocalCluster, folder: Path, topic: str, strategy: str, instance_id: str = "") -> None:
        # The replacement of a static member is a JVM that must start before the killed one's session ends.
        session_ms = "45000" if instance_id else "8000"
        self._output = folder / f"{uuid.uuid4().hex[:8]}.out"
        arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group-id", f"g-{topic}"]
        arguments += ["--assignment-strategy", strategy, "--session-timeout", session_ms, "--verbose"]
        arguments += ["--group-instance-id", instance_id] if instance_id else []
        java = short_lived_java("-Xmx128m")
        self.process = start_process(
            [*java, "org.apache.kafka.tools.VerifiableConsumer", *arguments], output=self._output
        )

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return its output under a name so far."""
        lines = self._output.read_text("utf-8", "replace").splitlines() if self._output.exists() else []
        said = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [event for event in said if event["name"] == name]

    @property
    def owned(self) -> set[int]:
        """Return its partitions, from the gains and losses that it reported."""
        owned: set[int] = set()
        lines = self._output.read_text("utf-8", "replace").splitlines() if self._output.exists() else []
        for line in lines:
            event = json.loads(line) if line.startswith("{") and line.endswith("}") else {"name": ""}
            partitions = {p["partition"] for p in event.get("partitions", []) if isinstance(p, dict)}
            if event["name"] == "partitions_assigned":
                owned |= partitions
            elif event["name"] == "partitions_revoked":
                owned -= partitions
        return owned

    @property
    def values(self) -> list[str]:
        return [event["value"] for event in self.events("record_data")]

    @property
    def committed(self) -> int:
        """Return how many records it has committed, as the broker answered."""
        ends: dict[int, int] = {}
        for event in self.events("offsets_committed"):
            assert event["success"], event
            ends |= {p["partition"]: p["offset"] for p in event["offsets"]}
        return sum(ends.values())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)

    def stop(self) -> None:
        self.process.stop(DEADLINE_S)


@contextmanager
def members(cluster: LocalCluster, folder: Path, topic: str, strategy: str, *ids: str) -> Iterator[list[JavaMember]]:
    started = [JavaMember(cluster, folder, topic, strategy, instance_id) for instance_id in ids]
    try:
        yield started
    finally:
        for member in started:
            member.stop()


def is_shared(*sharing: JavaMember) -> bool:
    owned = [member.owned for member in sharing]
    return sum(map(len, owned)) == PARTITIONS == len(set().union(*owned)) and all(owned)


def test_members_share_die_and_are_replaced(cluster: LocalCluster, tmp_path: Path, topic: str) -> None:
    with members(cluster, tmp_path, topic, COOPERATIVE, "", "") as (first, second):
        wait_for(lambda: is_shared(first, second), "two members share the partitions")
        wait_for(lambda: set(first.values + second.values) >= {f"v{n}" for n in range(COUNT)}, "all is read")
        wait_for(lambda: committed(cluster, topic) == COUNT, "all is committed")
        first.kill()
        wait_for(lambda: len(second.owned) == PARTITIONS, "the other one has everything")
        before = len(second.values)
        produce(cluster, topic)
        wait_for(lambda: len(second.values) >= before + COUNT, "what is new is read")
        wait_for(lambda: committed(cluster, topic) == 2 * COUNT, "what is new is committed")
        assert len(second.values) == before + COUNT, "nothing that was committed is read again"


def committed(cluster: LocalCluster, topic: str) -> int:
    """Return how many records the group has committed."""
    with WireClient(cluster.bootstrap_servers) as client:
        answer = client.ask(OffsetFetchRequest(group_id=f"g-{topic}", topics=None), 7)
    return sum(max(0, p.committed_offset) for t in answer.topics for p in t.partitions)


def test_a_static_member_is_bounced_without_a_rebalance(cluster: LocalCluster, tmp_path: Path, topic: str) -> None:
    with members(cluster, tmp_path, topic, RANGE, "i1", "i2") as (stays, bounced):
        wait_for(lambda: is_shared(stays, bounced), "two members share the partitions")
        wait_for(lambda: stays.committed + bounced.committed == COUNT, "all is committed")
        had, assignments = bounced.owned, len(stays.events("partitions_assigned"))
        ids = member_ids(cluster, topic)
        bounced.kill()
        with members(cluster, tmp_path, topic, RANGE, "i2") as (back,):
            wait_for(lambda: back.owned == had, "it has its partitions again")
            produce(cluster, topic)
            wait_for(lambda: len(set(back.values)) == COUNT // 2, "it reads on")
            assert len(back.values) == COUNT // 2
            assert len(stays.events("partitions_assigned")) == assignments
            now = member_ids(cluster, topic)
            assert now["i1"] == ids["i1"] and now["i2"] != ids["i2"]


def member_ids(cluster: LocalCluster, topic: str) -> dict[str, str]:
    with WireClient(cluster.bootstrap_servers) as client:
        (group,) = client.ask(DescribeGroupsRequest(groups=[f"g-{topic}"]), 4).groups
    assert group.group_state == "Stable"
    return {m.group_instance_id: m.member_id for m in group.members}


def test_the_console_consumer_goes_on_where_it_ended(cluster: LocalCluster, topic: str) -> None:
    arguments = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group", f"g-{topic}")
    arguments += ("--timeout-ms", "60000", "--consumer-property", "auto.offset.reset=earliest")
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    first = run_tool(consumer, *arguments, "--max-messages", "15").stdout.split()
    rest = run_tool(consumer, *arguments, "--max-messages", str(COUNT - 15)).stdout.split()
    assert (len(first), len(rest)) == (15, COUNT - 15)
    assert sorted(first + rest) == sorted(f"v{number}" for number in range(COUNT))
