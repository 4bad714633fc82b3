"""A transaction coordinator without a broker: its log and the data partitions are in memory, other brokers scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

from coordinator_world import MemoryPartition
from virtual_time import LoopClock, run_virtual

from engine.broker.coordinator.transactions.coordinator import InitializedProducer, TransactionCoordinator
from engine.broker.coordinator.transactions.marker_writer import MarkerWriter
from engine.broker.coordinator.transactions.settings import transaction_settings
from engine.broker.coordinator.transactions.state_machine import ProducerIdAndEpoch
from engine.broker.coordinator.transactions.transaction import Transaction
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.client.errors import ConnectionLost
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.formats.control_records import EndTransactionMarker, read_end_transaction_marker
from engine.kafka.formats.transaction_state import TransactionState, decode_key, decode_value
from engine.kafka.protocol.apis.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.header import iter_batches
from engine.runtime.purgatory import Purgatory

STATE_PARTITION = TopicPartition("__transaction_state", 0)
HERE, THERE = 1, 2
"""This broker, and another."""
ANSWER_S = 0.001
"""How long the other broker takes for an answer."""


class Partition(MemoryPartition):
    """A partition that this broker leads."""

    def __init__(self, name: TopicPartition) -> None:
        super().__init__()
        self.topic_partition = name  # type: ignore[misc]
        self.log.config = SimpleNamespace(record_magic=2)  # type: ignore[attr-defined]

    @property
    def markers(self) -> list[tuple[int, int, EndTransactionMarker]]:
        """Producer id, producer epoch and marker of each control batch."""
        requests_found = []
        for position, header in iter_batches(self.log.data):
            marker = read_end_transaction_marker(self.log.data, position, header)
            assert header.is_control and header.is_transactional and marker is not None
            requests_found.append((header.producer_id, header.producer_epoch, marker))
        return requests_found


class OtherBroker:
    """Answers WriteTxnMarkers with what a test sets, without an error if nothing is set."""

    def __init__(self) -> None:
        self.requests: list[WriteTxnMarkersRequest] = []
        self.times_s: list[float] = []
        """When each came."""
        self.errors: list[ErrorCode | None] = []
        """One per request; None: the answer is lost."""
        self.faults: list[Exception] = []
        """What requests raise that have not even an answer that is lost."""

    async def send(self, request: WriteTxnMarkersRequest, api_version: int) -> WriteTxnMarkersResponse:
        self.requests.append(request)
        self.times_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(ANSWER_S)
        if self.faults:
            raise self.faults.pop()
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        if error is None:
            raise ConnectionLost("the broker was killed", address="there:1")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    @property
    def marked(self) -> list[tuple[int, int, bool, list[tuple[str, int]]]]:
        """Producer id, epoch, outcome and partitions of each marker that came."""
        return [
            (
                m.producer_id,
                m.producer_epoch,
                m.transaction_result,
                [(t.name, i) for t in m.topics for i in t.partition_indexes],
            )
            for request in self.requests
            for m in request.markers
        ]


class Metadata:
    """Who leads what."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int] = {}
        self.alive = {HERE, THERE}
        self.update_listeners: list[Callable[[], None]] = []

    def partitions(self, topic: str) -> dict[int, Any]:
        return {p.partition: SimpleNamespace(leader=leader) for p, leader in self.leaders.items() if p.topic == topic}

    def partition_info(self, partition: TopicPartition) -> Any:
        return self.partitions(partition.topic).get(partition.partition)

    def has_alive_broker(self, broker_id: int) -> bool:
        return broker_id in self.alive

    def changed(self) -> None:
        for listener in list(self.update_listeners):
            listener()


