"""Several brokers' replication in one process, with a controller that does what the test says.

Logs, handlers and codecs are real, and the network can be cut.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from log_folders import data_batch, stored_batches
from network_serving import session
from virtual_time import LoopClock

from engine.broker.fetch.session_cache import FetchSessionCache
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.fetch import fetch
from engine.broker.handlers.list_offsets import list_offsets
from engine.broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.broker.network.request import Deferred
from engine.broker.quotas.client_quotas import ClientQuotas
from engine.broker.replication.isr_updater import IsrOutcome, IsrUpdate
from engine.broker.replication.leader_and_isr_change import become_leader_or_follower
from engine.broker.replication.metadata_cache import MetadataCache
from engine.broker.replication.offset_lookup import OffsetSearch
from engine.broker.replication.partition import Partition
from engine.broker.replication.replica_manager import ReplicaManager
from engine.broker.replication.settings import ReplicationSettings
from engine.common.errors import ErrorCode
from engine.common.model import LeaderAndIsr, Node, TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.common.windowed_rate import Window
from engine.kafka.client.errors import ConnectionLost
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from engine.kafka.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from engine.kafka.protocol.declaration import Request
from engine.kafka.protocol.frames import decode_request, decode_response, encode_request, encode_response
from engine.runtime.supervisor import Supervisor

TP = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
HANDLERS: dict[int, Callable[..., Any]] = {
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
}


class StandInBroker:
    """The parts of a broker that replication and its handlers use."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = 100 + broker_id
        self.clock = world.clock
        self.cluster_id = "test"
        self.config = SimpleNamespace(fetch_max_bytes=57_671_680)
        self.dynamic_configs = SimpleNamespace(knows_topic=lambda _topic: True)
        self.metadata_cache = MetadataCache(broker_id)
        self.fetch_sessions = FetchSessionCache(1000)
        self.quotas = ClientQuotas(Window(), Window(), self.clock)
        self.supervisor = Supervisor("broker")
        self.offloader = SimpleNamespace(run=_run_here)
        self.offset_search = OffsetSearch(self.offloader)  # type: ignore[arg-type]
        self.failed_dirs: list[Path] = []
        self.log_manager = LogManager(
            LogManagerConfig(tuple(world.folder / f"broker-{broker_id}-{n}" for n in range(world.dirs_per_broker))),
            lambda _topic: world.log_config,
            self.clock,
            self.failed_dirs.append,
        )
        self.log_manager.load()
        self.replica_manager = ReplicaManager(
            replace(world.settings, broker_id=broker_id),
            clock=self.clock,
            log_manager=self.log_manager,
            metadata_cache=self.metadata_cache,
            isr_updater=world,
            broker_epoch=lambda: self.broker_epoch,
            run_slow=_run_here,
            connect=lambda leader, client_id: InProcessConnection(world, broker_id, leader, client_id),
        )
        self.replica_manager.start()

    def context(self, key: ApiKey, version: int, correlation_id: int = 1) -> RequestContext:
        return RequestContext(self, key, version, correlation_id, "test", session())  # type: ignore[arg-type]

    async def stop(self, *, cleanly: bool) -> None:
        await self.supervisor.stop()
        await self.replica_manager.stop()
        if cleanly:
            self.log_manager.shutdown()
        else:
            self.log_manager.release()


async def _at_once(_response: Any) -> None:
    return None


async def _run_here(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)


class InProcessConnection:
    """Carries frames to another broker of the world, encoded and decoded as on a real wire."""

    def __init__(self, world: World, source: int, target: Node, client_id: str) -> None:
        self._world = world
        self._source = source
        self._target = target
        self._client_id = client_id

    async def send(self, request: Request, api_version: int) -> Any:
        world, target = self._world, self._target.id
        world.check_link(self._source, target)
        await asyncio.sleep(0.0005)
        frame = encode_request(request, api_version, 1, self._client_id)
        header, received = decode_request(memoryview(bytes(frame))[4:])
        broker = world.reachable(self._source, target)
        world.sent.append((self._source, target, ApiKey(header.api_key), api_version, received))
        answer = HANDLERS[header.api_key](broker.context(ApiKey(header.api_key), api_version), received)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Deferred):
            done = asyncio.get_running_loop().create_future()
            answer.on_complete(lambda: done.cancelled() or done.set_result(None))
            await done
            answer = answer.response
        encoded = encode_response(answer, ApiKey(header.api_key), api_version, 1)
        await asyncio.sleep(0.0005)
        world.check_link(self._source, target)
        try:
            frame = flat(encoded)
        except OSError as error:
            # A broker that cannot read what it has begun to send closes the connection.
            raise ConnectionLost(str(error), address=f"broker-{target}") from error
        _, response = decode_response(memoryview(frame)[4:], ApiKey(header.api_key), api_version)
        await world.hold_answer(response)
        world.tamper(response)
        return response

    async def close(self) -> None:
        return None


