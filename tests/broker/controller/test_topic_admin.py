"""Creating, growing and deleting topics: every check with Kafka's code and words, and the writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import MagicMock

import pytest
from controller_cluster import SmallCluster, cluster_of, eventually
from event_loop import staged
from network_serving import run

from engine.broker.controller import topic_admin
from engine.broker.controller.events import AlterPartitionReassignments
from engine.broker.controller.topic_admin import NewTopic, TopicAdmin
from engine.broker.replication.metadata_cache import MetadataCache
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.protocol.apis.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from engine.kafka.zk.admin_nodes import DeleteTopicsTopicZNode
from engine.kafka.zk.topics import TopicIdReplicaAssignment
from engine.runtime import offload
from engine.runtime.room import Room


async def refused(action: Awaitable[object]) -> tuple[ErrorCode, str | None]:
    with pytest.raises(KafkaError) as refusal:
        await action
    return refusal.value.code, refusal.value.message


async def create(cluster: SmallCluster, wanted: NewTopic) -> TopicAdmin:
    admin = cluster.controller.topic_admin
    created = await admin.create_topic(wanted)
    assert await admin.wait_for_leaders(wanted.name, created.assignment, 10_000)
    return admin


BAD_ASSIGNMENT = ErrorCode.INVALID_REPLICA_ASSIGNMENT
REFUSED_TOPICS = [
    (NewTopic("a.b"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists."),
    (
        NewTopic("a_b"),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b' collides with existing topics: a.b",
    ),
    (
        NewTopic("no/name"),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic name is invalid: 'no/name' contains one or more characters other than ASCII "
        "alphanumerics, '.', '_' and '-'",
    ),
    (NewTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
    (
        NewTopic("t", 1, 0),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor must be larger than 0.",
    ),
    (
        NewTopic("t", 1, 3),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor: 3 larger than available brokers: 2.",
    ),
    (
        NewTopic("t", 1, assignments={0: (0,)}),
        ErrorCode.INVALID_REQUEST,
        "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at "
        "the same time.",
    ),
    (
        NewTopic("t", assignments={0: (0, 1), 1: (1,)}),
        BAD_ASSIGNMENT,
        "All partitions should have the same number of replicas",
    ),
    (
        NewTopic("t", assignments={0: (0, 0)}),
        BAD_ASSIGNMENT,
        "Duplicate replica assignment found: Map(0 -> List(0, 0))",
    ),
    (
        NewTopic("t", assignments={1: (0,), 2: (1,)}),
        BAD_ASSIGNMENT,
        "partitions should be a consecutive 0-based integer sequence",
    ),
    (
        NewTopic("t", assignments={0: ()}),
        BAD_ASSIGNMENT,
        "The manual partition assignment includes an empty replica list.",
    ),
    (
        NewTopic("t", configs={"retention.ms": None, "segment.ms": "1"}),
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: retention.ms",
    ),
    (
        NewTopic("t", configs={"nosuch.key": "1"}),
        ErrorCode.INVALID_CONFIG,
        "Unknown topic config name: nosuch.key",
    ),
    (
        NewTopic("t", configs={"retention.ms": "soon"}),
        ErrorCode.INVALID_CONFIG,
        "Invalid value soon for configuration retention.ms: Not a number of type LONG",
    ),
]


@staged(run)
async def test_what_cannot_be_created(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        admin = await create(cluster, NewTopic("a.b", 1, 1))
        for wanted, code, message in REFUSED_TOPICS:
            assert await refused(admin.create_topic(wanted)) == (code, message)
        assert await cluster.controller.zk.topics.get_all_topics() == ["a.b"]


@staged(run)
async def test_a_topic_marked_for_deletion_cannot_be_created(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 1) as cluster:
        admin = cluster.controller.topic_admin
        await cluster.controller.controller.stop()  # so that nobody removes the mark
        await cluster.controller.zk.client.create(DeleteTopicsTopicZNode.path("t"))
        assert await refused(admin.create_topic(NewTopic("t"))) == (
            ErrorCode.TOPIC_ALREADY_EXISTS,
            "Topic 't' is marked for deletion.",
        )


@staged(run)
async def test_the_loop_goes_on_while_very_many_partitions_are_made(zk_chroot: str) -> None:
    """A request of 40 bytes may ask for 200,000. To assign them took 270 ms in one piece, and to write them 500."""
    beside, durations = [], []
    run_beside = offload.beside_loop

    async def noted(work: Callable[..., object], /, *args: object) -> object:
        beside.append(work.__name__)
        return await run_beside(work, *args)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(offload, "beside_loop", noted)
        patches.setattr(topic_admin.logger, "info", lambda text, *values: durations.append(text % values))
        async with cluster_of(zk_chroot, 2) as cluster:
            admin = cluster.controller.topic_admin
            await cluster.controller.controller.stop()
            await admin.create_topic(NewTopic("few", offload.MANY, 1))
            assert beside == []
            await admin.create_topic(NewTopic("t", 2 * offload.MANY, 1))
            assert beside == ["_assignment_of", "_check_assignment", "_replica_assignments", "encode"]
            beside.clear()
            await admin.add_partitions("t", 4 * offload.MANY, None)
            assert beside == ["_new_partitions", "encoded"]
            (written,) = (await cluster.controller.zk.topics.get_topic_assignments(("t",))).values()
            assert sorted(written.assignment) == list(range(4 * offload.MANY))
    assert "998: (" in durations[0] and durations[0].endswith(")}")
    assert durations[1].endswith(f")}} and {offload.MANY} more")


@staged(run)
async def test_one_request_at_a_time_makes_very_many_partitions(zk_chroot: str) -> None:
    """Each takes 40 bytes, and for 200,000 partitions 30 MB."""
    under_way: list[int] = []
    assign = topic_admin.assign_replicas

    async with cluster_of(zk_chroot, 2) as cluster:
        admin = cluster.controller.topic_admin
        check_new, most = admin._check_new, 0

        async def checked(*args: Any) -> None:
            nonlocal most
            most = max(most, len(under_way))
            await check_new(*args)
            under_way.pop()

        def assigned(*args: Any, **options: Any) -> Any:
            under_way.append(1)
            return assign(*args, **options)

        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(admin, "_check_new", checked)
            patches.setattr(topic_admin, "assign_replicas", assigned)
            own = BrokerConfig({**admin._config().originals, "num.partitions": f"{offload.MANY + 1}"})
            patches.setattr(admin, "_config", lambda: own)
            many = [NewTopic(f"t{number}", count, 1) for number, count in enumerate([offload.MANY + 1, -1] * 3)]
            await asyncio.gather(*(admin.create_topic(wanted, validate_only=True) for wanted in many))
        assert most == 1


@staged(run)
async def test_a_given_assignment_is_copied_only_to_be_sorted(zk_chroot: str) -> None:
    """That of 100,000 partitions took three times the memory."""
    async with cluster_of(zk_chroot, 2) as cluster:
        create = cluster.controller.topic_admin.create_topic
        ordered, other = NewTopic("t", assignments={0: (0,), 1: (1,)}), NewTopic("t", assignments={1: (1,), 0: (0,)})
        assert (await create(ordered, validate_only=True)).assignment is ordered.assignments
        assert list((await create(other, validate_only=True)).assignment.items()) == [(0, (0,)), (1, (1,))]


@staged(run)
async def test_validate_only_writes_nothing(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        admin = cluster.controller.topic_admin
        created = await admin.create_topic(NewTopic("t", 4, 2), validate_only=True)
        assert len(created.assignment) == 4
        assert await cluster.controller.zk.topics.get_all_topics() == []
        assert await cluster.controller.zk.configs.get_entity_configs("topics/t") == {}


@staged(run)
async def test_topics_made_by_being_asked_for(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        other = cluster.brokers[1]  # any broker may do it
        errors = await other.topic_admin.auto_create(["auto", "no good"])
        assert errors == {
            "auto": ErrorCode.LEADER_NOT_AVAILABLE,
            "no good": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert await other.topic_admin.wait_for_leaders("auto", (0,), 10_000)
        assert await other.topic_admin.auto_create(["auto"]) == {"auto": ErrorCode.LEADER_NOT_AVAILABLE}


@staged(run)
async def test_without_metadata_nothing_can_be_placed(zk_chroot: str) -> None:
    """As recorded: a broker that has not heard of a controller yet answers INVALID_REPLICATION_FACTOR."""
    async with cluster_of(zk_chroot, 1) as cluster:
        config = BrokerConfig({"zookeeper.connect": zk_chroot})
        admin = TopicAdmin(cluster.controller.zk, MetadataCache(0), lambda: config)
        assert await admin.auto_create(["t"]) == {"t": ErrorCode.INVALID_REPLICATION_FACTOR}


def given(assignments: list[list[int]]) -> Callable[[], Awaitable[list[list[int]]]]:
    async def ask() -> list[list[int]]:
        return assignments

    return ask


@staged(run)
async def test_growing_a_topic(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 3) as cluster:
        admin = await create(cluster, NewTopic("t", assignments={0: (1, 2)}))
        bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        cases: list[tuple[int, list[list[int]] | None, ErrorCode, str]] = [
            (1, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 1 partitions."),
            (
                0,
                None,
                ErrorCode.INVALID_PARTITIONS,
                "Topic currently has 1 partitions, which is higher than the requested 0.",
            ),
            (2, [[0, 9]], bad, "Unknown broker(s) in replica assignment: 9."),
            (
                3,
                [[0, 1]],
                bad,
                "Increasing the number of partitions by 2 but 1 assignments provided.",
            ),
            (2, [[]], bad, "Cannot have replication factor of 0 for partition id 1."),
            (2, [[0, 0]], bad, "Duplicate brokers not allowed in replica assignment: 0, 0 for partition id 1."),
            (
                2,
                [[0, 1, 2]],
                bad,
                "Inconsistent replication factor between partitions, partition 0 has 2 while partitions [1] have "
                "replication factors [3], respectively.",
            ),
        ]
        for count, assignments, code, message in cases:
            assert await refused(admin.add_partitions("t", count, assignments and given(assignments))) == (
                code,
                message,
            )
        assert await refused(admin.add_partitions("no", 2, None)) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'no' does not exist.",
        )
        assert await admin.add_partitions("t", 4, None, validate_only=True) == [0, 1, 2, 3]
        assert await admin.add_partitions("t", 2, given([[2, 0]])) == [0, 1]
        assert await admin.add_partitions("t", 4, None) == [0, 1, 2, 3]
        assert await admin.wait_for_leaders("t", range(4), 10_000)
        stored = (await cluster.controller.zk.topics.get_topic_assignments(("t",)))["t"]
        assert [stored.assignment[p].replicas for p in range(4)] == [(1, 2), (2, 0), (0, 2), (1, 2)]


def before_the_write(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Awaitable[object]]) -> None:
    """Let something happen once a topic has been read, and before its grown assignment is written."""
    write_grown = TopicAdmin._write_grown

    async def late(self: TopicAdmin, existing: TopicIdReplicaAssignment, new: dict[int, tuple[int, ...]]) -> bool:
        monkeypatch.setattr(TopicAdmin, "_write_grown", write_grown)
        await action()
        return await write_grown(self, existing, new)

    monkeypatch.setattr(TopicAdmin, "_write_grown", late)


@staged(run)
async def test_what_another_has_added_meanwhile_stays(zk_chroot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise two brokers would be told different replicas of one partition."""
    async with cluster_of(zk_chroot, 3) as cluster:
        admin = await create(cluster, NewTopic("t", assignments={0: (0,)}))
        before_the_write(monkeypatch, lambda: admin.add_partitions("t", 2, given([[2]])))
        assert await admin.add_partitions("t", 4, None) == [0, 1, 2, 3]
        stored = (await cluster.controller.zk.topics.get_topic_assignments(("t",)))["t"]
        assert stored.assignment[1].replicas == (2,)
        before_the_write(monkeypatch, lambda: admin.add_partitions("t", 6, None))
        assert await refused(admin.add_partitions("t", 5, None)) == (
            ErrorCode.INVALID_PARTITIONS,
            "Topic currently has 6 partitions, which is higher than the requested 5.",
        )


