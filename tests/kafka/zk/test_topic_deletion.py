"""The connection to ZooKeeper breaks while a large topic is being deleted: nothing of the topic stays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from event_loop import in_event_loop

from engine.common.model import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicPartition
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.operations import Operation
from engine.kafka.zk.session_keeper import SessionEvent

PARTITIONS = 1_500
TOPIC_ID = bytes(range(16))


async def make_topic(zk: KafkaZkClient, topic: str) -> None:
    await zk.cluster.make_persistent_paths()
    replicas = dict.fromkeys(range(PARTITIONS), ReplicaAssignment((1, 2)))
    await zk.topics.create_topic_assignment(topic, TOPIC_ID, replicas)
    state = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1, 2)), 1)
    await zk.partitions.create_partition_states({TopicPartition(topic, p): state for p in replicas}, None)


@pytest.mark.parametrize("lost", ["requests", "answers"])
@in_event_loop
async def test_a_reconnect_during_the_deletion_leaves_no_znode(
    connect, open_proxy, until, zk_chroot: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    chroot = zk_chroot[zk_chroot.index("/") :]
    async with connect() as witness, open_proxy() as proxy, connect(proxy.address + chroot) as client:
        zk = KafkaZkClient(client)
        await make_topic(zk, "large")
        events: list[SessionEvent] = []
        client.add_session_listener(events.append)
        write_many = ZkClient.write_many
        gate = proxy.may_ask if lost == "requests" else proxy.may_answer

        async def cut_off(self: ZkClient, operations: Iterable[Operation]) -> Sequence[Any]:
            monkeypatch.setattr(ZkClient, "write_many", write_many)
            gate.clear()
            writing = asyncio.ensure_future(write_many(self, operations))
            # The window of outstanding requests fills within a few turns of the event loop.
            for _ in range(100):
                await asyncio.sleep(0)
            proxy.cut()
            await until(lambda: SessionEvent.SUSPENDED in events)
            gate.set()
            return await writing

        monkeypatch.setattr(ZkClient, "write_many", cut_off)
        await zk.topics.delete_topic_znode("large", None)
        assert SessionEvent.SUSPENDED in events
        assert await witness.children("/brokers/topics") == []


@in_event_loop
async def test_znodes_that_come_meanwhile_go_as_well(connect, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connect() as client:
        zk = KafkaZkClient(client)
        await make_topic(zk, "t")
        write_many, rounds = ZkClient.write_many, 0

        async def with_a_newcomer(self: ZkClient, operations: Iterable[Operation]) -> Sequence[Any]:
            nonlocal rounds
            rounds += 1
            if rounds in (1, 3):
                await self.ensure_path(f"/brokers/topics/t/partitions/{PARTITIONS + rounds}/state")
            return await write_many(self, operations)

        monkeypatch.setattr(ZkClient, "write_many", with_a_newcomer)
        await zk.topics.delete_topic_znode("t", None)
        assert await client.children("/brokers/topics") == []
