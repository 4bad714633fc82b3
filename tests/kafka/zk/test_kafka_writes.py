"""The writes of Kafka's operations, in order and byte for byte, against those of Kafka 3.9.1."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from event_loop import in_event_loop
from virtual_time import ManualClock

from engine.common.errors import CoordinationError
from engine.common.model import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicPartition
from engine.common.topic_id import parse_topic_id
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.cluster import FeatureStatus
from engine.kafka.zk.configs import ConfigType
from engine.kafka.zk.controller import ControllerEpoch
from engine.kafka.zk.errors import NodeExists
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.operations import Check, Create, Delete, Operation, SetData
from engine.kafka.zk.writes import MultiOutcome

FIXTURE = Path(__file__).parents[3] / "fixtures" / "znodes" / "writes.jsonl"
TOPIC_ID = parse_topic_id("KZNAXhh6SS2FNC3mYo9vWQ")
OF_ONE_RECORDING = (
    (r'(\\"id\\":\\")[\w-]{22}', "GUdN0FDdRo6mPXfsw59WFg"),
    (r'(\\"topic_id\\":\\")[\w-]{22}', "KZNAXhh6SS2FNC3mYo9vWQ"),
    (r'(\\"version\\":5,\\"timestamp\\":\\")\d+', "1795263665394"),
    (r'(\\"brokerid\\":0,\\"timestamp\\":\\")\d+', "1795263665470"),
)
"""Ids and times, which every recording has of its own, and what they are here."""
T0, T1 = TopicPartition("t1", 0), TopicPartition("t1", 1)

OpenKafka = Callable[..., AbstractAsyncContextManager[KafkaZkClient]]
FirstBroker = Callable[..., Awaitable[ControllerEpoch]]


def recorded(scene: str) -> list[dict[str, Any]]:
    """The writes that Kafka made in a scene."""
    text = FIXTURE.read_text("utf-8")
    for pattern, value in OF_ONE_RECORDING:
        text = re.sub(pattern, rf"\g<1>{value}", text)
    rows = [json.loads(line) for line in text.splitlines()]
    start = next(index for index, row in enumerate(rows) if row.get("scene") == scene)
    end = next((index for index in range(start + 1, len(rows)) if "scene" in rows[index]), len(rows))
    return rows[start + 1 : end]


class WitnessedClient(ZkClient):
    """Notes every write in the form of the recordings, and makes all of them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.writes: list[dict[str, Any]] = []

    async def _write(self, operation: Operation) -> Any:
        try:
            result = await super()._write(operation)
        except CoordinationError as error:
            self.writes.append({"op": "error", "error": type(error).__name__.upper()})
            raise
        self.writes.append(_noted(operation, result))
        return result

    async def write_many(self, operations: Any) -> list[Any]:
        operations = list(operations)
        outcomes = await super().write_many(operations)
        self.writes += [_noted(operation, result) for operation, result in zip(operations, outcomes, strict=True)]
        return outcomes

    async def multi_many(self, multis: Any) -> list[MultiOutcome]:
        multis = list(multis)
        outcomes = await super().multi_many(multis)
        for operations, outcome in zip(multis, outcomes, strict=True):
            noted = []
            for index, operation in enumerate(operations):
                if isinstance(outcome, list):
                    noted.append(_noted(operation, outcome[index]))
                elif index < outcome.index:
                    noted.append(_noted(operation, None))
                elif index == outcome.index:
                    noted.append({"op": "error", "error": type(outcome.error).__name__.upper()})
            self.writes.append({"op": "multi", "ops": noted} if len(operations) > 1 else noted[0])
        return outcomes


def _noted(operation: Operation, result: Any) -> dict[str, Any]:
    match operation:
        case Create():
            data = None if operation.data is None else operation.data.decode()
            noted = {"op": "create", "path": result or operation.path, "data": data}
            return noted | ({"ephemeral": True} if operation.ephemeral else {})
        case SetData():
            version = operation.version + 1 if result is None else result.version
            return {"op": "setData", "path": operation.path, "data": operation.data.decode(), "version": version}
        case Delete():
            return {"op": "delete", "path": operation.path}
        case Check():
            return {"op": "check", "path": operation.path, "version": operation.version}


def _comparable(rows: list[dict[str, Any]], by: str | None = None) -> list[dict[str, Any]]:
    """Return the recorded writes of one broker, without details that only ZooKeeper's log has."""
    return [
        {key: value for key, value in row.items() if key not in ("by", *(["version"] if row["op"] == "delete" else []))}
        for row in rows
        if by in (None, row["by"])
    ]


