"""The controller is lost between any two of its writes, on a real ZooKeeper and a real network.

The next one finishes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from controller_cluster import SmallBroker, SmallCluster, cluster_of, is_idle
from event_loop import staged
from network_serving import run

from engine.broker.controller import instructions as do
from engine.broker.controller.topic_admin import NewTopic
from engine.common.model import TopicPartition
from engine.kafka.zk.admin_nodes import ReassignPartitionsZNode

CRASH_POINTS = (
    do.CreatePartitionStates,
    do.UpdateLeaderAndIsr,
    do.SetTopicAssignments,
    do.SetReassignments,
    do.DeleteTopicZNodes,
    do.SendRequests,
)
OPERATIONS = ("create", "delete", "reassign", "death")


@pytest.mark.parametrize("operation", OPERATIONS)
@staged(run)
async def test_the_next_controller_finishes_what_was_begun(zk_chroot: str, operation: str) -> None:
    """The controller's session ends after its first, second, third … write; another broker finishes the work."""
    async with cluster_of(zk_chroot, 4) as cluster:
        lost_after = 0
        while True:
            topic = f"t{lost_after}"
            partition = TopicPartition(topic, 0)
            if operation != "create":
                await cluster.create({0: (3, 2), 1: (2, 3)}, topic)
            old = cluster.controller
            lost = lose_after(old, lost_after)
            begun = asyncio.create_task(begin(cluster, operation, topic))
            await finish(cluster, operation, partition, old, lost)
            await asyncio.gather(begun, return_exceptions=True)
            old.on_instruction = None
            for broker in cluster.brokers.values():
                if not broker.is_answering:
                    await reopen(cluster, broker)
            await cluster.idle()
            if not lost.is_set():
                break
            lost_after += 1
        assert lost_after >= 2


def lose_after(broker: SmallBroker, count: int) -> asyncio.Event:
    """End a controller's session before its write number ``count``; the event reports that it happened."""
    lost = asyncio.Event()
    left = count

    async def hook(instruction: Any) -> None:
        nonlocal left
        if isinstance(instruction, CRASH_POINTS):
            if left == 0:
                lost.set()
                broker.on_instruction = None
                broker.is_answering = False
                await broker.zk.close()
            left -= 1

    broker.on_instruction = hook
    return lost


async def begin(cluster: SmallCluster, operation: str, topic: str) -> None:
    admin = cluster.controller.topic_admin
    match operation:
        case "create":
            await admin.create_topic(NewTopic(topic, assignments={0: (3, 2), 1: (2, 3)}))
        case "delete":
            await admin.delete_topic(topic)
        case "reassign":
            data = ReassignPartitionsZNode.encode({TopicPartition(topic, 0): (1, 2)})
            await cluster.controller.zk.client.create(ReassignPartitionsZNode.path, data)
        case "death":
            dying = next(b for b in (3, 2) if not cluster.brokers[b].controller.is_active)
            await cluster.brokers[dying].crash()


async def reopen(cluster: SmallCluster, broker: SmallBroker) -> None:
    """Restart a broker that was lost."""
    await broker.controller.stop()
    await broker.open(cluster.hosts, broker.endpoint.host, broker.endpoint.port)


async def finish(
    cluster: SmallCluster, operation: str, partition: TopicPartition, old: SmallBroker, lost: asyncio.Event
) -> None:
    """Wait until some controller has finished the work. A lost one returns as an ordinary broker."""

    def is_done() -> bool:
        active = [b for b in cluster.brokers.values() if b.is_answering and b.controller.is_active]
        if len(active) != 1 or not is_idle(active[0]):
            return False
        context = active[0].controller.core.context
        leadership = context.leadership.get(partition)
        match operation:
            case "create":
                return leadership is not None and leadership.leader_and_isr.leader in (2, 3)
            case "delete":
                return partition.topic not in context.topics
            case "reassign":
                return context.replicas(partition) == (1, 2)
            case _:
                return (
                    leadership is not None
                    and leadership.leader_and_isr.leader in context.live_brokers
                    and (len(context.live_brokers) < 4)
                )

    async with asyncio.timeout(60):
        while not is_done():
            await asyncio.sleep(0.01)
            others = [b for b in cluster.brokers.values() if b.is_answering and b.controller.is_active]
            if lost.is_set() and not old.is_answering and others:
                await reopen(cluster, old)
            if operation == "reassign":
                await let_followers_catch_up(cluster, partition)


async def let_followers_catch_up(cluster: SmallCluster, partition: TopicPartition) -> None:
    """Ask for the whole ISR, as the leader would once its followers have caught up."""
    active = [b for b in cluster.brokers.values() if b.is_answering and b.controller.is_active]
    if len(active) != 1 or partition not in active[0].controller.core.context.partitions_being_reassigned:
        return
    members = tuple(b for b in (3, 2, 1) if cluster.brokers[b].is_answering)
    await cluster.catch_up(partition, *members)