@staged(run)
async def test_a_move_that_begins_meanwhile_is_not_forgotten(zk_chroot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster_of(zk_chroot, 3) as cluster:
        admin = await create(cluster, NewTopic("t", assignments={0: (0,)}))
        move = AlterPartitionReassignments({TopicPartition("t", 0): (1,)})
        before_the_write(monkeypatch, lambda: cluster.controller.controller.ask(move))
        assert await refused(admin.add_partitions("t", 2, None)) == (
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            "A partition reassignment is in progress for the topic 't'.",
        )
        stored = (await cluster.controller.zk.topics.get_topic_assignments(("t",)))["t"]
        assert stored.assignment == {0: ReplicaAssignment((1, 0), (1,), (0,))}


@staged(run)
async def test_deleting_a_topic(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 1) as cluster:
        admin = await create(cluster, NewTopic("t", 1, 1, configs={"retention.ms": "1"}))
        assert await refused(admin.delete_topic("no")) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "Topic `no` to delete does not exist",
        )
        await admin.delete_topic("t")
        assert await admin.wait_until_gone("t", 10_000)
        context = cluster.controller.controller.core.context
        await eventually(lambda: not context.topics, "the end of the topic")
        zk = cluster.controller.zk
        assert await zk.topics.get_all_topics() == []
        assert await zk.configs.get_entity_configs("topics/t") == {}
        assert await zk.admin.get_topic_deletions() == []


