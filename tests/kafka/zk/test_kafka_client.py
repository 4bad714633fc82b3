"""Kafka's operations on a real ZooKeeper: reads, guards, refusals. ``test_kafka_writes`` covers what they write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from event_loop import in_event_loop

from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import CoordinationError, OperationError
from engine.common.model import (
    BrokerInfo,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicPartition,
)
from engine.common.topic_id import parse_topic_id
from engine.kafka.acls import AclEntry, PatternType, Permission, ResourcePattern
from engine.kafka.zk import topics
from engine.kafka.zk.brokers import BrokerRegistration
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.cluster import FeatureStatus, FinalizedFeatures, ProducerIdBlock, ProducerIdBlockZNode
from engine.kafka.zk.controller import ControllerEpoch
from engine.kafka.zk.errors import BadVersion, ControllerMoved, NoAuth, NodeExists, NoNode, ZnodeFormatError
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.operations import OPEN_ACL, Acl
from engine.kafka.zk.security import ZkSecurity
from engine.kafka.zk.topics import TopicIdReplicaAssignment
from engine.runtime import offload

TOPIC_ID = parse_topic_id("KZNAXhh6SS2FNC3mYo9vWQ")
T0, T1 = TopicPartition("t1", 0), TopicPartition("t1", 1)


OpenKafka = Callable[..., AbstractAsyncContextManager[KafkaZkClient]]
FirstBroker = Callable[..., Awaitable[ControllerEpoch]]
Register = Callable[..., BrokerRegistration]


@pytest.fixture
def open_kafka(connect) -> OpenKafka:
    """``async with open_kafka() as zk``: Kafka's operations over a client of its own."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[KafkaZkClient]:
        async with connect() as client:
            yield KafkaZkClient(client)

    return opened


def state(leader: int, isr: tuple[int, ...], leader_epoch: int = 0, partition_epoch: int = 0) -> LeaderAndIsr:
    return LeaderAndIsr(leader, leader_epoch, isr, partition_epoch=partition_epoch)


@in_event_loop
async def test_states_are_read_and_written_each_for_itself(open_kafka: OpenKafka, first_broker: FirstBroker) -> None:
    async with open_kafka() as zk:
        elected = await first_broker(zk)
        await zk.topics.create_topic_assignment("t1", TOPIC_ID, {})
        made = {tp: LeaderIsrAndControllerEpoch(state(1, (1, 2)), 1) for tp in (T0, T1)}
        await zk.partitions.create_partition_states(made, elected.epoch_zk_version)
        again = await zk.partitions.create_partition_states({T0: made[T0]}, elected.epoch_zk_version)
        assert isinstance(again[T0], NodeExists)
        gone = TopicPartition("t1", 9)
        updates = await zk.partitions.update_partition_states(
            {T0: state(2, (2,), 1, 0), T1: state(2, (2,), 1, 7), gone: state(2, (2,), 1, 0)},
            1,
            elected.epoch_zk_version,
        )
        assert updates.updated == {T0: state(2, (2,), 1, partition_epoch=1)}
        assert updates.to_retry == [T1]
        assert {tp: type(error) for tp, error in updates.failed.items()} == {gone: NoNode}
        await zk.client.set("/brokers/topics/t1/partitions/1/state", b"broken")
        read = await zk.partitions.get_partition_states([T0, T1, gone])
        assert read[T0] == LeaderIsrAndControllerEpoch(state(2, (2,), 1, 1), 1)
        assert isinstance(read[T1], ZnodeFormatError)
        assert read[gone] is None


@in_event_loop
async def test_a_topic_is_marked_for_deletion_where_no_controller_has_been(open_kafka: OpenKafka) -> None:
    """As in Kafka, the mark's parents are made; a refusal said that it may have happened."""
    async with open_kafka() as zk:
        assert await zk.client.exists("/admin/delete_topics") is None
        await zk.admin.create_topic_deletion("t1")
        assert await zk.admin.get_topic_deletions() == ["t1"]
        with pytest.raises(NodeExists):
            await zk.admin.create_topic_deletion("t1")


