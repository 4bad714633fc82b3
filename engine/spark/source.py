"""The Kafka source's decisions, free of PySpark: what a batch reads, the position of a stream, and the pieces of both.

An executor reads one range of a partition per piece. It requests the next chunk from the leader before it decodes the
current one. If a broker dies or leadership moves, it waits. Each record comes exactly once, because the next offset
alone decides where to continue.

Positions have the form of Spark's own Kafka source, ``{"orders": {"0": 23}}``, so tools that read its checkpoints read
ours. A stream that begins at a moving place ("latest") has no initial position: its first batch reads nothing and ends
there. So the checkpoint has the beginning, and a restart does not choose another one.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.admin.cluster.errors import LoginRefused, NotFound, Refused, Unknown, Unreachable
from engine.admin.cluster.wire import RETRY_PAUSE_S, WireCluster
from engine.admin.offsets.listing import start_offsets
from engine.admin.records.fetching import FetchFrom, fetch
from engine.admin.records.leaders import refuse_lasting, topic_leaders
from engine.common.errors import ErrorCode
from engine.common.model import EARLIEST_TIMESTAMP, NO_LEADER, IsolationLevel, TopicPartition
from engine.kafka.protocol.apis.fetch import PartitionData
from engine.kafka.protocol.records.header import iter_batches
from engine.spark.broker_offsets import PATIENCE_S, Asker, Bounds, all_known, asked, read_bounds, resolve
from engine.spark.kafka_options import Connection, SourceOptions, source_options
from engine.spark.offset_ranges import (
    OffsetRange,
    Offsets,
    count_between,
    from_json,
    limited,
    ranges_between,
    split,
    to_json,
)
from engine.spark.sent_files import properties_here

if TYPE_CHECKING:
    from engine.spark.columns import RecordBatch

logger = logging.getLogger(__name__)

Position = dict[str, dict[str, int]]

CHUNK_BYTES = 4 * 1024 * 1024
_MAX_WAIT_MS = 500


class BatchPlan:
    """What one batch query reads."""

    def __init__(self, options: Mapping[str, str], columns: tuple[str, ...]) -> None:
        self._options = source_options(options, is_streaming=False)
        self._columns = columns

    def pieces(self) -> list[bytes]:
        """Return the pieces, one task each."""

        async def look(wire: WireCluster) -> tuple[Bounds, Offsets, Offsets]:
            bounds = await read_bounds(wire, self._options)
            start = await resolve(wire, self._options, self._options.start, bounds, name="startingOffsets")
            return bounds, start, await resolve(wire, self._options, self._options.end, bounds, name="endingOffsets")

        bounds, start, stop = asked(self._options.connection, look)
        ranges = ranges_between(start, stop, bounds.earliest, _data_loss(self._options))
        return _pieces(self._options, self._columns, ranges)


class StreamPlan:
    """The position of a stream and what its next batch reads. It lives in one process as long as the query runs."""

    def __init__(
        self, options: Mapping[str, str], columns: tuple[str, ...], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.options = source_options(options, is_streaming=True)
        self._columns = columns
        self._asker = Asker(self.options.connection)
        self._clock = clock
        self._initial: Position | None = None
        self._latest: Offsets | None = None
        self._target: Bounds | None = None
        self._triggered_at: float | None = None

    def initial(self) -> Position:
        """Return where the stream begins; empty if that place moves, see above."""
        if self.options.start.is_moving:
            return {}
        if self._initial is None:

            async def look(wire: WireCluster) -> Position:
                return to_json(await self._start(wire, await read_bounds(wire, self.options)))

            self._initial = self._asker.ask(look)
        return self._initial

    def freeze(self) -> None:
        """Take the current end as the end of all batches."""
        self._target = self._look()

    def latest(self, start: Position, *, most: int | None = None, least: int | None = None) -> Position:
        """Return where the next batch ends: at the end, or after about ``most`` records; ``start`` itself for no batch.

        ``least`` delays a batch until this many records wait, or ``maxTriggerDelay`` is over.
        """
        bounds = self._target or self._look()
        self._latest = bounds.latest
        if not start and self.options.start.is_moving:

            async def begin(wire: WireCluster) -> Position:
                return to_json(await self._start(wire, bounds))

            return self._asker.ask(begin)
        begins = from_json(start)
        if least is not None and self._target is None and self._is_held_back(begins, bounds, least):
            return start
        return to_json(bounds.latest if most is None else limited(begins, bounds.latest, bounds.earliest, most))

    def end(self) -> Position:
        """Return the current end, which is all that PySpark before 4.2 asks for."""
        return to_json(self._look().latest)

    def known_latest(self) -> Position | None:
        """Return the end that was seen last, for the query's progress."""
        return None if self._latest is None else to_json(self._latest)

    def pieces(self, start: Position, stop: Position) -> list[bytes]:
        """Return the pieces of a batch, one task each."""
        if not start and self.options.start.is_moving:
            return []
        begins, ends = from_json(start), from_json(stop)

        async def look(wire: WireCluster) -> Offsets:
            return all_known(await start_offsets(wire, ends))

        earliest = self._asker.ask(look)
        return _pieces(self.options, self._columns, ranges_between(begins, ends, earliest, _data_loss(self.options)))

    def _look(self) -> Bounds:
        return self._asker.ask(lambda wire: read_bounds(wire, self.options))

    async def _start(self, wire: WireCluster, bounds: Bounds) -> Offsets:
        return await resolve(wire, self.options, self.options.start, bounds, name="startingOffsets")

    def _is_held_back(self, begins: Offsets, bounds: Bounds, least: int) -> bool:
        now = self._clock()
        is_late = self._triggered_at is None or now - self._triggered_at >= self.options.max_trigger_delay_ms / 1000
        if not is_late and count_between(begins, bounds.latest, bounds.earliest) < least:
            return True
        self._triggered_at = now
        return False