@staged(run)
async def test_waiting_ends_at_the_time_out(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 1) as cluster:
        admin = cluster.controller.topic_admin
        assert not await admin.wait_for_leaders("never", (0,), 30)
        assert not await admin.wait_for_leaders("never", (0,), 0)
        assert await admin.wait_until_gone("never", 0)


@staged(run)
async def test_partitions_are_waited_for_until_each_has_a_leader() -> None:
    cache = MetadataCache(0)
    admin = TopicAdmin(MagicMock(), cache, MagicMock())

    def announce(*leaders: int) -> None:
        states = [
            UpdateMetadataPartitionState(
                partition_index=number, controller_epoch=1, leader=leader, leader_epoch=0, isr=[1], zk_version=0,
                replicas=[1],
            )
            for number, leader in enumerate(leaders)
        ]  # fmt: skip
        topic = UpdateMetadataTopicState(topic_name="t", partition_states=states)
        cache.update(UpdateMetadataRequest(controller_id=1, topic_states=[topic], live_brokers=[]), 1)

    waiting = asyncio.create_task(admin.wait_for_leaders("t", range(3), 3_600_000))
    await eventually(lambda: admin.waiting == 1, "the first wait")
    for leaders in ((1,), (1, -1, 1), (-1, 1, 1)):
        announce(*leaders)
        assert not await admin.wait_for_leaders("t", range(3), 0)
    announce(1, 0, 1)
    async with asyncio.timeout(30):
        assert await waiting
    assert await admin.wait_for_leaders("t", range(3), 0)


@pytest.mark.parametrize(("for_elections", "together"), [(True, 1), (False, 2)])
@staged(run)
async def test_large_requests_that_wait_keep_a_bounded_memory(for_elections: bool, together: int) -> None:
    """An ElectLeaders keeps what it has made of each partition. The others keep little, so more of them may wait."""
    admin, room = TopicAdmin(MagicMock(), MetadataCache(0), MagicMock()), Room(10)

    async def large_request() -> bool:
        async with room.held(10, 4, "owner"):
            if for_elections:
                return await admin.elections.wait(lambda: False, 3_600_000)
            return await admin.wait_for_leaders("t", [0], 3_600_000)

    requests = [asyncio.create_task(large_request()) for _ in range(3)]
    async with asyncio.timeout(30):
        while len(admin.elections) + admin.waiting < together or not requests[2 - together].done():
            await asyncio.sleep(0)
    assert [request.done() for request in requests] == [True] * (3 - together) + [False] * together
    assert not requests[0].result()
    for request in requests:
        request.cancel()
