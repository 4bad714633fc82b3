"""The Kafka source's decisions, free of PySpark: what a batch reads, the position of a stream, and the pieces of both.

Positions have the form of Spark's own Kafka source, ``{"orders": {"0": 23}}``, so tools that read its checkpoints read
ours. A stream that begins at a moving place ("latest") has no initial position: its first batch reads nothing and ends
there. So the checkpoint has the beginning, and a restart does not choose another one.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from engine.admin.cluster.wire import WireCluster
from engine.admin.offsets.listing import start_offsets
from engine.spark.kafka_options import SourceOptions, source_options
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
from engine.spark.offset_reader import Asker, Bounds, all_known, asked, read_bounds, resolve
from engine.spark.reading import DataLost, ReadTask, read_range

if TYPE_CHECKING:
    from engine.spark.columns import RecordBatch

logger = logging.getLogger(__name__)

Position = dict[str, dict[str, int]]


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
    def tell(what: str) -> None:
        if options.fails_on_data_loss:
            raise DataLost(what)
        logger.warning("data loss: %s", what)

    return tell
