"""Asks brokers which partitions exist and where they begin and end, for the driver's side of the Kafka source."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from engine.admin.cluster.errors import BadRequest, LoginRefused, NotFound, Refused, Unknown, Unreachable
from engine.admin.cluster.wire import WireCluster
from engine.admin.offsets.listing import Offsets as ToldOffsets
from engine.admin.offsets.listing import end_offsets, offsets_at, start_offsets
from engine.common.errors import ErrorCode
from engine.common.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from engine.spark.kafka_options import Connection, Edge, SourceOptions
from engine.spark.offset_ranges import Offsets
from engine.spark.sent_files import properties_here

T = TypeVar("T")

PATIENCE_S = 60.0
"""How long to wait for missing leaders and brokers: the default of a Kafka client."""

_PAUSE_S = 0.25
_INTERNAL = ("__consumer_offsets", "__transaction_state")
_NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first remaining offset, and the one after the last that a reader may see, by partition."""

    earliest: Offsets
    latest: Offsets


@asynccontextmanager
async def opened(connection: Connection) -> AsyncIterator[WireCluster]:
    """Yield the brokers of a cluster; connections are closed afterwards."""
    wire = WireCluster(connection.bootstrap, properties=properties_here(connection.properties))
    try:
        yield wire
    finally:
        await wire.close()


class Asker:
    """Asks a cluster one question after the other, from code that is not asynchronous. Connections stay open."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._runner = asyncio.Runner()
        self._wire: WireCluster | None = None

    def ask(self, question: Callable[[WireCluster], Awaitable[T]]) -> T:
        """Return the answer; ask again while leaders or brokers are missing."""
        return self._runner.run(self._ask(question))

    def close(self) -> None:
        """Close all connections."""
        self._runner.run(self._hang_up())
        self._runner.close()

    async def _ask(self, question: Callable[[WireCluster], Awaitable[T]]) -> T:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            # Nothing listens between two questions, so a connection may have been closed in between.
            was_open = self._wire is not None
            if self._wire is None:
                self._wire = WireCluster(
                    self._connection.bootstrap, properties=properties_here(self._connection.properties)
                )
            try:
                return await question(self._wire)
            except (Unreachable, Refused) as error:
                await self._hang_up()
                if not _may_pass(error) or time.monotonic() > deadline:
                    raise
            if not was_open:
                await asyncio.sleep(_PAUSE_S)

    async def _hang_up(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()


def asked(connection: Connection, question: Callable[[WireCluster], Awaitable[T]]) -> T:
    """Ask a cluster one thing."""
    asker = Asker(connection)
    try:
        return asker.ask(question)
    finally:
        asker.close()


def _may_pass(error: Unreachable | Refused) -> bool:
    if isinstance(error, Unreachable):
        return not isinstance(error, LoginRefused)
    return error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and (
        error.code.is_retriable or error.code.is_invalid_metadata
    )


async def read_bounds(wire: WireCluster, options: SourceOptions) -> Bounds:
    """Return the bounds of all partitions to read.

    Raises:
        NotFound: a named topic or partition does not exist.
        Refused, Unreachable: the cluster rejects a request, or does not answer.
    """
    partitions = await _partitions(wire, options)
    earliest, latest = await asyncio.gather(
        start_offsets(wire, partitions), end_offsets(wire, partitions, isolation=options.isolation)
    )
    return Bounds(all_known(earliest), all_known(latest))


async def resolve(wire: WireCluster, options: SourceOptions, edge: Edge, bounds: Bounds, *, name: str) -> Offsets:
    """Return the offsets that the option called ``name`` means.

    Raises:
        BadRequest: it does not fit the partitions, or no record is as late as a time.
    """
    if edge.rule is not None:
        return dict(bounds.earliest if edge.rule == EARLIEST_TIMESTAMP else bounds.latest)
    if edge.offsets is not None:
        _check_partitions(edge.offsets, bounds.latest, name)
        special = {EARLIEST_TIMESTAMP: bounds.earliest, LATEST_TIMESTAMP: bounds.latest}
        return {
            partition: special[offset][partition] if offset in special else offset
            for partition, offset in edge.offsets.items()
        }
    times = edge.timestamps
    if times is None:
        times = dict.fromkeys(bounds.latest, edge.timestamp or 0)
    _check_partitions(times, bounds.latest, name)
    by_time = all_known(await offsets_at(wire, times, isolation=options.isolation))
    late = sorted(partition for partition, offset in by_time.items() if offset == _NO_OFFSET)
    if late and not edge.takes_latest:
        hint = "take an earlier time, or set startingOffsetsByTimestampStrategy to latest"
        raise BadRequest(f"no record is as recent as the option {name}", where=", ".join(map(str, late)), hint=hint)
    return {
        partition: bounds.latest[partition] if offset == _NO_OFFSET else offset for partition, offset in by_time.items()
    }


def _check_partitions(named: Iterable[TopicPartition], known: Mapping[TopicPartition, int], name: str) -> None:
    if set(named) != known.keys():
        wrong = sorted(set(named) ^ known.keys())
        message = f"the option {name} must name all partitions that are read, and no others"
        raise BadRequest(message, where=", ".join(map(str, wrong)))


async def _partitions(wire: WireCluster, options: SourceOptions) -> list[TopicPartition]:
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        topics = {
            topic.name: topic
            for topic in (await wire.metadata(None)).topics
            if topic.name and topic.name not in _INTERNAL and pattern.fullmatch(topic.name)
        }
    else:
        names = options.topics or tuple(dict.fromkeys(partition.topic for partition in options.assigned))
        topics = {topic.name or "": topic for topic in (await wire.metadata(names)).topics}
    for name, topic in topics.items():
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise NotFound(f"no such topic: {name}")
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise Refused(ErrorCode(topic.error_code), where=f"topic {name}")
    partitions = [TopicPartition(name or "", p.partition_index) for name, t in topics.items() for p in t.partitions]
    missing = sorted(set(options.assigned) - set(partitions))
    if missing:
        raise NotFound(f"no such partition: {', '.join(map(str, missing))}")
    return [partition for partition in partitions if not options.assigned or partition in options.assigned]


def all_known(offsets: ToldOffsets) -> Offsets:
    """Return the offsets; raises Refused or Unreachable if one is not known."""
    known: Offsets = {}
    for name, offset in offsets.items():
        if isinstance(offset, Unknown):
            if offset.code is None:
                raise Unreachable(offset.message, where=str(name))
            raise Refused(offset.code, offset.message, where=str(name))
        known[name] = offset
    return known