@in_event_loop
async def test_deposed_controller_can_write_nothing(open_kafka: OpenKafka, first_broker: FirstBroker) -> None:
    async with open_kafka() as old, open_kafka() as new:
        elected = await first_broker(old)
        await old.topics.create_topic_assignment("t1", TOPIC_ID, {0: ReplicaAssignment((0,))})
        made = {T0: LeaderIsrAndControllerEpoch(state(0, (0,)), 1)}
        await old.partitions.create_partition_states(made, elected.epoch_zk_version)
        await old.admin.create_topic_deletion("t1")
        await old.notifications.propagate_log_dir_event(0)
        await old.admin.create_reassignments({T0: (1,)})
        await old.controller.delete_controller(elected.epoch_zk_version)
        successor = await new.controller.elect_controller(1)
        assert successor == ControllerEpoch(2, 2)
        guard = elected.epoch_zk_version
        before = await _dump(old.client)
        for refused in (
            old.partitions.create_partition_states({T1: made[T0]}, guard),
            old.partitions.update_partition_states({T0: state(1, (1,))}, 1, guard),
            old.topics.set_topic_assignment("t1", TOPIC_ID, {}, guard),
            old.topics.delete_topic_znode("t1", guard),
            old.topics.delete_topic_configs(["t1"], guard),
            old.admin.delete_topic_deletions(["t1"], guard),
            old.admin.set_reassignments({}, guard),
            old.admin.set_reassignments({T0: (2,)}, guard),
            old.admin.delete_preferred_election(guard),
            old.notifications.delete_log_dir_events(None, guard),
            old.controller.delete_controller(guard),
        ):
            with pytest.raises(ControllerMoved):
                await refused
        assert await _dump(old.client) == before


async def _dump(client: ZkClient, path: str = "/") -> dict[str, tuple[bytes, int]]:
    data, stat = await client.get(path)
    tree = {path: (data, stat.mzxid)}
    for name in await client.children(path):
        tree |= await _dump(client, f"{path.rstrip('/')}/{name}")
    return tree


@in_event_loop
async def test_one_of_many_candidates_is_elected(open_kafka: OpenKafka) -> None:
    async with open_kafka() as first, open_kafka() as second, open_kafka() as third:
        candidates = {0: first, 1: second, 2: third}
        assert await first.controller.get_controller_id() is None
        assert await first.controller.get_controller_epoch() is None
        for round_number in range(1, 6):
            results = await asyncio.gather(
                *(zk.controller.elect_controller(broker_id) for broker_id, zk in candidates.items())
            )
            winners = [broker_id for broker_id, won in enumerate(results) if won is not None]
            assert len(winners) == 1
            assert results[winners[0]].controller_epoch == round_number
            assert await second.controller.get_controller_id() == winners[0]
            assert (await third.controller.get_controller_epoch()) == results[winners[0]]
            await candidates[winners[0]].controller.delete_controller(results[winners[0]].epoch_zk_version)


@in_event_loop
async def test_registration_gives_the_broker_epoch(open_kafka: OpenKafka, registration: Register) -> None:
    async with open_kafka() as zk:
        await zk.cluster.make_persistent_paths()
        broker_epoch = await zk.brokers.register_broker(registration(3))
        stat = await zk.client.exists("/brokers/ids/3")
        assert stat is not None
        assert (stat.czxid, stat.version, stat.ephemeral_owner) == (broker_epoch, 1, zk.client.session_id)
        assert await zk.brokers.register_broker(registration(3)) == broker_epoch
        assert await zk.brokers.get_all_brokers_with_epochs() == {
            3: BrokerInfo(3, registration(3).broker.endpoints, "a", broker_epoch)
        }
        broker = await zk.brokers.get_broker(3)
        assert broker is not None and broker.broker_epoch == broker_epoch
        assert await zk.brokers.get_broker(4) is None


def test_broken_registration_is_told_and_left_out(
    open_kafka: OpenKafka, caplog: pytest.LogCaptureFixture, registration: Register
) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            await zk.cluster.make_persistent_paths()
            await zk.brokers.register_broker(registration(0))
            await zk.client.create("/brokers/ids/1", b"broken")
            await zk.client.create("/brokers/ids/x", b"")
            assert list(await zk.brokers.get_all_brokers_with_epochs()) == [0]
            assert await zk.brokers.get_broker_ids() == [0, 1]
            with pytest.raises(ZnodeFormatError):
                await zk.brokers.get_broker(1)

    asyncio.run(run())
    assert "cannot understand the content of /brokers/ids/1" in caplog.text


