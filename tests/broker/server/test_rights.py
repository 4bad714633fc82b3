"""A broker with an authorizer: rights given and taken while clients work, its log, and damaged rules."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_program import BrokerProgram, settings
from event_loop import in_event_loop

from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode
from engine.kafka.acls import type_code
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.security import security_of
from engine.kafka.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from engine.kafka.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from engine.kafka.protocol.apis.describe_acls import DescribeAclsRequest
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.kafka.zk.client import ZkClient
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
BATCH = encode_batch([Record(0, 1_700_000_000_000, b"k", b"secret value")])


class Broker:
    """The running broker."""

    def __init__(self, folder: Path, host: str, zookeeper: str) -> None:
        self.folder, self.host, self.zookeeper = folder, host, zookeeper

    def client(self, user: str) -> BrokerClient:
        jaas = f'{MODULE} required username="{user}" password="{user}-pw";'
        properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
        return BrokerClient(self.host, 9092, client_id="t", security=security_of(properties))

    def settings(self) -> dict[str, str]:
        users = " ".join(f'user_{name}="{name}-pw"' for name in ("admin", "alice"))
        own = f'username="admin" password="admin-pw" {users}'
        return settings(self.folder, self.host, self.zookeeper) | {
            "listeners": f"SASL_PLAINTEXT://{self.host}:9092",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{MODULE} required {own};",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:admin",
            "klamm.metrics.listener": f"{self.host}:9093",
            "auto.create.topics.enable": "false",
        }


@pytest.fixture
def broker(tmp_path: Path, zookeeper: EmbeddedZooKeeper, zk_chroot: str) -> Iterator[Broker]:
    made = Broker(tmp_path, own_loopback_address(), zk_chroot)
    with BrokerProgram(tmp_path, made.settings()) as program:
        program.wait_until_started()
        yield made
        if program.process.poll() is None:
            assert program.terminate() == 0


def rule(operation: AclOperation, topic: str = "orders") -> AclCreation:
    return AclCreation(
        resource_type=type_code(ResourceType.TOPIC), resource_name=topic, principal="User:alice", host="*",
        operation=operation, permission_type=3,
    )  # fmt: skip


def fetch(wait_ms: int, offset: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10_000, last_fetched_epoch=-1)
    topic = FetchTopic(topic="orders", partitions=[partition])
    return FetchRequest(replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, max_bytes=10_000, session_epoch=0,
                        topics=[topic])  # fmt: skip


def send(acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=BATCH)
    return ProduceRequest(acks=acks, timeout_ms=5000,
                          topic_data=[TopicProduceData(name="orders", partition_data=[data])])  # fmt: skip


def test_rights_are_given_and_taken_while_clients_work(broker: Broker) -> None:
    async def check() -> None:
        admin, alice = broker.client("admin"), broker.client("alice")
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        async with asyncio.timeout(20):
            while (await admin.send(CreateTopicsRequest(topics=[topic]), 5)).topics[0].error_code:
                await asyncio.sleep(0.05)
        assert (await alice.send(MetadataRequest(topics=None), 5)).topics == []
        named = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("orders", "absent")])
        described = (await alice.send(named, 5)).topics
        assert {(group.name, group.error_code) for group in described} == {("orders", 29), ("absent", 29)}
        refused = (await alice.send(send(), 9)).responses[0].partition_responses[0]
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and refused.base_offset == -1
        rights = [rule(AclOperation.WRITE), rule(AclOperation.READ)]
        assert [result.error_code for result in (await admin.send(CreateAclsRequest(creations=rights), 2)).results] == [
            0,
            0,
        ]
        accepted = (await alice.send(send(), 9)).responses[0].partition_responses[0]
        assert (accepted.error_code, accepted.base_offset) == (0, 0)
        first = await alice.send(fetch(1000), 12)
        assert b"secret value" in bytes(first.responses[0].partitions[0].records)
        # She waits for more, loses the right, and then there is more.
        waiting = asyncio.create_task(alice.send(fetch(20_000, 1), 12))
        taking = DeleteAclsFilter(
            resource_type_filter=2, resource_name_filter="orders", principal_filter="User:alice",
            operation=AclOperation.READ, permission_type=1,
        )  # fmt: skip
        taken = (await admin.send(DeleteAclsRequest(filters=[taking]), 2)).filter_results[0]
        assert [acl.operation for acl in taken.matching_acls] == [AclOperation.READ]
        assert not waiting.done()
        assert (await admin.send(send(), 9)).responses[0].partition_responses[0].error_code == 0
        late = (await waiting).responses[0].partitions[0]
        assert late.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and not late.records
        everything = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        left = (await admin.send(everything, 2)).resources
        assert [(resource.resource_name, [each.operation for each in resource.acls]) for resource in left] == [
            ("orders", [AclOperation.WRITE])
        ]
        await alice.close()
        await admin.close()

    asyncio.run(check())
    log = (broker.folder / "logs" / "kafka-authorizer.log").read_text()
    assert (
        "INFO Principal = User:alice is Denied Operation = Describe from host = " in log
    ) and "on resource = Topic:LITERAL:orders for request = Metadata with resourceRefCount = 1 " in log
    assert "secret value" not in log


@in_event_loop
async def test_refusals_are_counted_as_errors(broker: Broker) -> None:
    """Kafka counts them, too, where no answer tells of them (acks=0)."""
    name = "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request={},error=TOPIC_AUTHORIZATION_FAILED"

    def count(api: str) -> int:
        with urllib.request.urlopen(f"http://{broker.host}:9093/jolokia/read/{name.format(api)}", timeout=20) as answer:
            return int(json.load(answer)["value"]["Count"])

    alice = broker.client("alice")
    by_follower = fetch(0)
    by_follower.replica_id = 1
    await alice.send(by_follower, 12)
    assert count("Fetch") == 1
    await alice.send(fetch(0), 12)
    assert count("Fetch") == 2
    await alice.send(send(), 9)
    assert count("Produce") == 1
    alice.tell(send(acks=0), 9)
    async with asyncio.timeout(20):
        while alice.is_connected:
            await asyncio.sleep(0.01)
    assert count("Produce") == 2
    await alice.close()


@in_event_loop
async def test_without_an_answer_a_refusal_ends_the_connection(broker: Broker) -> None:
    alice = broker.client("alice")
    await alice.connect()
    alice.tell(send(acks=0), 9)
    async with asyncio.timeout(20):
        while alice.is_connected:
            await asyncio.sleep(0.01)
    await alice.close()


@in_event_loop
async def test_odd_rules_are_answered_as_kafka_answers_them(broker: Broker) -> None:
    admin = broker.client("admin")

    async def created(*codes: tuple[int, int, int]) -> list[tuple[int, str | None]]:
        rules = []
        for resource_type, operation, permission in codes:
            made = rule(AclOperation.READ)
            made.resource_type, made.operation, made.permission_type = resource_type, operation, permission
            rules.append(made)
        results = (await admin.send(CreateAclsRequest(creations=rules), 2)).results
        return [(result.error_code, result.error_message) for result in results]

    assert await created((2, 3, 3), (2, 1, 3)) == [(-1, None)] * 2, "none is added: one has a filter's code"
    assert await created((2, 3, 3), (99, 3, 3)) == [(0, ""), (42, "Failed to create ACL")]
    unknown = await admin.send(DescribeAclsRequest(operation=1, permission_type=1), 2)
    assert unknown.error_code == ErrorCode.INVALID_REQUEST
    for code, count in ((99, 0), (1, 1)):
        wanted = DescribeAclsRequest(resource_type_filter=code, pattern_type_filter=1, operation=1, permission_type=1)
        described = await admin.send(wanted, 2)
        assert (described.error_code, described.error_message, len(described.resources)) == (0, "", count)
    for code, count in ((99, 0), (1, 1)):
        taking = DeleteAclsFilter(resource_type_filter=code, pattern_type_filter=1, operation=1, permission_type=1)
        (taken,) = (await admin.send(DeleteAclsRequest(filters=[taking]), 2)).filter_results
        assert (taken.error_code, taken.error_message, len(taken.matching_acls)) == (0, None, count)
    await admin.close()


def test_damaged_rules_keep_the_broker_from_starting(tmp_path: Path, zk_chroot: str) -> None:
    async def damage() -> None:
        async with await ZkClient.connect(zk_chroot, session_timeout_ms=6_000) as zk:
            await zk.ensure_path("/kafka-acl/Topic")
            await zk.create("/kafka-acl/Topic/orders", b"damaged")

    made = Broker(tmp_path, own_loopback_address(), zk_chroot)
    asyncio.run(damage())
    with BrokerProgram(tmp_path, made.settings()) as program:
        code, lines = program.refusal()
    assert code == 3 and len(lines) <= 2 and "/kafka-acl/Topic/orders" in lines[0], lines
