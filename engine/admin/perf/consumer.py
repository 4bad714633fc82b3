"""Reads a topic as fast as possible and counts records, by the headers of their batches or one by one.

It follows leaders as they move. By default it joins no group and commits nothing. As a member of a group it reads its
share, begins at the committed offsets, and commits what it has read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from engine.admin.cluster.asking import PATIENCE_S
from engine.admin.cluster.errors import LoginRefused, NotFound, Refused, Unknown, Unreachable
from engine.admin.cluster.waits import Observer, ignore_line
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups.group_reading import committed_offsets
from engine.admin.groups.membership import Membership
from engine.admin.groups.values import CommittedOffset
from engine.admin.offsets.listing import offsets_at
from engine.admin.perf.results import MB, ConsumeFigures, Span, wall_time
from engine.admin.records.fetching import FetchFrom, fetch
from engine.admin.records.leaders import LeaderReaders, check_partitions, refuse_lasting, topic_leaders
from engine.common.errors import ErrorCode
from engine.common.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_LEADER, TopicPartition
from engine.kafka.protocol.apis.fetch import PartitionData
from engine.kafka.protocol.records.compression import DECOMPRESSED_BYTES_MAX
from engine.kafka.protocol.records.decode import iter_batch_records, record_section
from engine.kafka.protocol.records.faults import ends_early
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.layout import Buffer
from engine.kafka.protocol.records.varint import read_tail, read_varint

_ANSWER_BYTES_MAX = 50 * 1024 * 1024
_MAX_WAIT_MS = 500
_LOOK_EVERY_S = 0.1
_BEAT_S = 3.0
_LEAVE_S = 5.0

OnWindow = Callable[[ConsumeFigures], None]
OnProgress = Callable[[int], None]

_Answers = Mapping[TopicPartition, PartitionData | Unknown]
_Batches = tuple[Buffer, Sequence[tuple[int, BatchHeader]]]
"""The records of an answer, and its batches: where each begins there, and its header."""


@dataclass(frozen=True, slots=True)
class ReadLoad:
    """What to read. ``idle_s``: the test ends after this long without a record."""

    topic: str
    record_count: int
    partitions: tuple[int, ...] = ()
    is_from_latest: bool = False
    fetch_bytes: int = 1_048_576
    is_decoding: bool = False
    """Decompress every batch and look at every record; bytes then count keys and values."""
    idle_s: float = 10.0
    window_s: float = 5.0
    group: str | None = None
    give_up_s: float = 30.0
    duration_s: float | None = None
    """The test ends after this long, however many records came."""


class _Position:
    """How far one partition is read. ``next_offset`` None: still unknown."""

    __slots__ = ("leader_id", "name", "next_offset")

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.leader_id = NO_LEADER
        self.next_offset: int | None = None


class PerfConsumer:
    """One test: ``run``, then ``totals``, even after a run that failed or was cancelled."""

    def __init__(self, wire: WireCluster, load: ReadLoad, *, observe: Observer = ignore_line) -> None:
        self._wire = wire
        self._load = load
        self._observe = observe
        self._positions: dict[int, _Position] = {}
        self._readers = LeaderReaders(
            "perf consumer", read=self._read, lose=self._lose, fail=self._fail, observe=observe
        )
        self._failure: Exception | None = None
        self._wake = asyncio.Event()
        self._records = 0
        self._bytes = 0
        self._start_time = wall_time()
        self._start_s = self._data_s = self._end_s = self._beat_s = 0.0
        self._setup_s = 0.0
        self._window = (0.0, 0, 0, 0.0)
        self._mine: frozenset[int] | None = None
        self._membership = (
            Membership(wire, load.group, [load.topic], give_up_s=load.give_up_s, observe=observe)
            if load.group
            else None
        )

    async def run(self, on_window: OnWindow, on_progress: OnProgress) -> bool:
        """Read until there are enough records, or none has come for too long; return whether there are enough.

        Raises:
            NotFound: there is no such topic or partition.
            Refused, Unreachable: the cluster rejects a request, or does not answer.
        """
        loop = asyncio.get_running_loop()
        self._start_time, self._start_s = wall_time(), loop.time()
        self._end_s = self._start_s
        self._window = (self._start_s, 0, 0, 0.0)
        try:
            await self._locate(is_first=True)
            await self._join(self._start_s)
            while not self._is_enough and loop.time() - self._data_s <= self._load.idle_s:
                if self._is_over(loop.time()):
                    return True
                await self._beat()
                await self._keep_reading()
                timer = loop.call_later(_LOOK_EVERY_S, self._wake.set)
                await self._wake.wait()
                self._wake.clear()
                timer.cancel()
                if self._failure is not None:
                    raise self._failure
                on_progress(self._records)
                self._report(loop.time(), on_window)
        finally:
            self._end_s = loop.time()
            await self._readers.stop()
            await self._leave()
        return self._is_enough

    @property
    def totals(self) -> ConsumeFigures:
        return self._figures(Span.TOTAL, self._start_s, self._end_s, (self._records, self._bytes, self._setup_s))

    @property
    def _is_enough(self) -> bool:
        return self._records >= self._load.record_count

    def _is_over(self, now: float) -> bool:
        return self._load.duration_s is not None and now - self._start_s >= self._load.duration_s

    def _report(self, now: float, on_window: OnWindow) -> None:
        since, records, size, setup_s = self._window
        if now - since < self._load.window_s:
            return
        gained = (self._records - records, self._bytes - size, self._setup_s - setup_s)
        on_window(self._figures(Span.WINDOW, since, now, gained))
        self._window = (now, self._records, self._bytes, self._setup_s)

    def _figures(self, kind: Span, since: float, now: float, gained: tuple[int, int, float]) -> ConsumeFigures:
        """Return the figures of a span in which this many records, bytes and seconds of preparation were added."""
        records, size, setup_s = gained
        elapsed_s = max(now - since, 1e-6)
        fetching_s = max(elapsed_s - setup_s, 1e-6)
        return ConsumeFigures(
            kind,
            self._start_time + timedelta(seconds=since - self._start_s),
            self._start_time + timedelta(seconds=now - self._start_s),
            self._bytes / MB,
            size / MB / elapsed_s,
            self._records,
            records / elapsed_s,
            round(setup_s * 1000),
            round(fetching_s * 1000),
            size / MB / fetching_s,
            records / fetching_s,
        )

    async def _keep_reading(self) -> None:
        """Make sure that every partition has a reader; look for missing leaders."""
        wanted = self._wanted()
        if any(position.leader_id == NO_LEADER or position.next_offset is None for position in wanted):
            await self._locate(is_first=False)
        self._readers.start({position.leader_id for position in wanted} - {NO_LEADER})

    async def _join(self, since: float) -> None:
        """Join the group if there is one, and find where to begin; the time since ``since`` is preparation."""
        if self._membership is not None:
            await self._readers.stop()
            self._mine = frozenset(name.partition for name in await self._membership.join())
            await self._begin_at_committed(self._membership.group)
        await self._find_starts(PATIENCE_S)
        now = asyncio.get_running_loop().time()
        self._setup_s += now - since
        self._data_s = self._beat_s = now

    async def _begin_at_committed(self, group: str) -> None:
        committed = (await committed_offsets(self._wire, [group]))[group]
        if isinstance(committed, Unknown):
            raise Unreachable(f"the committed offsets are not known: {committed}", where=f"group {group}")
        for position in self._wanted():
            offset = committed.get(position.name)
            position.next_offset = offset.offset if isinstance(offset, CommittedOffset) else None

    async def _beat(self) -> None:
        """Tell the group that this member is alive and how far it has read; join again if necessary."""
        now = asyncio.get_running_loop().time()
        if self._membership is None or now - self._beat_s < _BEAT_S:
            return
        self._beat_s = now
        if not (await self._membership.heartbeat() and await self._commit()):
            # Commit what was read before another member may get it.
            await self._readers.stop()
            await self._commit()
            await self._join(now)

    async def _commit(self) -> bool:
        offsets = {p.name: p.next_offset for p in self._wanted() if p.next_offset is not None}
        return self._membership is None or not offsets or await self._membership.commit(offsets)

    async def _leave(self) -> None:
        if self._membership is None:
            return
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._commit()
                await self._membership.leave()
        except (TimeoutError, Unreachable, Refused) as error:
            self._observe(f"could not leave the group properly: {error}")

    def _wanted(self) -> list[_Position]:
        """Return the partitions to read: all, or those that the group gave."""
        return [p for p in self._positions.values() if self._mine is None or p.name.partition in self._mine]

    async def _read(self, leader_id: int) -> None:
        """Read what a broker leads; the next request is on its way while records of the last answer are counted."""
        fetching: asyncio.Task[_Answers] | None = None
        try:
            while mine := self._led_by(leader_id):
                fetching = fetching or self._fetch(leader_id, mine)
                answers = await fetching
                fetching = None
                taken = [self._take(self._positions[name.partition], answer) for name, answer in answers.items()]
                try:
                    if self._load.is_decoding and (mine := self._led_by(leader_id)) and not self._is_enough:
                        fetching = self._fetch(leader_id, mine)
                        # Counting blocks the event loop: without this turn the request would only leave after it.
                        await asyncio.sleep(0)
                finally:
                    # Do this even if the reader is stopped here: the positions are past these records already.
                    for records, batches in taken:
                        self._count(records, batches)
                if self._is_enough:
                    self._wake.set()
                    return
        finally:
            if fetching is not None:
                fetching.cancel()
                await asyncio.gather(fetching, return_exceptions=True)

    def _lose(self, leader_id: int) -> None:
        for position in self._led_by(leader_id):
            position.leader_id = NO_LEADER

    async def _fail(self, error: Exception) -> None:
        self._failure = error
        self._wake.set()

    def _fetch(self, leader_id: int, positions: Sequence[_Position]) -> asyncio.Task[_Answers]:
        wanted = {p.name: FetchFrom(p.next_offset or 0, self._load.fetch_bytes) for p in positions}
        asking = fetch(self._wire, leader_id, wanted, max_bytes=_ANSWER_BYTES_MAX, max_wait_ms=_MAX_WAIT_MS)
        return asyncio.create_task(asking, name=f"perf consumer: fetch from broker {leader_id}")

    def _led_by(self, leader_id: int) -> list[_Position]:
        return [p for p in self._wanted() if p.leader_id == leader_id and p.next_offset is not None]

    def _take(self, position: _Position, answer: PartitionData | Unknown) -> _Batches:
        """Return the batches that are new, and move the position past them."""
        if isinstance(answer, Unknown):
            self._pass_failure(position, answer)
            return b"", ()
        if answer.records is None or position.next_offset is None:
            return b"", ()
        batches = [(p, h) for p, h in iter_batches(answer.records) if h.next_offset > position.next_offset]
        if batches:
            position.next_offset = batches[-1][1].next_offset
        return answer.records, batches

    def _pass_failure(self, position: _Position, failure: Unknown) -> None:
        """Look for the leader or the offset again, whichever is no longer right."""
        name = position.name
        if failure.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._observe(f"partition {name.partition}: offset {position.next_offset} no longer exists")
            position.next_offset = None
        else:
            refuse_lasting(failure, f"topic {name.topic} partition {name.partition}")
            position.leader_id = NO_LEADER

    def _count(self, data: Buffer, batches: Sequence[tuple[int, BatchHeader]]) -> None:
        for place, header in batches:
            if header.is_control:
                continue
            if self._load.is_decoding or header.record_count < 0:
                records, size = count_data(data, place, header)
            else:
                records, size = header.record_count, header.size_bytes
            self._records += records
            self._bytes += size
            if records:
                self._data_s = asyncio.get_running_loop().time()

    async def _locate(self, *, is_first: bool) -> None:
        """Find leaders, and where to begin; look again for what is still unknown."""
        try:
            leaders = (await topic_leaders(self._wire, [self._load.topic]))[self._load.topic]
        except LoginRefused:
            raise
        except (NotFound, Unreachable):
            # Its topic was deleted since, and may be created again; or no broker answers.
            if is_first:
                raise
            return
        check_partitions(self._load.topic, self._load.partitions, leaders)
        for partition in self._load.partitions or sorted(leaders):
            position = self._positions.setdefault(partition, _Position(TopicPartition(self._load.topic, partition)))
            if position.leader_id == NO_LEADER:
                position.leader_id = leaders.get(partition, NO_LEADER)
        if not is_first:
            await self._find_starts(0.0)

    async def _find_starts(self, patience_s: float) -> None:
        missing = {p.name: p for p in self._wanted() if p.next_offset is None and p.leader_id != NO_LEADER}
        if not missing:
            return
        at = LATEST_TIMESTAMP if self._load.is_from_latest else EARLIEST_TIMESTAMP
        starts = await offsets_at(self._wire, dict.fromkeys(missing, at), patience_s=patience_s)
        for name, offset in starts.items():
            if isinstance(offset, Unknown):
                self._observe(f"{name.topic}-{name.partition}: {offset}")
            else:
                missing[name].next_offset = offset


# How many bytes of keys and values a batch has, as kafka-consumer-perf-test counts them.
#
# Walks through the records without building any: a consumer that only counts needs no more.


def count_data(buffer: Buffer, position: int, header: BatchHeader) -> tuple[int, int]:
    """Return how many records the batch at the position has, and the bytes of their keys and values.

    Raises:
        KafkaError: the bytes are not records.
    """
    if header.magic < 2:
        sizes = [len(r.key or b"") + len(r.value or b"") for r in iter_batch_records(buffer, position, header)]
        return len(sizes), sum(sizes)
    section = record_section(buffer, position, header, DECOMPRESSED_BYTES_MAX)
    try:
        return header.record_count, _walk(section, header.record_count)
    except IndexError:
        raise ends_early(header) from None


def _walk(data: bytes, count: int) -> int:
    position = total = 0
    for _ in range(count):
        size, position = read_varint(data, position)
        end = position + size
        position += 1
        # Only the ends of time and offset matter.
        while data[position] > 127:
            position += 1
        position += 1
        while data[position] > 127:
            position += 1
        position += 1
        for _part in (0, 1):
            number = data[position]
            position += 1
            if number > 127:
                number, position = read_tail(data, position, number)
            if not number & 1:
                total += number >> 1
                position += number >> 1
        position = end
    return total