def read_piece(piece: bytes | None) -> Iterator[RecordBatch]:
    """Yield the records of a piece; Spark makes an empty one if there is nothing to read."""
    return iter(()) if piece is None else read_range(pickle.loads(piece))


def _pieces(options: SourceOptions, columns: tuple[str, ...], ranges: list[OffsetRange]) -> list[bytes]:
    cut = split(ranges, options.min_partitions, options.max_records_per_partition)
    return [
        pickle.dumps(ReadTask(options.connection, piece, columns, options.isolation, options.fails_on_data_loss))
        for piece in cut
    ]


def _data_loss(options: SourceOptions) -> Callable[[str], None]:
    def tell(message: str) -> None:
        if options.fails_on_data_loss:
            raise DataLost(message)
        logger.warning("data loss: %s", message)

    return tell


class DataLost(Refused):
    """Records of the range are gone."""

    def __init__(self, message: str) -> None:
        hint = "set failOnDataLoss to false to go on with what is there"
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message, hint=hint)


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Everything that an executor needs to read a range."""

    connection: Connection
    range: OffsetRange
    columns: tuple[str, ...]
    isolation: IsolationLevel
    fails_on_data_loss: bool
    chunk_bytes: int = CHUNK_BYTES


def read_range(task: ReadTask) -> Iterator[RecordBatch]:
    """Yield the records of a range.

    Raises:
        DataLost: some are gone, and ``failOnDataLoss`` is set.
        Refused, Unreachable: nothing could be read for a minute, or a broker refuses.
    """
    # The process that plans a stream imports this module, and decodes nothing.
    from engine.spark.columns import Frame, decode

    wanted = task.range
    frame = Frame(wanted.topic, wanted.partition, wanted.start, wanted.stop, task.columns)
    is_committed = task.isolation is IsolationLevel.READ_COMMITTED
    with asyncio.Runner() as runner:
        reader = _RangeReader(task)
        try:
            while (data := runner.run(reader.next_chunk())) is not None:
                yield from decode(
                    bytes(data.records or b""), frame, (data.aborted_transactions or ()) if is_committed else None
                )
        finally:
            runner.run(reader.close())


class _RangeReader:
    """Fetches the chunks of one range in their order, one ahead."""

    def __init__(self, task: ReadTask) -> None:
        self._task = task
        self._name = TopicPartition(task.range.topic, task.range.partition)
        self._next = task.range.start
        self._wire = WireCluster(task.connection.bootstrap, properties=properties_here(task.connection.properties))
        self._leader = NO_LEADER
        self._ahead: asyncio.Task[PartitionData | None] | None = None

    async def next_chunk(self) -> PartitionData | None:
        """Return the next chunk with a batch in it; None at the end of the range."""
        ahead, self._ahead = self._ahead, None
        data = await (ahead or self._fetch_some())
        if data is not None and self._next < self._task.range.stop:
            self._ahead = asyncio.create_task(self._fetch_some(), name=f"fetch {self._name}")
            # The task writes its request in its first steps; the answer may come while this chunk is decoded.
            for _ in range(3):
                await asyncio.sleep(0)
        return data

    async def close(self) -> None:
        """End what is under way."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)
        await self._wire.close()

    async def _fetch_some(self) -> PartitionData | None:
        """Fetch until there is a batch, or the range is at its end; move on to the offset after it."""
        deadline = time.monotonic() + PATIENCE_S
        failure: Exception | None = None
        while self._next < self._task.range.stop:
            try:
                data = await self._fetch_once()
                if data is not None:
                    return data
            except LoginRefused:
                raise
            except (Unreachable, NotFound) as error:
                failure, self._leader = error, NO_LEADER
            if time.monotonic() > deadline:
                self._give_up(failure)
                return None
            if self._leader == NO_LEADER:
                await asyncio.sleep(RETRY_PAUSE_S)
        return None

    async def _fetch_once(self) -> PartitionData | None:
        if self._leader == NO_LEADER:
            leaders = (await topic_leaders(self._wire, [self._name.topic]))[self._name.topic]
            self._leader = leaders.get(self._name.partition, NO_LEADER)
            if self._leader == NO_LEADER:
                return None
        wanted = {self._name: FetchFrom(self._next, self._task.chunk_bytes)}
        answers = await fetch(
            self._wire,
            self._leader,
            wanted,
            max_bytes=self._task.chunk_bytes,
            max_wait_ms=_MAX_WAIT_MS,
            isolation=self._task.isolation,
        )
        answer = answers[self._name]
        if isinstance(answer, Unknown):
            await self._mend(answer)
            return None
        reached = self._next
        for _, header in iter_batches(answer.records or b""):
            reached = header.next_offset
        if reached <= self._next:
            return None
        self._next = reached
        return answer

    async def _mend(self, failure: Unknown) -> None:
        """React to a partition's failure: continue at the log's start, look for the leader, or end."""
        if failure.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._move_to_log_start()
            return
        refuse_lasting(failure, str(self._name))
        self._leader = NO_LEADER

    async def _move_to_log_start(self) -> None:
        from engine.admin.offsets.listing import offsets_at

        answer = (await offsets_at(self._wire, {self._name: EARLIEST_TIMESTAMP}))[self._name]
        stop = self._task.range.stop
        first = answer if isinstance(answer, int) and answer > self._next else stop
        if self._task.fails_on_data_loss:
            raise DataLost(
                f"records of {self._name} are gone: needed from offset {self._next} on, the first is {answer}"
            )
        self._next = min(first, stop)

    def _give_up(self, failure: Exception | None) -> None:
        """Give up after too long without records. If losses are allowed, the missing records count as lost."""
        if failure is not None:
            raise failure
        message = f"{self._name} has no records from offset {self._next} to {self._task.range.stop}"
        if self._task.fails_on_data_loss:
            raise DataLost(message)
        self._next = self._task.range.stop
