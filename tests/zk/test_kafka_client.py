"""Kafka's operations on a real ZooKeeper; their writes, in order and to the byte, against those that Kafka 3.9.1 made.

Reads, guards and refusals beside them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.common.clock import ManualClock
from engine.common.errors import CoordinationError, OperationError
from engine.common.model import (
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from engine.common.topic_id import parse_topic_id
from engine.zk.client import ZkClient
from engine.zk.controller import ControllerEpoch
from engine.zk.errors import BadVersion, ControllerMoved, NodeExists, NoNode, ZnodeFormatError
from engine.zk.kafka_client import KafkaZkClient
from engine.zk.operations import Check, Create, Delete, Operation, SetData
from engine.zk.writes import MultiOutcome
from engine.zk.znodes.broker_znodes import BrokerRegistration
from engine.zk.znodes.cluster_znodes import FeatureStatus, FinalizedFeatures, ProducerIdsBlock
from engine.zk.znodes.config_znodes import ConfigType
from engine.zk.znodes.topic_znodes import TopicIdReplicaAssignment

FIXTURE = Path(__file__).parents[2] / "fixtures" / "znodes" / "writes.jsonl"
TOPIC_ID = parse_topic_id("KZNAXhh6SS2FNC3mYo9vWQ")
T0, T1 = TopicPartition("t1", 0), TopicPartition("t1", 1)


def recorded(scene: str) -> list[dict[str, Any]]:
    """The writes that Kafka made in a scene."""
    rows = [json.loads(line) for line in FIXTURE.read_text("utf-8").splitlines()]
    start = next(index for index, row in enumerate(rows) if row.get("scene") == scene)
    end = next((index for index in range(start + 1, len(rows)) if "scene" in rows[index]), len(rows))
    return rows[start + 1 : end]


class WitnessedClient(ZkClient):
    """Notes every write in the form of the recordings; all of them are really made."""

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
            self.writes.append({"op": "multi", "ops": noted})
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
    """The recorded writes of one broker without what only ZooKeeper's log has."""
    return [
        {key: value for key, value in row.items() if key not in ("by", *(["version"] if row["op"] == "delete" else []))}
        for row in rows
        if by in (None, row["by"])
    ]


OpenKafka = Callable[..., AbstractAsyncContextManager[KafkaZkClient]]


@pytest.fixture
def open_kafka(zk_chroot: str) -> OpenKafka:
    """``async with open_kafka() as zk``: the façade over a client that notes its writes (``zk.client.writes``)."""

    @asynccontextmanager
    async def opened(session_timeout_ms: int = 6_000, **options: Any) -> AsyncIterator[KafkaZkClient]:
        client = await WitnessedClient.connect(zk_chroot, session_timeout_ms=session_timeout_ms)
        writes_of(client).clear()
        try:
            yield KafkaZkClient(client, **options)
        finally:
            await client.close()

    return opened


def registration(broker_id: int = 0, timestamp_ms: int = 1_795_263_665_394) -> BrokerRegistration:
    endpoint = Endpoint("127.0.0.1", 29_392 + broker_id, "PLAINTEXT", SecurityProtocol.PLAINTEXT)
    return BrokerRegistration(BrokerInfo(broker_id, (endpoint,), "a"), timestamp_ms)


def state(leader: int, isr: tuple[int, ...], leader_epoch: int = 0, partition_epoch: int = 0) -> LeaderAndIsr:
    return LeaderAndIsr(leader, leader_epoch, isr, partition_epoch=partition_epoch)


async def first_broker(zk: KafkaZkClient, cluster_id: str = "GUdN0FDdRo6mPXfsw59WFg") -> ControllerEpoch:
    await zk.make_persistent_paths()
    await zk.get_or_create_cluster_id(cluster_id)
    await zk.register_broker(registration())
    elected = await zk.elect_controller(0)
    assert elected is not None
    return elected