@in_event_loop
async def test_id_of_an_old_session_is_waited_for(open_kafka: OpenKafka, registration: Register, until, caplog) -> None:
    async with open_kafka() as old, open_kafka() as new:
        await old.cluster.make_persistent_paths()
        first_epoch = await old.brokers.register_broker(registration())
        waiting = asyncio.ensure_future(new.brokers.register_broker(registration()))
        await until(lambda: "Waiting for the broker id" in caplog.text)
        assert not waiting.done()
        await old.close()
        assert await waiting > first_epoch


@in_event_loop
async def test_id_held_by_a_living_broker_is_refused_and_says_by_whom(
    open_kafka: OpenKafka, registration: Register
) -> None:
    async with open_kafka() as holder, open_kafka() as late:
        await holder.cluster.make_persistent_paths()
        await holder.brokers.register_broker(registration())
        with pytest.raises(OperationError, match="broker id 0 is already registered") as caught:
            await late.brokers.register_broker(registration(), wait_ms=200)
        assert f"session=0x{holder.client.session_id:x}" in str(caught.value)
        assert "PLAINTEXT://127.0.0.1:29392" in str(caught.value)
        assert "broker.id" in (caught.value.hint or "")


@in_event_loop
async def test_own_registration_of_a_lost_session_is_replaced(
    open_kafka: OpenKafka, end_session, until, registration: Register
) -> None:
    async with open_kafka() as zk:
        await zk.cluster.make_persistent_paths()
        first_epoch = await zk.brokers.register_broker(registration())
        lost = zk.client.session_id
        await end_session(zk.client)
        await until(lambda: zk.client.session_id not in (0, lost))
        assert await zk.brokers.register_broker(registration()) > first_epoch


@in_event_loop
async def test_generated_broker_ids_are_above_the_reserved_ones(open_kafka: OpenKafka) -> None:
    async with open_kafka() as zk:
        assert await zk.brokers.generate_broker_id(1_000) == 1_001
        assert await zk.brokers.generate_broker_id(1_000) == 1_002


@in_event_loop
async def test_cluster_id_is_made_once(open_kafka: OpenKafka) -> None:
    async with open_kafka() as first, open_kafka() as second:
        ids = await asyncio.gather(
            first.cluster.get_or_create_cluster_id("a" * 22), second.cluster.get_or_create_cluster_id("b" * 22)
        )
        assert ids[0] == ids[1] == await first.cluster.get_cluster_id()


@in_event_loop
async def test_producer_ids_are_given_out_once(open_kafka: OpenKafka) -> None:
    async with open_kafka() as first, open_kafka() as second:
        await first.cluster.make_persistent_paths()
        assert await first.cluster.allocate_producer_id_block(0) == ProducerIdBlock(0, 0, 1000)
        claims = [
            zk.cluster.allocate_producer_id_block(broker) for broker, zk in ((0, first), (1, second)) for _ in range(10)
        ]
        blocks = await asyncio.gather(*claims)
        assert sorted(block.first_producer_id for block in blocks) == list(range(1_000, 21_000, 1_000))
        content, _ = await second.client.get(ProducerIdBlockZNode.path)
        last = ProducerIdBlockZNode.decode(content)
        assert last.last_producer_id == 20_999
        end = b'{"version":1,"broker":0,"block_start":"0","block_end":"9223372036854775800"}'
        await first.client.set("/latest_producer_id_block", end)
        with pytest.raises(CoordinationError, match="all producer ids"):
            await first.cluster.allocate_producer_id_block(0)


