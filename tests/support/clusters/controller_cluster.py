"""Brokers that consist of a controller and little else, on a real ZooKeeper and a real network.

Each has a session, a listener that answers the controller's requests, a metadata cache, and a ``Controller``. There are
no logs and no fetchers: the test itself says when followers have caught up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from network_serving import serving

from engine.broker.controller import events
from engine.broker.controller.channels import ChannelSettings
from engine.broker.controller.loop import Controller, InstructionHook
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.topic_admin import NewTopic, TopicAdmin
from engine.broker.replication.metadata_cache import MetadataCache
from engine.common.clock import SystemClock
from engine.common.errors import ErrorCode
from engine.common.model import BrokerInfo, Endpoint, SecurityProtocol, TopicPartition
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from engine.kafka.protocol.apis.stop_replica import StopReplicaPartitionError, StopReplicaResponse
from engine.kafka.protocol.apis.update_metadata import UpdateMetadataResponse
from engine.kafka.zk.brokers import BrokerRegistration
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.session_keeper import SessionEvent

DEADLINE_S = 40.0


async def eventually(is_so: Callable[[], bool], what: str = "the condition") -> None:
    """Wait for a condition in this process."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true within {DEADLINE_S} s") from None


class SmallBroker:
    """One broker. ``replicas`` maps what it hosts to (leader, leader epoch)."""

    def __init__(self, broker_id: int, rack: str | None, ibp: str, options: dict[str, Any]) -> None:
        self.broker_id = broker_id
        self.rack = rack
        self.ibp = parse_metadata_version(ibp)
        self.options = ControllerOptions(controller_id=broker_id, **options)
        self.metadata_cache = MetadataCache(broker_id)
        self.replicas: dict[TopicPartition, tuple[int, int]] = {}
        self.offline: set[TopicPartition] = set()
        self.received: list[tuple[ApiKey, Any]] = []
        self.on_instruction: InstructionHook | None = None
        self.broker_epoch = -1
        self.is_answering = False
        self.may_register = asyncio.Event()
        self.may_register.set()

    async def open(self, hosts: str, host: str, port: int) -> None:
        """Open a session, register, become a candidate, in the order of a real broker."""
        client = await ZkClient.connect(hosts, session_timeout_ms=6_000, client_name=f"broker {self.broker_id}")
        self.zk = KafkaZkClient(client)
        self.endpoint = Endpoint(host, port, "PLAINTEXT", SecurityProtocol.PLAINTEXT)
        config = BrokerConfig({"zookeeper.connect": hosts, "broker.id": str(self.broker_id)})
        self.draws: list[int] = []
        self.topic_admin = TopicAdmin(
            self.zk, self.metadata_cache, lambda: config, draw=lambda bound: self.draws.pop(0) if self.draws else 0
        )
        await self.zk.cluster.make_persistent_paths()
        await self.zk.cluster.get_or_create_cluster_id("GUdN0FDdRo6mPXfsw59WFg")
        await self.register()
        self.controller = Controller(
            self.zk,
            self.options,
            ChannelSettings(
                self.broker_id,
                self.ibp,
                "PLAINTEXT",
                "PLAINTEXT",
                connect_timeout_ms=2_000,
                request_timeout_ms=2_000,
            ),
            register_broker=self.register,
            on_instruction=self._hook,
        )
        await self.controller.start()
        self.is_answering = True

    async def register(self) -> None:
        await self.may_register.wait()
        info = BrokerInfo(self.broker_id, (self.endpoint,), self.rack)
        self.broker_epoch = await self.zk.brokers.register_broker(BrokerRegistration(info, SystemClock().now_ms()))

    async def _hook(self, instruction: Any) -> None:
        if self.on_instruction is not None:
            await self.on_instruction(instruction)

    async def crash(self) -> None:
        """End the session at once and answer nothing more."""
        self.is_answering = False
        await self.zk.close()
        await self.controller.stop()

    async def close(self) -> None:
        await self.controller.stop()
        await self.zk.close()

    # The controller's requests

    def leader_and_isr(self, head: Any, request: Any) -> LeaderAndIsrResponse:
        self.received.append((ApiKey.LEADER_AND_ISR, request))
        response = LeaderAndIsrResponse()
        for topic in request.topic_states:
            errors = [
                LeaderAndIsrPartitionError(
                    topic_name=topic.topic_name,
                    partition_index=p.partition_index,
                    error_code=self._become(TopicPartition(topic.topic_name, p.partition_index), p),
                )
                for p in topic.partition_states
            ]
            if head.api_version >= 5:
                response.topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
            else:
                response.partition_errors += errors
        return response

    def _become(self, partition: TopicPartition, state: Any) -> ErrorCode:
        if partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition in self.replicas and state.leader_epoch <= self.replicas[partition][1]:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.replicas[partition] = (state.leader, state.leader_epoch)
        return ErrorCode.NONE

    def update_metadata(self, head: Any, request: Any) -> UpdateMetadataResponse:
        self.received.append((ApiKey.UPDATE_METADATA, request))
        self.metadata_cache.update(request, head.correlation_id)
        return UpdateMetadataResponse()

    def stop_replica(self, head: Any, request: Any) -> StopReplicaResponse:
        self.received.append((ApiKey.STOP_REPLICA, request))
        errors = []
        for topic in request.topic_states:
            for p in topic.partition_states:
                if p.delete_partition:
                    self.replicas.pop(TopicPartition(topic.topic_name, p.partition_index), None)
                errors.append(StopReplicaPartitionError(topic_name=topic.topic_name, partition_index=p.partition_index))
        return StopReplicaResponse(partition_errors=errors)