def writes_of(zk: KafkaZkClient | ZkClient) -> list[dict[str, Any]]:
    client = zk.client if isinstance(zk, KafkaZkClient) else zk
    assert isinstance(client, WitnessedClient)
    return client.writes


def test_first_broker_writes_what_kafka_writes(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka(clock=ManualClock(1_795_263_665_470)) as zk:
            assert await zk.get_cluster_id() is None
            elected = await first_broker(zk)
            assert elected == ControllerEpoch(controller_epoch=1, epoch_zk_version=1)
            await zk.set_up_features(FeatureStatus.ENABLED, 2)
            await zk.delete_preferred_election(elected.epoch_zk_version)
            assert writes_of(zk) == _comparable(recorded("main/01-first-broker-starts"))

    asyncio.run(run())


def test_topic_creation_writes_what_kafka_writes(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            elected = await first_broker(zk)
            del writes_of(zk)[:]
            replicas = {0: (1, 2, 0), 1: (2, 0, 1), 2: (0, 1, 2)}
            assignment = {partition: ReplicaAssignment(each) for partition, each in replicas.items()}
            await zk.set_entity_configs("topics/t1", {})
            await zk.create_topic_assignment("t1", TOPIC_ID, assignment)
            states = {
                TopicPartition("t1", p): LeaderIsrAndControllerEpoch(state(each[0], each), 1)
                for p, each in replicas.items()
            }
            outcomes = await zk.create_partition_states(states, elected.epoch_zk_version)
            assert outcomes == dict.fromkeys(states)
            assert writes_of(zk) == _comparable(recorded("main/03-topic-created"))

            del writes_of(zk)[:]
            assignment |= {3: ReplicaAssignment((1, 2, 0)), 4: ReplicaAssignment((2, 0, 1))}
            assert await zk.set_topic_assignment("t1", TOPIC_ID, assignment) == 1
            more = {
                TopicPartition("t1", 3): LeaderIsrAndControllerEpoch(state(1, (1, 2, 0)), 1),
                TopicPartition("t1", 4): LeaderIsrAndControllerEpoch(state(2, (2, 0, 1)), 1),
            }
            await zk.create_partition_states(more, elected.epoch_zk_version)
            assert writes_of(zk) == _comparable(recorded("main/06-partitions-added"))
            assert await zk.get_partition_ids("t1") == {0, 1, 2, 3, 4}

    asyncio.run(run())


def test_config_changes_write_what_kafka_writes(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            await first_broker(zk)
            await zk.set_entity_configs("topics/t1", {})
            del writes_of(zk)[:]
            await zk.change_entity_configs("topics/t1", {"min.insync.replicas": "2", "retention.ms": "3600000"})
            await zk.change_entity_configs("topics/t1", {"min.insync.replicas": "2"})
            assert writes_of(zk) == _comparable(recorded("main/05-topic-config-altered"))
            assert await zk.get_topic_configs(["t1", "none"]) == {"t1": {"min.insync.replicas": "2"}, "none": {}}

    asyncio.run(run())


def test_quotas_write_what_kafka_writes(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            await first_broker(zk)
            expected = _comparable(recorded("main/31-client-quotas"))
            alice = json.loads(expected[0]["ops"][1]["data"])["config"]
            await zk.set_entity_configs("users/alice", {})
            await zk.set_entity_configs("users/alice", {})
            for _ in range(25):
                await zk.create_config_change_notification("users/alice")
            del writes_of(zk)[:]
            await zk.change_entity_configs("users/alice", alice)
            await zk.change_entity_configs("clients/app%201", {"request_percentage": "50.0"})
            await zk.change_entity_configs("users/alice/clients/app%201", {"producer_byte_rate": "1024"})
            await zk.change_entity_configs("users/<default>", {"producer_byte_rate": "100000000"})
            await zk.change_entity_configs("clients/<default>", {"controller_mutation_rate": "10.0"})
            await zk.change_entity_configs("users/<default>/clients/<default>", {"consumer_byte_rate": "100000000"})
            await zk.change_entity_configs("ips/127.0.0.1", {"connection_creation_rate": "1000"})
            await zk.change_entity_configs("ips/<default>", {"connection_creation_rate": "2000"})
            await zk.change_entity_configs("clients/app%201", {})
            made = writes_of(zk)
            # The first setData is version 2 in the recording and here.
            assert made == expected
            assert await zk.get_entity_names(ConfigType.USER) == ["<default>", "alice"]
            assert await zk.get_entity_names(ConfigType.CLIENT) == ["<default>"]

    asyncio.run(run())


def test_topic_deletion_writes_what_kafka_writes(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            elected = await first_broker(zk)
            replicas = dict.fromkeys(range(3), (1, 2))
            await zk.set_entity_configs("topics/manual", {})
            await zk.create_topic_assignment("manual", TOPIC_ID, {p: ReplicaAssignment(r) for p, r in replicas.items()})
            partitions = [TopicPartition("manual", p) for p in replicas]
            states = {tp: LeaderIsrAndControllerEpoch(state(1, (1, 2)), 1) for tp in partitions}
            await zk.create_partition_states(states, elected.epoch_zk_version)
            del writes_of(zk)[:]
            await zk.create_topic_deletion("manual")
            assert await zk.get_topic_deletions() == ["manual"]
            assert await zk.is_topic_marked_for_deletion("manual")
            with pytest.raises(NodeExists):
                await zk.create_topic_deletion("manual")
            writes_of(zk).pop()
            await zk.delete_topic_znode("manual", elected.epoch_zk_version)
            await zk.delete_topic_configs(["manual"], elected.epoch_zk_version)
            await zk.delete_topic_deletions(["manual"], elected.epoch_zk_version)
            rows = _comparable(recorded("main/14-topic-deleted"))
            is_state_write = [row["op"] == "multi" and row["ops"][1]["op"] == "setData" for row in rows]
            assert writes_of(zk) == [row for row, skip in zip(rows, is_state_write, strict=True) if not skip]
            assert await zk.get_all_topics() == []
            # Once more, with nothing left to delete.
            await zk.delete_topic_znode("manual", elected.epoch_zk_version)
            await zk.delete_topic_configs(["manual"], elected.epoch_zk_version)
            await zk.delete_topic_deletions(["manual"], elected.epoch_zk_version)

    asyncio.run(run())


def test_isr_change_by_its_leader_writes_what_kafka_writes(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            elected = await first_broker(zk)
            await zk.create_topic_assignment("t1", None, {})
            before = {tp: LeaderIsrAndControllerEpoch(state(0, (0, 1)), 1) for tp in (T0,)}
            await zk.create_partition_states(before, elected.epoch_zk_version)
            del writes_of(zk)[:]
            shrunk = LeaderIsrAndControllerEpoch(state(0, (0,)), 1)
            assert await zk.write_partition_state(T0, shrunk) == 1
            await zk.propagate_isr_changes([T0])
            expected = _comparable(recorded("ibp-2.6/03-isr-shrinks"), by="broker 0")
            assert writes_of(zk) == expected[: len(writes_of(zk))]
            notices = await zk.get_isr_change_notifications()
            assert (notices.names, notices.values) == (("isr_change_0000000000",), (T0,))
            await zk.delete_isr_change_notifications(notices.names, elected.epoch_zk_version)
            assert writes_of(zk) == expected
            assert await zk.write_partition_state(T0, shrunk) is None
            assert await zk.write_partition_state(T1, shrunk) is None

    asyncio.run(run())


def test_states_are_read_and_written_each_for_itself(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            elected = await first_broker(zk)
            await zk.create_topic_assignment("t1", TOPIC_ID, {})
            made = {tp: LeaderIsrAndControllerEpoch(state(1, (1, 2)), 1) for tp in (T0, T1)}
            await zk.create_partition_states(made, elected.epoch_zk_version)
            again = await zk.create_partition_states({T0: made[T0]}, elected.epoch_zk_version)
            assert isinstance(again[T0], NodeExists)
            gone = TopicPartition("t1", 9)
            updates = await zk.update_partition_states(
                {T0: state(2, (2,), 1, 0), T1: state(2, (2,), 1, 7), gone: state(2, (2,), 1, 0)},
                1,
                elected.epoch_zk_version,
            )
            assert updates.updated == {T0: state(2, (2,), 1, partition_epoch=1)}
            assert updates.to_retry == [T1]
            assert {tp: type(error) for tp, error in updates.failed.items()} == {gone: NoNode}
            await zk.client.set("/brokers/topics/t1/partitions/1/state", b"broken")
            read = await zk.get_partition_states([T0, T1, gone])
            assert read[T0] == LeaderIsrAndControllerEpoch(state(2, (2,), 1, 1), 1)
            assert isinstance(read[T1], ZnodeFormatError)
            assert read[gone] is None

    asyncio.run(run())


def test_deposed_controller_can_write_nothing(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as old, open_kafka() as new:
            elected = await first_broker(old)
            await old.create_topic_assignment("t1", TOPIC_ID, {0: ReplicaAssignment((0,))})
            made = {T0: LeaderIsrAndControllerEpoch(state(0, (0,)), 1)}
            await old.create_partition_states(made, elected.epoch_zk_version)
            await old.create_topic_deletion("t1")
            await old.propagate_log_dir_event(0)
            await old.create_reassignments({T0: (1,)})
            await old.delete_controller(elected.epoch_zk_version)
            successor = await new.elect_controller(1)
            assert successor == ControllerEpoch(2, 2)
            guard = elected.epoch_zk_version
            before = await _dump(old.client)
            for refused in (
                old.create_partition_states({T1: made[T0]}, guard),
                old.update_partition_states({T0: state(1, (1,))}, 1, guard),
                old.set_topic_assignment("t1", TOPIC_ID, {}, guard),
                old.delete_topic_znode("t1", guard),
                old.delete_topic_configs(["t1"], guard),
                old.delete_topic_deletions(["t1"], guard),
                old.set_reassignments({}, guard),
                old.set_reassignments({T0: (2,)}, guard),
                old.delete_preferred_election(guard),
                old.delete_log_dir_events(None, guard),
                old.delete_controller(guard),
            ):
                with pytest.raises(ControllerMoved):
                    await refused
            assert await _dump(old.client) == before

    asyncio.run(run())


async def _dump(client: ZkClient, path: str = "/") -> dict[str, tuple[bytes, int]]:
    data, stat = await client.get(path)
    tree = {path: (data, stat.mzxid)}
    for name in await client.children(path):
        tree |= await _dump(client, f"{path.rstrip('/')}/{name}")
    return tree


def test_one_of_many_candidates_is_elected(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as first, open_kafka() as second, open_kafka() as third:
            candidates = {0: first, 1: second, 2: third}
            assert await first.get_controller_id() is None
            assert await first.get_controller_epoch() is None
            for round_number in range(1, 6):
                results = await asyncio.gather(
                    *(zk.elect_controller(broker_id) for broker_id, zk in candidates.items())
                )
                winners = [broker_id for broker_id, won in enumerate(results) if won is not None]
                assert len(winners) == 1
                assert results[winners[0]].controller_epoch == round_number
                assert await second.get_controller_id() == winners[0]
                assert (await third.get_controller_epoch()) == results[winners[0]]
                await candidates[winners[0]].delete_controller(results[winners[0]].epoch_zk_version)

    asyncio.run(run())


def test_registration_gives_the_broker_epoch(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            await zk.make_persistent_paths()
            broker_epoch = await zk.register_broker(registration(3))
            stat = await zk.client.exists("/brokers/ids/3")
            assert stat is not None
            assert (stat.czxid, stat.version, stat.ephemeral_owner) == (broker_epoch, 1, zk.client.session_id)
            assert await zk.register_broker(registration(3)) == broker_epoch
            assert await zk.get_all_brokers_with_epochs() == {
                3: BrokerInfo(3, registration(3).broker.endpoints, "a", broker_epoch)
            }
            await zk.update_broker_registration(registration(3, timestamp_ms=1))
            assert (await zk.get_broker_registrations())[3].timestamp_ms == 1
            found = await zk.get_broker(3)
            assert found is not None and found.broker_epoch == broker_epoch
            assert await zk.get_broker(4) is None

    asyncio.run(run())


def test_broken_registration_is_told_and_left_out(open_kafka: OpenKafka, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            await zk.make_persistent_paths()
            await zk.register_broker(registration(0))
            await zk.client.create("/brokers/ids/1", b"broken")
            await zk.client.create("/brokers/ids/x", b"")
            assert list(await zk.get_all_brokers_with_epochs()) == [0]
            assert await zk.get_broker_ids() == [0, 1]
            with pytest.raises(ZnodeFormatError):
                await zk.get_broker(1)

    asyncio.run(run())
    assert "cannot understand the content of /brokers/ids/1" in caplog.text


def test_id_of_an_old_session_is_waited_for(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as old, open_kafka() as new:
            await old.make_persistent_paths()
            first_epoch = await old.register_broker(registration())
            waiting = asyncio.ensure_future(new.register_broker(registration()))
            while "Waiting" not in caplog_free_state(new):
                await asyncio.sleep(0.01)
                if waiting.done():
                    break
            assert not waiting.done()
            await old.close()
            assert await waiting > first_epoch

    def caplog_free_state(zk: KafkaZkClient) -> str:
        return "Waiting" if any(row["op"] == "multi" and "error" in str(row) for row in writes_of(zk)) else ""

    asyncio.run(run())


def test_id_held_by_a_living_broker_is_refused_and_says_by_whom(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as holder, open_kafka() as late:
            await holder.make_persistent_paths()
            await holder.register_broker(registration())
            with pytest.raises(OperationError, match="broker id 0 is already registered") as caught:
                await late.register_broker(registration(), wait_ms=200)
            assert f"session=0x{holder.client.session_id:x}" in str(caught.value)
            assert "PLAINTEXT://127.0.0.1:29392" in str(caught.value)
            assert "broker.id" in (caught.value.hint or "")

    asyncio.run(run())


def test_own_registration_of_a_lost_session_is_replaced(open_kafka: OpenKafka, end_session, until) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            await zk.make_persistent_paths()
            first_epoch = await zk.register_broker(registration())
            lost = zk.client.session_id
            await end_session(zk.client)
            await until(lambda: zk.client.session_id not in (0, lost))
            assert await zk.register_broker(registration()) > first_epoch

    asyncio.run(run())


def test_generated_broker_ids_are_above_the_reserved_ones(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            assert await zk.generate_broker_id(1_000) == 1_001
            assert await zk.generate_broker_id(1_000) == 1_002

    asyncio.run(run())


def test_cluster_id_is_made_once(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as one, open_kafka() as two:
            ids = await asyncio.gather(one.get_or_create_cluster_id("a" * 22), two.get_or_create_cluster_id("b" * 22))
            assert ids[0] == ids[1] == await one.get_cluster_id()

    asyncio.run(run())


def test_producer_ids_are_given_out_once(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as one, open_kafka() as two:
            await one.make_persistent_paths()
            assert await one.get_producer_id_block() is None
            assert await one.allocate_producer_id_block(0) == ProducerIdsBlock(0, 0, 1000)
            claims = [zk.allocate_producer_id_block(broker) for broker, zk in ((0, one), (1, two)) for _ in range(10)]
            blocks = await asyncio.gather(*claims)
            assert sorted(block.first_producer_id for block in blocks) == list(range(1_000, 21_000, 1_000))
            last = await two.get_producer_id_block()
            assert last is not None and last.last_producer_id == 20_999
            end = b'{"version":1,"broker":0,"block_start":"0","block_end":"9223372036854775800"}'
            await one.client.set("/latest_producer_id_block", end)
            with pytest.raises(CoordinationError, match="all producer ids"):
                await one.allocate_producer_id_block(0)

    asyncio.run(run())


def test_features_follow_the_controllers_protocol(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            assert await zk.get_features() is None
            await zk.set_up_features(FeatureStatus.DISABLED, 1)
            assert (await zk.client.get("/feature"))[0] == b'{"features":{},"version":1,"status":0}'
            await zk.set_up_features(FeatureStatus.ENABLED, 2)
            await zk.set_up_features(FeatureStatus.ENABLED, 2)
            data, stat = await zk.client.get("/feature")
            assert (data, stat.version) == (b'{"features":{},"version":2,"status":1}', 1)
            await zk.client.set("/feature", b'{"features":{"f":{"max_version_level":3}},"version":2,"status":1}')
            await zk.set_up_features(FeatureStatus.ENABLED, 2)
            assert await zk.get_features() == FinalizedFeatures(FeatureStatus.ENABLED, 2, {"f": 3})

    asyncio.run(run())


def test_assignments_are_read_and_set_by_version(open_kafka: OpenKafka, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            elected = await first_broker(zk)
            one = {0: ReplicaAssignment((0, 1))}
            await zk.create_topic_assignment("a", TOPIC_ID, one)
            await zk.create_topic_assignment("b", None, one)
            await zk.client.create("/brokers/topics/c", b"broken")
            assert await zk.get_all_topics() == ["a", "b", "c"]
            assert await zk.topic_exists("a") and not await zk.topic_exists("d")
            read = await zk.get_topic_assignments(["a", "b", "c", "d"])
            assert read == {
                "a": TopicIdReplicaAssignment("a", TOPIC_ID, one, 0),
                "b": TopicIdReplicaAssignment("b", None, one, 0),
            }
            every = await zk.read_topics(["c", "d"])
            assert isinstance(every["c"], ZnodeFormatError)
            assert every["d"] is None
            assert await zk.get_topic_ids(["a", "b", "d"]) == {"a": TOPIC_ID}
            moving = {0: ReplicaAssignment((2, 0, 1), (2,), (0, 1))}
            wanted = [
                TopicIdReplicaAssignment("a", TOPIC_ID, moving, 0),
                TopicIdReplicaAssignment("b", TOPIC_ID, one, 5),
            ]
            outcomes = await zk.set_topic_assignments(wanted, elected.epoch_zk_version)
            assert outcomes["a"] == 1
            assert isinstance(outcomes["b"], BadVersion)
            assert (await zk.get_topic_assignments(["a"]))["a"].assignment == moving
            with pytest.raises(NodeExists):
                await zk.create_topic_assignment("a", TOPIC_ID, one)
            with pytest.raises(NoNode):
                await zk.set_topic_assignment("d", TOPIC_ID, one, elected.epoch_zk_version)

    asyncio.run(run())
    assert "A topic is left out" in caplog.text


def test_requests_of_tools_are_read_and_worked_off(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            elected = await first_broker(zk)
            guard = elected.epoch_zk_version
            assert await zk.get_reassignments() is None
            assert await zk.get_preferred_election() is None
            await zk.create_reassignments({T0: (1, 2), T1: (0, 2)})
            with pytest.raises(NodeExists):
                await zk.create_reassignments({T0: (1, 2)})
            assert await zk.get_reassignments() == {T0: (1, 2), T1: (0, 2)}
            await zk.set_reassignments({T1: (0, 2)}, guard)
            assert await zk.get_reassignments() == {T1: (0, 2)}
            await zk.set_reassignments({}, guard)
            await zk.set_reassignments({}, guard)
            assert await zk.get_reassignments() is None
            await zk.set_reassignments({T0: (1,)}, guard)
            assert await zk.get_reassignments() == {T0: (1,)}
            await zk.create_preferred_election([T0, T1])
            assert await zk.get_preferred_election() == (T0, T1)
            await zk.delete_preferred_election(guard)
            await zk.delete_preferred_election(guard)
            await zk.client.create("/admin/preferred_replica_election", b"not json")
            with pytest.raises(ZnodeFormatError):
                await zk.get_preferred_election()

    asyncio.run(run())


def test_notices_are_read_in_order_and_broken_ones_named(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            elected = await first_broker(zk)
            for broker_id in (2, 1, 2):
                await zk.propagate_log_dir_event(broker_id)
            await zk.client.create("/log_dir_event_notification/log_dir_event_", b"{}", sequential=True)
            events = await zk.get_log_dir_events()
            assert events.values == (2, 1)
            assert events.malformed == (events.names[3],)
            await zk.delete_log_dir_events(events.names[:1], elected.epoch_zk_version)
            assert (await zk.get_log_dir_events()).names == events.names[1:]
            await zk.delete_log_dir_events(None, elected.epoch_zk_version)
            assert (await zk.get_log_dir_events()).names == ()

    asyncio.run(run())


def test_config_notices_are_read_after_a_name(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            await first_broker(zk)
            for entity in ("topics/a", "topics/b"):
                await zk.create_config_change_notification(entity)
            await zk.client.create("/config/changes/config_change_", b"broken", sequential=True)
            changes = await zk.get_config_changes()
            assert [change.entity_path for change in changes] == ["topics/a", "topics/b", None]
            assert changes[0].created_ms > 1_600_000_000_000
            assert await zk.get_config_changes(after=changes[1].name) == changes[2:]
            await zk.delete_config_changes([change.name for change in changes])
            await zk.delete_config_changes([changes[0].name])
            assert await zk.get_config_changes() == []

    asyncio.run(run())


def test_settings_are_refused_without_a_controller(open_kafka: OpenKafka) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            await zk.make_persistent_paths()
            with pytest.raises(ControllerMoved, match="no controller"):
                await zk.set_entity_configs("topics/t", {})
            await zk.set_entity_configs("topics/t", {"a": "b"}, check_controller=False)
            assert await zk.get_entity_configs("topics/t") == {"a": "b"}
            kraft = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":5}'
            await zk.client.create("/controller", kraft)
            with pytest.raises(ControllerMoved, match="KRaft"):
                await zk.set_entity_configs("topics/t", {})
            await zk.change_entity_configs("topics/t", {}, check_controller=False)
            assert await zk.client.exists("/config/topics/t") is not None

    asyncio.run(run())


def test_secured_znodes_get_kafkas_access_lists(zk_chroot: str) -> None:
    async def run() -> None:
        client = await ZkClient.connect(zk_chroot, auth=[("digest", "kafka:secret")])
        async with client:
            zk = KafkaZkClient(client, is_secure=True)
            await first_broker(zk)
            await zk.set_entity_configs("users/alice", {})
            lists = {}
            for path in ("/brokers/ids/0", "/controller", "/config/topics", "/config/users/alice", "/consumers"):
                acl, _ = await client.get_acl(path)
                lists[path] = [(entry.scheme, entry.permissions) for entry in acl]
            readable = [("digest", 31), ("world", 1)]
            assert lists == {
                "/brokers/ids/0": readable,
                "/controller": readable,
                "/config/topics": readable,
                "/config/users/alice": [("digest", 31)],
                "/consumers": [("world", 31)],
            }

    asyncio.run(run())