@in_event_loop
async def test_features_follow_the_controllers_protocol(open_kafka: OpenKafka) -> None:
    async with open_kafka() as zk:
        assert await zk.cluster.get_features() is None
        await zk.cluster.set_up_features(FeatureStatus.DISABLED, 1)
        assert (await zk.client.get("/feature"))[0] == b'{"features":{},"version":1,"status":0}'
        await zk.cluster.set_up_features(FeatureStatus.ENABLED, 2)
        await zk.cluster.set_up_features(FeatureStatus.ENABLED, 2)
        data, stat = await zk.client.get("/feature")
        assert (data, stat.version) == (b'{"features":{},"version":2,"status":1}', 1)
        await zk.client.set("/feature", b'{"features":{"f":{"max_version_level":3}},"version":2,"status":1}')
        await zk.cluster.set_up_features(FeatureStatus.ENABLED, 2)
        assert await zk.cluster.get_features() == FinalizedFeatures(FeatureStatus.ENABLED, 2, {"f": 3})


def test_assignments_are_read_and_set_by_version(
    open_kafka: OpenKafka, caplog: pytest.LogCaptureFixture, first_broker: FirstBroker
) -> None:
    async def run() -> None:
        async with open_kafka() as zk:
            elected = await first_broker(zk)
            replicas = {0: ReplicaAssignment((0, 1))}
            await zk.topics.create_topic_assignment("a", TOPIC_ID, replicas)
            await zk.topics.create_topic_assignment("b", None, replicas)
            await zk.client.create("/brokers/topics/c", b"broken")
            assert await zk.topics.get_all_topics() == ["a", "b", "c"]
            assert await zk.topics.topic_exists("a") and not await zk.topics.topic_exists("d")
            read = await zk.topics.get_topic_assignments(["a", "b", "c", "d"])
            assert read == {
                "a": TopicIdReplicaAssignment("a", TOPIC_ID, replicas, 0),
                "b": TopicIdReplicaAssignment("b", None, replicas, 0),
            }
            every = await zk.topics.read_topics(["c", "d"])
            assert isinstance(every["c"], ZnodeFormatError)
            assert every["d"] is None
            moving = {0: ReplicaAssignment((2, 0, 1), (2,), (0, 1))}
            wanted = [
                TopicIdReplicaAssignment("a", TOPIC_ID, moving, 0),
                TopicIdReplicaAssignment("b", TOPIC_ID, replicas, 5),
            ]
            outcomes = await zk.topics.set_topic_assignments(wanted, elected.epoch_zk_version)
            assert outcomes["a"] == 1
            assert isinstance(outcomes["b"], BadVersion)
            assert (await zk.topics.get_topic_assignments(["a"]))["a"].assignment == moving
            with pytest.raises(NodeExists):
                await zk.topics.create_topic_assignment("a", TOPIC_ID, replicas)
            with pytest.raises(NoNode):
                await zk.topics.set_topic_assignment("d", TOPIC_ID, replicas, elected.epoch_zk_version)

    asyncio.run(run())
    assert "Leaving out a topic" in caplog.text


