"""Reads a topic as fast as it comes and counts: records by the headers of their batches, or one by one if asked for.

Joins no group and commits nothing. Leaders are followed as they move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from engine.admin.errors import NotFound, Unreachable
from engine.admin.groups.asking import PATIENCE_S
from engine.admin.groups.partition_offsets import offsets_at
from engine.admin.groups.values import Unknown
from engine.admin.observer import Observer, tell_nobody
from engine.admin.offsets import EARLIEST, LATEST
from engine.admin.perf.data_bytes import count_data
from engine.admin.perf.results import MB, ConsumeFigures, Span, wall_time
from engine.admin.topics import topic_not_found
from engine.admin.wire import RETRY_PAUSE_S, WireCluster, refuse
from engine.common.errors import ErrorCode, error_code
from engine.common.model import NO_LEADER, TopicPartition
from engine.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from engine.protocol.records.header import BatchHeader, iter_batches

_NAMES_VERSION_MAX = 12
"""The last version of Fetch that names topics instead of giving their ids."""
_ANSWER_BYTES_MAX = 50 * 1024 * 1024
_MAX_WAIT_MS = 500
_LOOK_EVERY_S = 0.1

OnWindow = Callable[[ConsumeFigures], None]
OnProgress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ReadLoad:
    """What to read. ``idle_s``: so long without a record, and the test is over."""

    topic: str
    record_count: int
    partitions: tuple[int, ...] = ()
    is_from_latest: bool = False
    fetch_bytes: int = 1_048_576
    is_decoding: bool = False
    """Decompress every batch and look at every record; bytes are those of keys and values then."""
    idle_s: float = 10.0
    window_s: float = 5.0


class _Position:
    """How far one partition is read. ``next_offset`` None: has to be asked for."""

    __slots__ = ("leader_id", "name", "next_offset")

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.leader_id = NO_LEADER
        self.next_offset: int | None = None


class PerfConsumer:
    """One test: ``run``, then ``totals``, also after a run that failed or was cancelled."""

    def __init__(self, wire: WireCluster, load: ReadLoad, *, observe: Observer = tell_nobody) -> None:
        self._wire = wire
        self._load = load
        self._observe = observe
        self._positions: dict[int, _Position] = {}
        self._readers: dict[int, asyncio.Task[None]] = {}
        self._failure: Exception | None = None
        self._wake = asyncio.Event()
        self._records = 0
        self._bytes = 0
        self._start_time = wall_time()
        self._start_s = self._ready_s = self._data_s = self._end_s = 0.0
        self._window = (0.0, 0, 0)

    async def run(self, on_window: OnWindow, on_progress: OnProgress) -> bool:
        """Read until there are enough records, or none has come for too long; return whether there are enough.

        Raises:
            NotFound: there is no such topic or partition.
            Refused, Unreachable: as they say.
        """
        loop = asyncio.get_running_loop()
        self._start_time, self._start_s = wall_time(), loop.time()
        self._ready_s = self._end_s = self._start_s
        try:
            await self._locate(is_first=True)
            self._ready_s = self._data_s = loop.time()
            self._window = (self._start_s, 0, 0)
            while not self._is_enough and loop.time() - self._data_s <= self._load.idle_s:
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
            await self._stop()
        return self._is_enough

    @property
    def totals(self) -> ConsumeFigures:
        """What was read in all."""
        return self._figures(Span.TOTAL, self._start_s, self._end_s, self._records, self._bytes)

    @property
    def _is_enough(self) -> bool:
        return self._records >= self._load.record_count

    def _report(self, now: float, on_window: OnWindow) -> None:
        since, records, size = self._window
        if now - since < self._load.window_s:
            return
        on_window(self._figures(Span.WINDOW, since, now, self._records - records, self._bytes - size))
        self._window = (now, self._records, self._bytes)

    def _figures(self, kind: Span, since: float, now: float, records: int, size: int) -> ConsumeFigures:
        setup_s = max(0.0, min(self._ready_s, now) - since)
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
        """See that every partition has a reader; look for leaders that are missing."""
        if any(
            position.leader_id == NO_LEADER or position.next_offset is None for position in self._positions.values()
        ):
            await self._locate(is_first=False)
        for leader_id in {position.leader_id for position in self._positions.values()} - {NO_LEADER}:
            if leader_id not in self._readers or self._readers[leader_id].done():
                name = f"perf consumer: broker {leader_id}"
                self._readers[leader_id] = asyncio.create_task(self._read(leader_id), name=name)

    async def _stop(self) -> None:
        for reader in self._readers.values():
            reader.cancel()
        await asyncio.gather(*self._readers.values(), return_exceptions=True)

    async def _read(self, leader_id: int) -> None:
        """Read what a broker leads; the next request is on its way while records of the last answer are counted."""
        fetching: asyncio.Task[FetchResponse] | None = None
        try:
            while mine := self._led_by(leader_id):
                fetching = fetching or self._fetch(leader_id, mine)
                response = await fetching
                fetching = None
                refuse(response.error_code, None, f"broker {leader_id}")
                taken = [self._take(data) for topic in response.responses for data in topic.partitions]
                if self._load.is_decoding and (mine := self._led_by(leader_id)) and not self._is_enough:
                    fetching = self._fetch(leader_id, mine)
                for data, batches in taken:
                    self._count(data, batches)
                if self._is_enough:
                    self._wake.set()
                    return
        except (Unreachable, NotFound) as error:
            self._observe(f"lost broker {leader_id} ({error}), looking for the leaders")
            for position in self._led_by(leader_id):
                position.leader_id = NO_LEADER
            await asyncio.sleep(RETRY_PAUSE_S)
        except Exception as error:
            # The rim of the task: ``run`` raises it.
            self._failure = error
            self._wake.set()
        finally:
            if fetching is not None:
                fetching.cancel()
                await asyncio.gather(fetching, return_exceptions=True)

    def _fetch(self, leader_id: int, positions: Sequence[_Position]) -> asyncio.Task[FetchResponse]:
        wanted = [
            FetchPartition(
                partition=position.name.partition,
                fetch_offset=position.next_offset or 0,
                partition_max_bytes=self._load.fetch_bytes,
            )
            for position in positions
        ]
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=_ANSWER_BYTES_MAX,
            topics=[FetchTopic(topic=self._load.topic, partitions=wanted)],
        )
        asking = self._wire.call_broker(leader_id, request, version_max=_NAMES_VERSION_MAX)
        return asyncio.create_task(asking, name=f"perf consumer: fetch from broker {leader_id}")

    def _led_by(self, leader_id: int) -> list[_Position]:
        return [p for p in self._positions.values() if p.leader_id == leader_id and p.next_offset is not None]

    def _take(self, data: PartitionData) -> tuple[PartitionData, list[tuple[int, BatchHeader]]]:
        """Return the batches that are new, and move the position past them."""
        position = self._positions[data.partition_index]
        code = error_code(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._observe(f"partition {data.partition_index}: offset {position.next_offset} is not there any more")
            position.next_offset = None
        elif code.is_retriable or code.is_invalid_metadata:
            position.leader_id = NO_LEADER
        else:
            refuse(code, None, f"topic {self._load.topic} partition {data.partition_index}")
        if code is not ErrorCode.NONE or data.records is None or position.next_offset is None:
            return data, []
        batches = [(p, h) for p, h in iter_batches(data.records) if h.next_offset > position.next_offset]
        if batches:
            position.next_offset = batches[-1][1].next_offset
        return data, batches

    def _count(self, data: PartitionData, batches: Iterable[tuple[int, BatchHeader]]) -> None:
        for place, header in batches:
            if header.is_control or data.records is None:
                continue
            if self._load.is_decoding or header.record_count < 0:
                records, size = count_data(data.records, place, header)
            else:
                records, size = header.record_count, header.size_bytes
            self._records += records
            self._bytes += size
            if records:
                self._data_s = asyncio.get_running_loop().time()

    async def _locate(self, *, is_first: bool) -> None:
        """Find leaders, and where to begin; what is not known yet is looked for again."""
        try:
            response = await self._wire.metadata([self._load.topic])
        except Unreachable:
            if is_first:
                raise
            return
        if not response.topics or response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise topic_not_found([self._load.topic])
        topic = response.topics[0]
        if not error_code(topic.error_code).is_retriable:
            refuse(topic.error_code, None, f"topic {self._load.topic}")
        leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
        for partition in self._load.partitions or sorted(leaders):
            if leaders and partition not in leaders:
                hint = f"it has the partitions 0 to {len(leaders) - 1}"
                raise NotFound(f"topic {self._load.topic!r} has no partition {partition}", hint=hint)
            position = self._positions.setdefault(partition, _Position(TopicPartition(self._load.topic, partition)))
            if position.leader_id == NO_LEADER:
                position.leader_id = leaders.get(partition, NO_LEADER)
        await self._find_starts(PATIENCE_S if is_first else 0.0)

    async def _find_starts(self, patience_s: float) -> None:
        missing = {p.name: p for p in self._positions.values() if p.next_offset is None and p.leader_id != NO_LEADER}
        if not missing:
            return
        at = LATEST if self._load.is_from_latest else EARLIEST
        found = await offsets_at(self._wire, dict.fromkeys(missing, at), patience_s=patience_s)
        for name, offset in found.items():
            if isinstance(offset, Unknown):
                self._observe(f"{name.topic}-{name.partition}: {offset}")
            else:
                missing[name].next_offset = offset