class _Offloader:
    async def run(self, function: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return function()


class TransactionWorld:
    """One coordinator at a time. Create it inside a running event loop."""

    def __init__(self, **settings: str) -> None:
        self.state = Partition(STATE_PARTITION)
        self.led: dict[TopicPartition, Partition] = {}
        self.metadata = Metadata()
        self.metadata.leaders[STATE_PARTITION] = HERE
        self.there = OtherBroker()
        self.offsets_ended: list[tuple[int, int, bool]] = []
        self.clock = LoopClock()
        self.next_ids = iter(range(1000, 2000))
        needed = {"zookeeper.connect": "z:1", "broker.id": str(HERE), "transaction.state.log.num.partitions": "1"}
        self._config = BrokerConfig.from_properties(needed | settings)
        self.coordinator = self._make()

    def _make(self) -> TransactionCoordinator:
        self.replica_manager = SimpleNamespace(
            leadership_listeners=[],
            stop_listeners=[],
            delayed_produce=Purgatory("produce"),
            flushes=SimpleNamespace(),
            hosted_partition=lambda name: self.state if name == STATE_PARTITION else self.led.get(name),
        )
        settings = transaction_settings(self._config)
        replica_manager = cast("Any", self.replica_manager)
        coordinator = TransactionCoordinator(
            settings,
            clock=self.clock,
            replica_manager=replica_manager,
            metadata_cache=cast("Any", self.metadata),
            offloader=cast("Any", _Offloader()),
            marker_writer=MarkerWriter(
                replica_manager,
                self.clock,
                timeout_ms=settings.request_timeout_ms,
                offsets_ended=lambda *ended: self.offsets_ended.append(ended),
            ),
            next_producer_id=self._next_id,
            read_size=self._read_size,
        )
        connections = SimpleNamespace(to=self._connection, close=self._close)
        coordinator._markers.connections = cast("Any", connections)
        coordinator.start()
        return coordinator

    def _connection(self, broker_id: int) -> OtherBroker | None:
        return self.there if broker_id == THERE and THERE in self.metadata.alive else None

    async def _close(self) -> None:
        """No connection is open."""

    async def _read_size(self, topic: str) -> int:
        await asyncio.sleep(0)
        return len(self.metadata.partitions(topic))

    async def _next_id(self) -> int:
        await asyncio.sleep(0)
        return next(self.next_ids)

    def add(self, topic: str, *, leader: int = HERE, partitions: int = 1) -> list[TopicPartition]:
        """Make partitions."""
        names = [TopicPartition(topic, index) for index in range(partitions)]
        for name in names:
            self.metadata.leaders[name] = leader
            if leader == HERE:
                self.led[name] = Partition(name)
        return names

    # -- the coordinator's partition

    async def lead(self) -> None:
        """Become leader of the coordinator's partition, and wait until it is loaded."""
        self.state.is_leader = True
        self.state.leader_epoch += 1
        for listener in self.replica_manager.leadership_listeners:
            listener([self.state], [])
        while self.coordinator.transactions.is_loading:
            await asyncio.sleep(0)

    def resign(self) -> None:
        """Become a follower."""
        self.state.is_leader = False
        for listener in self.replica_manager.leadership_listeners:
            listener([], [self.state])
        self.wake(self.state)

    async def move(self, survives_to: int | None = None) -> None:
        """Let another coordinator take over the log up to an offset."""
        self.resign()
        await self.coordinator.stop()
        self.replica_manager.delayed_produce.close()
        if survives_to is not None:
            self.state.log.truncate_to(survives_to)
        self.state.log.high_watermark = self.state.log.log_end_offset
        self.coordinator = self._make()
        await self.lead()

    async def stop(self) -> None:
        await self.coordinator.stop()
        self.replica_manager.delayed_produce.close()

    def replicate(self, *partitions: Partition) -> None:
        """Let the followers of partitions replicate everything."""
        for partition in partitions or (self.state,):
            partition.log.high_watermark = partition.log.log_end_offset
            self.wake(partition)

    def wake(self, partition: Partition) -> None:
        """Let those that wait for a partition check again."""
        self.replica_manager.delayed_produce.check_and_complete((partition.topic_partition,))

    @property
    def stored(self) -> list[tuple[str, TransactionState | None]]:
        """Transactional id and state of each record of the coordinator's log."""
        states: list[tuple[str, TransactionState | None]] = []
        for position, header in iter_batches(self.state.log.data):
            for record in iter_batch_records(self.state.log.data, position, header):
                value = decode_value(record.value)
                key = decode_key(record.key or b"").transactional_id
                states.append((key, None if value is None else value.state))
        return states

    # -- requests

    async def init(
        self, name: str = "t", timeout_ms: int = 60_000, expected: tuple[int, int] | None = None
    ) -> InitializedProducer:
        of = None if expected is None else ProducerIdAndEpoch(*expected)
        return await self.coordinator.init_producer_id(name, timeout_ms, of)

    async def begun(self, partitions: Iterable[TopicPartition], name: str = "t") -> ProducerIdAndEpoch:
        """Return a producer whose transaction has these partitions."""
        made = await self.init(name)
        assert made.error is ErrorCode.NONE
        producer = ProducerIdAndEpoch(made.producer_id, made.producer_epoch)
        assert self.add_partitions(producer, partitions, name) == [ErrorCode.NONE]
        return producer

    def add_partitions(
        self, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition], name: str = "t"
    ) -> list[ErrorCode]:
        """Ask; the list gets the answer as soon as there is one."""
        answers: list[ErrorCode] = []
        self.coordinator.add_partitions(name, producer, list(partitions), answers.append)
        return answers

    def end(self, producer: ProducerIdAndEpoch, name: str = "t", *, is_commit: bool = True) -> list[ErrorCode]:
        """Ask; the list gets the answer as soon as there is one."""
        answers: list[ErrorCode] = []
        self.coordinator.end(name, producer, answers.append, is_commit=is_commit)
        return answers

    def found(self, name: str = "t") -> Transaction:
        """Return what the coordinator knows."""
        found = self.coordinator.describe(name)
        assert isinstance(found, Transaction), found
        return found

    async def until(self, state: TransactionState, name: str = "t") -> None:
        """Wait until a transaction is in a state."""
        async with asyncio.timeout(100):
            while self.found(name).state is not state or self.found(name).pending_state is not None:
                await asyncio.sleep(0.01)


def play(test: Callable[[TransactionWorld], Awaitable[None]], **settings: str) -> None:
    """Run a test on virtual time with a coordinator that leads its partitions."""

    async def run() -> None:
        world = TransactionWorld(**settings)
        await world.lead()
        await test(world)
        await world.stop()

    run_virtual(run)