@in_event_loop
async def test_the_loop_goes_on_while_large_topics_are_decoded_and_encoded(
    open_kafka: OpenKafka, first_broker: FirstBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic of 60,000 partitions took 200 ms to decode."""
    beside: list[str] = []

    async def noted(work: Callable[..., Any], /, *args: object) -> Any:
        beside.append(work.__name__)
        return await offload.beside_loop(work, *args)

    monkeypatch.setattr(topics, "beside_loop", noted)
    few, many = ({p: ReplicaAssignment((p % 3,)) for p in range(count)} for count in (offload.MANY, 3 * offload.MANY))
    async with open_kafka() as zk:
        await first_broker(zk)
        for name, replicas in (("few", few), ("many", many)):
            await zk.topics.create_topic_assignment(name, TOPIC_ID, replicas)
        await zk.client.create("/brokers/topics/broken", b"x" * 30_000)
        read = await zk.topics.read_topics(["few", "gone", "many", "broken"])
        assert beside == ["decoded", "decoded"]
        assert isinstance(read.pop("broken"), ZnodeFormatError)
        assert read == {
            "few": TopicIdReplicaAssignment("few", TOPIC_ID, few, 0),
            "gone": None,
            "many": TopicIdReplicaAssignment("many", TOPIC_ID, many, 0),
        }
        beside.clear()
        moved = {**many, 0: ReplicaAssignment((2, 0), (2,), (0,))}
        wanted = [TopicIdReplicaAssignment(name, TOPIC_ID, now, 0) for name, now in (("few", few), ("many", moved))]
        assert await zk.topics.set_topic_assignments(wanted, None) == {"few": 1, "many": 1}
        assert beside == ["encode"]
        assert (await zk.topics.get_topic_assignments(["many"]))["many"].assignment == moved


@in_event_loop
async def test_requests_of_tools_are_read_and_worked_off(open_kafka: OpenKafka, first_broker: FirstBroker) -> None:
    async with open_kafka() as zk:
        elected = await first_broker(zk)
        guard = elected.epoch_zk_version
        assert await zk.admin.get_reassignments() is None
        assert await zk.admin.get_preferred_election() is None
        await zk.admin.create_reassignments({T0: (1, 2), T1: (0, 2)})
        with pytest.raises(NodeExists):
            await zk.admin.create_reassignments({T0: (1, 2)})
        assert await zk.admin.get_reassignments() == {T0: (1, 2), T1: (0, 2)}
        await zk.admin.set_reassignments({T1: (0, 2)}, guard)
        assert await zk.admin.get_reassignments() == {T1: (0, 2)}
        await zk.admin.set_reassignments({}, guard)
        await zk.admin.set_reassignments({}, guard)
        assert await zk.admin.get_reassignments() is None
        await zk.admin.set_reassignments({T0: (1,)}, guard)
        assert await zk.admin.get_reassignments() == {T0: (1,)}
        await zk.admin.create_preferred_election([T0, T1])
        assert await zk.admin.get_preferred_election() == (T0, T1)
        await zk.admin.delete_preferred_election(guard)
        await zk.admin.delete_preferred_election(guard)
        await zk.client.create("/admin/preferred_replica_election", b"not json")
        with pytest.raises(ZnodeFormatError):
            await zk.admin.get_preferred_election()


@in_event_loop
async def test_notices_are_read_in_order_and_broken_ones_named(
    open_kafka: OpenKafka, first_broker: FirstBroker
) -> None:
    async with open_kafka() as zk:
        elected = await first_broker(zk)
        for broker_id in (2, 1, 2):
            await zk.notifications.propagate_log_dir_event(broker_id)
        await zk.client.create("/log_dir_event_notification/log_dir_event_", b"{}", sequential=True)
        events = await zk.notifications.get_log_dir_events()
        assert events.values == (2, 1)
        assert events.malformed == (events.names[3],)
        await zk.notifications.delete_log_dir_events(events.names[:1], elected.epoch_zk_version)
        assert (await zk.notifications.get_log_dir_events()).names == events.names[1:]
        await zk.notifications.delete_log_dir_events(None, elected.epoch_zk_version)
        assert (await zk.notifications.get_log_dir_events()).names == ()


@in_event_loop
async def test_all_brokers_are_told_whose_settings_changed(open_kafka: OpenKafka, first_broker: FirstBroker) -> None:
    async with open_kafka() as zk:
        await first_broker(zk)
        for entity in ("topics/a", "users/u/clients/c"):
            await zk.configs.change_entity_configs(entity, {"k": "v"})
        notices = sorted(await zk.client.children("/config/changes"))
        assert [name.rstrip("0123456789") for name in notices] == ["config_change_", "config_change_"]
        answers = [await zk.client.get(f"/config/changes/{name}") for name in notices]
        assert [data for data, _ in answers] == [
            b'{"version":2,"entity_path":"topics/a"}',
            b'{"version":2,"entity_path":"users/u/clients/c"}',
        ]


@in_event_loop
@pytest.mark.parametrize("entity", ["topics/a", "users/u", "users/u/clients/c"])
async def test_settings_change_only_if_brokers_are_told(
    entity: str, open_kafka: OpenKafka, first_broker: FirstBroker
) -> None:
    async with open_kafka() as zk:
        await first_broker(zk)
        path, notices = f"/config/{entity}", "/config/changes"
        for before in ({}, {"k": "v"}):
            if before:
                await zk.configs.change_entity_configs(entity, before)
            names = await zk.client.children(notices)
            await zk.client.set_acl(notices, (Acl(17, "world", "anyone"),))
            for after in ({"k": "w"}, {}):
                with pytest.raises(NoAuth) as refusal:
                    await zk.configs.change_entity_configs(entity, after)
                assert refusal.value.path is not None
                assert f"{notices}/" in refusal.value.path
                assert await zk.configs.get_entity_configs(entity) == before
                assert (await zk.client.exists(path) is not None) == bool(before)
            await zk.client.set_acl(notices, OPEN_ACL)
            assert await zk.client.children(notices) == names


@in_event_loop
@pytest.mark.parametrize("kind", PatternType)
async def test_rules_change_only_if_brokers_are_told(kind: PatternType, open_kafka: OpenKafka) -> None:
    pattern = ResourcePattern(ResourceType.TOPIC, "t", kind)
    entry = AclEntry("User:a", "*", AclOperation.READ, Permission.ALLOW)
    notices = "/kafka-acl-changes" if kind is PatternType.LITERAL else "/kafka-acl-extended-changes"
    async with open_kafka() as zk:
        await zk.acls.make_paths()
        for before, after in (((), (entry,)), ((entry,), ())):
            await zk.client.set_acl(notices, (Acl(17, "world", "anyone"),))
            with pytest.raises(NoAuth):
                await zk.acls.change(pattern, lambda _, wanted=after: wanted)
            assert await zk.acls.get(pattern) == before
            await zk.client.set_acl(notices, OPEN_ACL)
            await zk.acls.change(pattern, lambda _, wanted=after: wanted)
            assert await zk.acls.get(pattern) == after
        assert len(await zk.client.children(notices)) == 2


@in_event_loop
async def test_clients_of_users_are_found_below_the_users(open_kafka: OpenKafka, first_broker: FirstBroker) -> None:
    async with open_kafka() as zk:
        await first_broker(zk)
        assert await zk.configs.get_clients_of_users() == []
        for entity in ("users/b", "users/a/clients/y", "users/a/clients/x", "clients/z"):
            await zk.configs.set_entity_configs(entity, {"k": "v"})
        assert await zk.configs.get_clients_of_users() == [("a", "x"), ("a", "y")]


@in_event_loop
async def test_settings_are_refused_without_a_controller(open_kafka: OpenKafka) -> None:
    async with open_kafka() as zk:
        await zk.cluster.make_persistent_paths()
        with pytest.raises(ControllerMoved, match="no controller"):
            await zk.configs.set_entity_configs("topics/t", {})
        await zk.configs.set_entity_configs("topics/t", {"a": "b"}, check_controller=False)
        assert await zk.configs.get_entity_configs("topics/t") == {"a": "b"}
        kraft = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":5}'
        await zk.client.create("/controller", kraft)
        with pytest.raises(ControllerMoved, match="KRaft"):
            await zk.configs.set_entity_configs("topics/t", {})
        await zk.configs.change_entity_configs("topics/t", {}, check_controller=False)
        assert await zk.client.exists("/config/topics/t") is not None


@in_event_loop
async def test_secured_znodes_get_kafkas_access_lists(zk_chroot: str, first_broker: FirstBroker) -> None:
    client = await ZkClient.connect(zk_chroot, security=ZkSecurity(auth=(("digest", "kafka:secret"),)))
    async with client:
        zk = KafkaZkClient(client)
        await first_broker(zk)
        await zk.configs.set_entity_configs("users/alice", {})
        await zk.consumers.set_or_create_consumer_offsets("g", {TopicPartition("t", 0): 5})
        lists = {}
        for path in (
            "/brokers/ids/0",
            "/controller",
            "/config/topics",
            "/config/users/alice",
            "/consumers",
            "/consumers/g",
        ):
            acl, _ = await client.get_acl(path)
            lists[path] = [(entry.scheme, entry.permissions) for entry in acl]
        readable = [("digest", 31), ("world", 1)]
        assert lists == {
            "/brokers/ids/0": readable,
            "/controller": readable,
            "/config/topics": readable,
            "/config/users/alice": [("digest", 31)],
            "/consumers": [("world", 31)],
            "/consumers/g": readable,
        }