def _one_by_one(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all operations in order. Kafka writes a setting and then its notice; klamm does both in one multi."""
    return [
        operation
        for row in rows
        for operation in (row["ops"] if row["op"] == "multi" else [row])
        if operation["op"] != "error"
    ]


@pytest.fixture
def open_witnessed(zk_chroot: str) -> OpenKafka:
    """``async with open_witnessed() as zk``: the façade over a client that notes its writes (``zk.client.writes``)."""

    @asynccontextmanager
    async def opened(session_timeout_ms: int = 6_000, **options: Any) -> AsyncIterator[KafkaZkClient]:
        client = await WitnessedClient.connect(zk_chroot, session_timeout_ms=session_timeout_ms)
        writes_of(client).clear()
        try:
            yield KafkaZkClient(client, **options)
        finally:
            await client.close()

    return opened


def state(leader: int, isr: tuple[int, ...], leader_epoch: int = 0, partition_epoch: int = 0) -> LeaderAndIsr:
    return LeaderAndIsr(leader, leader_epoch, isr, partition_epoch=partition_epoch)


def writes_of(zk: KafkaZkClient | ZkClient) -> list[dict[str, Any]]:
    client = zk.client if isinstance(zk, KafkaZkClient) else zk
    assert isinstance(client, WitnessedClient)
    return client.writes


@in_event_loop
async def test_first_broker_writes_what_kafka_writes(open_witnessed: OpenKafka, first_broker: FirstBroker) -> None:
    async with open_witnessed(clock=ManualClock(1_795_263_665_470)) as zk:
        assert await zk.cluster.get_cluster_id() is None
        elected = await first_broker(zk)
        assert elected == ControllerEpoch(controller_epoch=1, epoch_zk_version=1)
        await zk.cluster.set_up_features(FeatureStatus.ENABLED, 2)
        await zk.admin.delete_preferred_election(elected.epoch_zk_version)
        assert writes_of(zk) == _comparable(recorded("main/01-first-broker-starts"))


@in_event_loop
async def test_topic_creation_writes_what_kafka_writes(open_witnessed: OpenKafka, first_broker: FirstBroker) -> None:
    async with open_witnessed() as zk:
        elected = await first_broker(zk)
        del writes_of(zk)[:]
        replicas = {0: (1, 2, 0), 1: (2, 0, 1), 2: (0, 1, 2)}
        assignment = {partition: ReplicaAssignment(each) for partition, each in replicas.items()}
        await zk.configs.set_entity_configs("topics/t1", {})
        await zk.topics.create_topic_assignment("t1", TOPIC_ID, assignment)
        states = {
            TopicPartition("t1", p): LeaderIsrAndControllerEpoch(state(each[0], each), 1)
            for p, each in replicas.items()
        }
        outcomes = await zk.partitions.create_partition_states(states, elected.epoch_zk_version)
        assert outcomes == dict.fromkeys(states)
        assert writes_of(zk) == _comparable(recorded("main/03-topic-created"))

        del writes_of(zk)[:]
        assignment |= {3: ReplicaAssignment((1, 2, 0)), 4: ReplicaAssignment((2, 0, 1))}
        assert await zk.topics.set_topic_assignment("t1", TOPIC_ID, assignment) == 1
        more = {
            TopicPartition("t1", 3): LeaderIsrAndControllerEpoch(state(1, (1, 2, 0)), 1),
            TopicPartition("t1", 4): LeaderIsrAndControllerEpoch(state(2, (2, 0, 1)), 1),
        }
        await zk.partitions.create_partition_states(more, elected.epoch_zk_version)
        assert writes_of(zk) == _comparable(recorded("main/06-partitions-added"))
        assert await zk.partitions.get_partition_ids("t1") == {0, 1, 2, 3, 4}


@in_event_loop
async def test_config_changes_write_what_kafka_writes(open_witnessed: OpenKafka, first_broker: FirstBroker) -> None:
    async with open_witnessed() as zk:
        await first_broker(zk)
        await zk.configs.set_entity_configs("topics/t1", {})
        del writes_of(zk)[:]
        await zk.configs.change_entity_configs("topics/t1", {"min.insync.replicas": "2", "retention.ms": "3600000"})
        await zk.configs.change_entity_configs("topics/t1", {"min.insync.replicas": "2"})
        assert _one_by_one(writes_of(zk)) == _one_by_one(_comparable(recorded("main/05-topic-config-altered")))
        assert await zk.configs.get_topic_configs(["t1", "none"]) == {
            "t1": {"min.insync.replicas": "2"},
            "none": {},
        }


@in_event_loop
async def test_quotas_write_what_kafka_writes(open_witnessed: OpenKafka, first_broker: FirstBroker) -> None:
    async with open_witnessed() as zk:
        await first_broker(zk)
        expected = _comparable(recorded("main/31-client-quotas"))
        alice = json.loads(expected[0]["ops"][1]["data"])["config"]
        await zk.configs.set_entity_configs("users/alice", {})
        await zk.configs.set_entity_configs("users/alice", {})
        (first_notice, *_) = [row["path"] for row in expected if "/config/changes/" in row.get("path", "")]
        for _ in range(int(first_notice[-10:])):
            await zk.client.create("/config/changes/config_change_", b"", sequential=True)
        del writes_of(zk)[:]
        await zk.configs.change_entity_configs("users/alice", alice)
        await zk.configs.change_entity_configs("clients/app%201", {"request_percentage": "50.0"})
        await zk.configs.change_entity_configs("users/alice/clients/app%201", {"producer_byte_rate": "1024"})
        await zk.configs.change_entity_configs("users/<default>", {"producer_byte_rate": "100000000"})
        await zk.configs.change_entity_configs("clients/<default>", {"controller_mutation_rate": "10.0"})
        await zk.configs.change_entity_configs("users/<default>/clients/<default>", {"consumer_byte_rate": "100000000"})
        await zk.configs.change_entity_configs("ips/127.0.0.1", {"connection_creation_rate": "1000"})
        await zk.configs.change_entity_configs("ips/<default>", {"connection_creation_rate": "2000"})
        await zk.configs.change_entity_configs("clients/app%201", {})
        # The first setData is version 2 in the recording and here.
        assert _one_by_one(writes_of(zk)) == _one_by_one(expected)
        assert await zk.configs.get_entity_names(ConfigType.USER) == ["<default>", "alice"]
        assert await zk.configs.get_entity_names(ConfigType.CLIENT) == ["<default>"]


@in_event_loop
async def test_topic_deletion_writes_what_kafka_writes(open_witnessed: OpenKafka, first_broker: FirstBroker) -> None:
    async with open_witnessed() as zk:
        elected = await first_broker(zk)
        replicas = dict.fromkeys(range(3), (1, 2))
        await zk.configs.set_entity_configs("topics/manual", {})
        await zk.topics.create_topic_assignment(
            "manual", TOPIC_ID, {p: ReplicaAssignment(r) for p, r in replicas.items()}
        )
        partitions = [TopicPartition("manual", p) for p in replicas]
        states = {tp: LeaderIsrAndControllerEpoch(state(1, (1, 2)), 1) for tp in partitions}
        await zk.partitions.create_partition_states(states, elected.epoch_zk_version)
        del writes_of(zk)[:]
        await zk.admin.create_topic_deletion("manual")
        assert await zk.admin.get_topic_deletions() == ["manual"]
        assert await zk.admin.is_topic_marked_for_deletion("manual")
        with pytest.raises(NodeExists):
            await zk.admin.create_topic_deletion("manual")
        writes_of(zk).pop()
        await zk.topics.delete_topic_znode("manual", elected.epoch_zk_version)
        await zk.topics.delete_topic_configs(["manual"], elected.epoch_zk_version)
        await zk.admin.delete_topic_deletions(["manual"], elected.epoch_zk_version)
        rows = _comparable(recorded("main/14-topic-deleted"))
        is_state_write = [row["op"] == "multi" and row["ops"][1]["op"] == "setData" for row in rows]
        assert writes_of(zk) == [row for row, skip in zip(rows, is_state_write, strict=True) if not skip]
        assert await zk.topics.get_all_topics() == []
        # Once more, when nothing is left to delete.
        await zk.topics.delete_topic_znode("manual", elected.epoch_zk_version)
        await zk.topics.delete_topic_configs(["manual"], elected.epoch_zk_version)
        await zk.admin.delete_topic_deletions(["manual"], elected.epoch_zk_version)


@in_event_loop
async def test_isr_change_by_its_leader_writes_what_kafka_does(
    open_witnessed: OpenKafka, first_broker: FirstBroker
) -> None:
    async with open_witnessed() as zk:
        elected = await first_broker(zk)
        await zk.topics.create_topic_assignment("t1", None, {})
        before = {tp: LeaderIsrAndControllerEpoch(state(0, (0, 1)), 1) for tp in (T0,)}
        await zk.partitions.create_partition_states(before, elected.epoch_zk_version)
        del writes_of(zk)[:]
        shrunk = LeaderIsrAndControllerEpoch(state(0, (0,)), 1)
        assert await zk.partitions.write_partition_state(T0, shrunk) == 1
        await zk.notifications.propagate_isr_changes([T0])
        expected = _comparable(recorded("ibp-2.6/03-isr-shrinks"), by="broker 0")
        assert writes_of(zk) == expected[: len(writes_of(zk))]
        notices = await zk.notifications.get_isr_change_notifications()
        assert (notices.names, notices.values) == (("isr_change_0000000000",), (T0,))
        await zk.notifications.delete_isr_change_notifications(notices.names, elected.epoch_zk_version)
        assert writes_of(zk) == expected
        assert await zk.partitions.write_partition_state(T0, shrunk) is None
        assert await zk.partitions.write_partition_state(T1, shrunk) is None
