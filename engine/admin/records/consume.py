"""Reads a topic's records: one reader per leader, following leaders as they move. No consumer group, commits nothing.

Records come in order within a partition. With READ_COMMITTED, what belongs to aborted transactions is left out, and
nothing is read beyond the last stable offset.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from engine.admin.cluster.errors import NotFound, Refused, Unreachable
from engine.admin.cluster.observer import Observer, tell_nobody
from engine.admin.cluster.wire import RETRY_PAUSE_S, WireCluster, refuse
from engine.admin.offsets.asking import EARLIEST, LATEST, list_offsets
from engine.admin.records.committed import visible_batches
from engine.admin.topics.describing import topic_not_found
from engine.common.errors import ErrorCode, error_code
from engine.common.model import NO_LEADER, IsolationLevel, TopicPartition
from engine.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from engine.protocol.records.attributes import TimestampType
from engine.protocol.records.iterate import iter_batch_records
from engine.protocol.records.record import Record

_NAMES_VERSION_MAX = 12
"""The last version of Fetch that names topics instead of giving their ids."""
_PARTITION_BYTES_MAX = 1024 * 1024
_ANSWER_BYTES_MAX = 16 * 1024 * 1024
_MAX_WAIT_MS = 500
_QUEUE_MAX = 4


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record and where it stood."""

    topic: str
    partition: int
    record: Record
    timestamp_type: TimestampType


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """What to read; no partitions means all. One of ``offset``, ``tail`` and ``start_time_ms`` says where to start."""

    partitions: tuple[int, ...] = ()
    offset: int = LATEST
    """An offset, EARLIEST or LATEST."""
    tail: int | None = None
    """So many offsets before each partition's end."""
    start_time_ms: int | None = None
    """The first record of this time or later."""
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    until_end: bool = False
    """Stop at what was the end when the reading began."""
    give_up_s: float = 30.0
    """For so long a leader may be missing or silent."""


class _Event(Enum):
    """What a reader tells beside records."""

    PARTITION_DONE = 1


class _Position:
    """How far one partition has been read. Changed by the reader of its leader, and while it has none by the keeper."""

    __slots__ = ("leader_id", "lost_since", "name", "next_offset", "stop_offset")

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.leader_id = NO_LEADER
        self.lost_since: float | None = None
        self.next_offset = -1
        self.stop_offset: int | None = None

    @property
    def is_done(self) -> bool:
        return self.stop_offset is not None and self.next_offset >= self.stop_offset

    def lose_leader(self) -> None:
        self.leader_id = NO_LEADER


_TakeOffset = Callable[[_Position, int], None]
_Item = list[ConsumedRecord] | Exception | _Event


