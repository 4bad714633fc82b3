"""The times of unread records, and whether any are left: read by small Fetches.

The record at an offset is the first one at or after it: compaction leaves holes, and markers of transactions are not
records. A record from before Kafka 0.10 has no time.

A reader that commits the offset after its last record (librdkafka 2.16 with ``commit(message)``, Spring) stays in front
of a marker until another record comes; if it reads only committed records, in front of aborted ones too. A reader that
commits its position (librdkafka by itself, kafka-python) goes past them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from engine.admin.cluster.asking import FAILURES, ask_all, beside_limit_s
from engine.admin.cluster.errors import Unknown
from engine.admin.cluster.wire import WireCluster
from engine.admin.offsets.listing import end_offsets, leaders_of
from engine.admin.records.fetching import FetchFrom, fetch, visible_batches
from engine.common.errors import KafkaError
from engine.common.model import IsolationLevel, TopicPartition
from engine.kafka.protocol.apis.fetch import PartitionData
from engine.kafka.protocol.records.decode import iter_batch_records

_PLACES_PER_TURN = 5_000
_PARTITIONS_PER_REQUEST = 50
_PARTITION_BYTES = 64 * 1024
_MANY = 20
_PARTITION_BYTES_OF_MANY = 512 * 1024
_ANSWER_BYTES = 4 * 1024 * 1024
_STEPS_MAX = 200
"""After this many answers without a record, give up this place: there can be long stretches of markers."""

LOOK_LAG_MAX = 10_000
_LOOKS_MAX = 200
"""``look_behind`` looks at this many offsets of this many places at most, those with the fewest first."""


class Place(NamedTuple):
    """An offset in a partition."""

    partition: TopicPartition
    offset: int


class UnreadRecord(NamedTuple):
    """The first record at or after a place; its time is None if its format has none."""

    offset: int
    timestamp_ms: int | None
    is_transactional: bool = False


Times = dict[Place, UnreadRecord | Unknown | None]
"""None: there is no record at or after the place."""


class _Search:
    """The places of one partition that are still to be found, in order, and where to look next."""

    __slots__ = ("is_alone", "least_bytes", "name", "places", "position", "steps")

    def __init__(self, name: TopicPartition, offsets: Iterable[int]) -> None:
        self.name = name
        self.places = deque(sorted(offsets))
        self.position = self.places[0]
        self.steps = 0
        self.least_bytes = 1
        self.is_alone = False
        """The batch there is larger than a request for several partitions allowed."""

    @property
    def has_passed(self) -> bool:
        """Whether it is past the first place without a record for it."""
        return self.position > self.places[0]

    @property
    def wanted_bytes(self) -> int:
        return _PARTITION_BYTES if len(self.places) < _MANY else _PARTITION_BYTES_OF_MANY

    def settle(self, times: Times, value: UnreadRecord | Unknown | None) -> None:
        """Give the same answer to all places that are left."""
        times.update({Place(self.name, offset): value for offset in self.places})
        self.places.clear()

    def pass_record(self, record: UnreadRecord, times: Times) -> None:
        """Answer every place at or before a record."""
        while self.places and self.places[0] <= record.offset:
            times[Place(self.name, self.places.popleft())] = record
            self.steps = 0

    def go_on(self) -> None:
        """Look next at the first place, or further on if there was no record yet."""
        if self.places:
            self.position = max(self.position, self.places[0])


class Behind(NamedTuple):
    """What stands between places and the ends, where it is not records that every reader gets."""

    nothing: frozenset[Place] = frozenset()
    """Markers and holes only."""
    aborted: frozenset[Place] = frozenset()
    """Also records of aborted transactions: only readers of uncommitted records get them."""


async def look_behind(
    wire: WireCluster, ends: Mapping[Place, int], times: Times, isolation: IsolationLevel, *, patience_s: float
) -> Behind:
    """Find the places behind which there is nothing to read before the ends.

    The result is an extra: what cannot be read in time, or without the right to, is not in it.

    Args:
        ends: the places that seem to be behind, each with the offset that ends what counts.
        times: the records there as far as they were read already, with the same ``isolation``.
        isolation: with READ_COMMITTED, aborted records are none.
    """
    few = sorted((end - place.offset, place) for place, end in ends.items() if end - place.offset <= LOOK_LAG_MAX)
    chosen = {place: ends[place] for _, place in few[:_LOOKS_MAX]}
    if not chosen:
        return Behind()
    try:
        async with asyncio.timeout(beside_limit_s(wire)):
            return await _look_behind(wire, chosen, times, isolation, patience_s)
    except (*FAILURES, TimeoutError):
        return Behind()


async def _look_behind(
    wire: WireCluster, ends: Mapping[Place, int], times: Times, isolation: IsolationLevel, patience_s: float
) -> Behind:
    unknown = [place for place in ends if place not in times]
    if unknown:
        times = {**times, **await read_times(wire, unknown, patience_s=patience_s, isolation=isolation)}
    nothing = frozenset(place for place, end in ends.items() if record_before(end, times[place]) is None)
    in_transaction = {
        place: end
        for place, end in ends.items()
        if isinstance(record := record_before(end, times[place]), UnreadRecord) and record.is_transactional
    }
    if isolation is IsolationLevel.READ_COMMITTED or not in_transaction:
        return Behind(nothing)
    committed = IsolationLevel.READ_COMMITTED
    names = {place.partition for place in in_transaction}
    stable = await end_offsets(wire, names, isolation=committed, patience_s=patience_s)
    # Records of an open transaction may still be committed.
    decided = [
        place for place, end in in_transaction.items() if isinstance(at := stable[place.partition], int) and at >= end
    ]
    read = await read_times(wire, decided, patience_s=patience_s, isolation=committed) if decided else {}
    return Behind(
        nothing, frozenset(place for place, record in read.items() if record_before(ends[place], record) is None)
    )


def record_before(end: int, record: UnreadRecord | Unknown | None) -> UnreadRecord | Unknown | None:
    """Return the record, or None if it is not before the end: it came later, or does not count yet."""
    return None if isinstance(record, UnreadRecord) and record.offset >= end else record


async def read_times(
    wire: WireCluster,
    places: Iterable[Place],
    *,
    patience_s: float,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Times:
    """Read the first record at or after each place that a reader of this isolation gets.

    A batch is fetched once for all places in it.
    """

    async def homes(wanted: list[Place]) -> Mapping[Place, int | Unknown]:
        leaders = await leaders_of(wire, {place.partition for place in wanted})
        return {place: leaders[place.partition] for place in wanted}

    async def ask(broker_id: int, some: list[Place]) -> Mapping[Place, UnreadRecord | Unknown | None]:
        offsets: dict[TopicPartition, list[int]] = {}
        for place in some:
            offsets.setdefault(place.partition, []).append(place.offset)
        times: Times = {}
        searches = [_Search(name, wanted) for name, wanted in offsets.items()]
        while searches:
            await _step(wire, broker_id, _together(searches), times, isolation)
            searches = [search for search in searches if search.places]
        return times

    return await ask_all(wire, sorted(places), homes, ask, batch=_PLACES_PER_TURN, patience_s=patience_s)


def _together(searches: list[_Search]) -> list[_Search]:
    """Return searches that one request can carry; a large batch needs its own."""
    alone = next((search for search in searches if search.is_alone), None)
    return searches[:_PARTITIONS_PER_REQUEST] if alone is None else [alone]


async def _step(
    wire: WireCluster, broker_id: int, searches: list[_Search], times: Times, isolation: IsolationLevel
) -> None:
    # A partition's first batch comes whole if it is asked for alone, however few bytes; but not before Kafka 0.10.1
    # (KIP-74).
    # After a batch without a record there are likely more of them.
    is_single = len(searches) == 1 and len(searches[0].places) < _MANY
    is_single = is_single and (searches[0].is_alone or not searches[0].has_passed)
    wanted = {
        search.name: FetchFrom(search.position, search.least_bytes if is_single else search.wanted_bytes)
        for search in searches
    }
    max_bytes = searches[0].least_bytes if is_single else _ANSWER_BYTES
    answers = await fetch(wire, broker_id, wanted, max_bytes=max_bytes, isolation=isolation)
    for search in searches:
        _look(search, answers[search.name], times, isolation, is_first=len(searches) == 1)


def _look(
    search: _Search, data: PartitionData | Unknown, times: Times, isolation: IsolationLevel, *, is_first: bool
) -> None:
    """Take an answer about one partition: records, none, an error, or a position to continue from."""
    if isinstance(data, Unknown):
        search.settle(times, data)
        return
    before = search.position
    search.steps += 1
    is_committed = isolation is IsolationLevel.READ_COMMITTED
    try:
        _pass_batches(search, data, times, is_committed=is_committed)
    except KafkaError as error:
        search.settle(times, Unknown(str(error), error.code))
        return
    search.go_on()
    # Brokers without transactions name no last stable offset.
    has_stable = is_committed and data.last_stable_offset >= 0
    if search.position >= (data.last_stable_offset if has_stable else data.high_watermark):
        search.settle(times, None)
    elif search.position == before and search.places:
        # No batch came whole.
        if is_first and search.least_bytes == _ANSWER_BYTES:
            search.settle(times, Unknown("the broker returns no whole batch"))
        search.least_bytes = _ANSWER_BYTES if is_first else search.least_bytes
        search.is_alone = True
    else:
        search.is_alone = False
    if search.steps >= _STEPS_MAX:
        search.settle(times, Unknown("no record among very many markers"))


def _pass_batches(search: _Search, data: PartitionData, times: Times, *, is_committed: bool) -> None:
    """Answer the places in the batches that came, and move the position past them."""
    if data.records is None:
        return
    aborted = (data.aborted_transactions or ()) if is_committed else None
    for place, header, is_visible in visible_batches(data.records, aborted):
        is_wanted = bool(search.places) and search.places[0] < header.next_offset
        if is_wanted and is_visible:
            for record in iter_batch_records(data.records, place, header):
                if search.places and record.offset >= search.places[0]:
                    time_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None
                    search.pass_record(UnreadRecord(record.offset, time_ms, header.is_transactional), times)
        search.position = max(search.position, header.next_offset)
