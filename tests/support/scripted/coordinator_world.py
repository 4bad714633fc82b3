"""A group coordinator without a broker, and the requests that tests send it.

Its partition of ``__consumer_offsets`` is in memory, and replicates on demand.
"""

from __future__ import annotations

import asyncio
import struct
from bisect import bisect
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from virtual_time import LoopClock, run_virtual

from engine.broker.coordinator.groups.commit_form import CommittedOffset, Committer, Offsets
from engine.broker.coordinator.groups.coordinator import GroupCoordinator
from engine.broker.coordinator.groups.member import Joining, JoinResult, Syncing, SyncResult
from engine.broker.coordinator.groups.records import offset_value
from engine.broker.log.append_origin import AppendOrigin, OwnBatch
from engine.broker.metrics.topics import BrokerTopics
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import ACKS_ALL, TopicPartition
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.formats.consumer_offsets import encode_offset_key
from engine.kafka.protocol.records.header import read_batch_header
from engine.kafka.protocol.records.record import Record
from engine.runtime.purgatory import Purgatory

OFFSETS_PARTITION = TopicPartition("__consumer_offsets", 0)
READ = TopicPartition("read", 0)


def offset_records(group_id: str, offsets: Offsets, now_ms: int, ibp: MetadataVersion) -> list[Record]:
    """Return the records of one commit, encoded one by one."""
    return [
        Record(
            timestamp_ms=now_ms,
            key=encode_offset_key(group_id, partition.topic, partition.partition),
            value=offset_value(value, ibp),
        )
        for partition, value in offsets.items()
    ]


class MemoryLog:
    """Batches, one after the other."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.is_flush_due = False
        self._positions: list[tuple[int, int]] = []
        """Base offset and position of each batch."""

    def append(self, batch: bytes | memoryview) -> tuple[int, int]:
        """Stamp offsets into a batch and append it; return its first and last offset."""
        stamped = bytearray(batch)
        first_offset = self.log_end_offset
        struct.pack_into(">q", stamped, 0, first_offset)
        self._positions.append((first_offset, len(self.data)))
        self.data += stamped
        self.log_end_offset = read_batch_header(stamped).next_offset
        return first_offset, self.log_end_offset - 1

    def truncate_to(self, offset: int) -> None:
        """Forget the batches from an offset on: they never reached the replica that is leader now."""
        while self._positions and self._positions[-1][0] >= offset:
            self.log_end_offset, position = self._positions.pop()
            del self.data[position:]

    def read(self, offset: int, max_bytes: int, *, limit_offset: int, min_one_batch: bool) -> Any:
        """Read as a ``Log`` does."""
        assert min_one_batch and limit_offset == self.log_end_offset
        if offset >= self.log_end_offset:
            return SimpleNamespace(records=None)
        _, position = self._positions[bisect(self._positions, (offset, len(self.data))) - 1]
        size = max(max_bytes, read_batch_header(self.data, position).size_bytes)
        with memoryview(self.data) as view:
            data = bytes(view[position : position + size])
        return SimpleNamespace(records=SimpleNamespace(size_bytes=len(data), read=partial(bytes, data)))


class MemoryPartition:
    """The coordinator's partition. A commit is replicated at once unless ``is_replicated_at_once`` is off."""

    topic_partition = OFFSETS_PARTITION
    followers = (2,)

    def __init__(self) -> None:
        self.environment = SimpleNamespace(topics=BrokerTopics())
        self.log = MemoryLog()
        self.leader_epoch = 0
        self.is_leader = True
        self.is_replicated_at_once = True
        self.refusal: ErrorCode | None = None
        self.batch_bytes_max = 1_000_000

    @property
    def leader_log(self) -> MemoryLog | None:
        return self.log if self.is_leader else None

    def led_log(self) -> MemoryLog:
        return self.log

    def append_own(self, batch: memoryview, own: OwnBatch) -> int:
        header = read_batch_header(batch, 0)
        assert (header.record_count, header.max_timestamp) == (own.record_count, own.timestamp_ms)
        offset: int = self.append_records_to_leader(batch, ACKS_ALL, origin=AppendOrigin.COORDINATOR).first_offset
        return offset

    def append_records_to_leader(self, batch: memoryview, required_acks: int, *, origin: object) -> Any:
        if self.refusal is not None:
            raise KafkaError(self.refusal)
        if len(batch) > self.batch_bytes_max:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        first_offset, last_offset = self.log.append(batch)
        if self.is_replicated_at_once:
            self.log.high_watermark = self.log.log_end_offset
        return SimpleNamespace(first_offset=first_offset, last_offset=last_offset)

    def check_enough_replicas_reach_offset(self, offset: int) -> tuple[bool, ErrorCode]:
        if not self.is_leader:
            return False, ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.log.high_watermark >= offset, ErrorCode.NONE