class Consumer:
    """Reads one topic: ``open``, then iterate ``batches`` until it ends or enough has been read."""

    def __init__(
        self, wire: WireCluster, topic: str, options: ConsumeOptions, *, observe: Observer = tell_nobody
    ) -> None:
        self._wire = wire
        self._topic = topic
        self._options = options
        self._observe = observe
        self._positions: list[_Position] = []
        self._leader_is_missing = asyncio.Event()
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(_QUEUE_MAX)

    async def open(self) -> None:
        """Find the partitions, their leaders, and where to start.

        Raises:
            NotFound: there is no such topic or partition.
            Refused, Unreachable: as they say.
        """
        leaders = await self._leaders()
        wanted = sorted(set(self._options.partitions)) or sorted(leaders)
        missing = [partition for partition in wanted if partition not in leaders]
        if missing:
            hint = f"it has the partitions 0 to {len(leaders) - 1}"
            raise NotFound(f"topic {self._topic!r} has no partition {missing[0]}", hint=hint)
        self._positions = [_Position(TopicPartition(self._topic, partition)) for partition in wanted]
        await self._find_starts()

    async def batches(self) -> AsyncGenerator[list[ConsumedRecord], None]:
        """Yield records as they come, some at a time; ends only with ``until_end``.

        Raises:
            Refused: a partition cannot be read.
            Unreachable: a leader is missing or silent for too long.
        """
        waiting_for = sum(not position.is_done for position in self._positions)
        self._leader_is_missing.set()
        keeper = asyncio.create_task(self._keep_reading(), name=f"consume {self._topic}: readers")
        try:
            while waiting_for:
                item = await self._queue.get()
                if isinstance(item, list):
                    yield item
                elif isinstance(item, _Event):
                    waiting_for -= 1
                else:
                    raise item
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _keep_reading(self) -> None:
        """Keep a reader for every leader; whenever a partition has lost its leader, look for the new one."""
        readers: dict[int, asyncio.Task[None]] = {}
        try:
            while True:
                await self._leader_is_missing.wait()
                self._leader_is_missing.clear()
                await self._locate()
                for leader_id in {position.leader_id for position in self._unfinished()} - {NO_LEADER}:
                    if leader_id not in readers or readers[leader_id].done():
                        name = f"consume {self._topic}: broker {leader_id}"
                        readers[leader_id] = asyncio.create_task(self._read_leader(leader_id), name=name)
                if any(position.leader_id == NO_LEADER for position in self._unfinished()):
                    self._leader_is_missing.set()
                # A broker may go on naming a leader that has just refused to be one.
                await asyncio.sleep(RETRY_PAUSE_S)
        except Exception as error:
            # The rim of the task: whoever iterates the batches gets it.
            await self._queue.put(error)
        finally:
            for reader in readers.values():
                reader.cancel()
            await asyncio.gather(*readers.values(), return_exceptions=True)

    async def _read_leader(self, leader_id: int) -> None:
        """Read what a broker leads, until it leads nothing of it any more; failures are told through the queue."""
        try:
            while mine := [position for position in self._unfinished() if position.leader_id == leader_id]:
                await self._fetch(leader_id, mine)
        except (Unreachable, NotFound) as error:
            self._observe(f"lost broker {leader_id} ({error}), looking for the leaders")
            for position in mine:
                position.lose_leader()
            self._leader_is_missing.set()
        except Exception as error:
            # The rim of the task: whoever iterates the batches gets it.
            await self._queue.put(error)

    async def _fetch(self, leader_id: int, positions: Sequence[_Position]) -> None:
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=_ANSWER_BYTES_MAX,
            isolation_level=self._options.isolation,
            topics=[FetchTopic(topic=self._topic, partitions=[_fetch_partition(p) for p in positions])],
        )
        limit_ms = int(self._options.give_up_s * 1000) + _MAX_WAIT_MS
        response = await self._wire.call_broker(leader_id, request, version_max=_NAMES_VERSION_MAX, timeout_ms=limit_ms)
        refuse(response.error_code, None, f"broker {leader_id}")
        by_partition = {position.name.partition: position for position in positions}
        for topic in response.responses:
            for data in topic.partitions:
                await self._take(by_partition[data.partition_index], data)

    async def _take(self, position: _Position, data: PartitionData) -> None:
        code = error_code(data.error_code)
        where = f"topic {self._topic} partition {position.name.partition}"
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Refused(code, f"offset {position.next_offset} is not there (any more)", where=where)
        if code.is_retriable or code.is_invalid_metadata:
            self._observe(f"{where}: {code.name}, looking for the leader")
            position.lose_leader()
            self._leader_is_missing.set()
            return
        refuse(code, None, where)
        position.lost_since = None
        records = self._records(position, data)
        if records:
            await self._queue.put(records)
        if position.is_done:
            await self._queue.put(_Event.PARTITION_DONE)

    def _records(self, position: _Position, data: PartitionData) -> list[ConsumedRecord]:
        """Return what is new for the reader, and move the position past everything that came."""
        if data.records is None:
            return []
        is_committed = self._options.isolation is IsolationLevel.READ_COMMITTED
        aborted = (data.aborted_transactions or []) if is_committed else None
        start, stop = position.next_offset, position.stop_offset
        found: list[ConsumedRecord] = []
        for place, header, is_visible in visible_batches(data.records, aborted):
            if is_visible:
                kind = header.timestamp_type
                for record in iter_batch_records(data.records, place, header):
                    if record.offset >= start and (stop is None or record.offset < stop):
                        found.append(ConsumedRecord(self._topic, position.name.partition, record, kind))
            # A wrapper of an old format has its last offset in the header, every other batch its whole range.
            position.next_offset = max(position.next_offset, header.next_offset)
        return found

    def _unfinished(self) -> list[_Position]:
        return [position for position in self._positions if not position.is_done]

    async def _leaders(self) -> dict[int, int]:
        response = await self._wire.metadata([self._topic])
        if not response.topics or response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise topic_not_found([self._topic])
        topic = response.topics[0]
        if not error_code(topic.error_code).is_retriable:
            refuse(topic.error_code, None, f"topic {self._topic}")
        return {partition.partition_index: partition.leader_id for partition in topic.partitions}

    async def _locate(self) -> None:
        """Look once for the leaders of the partitions that have none; raise when one is missing for too long."""
        try:
            leaders = await self._leaders()
        except Unreachable:
            leaders = {}
        now = time.monotonic()
        for position in self._unfinished():
            if position.leader_id != NO_LEADER:
                continue
            position.leader_id = leaders.get(position.name.partition, NO_LEADER)
            position.lost_since = position.lost_since or now
            if now - position.lost_since > self._options.give_up_s:
                where = f"topic {self._topic} partition {position.name.partition}"
                raise Unreachable(f"no leader for {self._options.give_up_s:g} s", where=where)

    async def _find_starts(self) -> None:
        """Ask the leaders where to start and, with ``until_end``, where to stop."""
        options = self._options
        if options.start_time_ms is not None:
            await self._ask_offsets(options.start_time_ms, _start_at_time)
            await self._ask_offsets(LATEST, _start_if_unknown)
        elif options.tail is not None:
            await self._ask_offsets(LATEST, lambda position, offset: _start_at(position, offset - (options.tail or 0)))
            await self._ask_offsets(EARLIEST, _start_not_before)
        elif options.offset < 0:
            await self._ask_offsets(options.offset, _start_at)
        else:
            for position in self._positions:
                position.next_offset = options.offset
        if options.until_end:
            await self._ask_offsets(LATEST, _stop_at)

    async def _ask_offsets(self, timestamp: int, take: _TakeOffset) -> None:
        waiting = list(self._positions)
        deadline = time.monotonic() + self._options.give_up_s
        while waiting:
            leaders = await self._leaders()
            by_leader: dict[int, list[_Position]] = {}
            for position in waiting:
                by_leader.setdefault(leaders.get(position.name.partition, NO_LEADER), []).append(position)
            waiting = by_leader.pop(NO_LEADER, [])
            for leader_id, positions in by_leader.items():
                wanted = {position.name: timestamp for position in positions}
                offsets, errors = await list_offsets(self._wire, leader_id, wanted, self._options.isolation)
                for position in positions:
                    if position.name in offsets:
                        take(position, offsets[position.name])
                    else:
                        _check_passing(position.name, errors.get(position.name, ErrorCode.UNKNOWN_SERVER_ERROR))
                        waiting.append(position)
            if waiting and time.monotonic() > deadline:
                where = f"topic {self._topic} partition {waiting[0].name.partition}"
                raise Unreachable(f"no leader for {self._options.give_up_s:g} s", where=where)
            if waiting:
                await asyncio.sleep(RETRY_PAUSE_S)


def _fetch_partition(position: _Position) -> FetchPartition:
    return FetchPartition(
        partition=position.name.partition,
        fetch_offset=position.next_offset,
        partition_max_bytes=_PARTITION_BYTES_MAX,
    )


def _check_passing(name: TopicPartition, code: ErrorCode) -> None:
    """Raise Refused for an error that will not pass by itself."""
    if not (code.is_retriable or code.is_invalid_metadata):
        raise Refused(code, where=f"topic {name.topic} partition {name.partition}")


def _start_at(position: _Position, offset: int) -> None:
    position.next_offset = max(offset, 0)


def _start_at_time(position: _Position, offset: int) -> None:
    position.next_offset = offset


def _start_if_unknown(position: _Position, offset: int) -> None:
    """No record is so late: start at the end."""
    if position.next_offset < 0:
        position.next_offset = offset


def _start_not_before(position: _Position, offset: int) -> None:
    position.next_offset = max(position.next_offset, offset)


def _stop_at(position: _Position, offset: int) -> None:
    position.stop_offset = offset