def flat(outgoing: Any) -> bytes:
    """Return an encoded answer with its file ranges read in."""
    parts, position = [], 0
    for at, record_range in outgoing.ranges:
        parts += [bytes(outgoing[position:at]), record_range.read()]
        position = at
    return b"".join([*parts, bytes(outgoing[position:])])


class World:
    """Brokers, the links between them, and the controller's knowledge of partitions; also their ``IsrUpdater``."""

    def __init__(
        self,
        folder: Path,
        broker_ids: Iterable[int],
        *,
        settings: ReplicationSettings | None = None,
        log_config: LogConfig | None = None,
        topic_id: bytes = TOPIC_ID,
        dirs_per_broker: int = 1,
    ) -> None:
        self.folder = folder
        self.clock = LoopClock()
        self.settings = settings or ReplicationSettings(0, replica_lag_time_max_ms=5000)
        self.log_config = log_config or LogConfig(segment_bytes=4096, index_interval_bytes=64)
        self.topic_id = topic_id
        self.topic_ids: dict[str, bytes] = {}
        """The ids of topics that do not have ``topic_id``."""
        self.dirs_per_broker = dirs_per_broker
        self.states: dict[TopicPartition, LeaderAndIsr] = {}
        self.replicas: dict[TopicPartition, tuple[int, ...]] = {}
        self.alive: set[int] = set(broker_ids)
        self.cut: set[frozenset[int]] = set()
        self.sent: list[tuple[int, int, ApiKey, int, Any]] = []
        self.isr_updates: list[IsrUpdate] = []
        self.refuse_isr: ErrorCode | None = None
        self.tamper: Callable[[Any], None] = lambda _response: None
        """May change an answer that arrives."""
        self.hold_answer: Callable[[Any], Awaitable[None]] = _at_once
        """May delay an answer before it arrives."""
        self.brokers: dict[int, StandInBroker] = {b: StandInBroker(self, b) for b in sorted(self.alive)}

    # -- network

    def check_link(self, source: int, target: int) -> None:
        if frozenset((source, target)) in self.cut or target not in self.brokers:
            raise ConnectionLost("the test has cut this link", address=f"broker-{target}")

    def reachable(self, source: int, target: int) -> StandInBroker:
        self.check_link(source, target)
        return self.brokers[target]

    # -- IsrUpdater

    def submit(self, update: IsrUpdate, on_done: Callable[[IsrOutcome], None], *, is_retry: bool = False) -> None:
        self.isr_updates.append(update)
        asyncio.get_running_loop().call_later(0.01 if is_retry else 0.001, lambda: on_done(self._decide(update)))

    def _decide(self, update: IsrUpdate) -> IsrOutcome:
        if self.refuse_isr is not None:
            return self.refuse_isr
        known, wanted = self.states[update.topic_partition], update.leader_and_isr
        if wanted.leader_epoch != known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if wanted.partition_epoch != known.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if not set(wanted.isr) <= self.alive:
            return ErrorCode.INELIGIBLE_REPLICA
        decided = replace(wanted, partition_epoch=known.partition_epoch + 1)
        self.states[update.topic_partition] = decided
        return decided

    # -- controller

    async def lead(
        self,
        leader: int,
        *,
        isr: Iterable[int] | None = None,
        replicas: Iterable[int] | None = None,
        topic_partition: TopicPartition = TP,
        tell: Iterable[int] | None = None,
    ) -> None:
        """Elect ``leader`` in a new leader epoch, with the current ISR by default, and tell the brokers."""
        before = self.states.get(topic_partition)
        self.replicas[topic_partition] = tuple(replicas or self.replicas.get(topic_partition) or sorted(self.brokers))
        present = self.replicas[topic_partition] if before is None else before.isr
        self.states[topic_partition] = LeaderAndIsr(
            leader,
            0 if before is None else before.leader_epoch + 1,
            tuple(isr or present),
            partition_epoch=0 if before is None else before.partition_epoch + 1,
        )
        for broker_id in tell or sorted(self.brokers):
            if broker_id in self.brokers:
                await self.tell(broker_id, topic_partition, is_new=before is None)

    async def tell(self, broker_id: int, topic_partition: TopicPartition = TP, *, is_new: bool = False) -> Any:
        """Send UpdateMetadata and LeaderAndIsr with the current state to one broker; return the latter's answer."""
        manager = self.brokers[broker_id].replica_manager
        manager.update_metadata(self.update_metadata(), correlation_id=1)
        return await become_leader_or_follower(
            manager, self.leader_and_isr(topic_partition, is_new=is_new), correlation_id=2, api_version=7
        )

    def update_metadata(self) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            topic_states=[self._topic_state(topic_partition) for topic_partition in self.states],
            live_brokers=[
                UpdateMetadataBroker(
                    id=b,
                    endpoints=[
                        UpdateMetadataEndpoint(host=f"broker-{b}", port=9092, listener="PLAINTEXT", security_protocol=0)
                    ],
                    rack=f"rack-{b}",
                )
                for b in sorted(self.alive)
            ],
        )

    def _topic_state(self, topic_partition: TopicPartition) -> UpdateMetadataTopicState:
        state = self.states[topic_partition]
        return UpdateMetadataTopicState(
            topic_name=topic_partition.topic,
            topic_id=self.topic_ids.get(topic_partition.topic, self.topic_id),
            partition_states=[
                UpdateMetadataPartitionState(
                    partition_index=topic_partition.partition,
                    controller_epoch=1,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=list(state.isr),
                    zk_version=state.partition_epoch,
                    replicas=list(self.replicas[topic_partition]),
                )
            ],
        )

    def leader_and_isr(self, topic_partition: TopicPartition = TP, *, is_new: bool = False) -> LeaderAndIsrRequest:
        state = self.states[topic_partition]
        return LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=1,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name=topic_partition.topic,
                    topic_id=self.topic_ids.get(topic_partition.topic, self.topic_id),
                    partition_states=[
                        LeaderAndIsrPartitionState(
                            partition_index=topic_partition.partition,
                            controller_epoch=1,
                            leader=state.leader,
                            leader_epoch=state.leader_epoch,
                            isr=list(state.isr),
                            partition_epoch=state.partition_epoch,
                            replicas=list(self.replicas[topic_partition]),
                            is_new=is_new,
                        )
                    ],
                )
            ],
        )

    # -- looking

    def partition(self, broker_id: int, topic_partition: TopicPartition = TP) -> Partition:
        return self.brokers[broker_id].replica_manager.partitions[topic_partition]

    def log(self, broker_id: int, topic_partition: TopicPartition = TP) -> Any:
        log = self.partition(broker_id, topic_partition).log
        assert log is not None
        return log

    def log_bytes(self, broker_id: int, topic_partition: TopicPartition = TP) -> bytes:
        """Return all bytes of the replica's segments, in order."""
        return b"".join(path.read_bytes() for path in sorted(self.log(broker_id, topic_partition).dir.glob("*.log")))

    def produce(self, broker_id: int, *values: bytes, acks: int = 1, topic_partition: TopicPartition = TP) -> int:
        """Append one batch on a broker and return the offset after it."""
        result = self.partition(broker_id, topic_partition).append_records_to_leader(data_batch(*values), acks)
        return int(result.last_offset) + 1

    async def let_pass(self, ms: int) -> None:
        """Let this much time pass."""
        await asyncio.sleep(ms / 1000)

    async def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
        """Wait until the condition holds."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, f"never happened: {what}"
            await asyncio.sleep(0.005)

    async def until_equal(self, *broker_ids: int, topic_partition: TopicPartition = TP) -> None:
        """Wait until these replicas have the leader's log end, and their high watermarks are there too."""

        def is_equal() -> bool:
            leader = self.log(self.states[topic_partition].leader, topic_partition)
            logs = [self.log(b, topic_partition) for b in broker_ids]
            end = leader.log_end_offset
            return all(log.log_end_offset == end and log.high_watermark == end for log in [leader, *logs])

        await self.until(is_equal, f"replicas {broker_ids} are level with the leader")

    # -- life

    async def stop_broker(self, broker_id: int, *, cleanly: bool = True) -> None:
        self.alive.discard(broker_id)
        await self.brokers.pop(broker_id).stop(cleanly=cleanly)

    def start_broker(self, broker_id: int) -> None:
        self.alive.add(broker_id)
        self.brokers[broker_id] = StandInBroker(self, broker_id)

    async def stop(self) -> None:
        for broker_id in list(self.brokers):
            await self.stop_broker(broker_id)


def committed_batches(w: World, broker_id: int) -> dict[int, tuple[int, int]]:
    """Return checksum and leader epoch of the batches below a replica's high watermark, by base offset."""
    log = w.log(broker_id)
    return {
        header.base_offset: (header.crc, header.partition_leader_epoch)
        for header, _ in stored_batches(log.dir)
        if header.last_offset < log.high_watermark
    }


@asynccontextmanager
async def world(folder: Path, *broker_ids: int, **options: Any) -> AsyncIterator[World]:
    """Yield a world that is stopped at the end."""
    made = World(folder, broker_ids, **options)
    try:
        yield made
    finally:
        await made.stop()


NO_TOPIC_ID = ZERO_TOPIC_ID