class _Offloader:
    async def run(self, function: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return function()


class CoordinatorWorld:
    """One coordinator at a time. Create it inside a running event loop."""

    def __init__(self, **settings: str) -> None:
        self.partition = MemoryPartition()
        self.partition_count = 1
        """What the metadata says of the offsets topic."""
        self.stored_count = 0
        """What ZooKeeper says, if it is more."""
        self.flushing: list[Callable[[ErrorCode], None]] = []
        """Those that wait for a flush. A log asks for one while its ``is_flush_due`` is set."""
        self.clock = LoopClock()
        needed = {"zookeeper.connect": "z:1", "offsets.topic.num.partitions": "1"}
        needed["group.initial.rebalance.delay.ms"] = "0"
        self._config = BrokerConfig.from_properties(needed | settings)
        self.coordinator = self._make()

    def _make(self) -> GroupCoordinator:
        self.replica_manager = SimpleNamespace(
            leadership_listeners=[],
            stop_listeners=[],
            delayed_produce=Purgatory("produce"),
            flushes=SimpleNamespace(when_flushed=lambda _log, tell: self.flushing.append(tell)),
            hosted_partition=lambda tp: self.partition if tp == OFFSETS_PARTITION else None,
        )
        coordinator = GroupCoordinator(
            self._config,
            clock=self.clock,
            replica_manager=cast("Any", self.replica_manager),
            metadata_cache=cast("Any", SimpleNamespace(partitions=self._partitions, update_listeners=[])),
            offloader=cast("Any", _Offloader()),
            read_size=self._read_size,
        )
        coordinator.start()
        return coordinator

    async def _read_size(self, topic: str) -> int:
        await asyncio.sleep(0)
        return max(self.partition_count, self.stored_count)

    def _partitions(self, topic: str) -> dict[int, None]:
        return dict.fromkeys(range(self.partition_count))

    async def lead(self, *, waits: bool = True) -> None:
        """Become leader of the partition, and wait until its groups are loaded."""
        self.partition.is_leader = True
        self.partition.leader_epoch += 1
        for listener in self.replica_manager.leadership_listeners:
            listener([self.partition], [])
        while waits and self.coordinator.groups.is_loading:
            await asyncio.sleep(0)

    def resign(self) -> None:
        """Become a follower."""
        self.partition.is_leader = False
        for listener in self.replica_manager.leadership_listeners:
            listener([], [self.partition])
        self.wake()

    def replicate(self) -> None:
        """Let the followers replicate everything."""
        self.partition.log.high_watermark = self.partition.log.log_end_offset
        self.wake()

    def wake(self) -> None:
        """Let those that wait for the partition check again."""
        self.replica_manager.delayed_produce.check_and_complete((OFFSETS_PARTITION,))

    async def move(self, survives_to: int | None = None) -> None:
        """Let another coordinator take over the log up to an offset. Commits under way fail here."""
        self.resign()
        await self.coordinator.stop()
        self.replica_manager.delayed_produce.close()
        log = self.partition.log
        if survives_to is not None:
            assert survives_to >= log.high_watermark
            log.truncate_to(survives_to)
        log.high_watermark = log.log_end_offset
        self.coordinator = self._make()
        await self.lead()

    async def stop(self) -> None:
        await self.coordinator.stop()
        self.replica_manager.delayed_produce.close()

    def commit(
        self,
        group: str,
        offset: int,
        *,
        partition: TopicPartition = READ,
        committer: Committer | None = None,
        is_alone: bool = True,
        **of: Any,
    ) -> list[ErrorCode]:
        """Commit; the list gets the answer as soon as there is one.

        Unless it ``is_alone``, the commit waits for the next turn of the event loop, and shares a batch with others.
        """
        answers: list[ErrorCode] = []
        value = CommittedOffset(offset, **{"commit_timestamp_ms": self.clock.now_ms(), **of})
        self.coordinator.offsets.commit(
            group,
            committer or Committer(),
            {partition: value},
            lambda error, refused: answers.append(refused.get(partition, error)),
        )
        if is_alone:
            self.coordinator.offsets.flush()
        return answers

    def committed(self, group: str, partition: TopicPartition = READ) -> int | None:
        """Return what is committed."""
        error, offsets = self.coordinator.offsets.fetch(group, [partition])
        assert error is ErrorCode.NONE
        value = offsets[partition]
        assert not isinstance(value, ErrorCode)
        return None if value is None else value.offset


T = TypeVar("T")


def with_world(test: Callable[[CoordinatorWorld], Awaitable[None]], **settings: str) -> None:
    """Run a test on virtual time with a coordinator that leads nothing yet."""

    async def run() -> None:
        world = CoordinatorWorld(**settings)
        try:
            await test(world)
        finally:
            await world.stop()

    run_virtual(run)


def with_leader(test: Callable[[CoordinatorWorld], Awaitable[None]], **settings: str) -> None:
    """Run a test on virtual time with a coordinator that leads its partition."""

    async def lead(world: CoordinatorWorld) -> None:
        await world.lead()
        await test(world)

    with_world(lead, **settings)


def joining(member_id: str = "", **of: object) -> Joining:
    values: dict[str, object] = {
        "client_id": "c",
        "client_host": "/h",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": (("range", b"\0\0\0\0\0\1\0\4read\xff\xff\xff\xff"),),
    }
    return Joining(member_id, **(values | of))  # type: ignore[arg-type]


def join(world: CoordinatorWorld, group: str, member_id: str = "", **of: object) -> list[JoinResult]:
    answers: list[JoinResult] = []
    world.coordinator.join(group, joining(member_id, **of), answers.append)
    return answers


def sync(world: CoordinatorWorld, group: str, member_id: str, generation: int, **parts: bytes) -> list[SyncResult]:
    answers: list[SyncResult] = []
    world.coordinator.sync(group, Syncing(member_id, generation, parts), answers.append)
    return answers


async def stable(world: CoordinatorWorld, group: str) -> tuple[str, int]:
    """Bring a group of one member to a generation; return the member's id and the generation."""
    (joined,) = await answered(join(world, group))
    await answered(sync(world, group, joined.member_id, joined.generation_id, **{joined.member_id: b"part"}))
    return joined.member_id, joined.generation_id


async def answered(answers: list[T]) -> list[T]:
    async with asyncio.timeout(60):
        while not answers:
            await asyncio.sleep(0.01)
    return answers
