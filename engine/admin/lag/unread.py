"""When the records were made that a reader has before it: one small Fetch per place, whatever the format.

The record at an offset is the first one at or after it: compaction leaves holes, and markers of transactions are no
records. A record of before Kafka 0.10 has no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from engine.admin.groups.asking import ask_all
from engine.admin.groups.partition_offsets import leaders_of
from engine.admin.groups.values import Unknown
from engine.admin.wire import WireCluster
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from engine.protocol.records.header import iter_batches
from engine.protocol.records.iterate import iter_batch_records

_NAMES_VERSION_MAX = 12
"""The last version of Fetch that names topics instead of giving their ids."""
_PLACES_PER_BROKER_TURN = 200
_PARTITIONS_PER_REQUEST = 50
_PARTITION_BYTES = 64 * 1024
_ANSWER_BYTES = 4 * 1024 * 1024
_STEPS_MAX = 200
"""So many answers without a record, and a place is given up: there can be long stretches of markers."""


class Place(NamedTuple):
    """An offset in a partition."""

    partition: TopicPartition
    offset: int


class UnreadRecord(NamedTuple):
    """The first record at or after a place; its time None where its format has none."""

    offset: int
    timestamp_ms: int | None


Times = dict[Place, UnreadRecord | Unknown | None]
"""None: there is no record at or after the place."""


class _Search:
    """How far the search from one place has come."""

    __slots__ = ("is_alone", "place", "position", "steps")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.position = place.offset
        self.steps = 0
        self.is_alone = False
        """The batch there is larger than what was asked for beside other partitions."""


async def read_times(wire: WireCluster, places: Iterable[Place], *, patience_s: float) -> Times:
    """Read the first record at or after each place."""

    async def homes(wanted: list[Place]) -> Mapping[Place, int | Unknown]:
        leaders = await leaders_of(wire, {place.partition for place in wanted})
        return {place: leaders[place.partition] for place in wanted}

    async def ask(broker_id: int, some: list[Place]) -> Mapping[Place, UnreadRecord | Unknown | None]:
        found: Times = {}
        searches = [_Search(place) for place in some]
        while searches:
            now = _together(searches)
            await _step(wire, broker_id, now, found)
            searches = [search for search in searches if search.place not in found]
        return found

    return await ask_all(wire, places, homes, ask, batch=_PLACES_PER_BROKER_TURN, patience_s=patience_s)


def _together(searches: list[_Search]) -> list[_Search]:
    """Return searches that one request can carry: no partition twice, and a large batch by itself."""
    chosen: dict[TopicPartition, _Search] = {}
    for search in searches:
        if search.is_alone:
            return [search]
        chosen.setdefault(search.place.partition, search)
        if len(chosen) == _PARTITIONS_PER_REQUEST:
            break
    return list(chosen.values())


async def _step(wire: WireCluster, broker_id: int, searches: list[_Search], found: Times) -> None:
    # Alone, a partition's first batch comes whole however little is asked for.
    limit = 1 if len(searches) == 1 else _PARTITION_BYTES
    topics: dict[str, list[FetchPartition]] = {}
    for search in searches:
        name = search.place.partition
        wanted = FetchPartition(partition=name.partition, fetch_offset=search.position, partition_max_bytes=limit)
        topics.setdefault(name.topic, []).append(wanted)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 if len(searches) == 1 else _ANSWER_BYTES,
        topics=[FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    response = await wire.call_broker(broker_id, request, version_max=_NAMES_VERSION_MAX)
    if response.error_code != ErrorCode.NONE:
        found.update({search.place: Unknown.of_code(response.error_code) for search in searches})
        return
    by_name = {search.place.partition: search for search in searches}
    for topic in response.responses:
        for data in topic.partitions:
            search = by_name.pop(TopicPartition(topic.topic, data.partition_index))
            _look(search, data, found, is_only=len(searches) == 1)
    found.update({search.place: Unknown("the broker left it out of its answer") for search in by_name.values()})


def _look(search: _Search, data: PartitionData, found: Times, *, is_only: bool) -> None:
    """Take what an answer tells of one place: a record, that there is none, an error, or to go on behind it."""
    if data.error_code != ErrorCode.NONE:
        found[search.place] = Unknown.of_code(data.error_code)
        return
    try:
        record, following = _first_record(data, search.position)
    except KafkaError as error:
        found[search.place] = Unknown(str(error), error.code)
        return
    search.steps += 1
    if record is not None:
        found[search.place] = record
    elif following > search.position:
        search.position = following
        if following >= data.high_watermark:
            found[search.place] = None
    elif search.position >= data.high_watermark:
        found[search.place] = None
    elif is_only:
        found[search.place] = Unknown("the broker gives no whole batch")
    else:
        search.is_alone = True
    if search.place not in found and search.steps >= _STEPS_MAX:
        found[search.place] = Unknown("no record among very many markers")


def _first_record(data: PartitionData, position: int) -> tuple[UnreadRecord | None, int]:
    """Return the first record at or after a position, or None and where to look on."""
    following = position
    if data.records is None:
        return None, following
    for place, header in iter_batches(data.records):
        if header.is_control:
            following = max(following, header.next_offset)
            continue
        for record in iter_batch_records(data.records, place, header):
            if record.offset >= position:
                return UnreadRecord(record.offset, record.timestamp_ms if record.timestamp_ms >= 0 else None), following
        following = max(following, header.next_offset)
    return None, following