class SmallCluster:
    """Several brokers under one chroot."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.brokers: dict[int, SmallBroker] = {}

    @property
    def controller(self) -> SmallBroker:
        """The broker that believes it is the controller."""
        (active,) = [b for b in self.brokers.values() if b.is_answering and b.controller.is_active]
        return active

    async def wait_for_controller(self) -> SmallBroker:
        """Wait until one broker is controller and has nothing left to do."""

        def is_settled() -> bool:
            active = [b for b in self.brokers.values() if b.is_answering and b.controller.is_active]
            return len(active) == 1 and is_idle(active[0])

        await eventually(is_settled, "one idle controller")
        return self.controller

    async def idle(self) -> None:
        """Wait until the controller is idle and stays so while watches and answers come in."""
        for _ in range(3):
            broker = await self.wait_for_controller()
            await broker.zk.client.exists("/controller")  # Watches that fired before this answer.
            await asyncio.sleep(0.01)
        await self.wait_for_controller()

    async def state(self, partition: TopicPartition) -> Any:
        """Return a partition's leadership from ZooKeeper."""
        zk = next(b for b in self.brokers.values() if b.is_answering).zk
        read = (await zk.partitions.get_partition_states((partition,)))[partition]
        assert read is not None, f"{partition} has no state"
        return read.leader_and_isr  # type: ignore[union-attr]

    async def catch_up(self, partition: TopicPartition, *isr: int) -> Any:
        """Let the partition's leader ask for an ISR; return the answer. Without a leader nobody asks."""
        state = await self.state(partition)
        if state.leader < 0:
            return None
        leader = self.brokers[state.leader]
        item = events.AlterPartitionItem(state.leader_epoch, isr, state.partition_epoch)
        event = events.AlterPartition(leader.broker_id, leader.broker_epoch, 3, {partition: item})
        controller = await self.wait_for_controller()
        answer = await controller.controller.ask(event)
        return answer[partition] if isinstance(answer, dict) else answer

    async def create(self, assignments: dict[int, tuple[int, ...]], topic: str = "t") -> None:
        """Create a topic, and wait until all partitions have leaders."""
        admin = self.controller.topic_admin
        await admin.create_topic(NewTopic(topic, assignments=assignments))
        assert await admin.wait_for_leaders(topic, assignments, 10_000)
        await self.idle()


def is_idle(broker: SmallBroker) -> bool:
    controller = broker.controller
    return controller.event_queue_size == 0 and controller.total_request_queue_size == 0 and controller.is_idle


@asynccontextmanager
async def cluster_of(
    hosts: str, count: int = 3, *, racks: str = "", ibp: str = "3.9", **options: Any
) -> AsyncIterator[SmallCluster]:
    """Run brokers 0, 1, …, started one after the other; the first becomes controller."""
    cluster = SmallCluster(hosts)
    options.setdefault("auto_leader_rebalance_enable", False)
    async with _serving(count, cluster, racks, ibp, options) as addresses:
        try:
            for broker_id, (host, port) in addresses.items():
                await cluster.brokers[broker_id].open(hosts, host, port)
                await cluster.wait_for_controller()
            await cluster.idle()
            yield cluster
        finally:
            for broker in cluster.brokers.values():
                if broker.is_answering:
                    await broker.close()


def _handlers(broker: SmallBroker) -> dict[ApiKey, Callable[[Any, Any], Any]]:
    """The broker's handlers. A test may replace some of them."""
    return {
        ApiKey.LEADER_AND_ISR: lambda head, request: broker.leader_and_isr(head, request),
        ApiKey.UPDATE_METADATA: lambda head, request: broker.update_metadata(head, request),
        ApiKey.STOP_REPLICA: lambda head, request: broker.stop_replica(head, request),
    }


@asynccontextmanager
async def _serving(
    count: int, cluster: SmallCluster, racks: str, ibp: str, options: dict[str, Any]
) -> AsyncIterator[dict[int, tuple[str, int]]]:
    addresses: dict[int, tuple[str, int]] = {}
    servers = []
    try:
        for broker_id in range(count):
            broker = SmallBroker(broker_id, racks[broker_id] if racks else None, ibp, options)
            cluster.brokers[broker_id] = broker
            context = serving(_handlers(broker))
            _, host, port = await context.__aenter__()
            servers.append(context)
            addresses[broker_id] = (host, port)
        yield addresses
    finally:
        for context in reversed(servers):
            await context.__aexit__(None, None, None)


__all__ = ["SessionEvent", "SmallBroker", "SmallCluster", "cluster_of", "eventually", "is_idle"]
