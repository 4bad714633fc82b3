"""The running controller on a real ZooKeeper and network: election, resignation, failover, watches, edits by hand."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from controller_cluster import SmallBroker, cluster_of, eventually, is_idle
from event_loop import staged
from network_serving import run

from engine.broker.controller import channels, events, reassignment_requests
from engine.broker.controller import instructions as do
from engine.broker.controller.events import SUCCESS, ApiError
from engine.broker.controller.topic_admin import NewTopic
from engine.broker.network.request import CLOSE_CONNECTION
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Response
from engine.kafka.zk.admin_nodes import ReassignPartitionsZNode
from engine.kafka.zk.client import ZkClient

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def knows(broker: SmallBroker, partition: TopicPartition, leader: int) -> bool:
    info = broker.metadata_cache.partition_info(partition)
    return info is not None and info.leader == leader


@staged(run)
async def test_brokers_learn_what_they_need_over_the_wire(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 3) as cluster:
        await cluster.create({0: (1, 2), 1: (2, 0)})
        assert cluster.brokers[1].replicas == {T0: (1, 0)}
        assert cluster.brokers[2].replicas == {T0: (1, 0), T1: (2, 0)}
        for broker in cluster.brokers.values():
            assert sorted(broker.metadata_cache.alive_brokers) == [0, 1, 2]
            assert broker.metadata_cache.controller_id == 0
            assert knows(broker, T0, 1)


@pytest.mark.parametrize("ibp", ["2.6", "3.9"])
@staged(run)
async def test_requests_go_in_the_versions_of_the_inter_broker_protocol(zk_chroot: str, ibp: str) -> None:
    options = {"is_alter_partition_enabled": ibp == "3.9", "uses_topic_ids": ibp == "3.9"}
    async with cluster_of(zk_chroot, 2, ibp=ibp, **options) as cluster:
        await cluster.create({0: (1, 0)})
        keys = {key for key, _ in cluster.brokers[1].received}
        assert keys == {ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA}
        (request,) = [r for key, r in cluster.brokers[1].received if key is ApiKey.LEADER_AND_ISR]
        assert (request.topic_states[0].topic_id != bytes(16)) is (ibp == "3.9")
        await cluster.controller.topic_admin.delete_topic("t")
        await eventually(lambda: T0 not in cluster.brokers[1].replicas, "deletion")


@staged(run)
async def test_another_broker_takes_over_when_the_controller_dies(zk_chroot: str) -> None:
    """Scene main/19: leader -1 first, the election follows."""
    async with cluster_of(zk_chroot, 3) as cluster:
        await cluster.create({0: (0, 1), 1: (1, 0)})
        await cluster.brokers[0].crash()
        new = await cluster.wait_for_controller()
        assert new.controller.controller_epoch == 2
        await eventually(lambda: is_idle(new), "the end of the take-over")
        await cluster.idle()
        first, second = await cluster.state(T0), await cluster.state(T1)
        assert (first.leader, first.leader_epoch, first.isr, first.partition_epoch) == (1, 2, (1,), 2)
        assert (second.leader, second.leader_epoch, second.isr) == (1, 1, (1,))
        assert sorted(cluster.brokers[2].metadata_cache.alive_brokers) == [1, 2]
        assert knows(cluster.brokers[2], T0, 1)


@staged(run)
async def test_a_term_that_cannot_begin_is_given_up_for_another(zk_chroot: str) -> None:
    """Otherwise a broker that does nothing would be the controller until it is restarted."""
    async with cluster_of(zk_chroot, 2) as cluster:
        await cluster.create({0: (0, 1), 1: (1, 0)})
        faults = 2

        async def fault(instruction: Any) -> None:
            nonlocal faults
            if isinstance(instruction, do.ReadTopics) and faults:
                faults -= 1
                raise RuntimeError("a fault of the program")

        cluster.brokers[1].on_instruction = fault
        await cluster.brokers[0].crash()
        new = await cluster.wait_for_controller()
        assert (new.broker_id, new.controller.controller_epoch, faults) == (1, 4, 0)
        await cluster.idle()
        assert (await cluster.state(T0)).leader == 1


@staged(run)
async def test_a_broker_dies_and_returns(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 3) as cluster:
        await cluster.create({0: (1, 2), 1: (2, 1)})
        broker = cluster.brokers[1]
        await broker.crash()
        await eventually(lambda: knows(cluster.brokers[2], T0, 2), "the new leader")
        await cluster.idle()
        assert (await cluster.state(T0)).isr == (2,)
        await broker.open(cluster.hosts, broker.endpoint.host, broker.endpoint.port)
        await eventually(lambda: broker.replicas.get(T0) == (2, 1), "its partitions")
        await cluster.idle()
        assert (await cluster.catch_up(T0, 2, 1)).isr == (2, 1)


@staged(run)
async def test_a_lost_session_is_survived(zk_chroot: str) -> None:
    """Scene main/36: the zombie learns that it was replaced, registers again and becomes an ordinary broker."""
    async with cluster_of(zk_chroot, 2) as cluster:
        await cluster.create({0: (0, 1)})
        zombie = cluster.brokers[0]
        old_epoch = zombie.broker_epoch
        zombie.may_register.clear()
        await end_session(cluster.hosts, zombie.zk.client)
        await eventually(lambda: cluster.brokers[1].controller.is_active, "the other one's election")
        await eventually(lambda: knows(cluster.brokers[1], T0, 1), "the other leader")
        zombie.may_register.set()
        await eventually(lambda: zombie.broker_epoch != old_epoch, "its new registration")
        await cluster.idle()
        assert not zombie.controller.is_active
        assert zombie.controller.controller_id == 1
        assert (await cluster.state(T0)).leader == 1
        await eventually(lambda: zombie.replicas[T0][0] == 1, "what it follows now")


async def end_session(hosts: str, client: ZkClient) -> None:
    """End a session on the server without its owner's knowledge: another connection takes it over and closes it."""
    session_id, password = client._keeper.current().credentials
    host, _, port = hosts.partition("/")[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = struct.pack(">iqiqi16sB", 0, 0, 6_000, session_id, 16, password, 0)
    writer.write(struct.pack(">i", len(body)) + body)
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    await reader.readexactly(size)
    writer.write(struct.pack(">iii", 8, 1, -11))
    await reader.read(100)
    writer.close()
    await writer.wait_closed()


@staged(run)
async def test_a_deposed_controller_writes_nothing(zk_chroot: str) -> None:
    """Another broker is elected while an event is being processed: the epoch check refuses the next write."""
    async with cluster_of(zk_chroot, 2) as cluster:
        await cluster.create({0: (1, 0)})
        old = cluster.controller

        async def depose(instruction: Any) -> None:
            if isinstance(instruction, do.UpdateLeaderAndIsr):
                old.on_instruction = None
                await cluster.brokers[1].zk.client.delete("/controller")
                await eventually(lambda: cluster.brokers[1].controller.is_active, "the other one's election")

        # Its own notice of the deletion waits in the queue behind the event that is being processed.
        old.on_instruction = depose
        before = await cluster.state(T0)
        answer = await old.controller.ask(events.ControlledShutdown(1, cluster.brokers[1].broker_epoch))
        assert isinstance(answer, ApiError)
        assert answer.code is ErrorCode.STALE_CONTROLLER_EPOCH
        await eventually(lambda: not old.controller.is_active, "its resignation")
        assert (await cluster.state(T0)).leader_epoch == before.leader_epoch


@staged(run)
async def test_requests_to_a_broker_that_is_not_the_controller_are_refused(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        other = cluster.brokers[1].controller
        assert await other.ask(events.AlterPartitionReassignments({T0: (1,)})) == events.NOT_CONTROLLER
        assert await other.ask(events.AllocateProducerIds(1, 1)) is ErrorCode.NOT_CONTROLLER
        await cluster.brokers[0].controller.stop()
        assert await cluster.brokers[0].controller.ask(events.AllocateProducerIds(1, 1)) is ErrorCode.NOT_CONTROLLER


@staged(run)
async def test_an_answer_comes_from_the_last_of_several_events(zk_chroot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignment_requests, "REASSIGNED_AT_ONCE_MAX", 2)
    async with cluster_of(zk_chroot, 3) as cluster:
        await cluster.create(dict.fromkeys(range(5), (1, 0)))
        wanted = {TopicPartition("t", index): (1, 2) for index in range(5)}
        asked = cluster.controller.controller.ask(events.AlterPartitionReassignments(wanted))
        assert await asked == dict.fromkeys(wanted, SUCCESS)


@staged(run)
async def test_whoever_waits_is_told_when_the_controller_stops(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 1) as cluster:
        controller = cluster.controller.controller
        held = asyncio.Event()

        async def hold(instruction: Any) -> None:
            held.set()
            await asyncio.Event().wait()

        cluster.controller.on_instruction = hold
        waiting = [
            asyncio.create_task(controller.ask(events.AlterPartitionReassignments({T0: (0,)}))) for _ in range(3)
        ]
        await held.wait()
        await controller.stop()
        assert [await task for task in waiting] == [events.NOT_CONTROLLER] * 3


@staged(run)
async def test_a_broker_that_does_not_answer_is_asked_until_it_is_gone(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        broker = cluster.brokers[1]
        answers = broker.leader_and_isr
        refused = 0

        def drop(head: Any, request: Any) -> Any:
            nonlocal refused
            refused += 1
            return CLOSE_CONNECTION

        broker.leader_and_isr = drop  # type: ignore[method-assign]
        admin = cluster.controller.topic_admin
        await admin.create_topic(NewTopic("t", assignments={0: (0, 1)}))
        assert await admin.wait_for_leaders("t", (0,), 10_000), "others are not held up"
        await eventually(lambda: refused >= 3, "the third attempt")
        assert T0 not in broker.metadata_cache.topics, "requests keep their order"
        broker.leader_and_isr = answers  # type: ignore[method-assign]
        await eventually(lambda: knows(broker, T0, 0), "what was sent behind it")
        assert broker.replicas == {T0: (0, 0)}


@staged(run)
async def test_an_answer_that_cannot_be_understood_does_not_end_the_line(
    zk_chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        understand = channels.event_of
        faults = iter([ValueError("a fault of ours")])

        def fails_once(wire: channels.WireRequest, response: Response) -> events.ControllerEvent | None:
            for fault in faults:
                raise fault
            return understand(wire, response)

        monkeypatch.setattr(channels, "event_of", fails_once)
        await cluster.create({0: (1, 0)})
        assert next(faults, None) is None
        await cluster.create({0: (1, 0)}, "later")
        assert all(knows(broker, TopicPartition("later", 0), 1) for broker in cluster.brokers.values())


# By hand


@staged(run)
async def test_a_controller_that_is_deposed_and_cannot_read_by_whom_resigns(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        await cluster.create({0: (1, 0)})
        old, zk = cluster.controller, cluster.brokers[1].zk.client
        await zk.set("/controller", b"{nonsense")
        epoch, _ = await zk.get("/controller_epoch")
        await zk.set("/controller_epoch", epoch)
        answer = await old.controller.ask(events.ControlledShutdown(1, cluster.brokers[1].broker_epoch))
        assert isinstance(answer, ApiError)
        await eventually(lambda: not old.controller.is_active, "its resignation")
        await zk.delete("/controller")
        await cluster.idle()
        await cluster.create({0: (1, 0)}, "later")


@staged(run)
async def test_a_reassignment_znode_deleted_by_hand_does_not_blind_the_controller(zk_chroot: str) -> None:
    """Kafka's watch is used up then (scene legacy-bad/03)."""
    async with cluster_of(zk_chroot, 3) as cluster:
        await cluster.create({0: (0, 1)})
        zk, path = cluster.brokers[2].zk.client, ReassignPartitionsZNode.path
        context = cluster.controller.controller.core.context
        await zk.create(path, ReassignPartitionsZNode.encode({T0: (0, 2)}))
        await eventually(lambda: T0 in context.partitions_being_reassigned, "the start")
        await cluster.idle()
        await zk.delete(path)
        await cluster.catch_up(T0, 0, 1, 2)
        await eventually(lambda: context.replicas(T0) == (0, 2), "the end")
        await cluster.idle()
        await zk.create(path, ReassignPartitionsZNode.encode({T0: (1, 2)}))
        await eventually(lambda: context.replicas(T0) == (1, 2, 0), "the second start")
        await cluster.idle()
        await zk.set(path, ReassignPartitionsZNode.encode({T0: (0, 1)}))
        await eventually(lambda: context.replicas(T0)[:2] == (0, 1), "the change of the znode while it runs")


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"version":1}', b'{"partitions":[{"topic":"t"}]}', b"\xff"])
@staged(run)
async def test_senseless_admin_znodes_are_removed(zk_chroot: str, data: bytes) -> None:
    async with cluster_of(zk_chroot, 1) as cluster:
        zk = cluster.brokers[0].zk.client
        for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election"):
            await zk.create(path, data)
        await cluster.idle()
        for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election"):
            async with asyncio.timeout(20):
                while await zk.exists(path) is not None:
                    await cluster.idle()
        for path in ("/isr_change_notification/isr_change_", "/log_dir_event_notification/log_dir_event_"):
            await zk.create(path, data, sequential=True)
        await cluster.idle()
        for parent in ("/isr_change_notification", "/log_dir_event_notification"):
            async with asyncio.timeout(20):
                while await zk.children(parent):
                    await cluster.idle()
        await cluster.create({0: (0,)})


@staged(run)
async def test_a_senseless_topic_znode_harms_no_other_topic(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 1) as cluster:
        zk = cluster.brokers[0].zk.client
        await zk.create("/brokers/topics/broken", b"{")
        await cluster.create({0: (0,)})
        assert "broken" not in cluster.controller.controller.core.context.topics
        await zk.set("/brokers/topics/broken", b'{"version":1,"partitions":{"0":[0]}}')
        broken = TopicPartition("broken", 0)
        await eventually(lambda: knows(cluster.brokers[0], broken, 0), "the mended topic")
        assert cluster.controller.controller.core.context.topic_ids.get("broken") is not None


@staged(run)
async def test_a_senseless_state_znode_harms_no_other_partition_and_can_be_mended(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 3) as cluster:
        await cluster.create({0: (1, 2), 1: (1, 2)})
        zk = cluster.brokers[2].zk.client
        path = "/brokers/topics/t/partitions/0/state"
        whole, _ = await zk.get(path)
        await zk.set(path, b"{")
        await cluster.brokers[1].crash()
        await eventually(lambda: knows(cluster.brokers[2], T1, 2), "the new leader of the other partition")
        await cluster.idle()
        assert (await zk.get(path))[0] == b"{"
        await cluster.brokers[0].crash()
        new = await cluster.wait_for_controller()
        await eventually(lambda: is_idle(new), "the end of the take-over")
        await cluster.create({0: (2,)}, topic="another")
        answer = await new.controller.ask(events.ElectLeaders((T0,), events.ElectionType.UNCLEAN))
        assert answer[T0].code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        await zk.set(path, whole)
        await zk.delete("/controller")
        await eventually(lambda: knows(cluster.brokers[2], T0, 2), "the leader of the mended partition")


@staged(run)
async def test_a_state_by_a_later_controller_is_left_alone(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2, is_alter_partition_enabled=False) as cluster:
        await cluster.create({0: (1, 0)})
        zk = cluster.brokers[0].zk.client
        path = "/brokers/topics/t/partitions/0/state"
        later = b'{"controller_epoch":99,"leader":0,"version":1,"leader_epoch":7,"isr":[0]}'
        await zk.set(path, later)
        answer = await cluster.controller.controller.ask(events.ElectLeaders((T0,), events.ElectionType.UNCLEAN))
        assert answer[T0].code is ErrorCode.ELECTION_NOT_NEEDED
        await cluster.brokers[1].crash()
        await cluster.idle()
        assert (await zk.get(path))[0] == later


@staged(run)
async def test_leaders_go_back_by_themselves(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        await cluster.create({0: (1, 0)})
        broker = cluster.brokers[1]
        await broker.crash()
        await eventually(lambda: knows(cluster.brokers[0], T0, 0), "the other leader")
        await broker.open(cluster.hosts, broker.endpoint.host, broker.endpoint.port)
        await eventually(lambda: T0 in broker.replicas and broker.replicas[T0][0] == 0, "its return")
        await cluster.idle()
        await cluster.catch_up(T0, 0, 1)
        cluster.controller.controller._schedule_rebalance(1)
        await eventually(lambda: knows(cluster.brokers[0], T0, 1), "the preferred leader")


@staged(run)
async def test_reassignment_over_the_whole_way(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 4) as cluster:
        await cluster.create({0: (0, 1)})
        controller = cluster.controller.controller
        answer = await controller.ask(events.AlterPartitionReassignments({T0: (2, 3)}))
        assert answer == {T0: SUCCESS}
        await cluster.idle()
        await cluster.catch_up(T0, 0, 1, 2, 3)
        await cluster.idle()
        state = await cluster.state(T0)
        assert (state.leader, state.isr) == (2, (2, 3))
        await eventually(lambda: T0 not in cluster.brokers[0].replicas, "the old replica's end")
        assert await controller.ask(events.ListPartitionReassignments(None)) == {}
