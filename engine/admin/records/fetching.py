"""One Fetch: the records of some partitions from one broker. The caller decides whom to ask, and when to ask again.

Readers of committed records do not see every batch (KIP-98): with each answer the broker lists the aborted transactions
in the range, as producer and first offset. A transaction's records run from there to its abort marker.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import repeat
from typing import NamedTuple, Protocol

from engine.admin.cluster.errors import BadRequest, Unknown
from engine.admin.cluster.wire import WireCluster
from engine.admin.cluster.wire_failures import refuse
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import CONSUMER_REPLICA_ID, IsolationLevel, TopicPartition
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from engine.kafka.protocol.records.attributes import TimestampType
from engine.kafka.protocol.records.decode import iter_batch_records, iter_batch_values
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.layout import Buffer
from engine.kafka.protocol.records.record import Record

_ABORT = b"\x00\x00"
_MARKER_TYPE = slice(2, 4)


class Aborted(Protocol):
    """One aborted transaction, as Fetch reports it."""

    producer_id: int
    first_offset: int


@cache
def _checksum_check() -> Callable[[Buffer, int, int], bool] | None:
    """Return what checks a batch's checksum; None on an executor of Spark that has klamm's code but not its library."""
    try:
        # Imported with the first batch: the library is slow to load, and most commands read no records.
        from engine.kafka.protocol.records.checksum import verify_crc
    except ImportError:
        return None
    return verify_crc


def visible_batches(buffer: Buffer, aborted: Iterable[Aborted] | None) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Yield each batch's position and header, and whether its records are for the reader.

    Markers never are. With ``aborted`` None (READ_UNCOMMITTED) everything else is.

    Raises:
        KafkaError: CORRUPT_MESSAGE at a batch whose checksum is wrong, or that is none.
    """
    waiting = sorted(aborted or (), key=lambda transaction: transaction.first_offset, reverse=True)
    aborting: set[int] = set()
    is_whole = _checksum_check()
    for position, header in iter_batches(buffer):
        if is_whole is not None and not is_whole(buffer, position, header.size_bytes):
            message = f"the checksum of the batch at offset {header.base_offset} is wrong"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, message)
        while waiting and waiting[-1].first_offset <= header.last_offset:
            aborting.add(waiting.pop().producer_id)
        if header.is_control:
            if header.producer_id in aborting and _is_abort_marker(buffer, position, header):
                aborting.discard(header.producer_id)
            yield position, header, False
        else:
            yield position, header, not (header.is_transactional and header.producer_id in aborting)


def _is_abort_marker(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    for record in iter_batch_records(buffer, position, header):
        return record.key is not None and record.key[_MARKER_TYPE] == _ABORT
    return False


class ConsumedRecord(NamedTuple):
    """A record and its place in the log."""

    topic: str
    partition: int
    record: Record
    timestamp_type: TimestampType


class ConsumedRecords:
    """Some records of one partition, in order. They are decoded when they are asked for.

    Decoding raises KafkaError for bytes that are not records.
    """

    def __init__(
        self, name: TopicPartition, buffer: Buffer, batches: list[tuple[int, BatchHeader]], start: int, stop: int | None
    ) -> None:
        """Of these batches in the buffer, by position, only offsets from ``start`` on and before ``stop`` count."""
        self.name = name
        self._buffer = buffer
        self._batches = batches
        self._start = start
        self._stop = stop

    @property
    def next_offset(self) -> int:
        reached = self._batches[-1][1].next_offset
        return reached if self._stop is None else min(reached, self._stop)

    @cached_property
    def records(self) -> list[ConsumedRecord]:
        wanted: list[ConsumedRecord] = []
        for place, header in self._batches:
            records: Iterable[Record] = iter_batch_records(self._buffer, place, header)
            if self._is_cut(header):
                records = (record for record in records if self._counts(record))
            kind = repeat(header.timestamp_type)
            wanted += map(ConsumedRecord, repeat(self.name.topic), repeat(self.name.partition), records, kind)
        return wanted

    def values(self) -> list[bytes | None]:
        """The values of all of them: less than half the work."""
        values: list[bytes | None] = []
        for place, header in self._batches:
            if self._is_cut(header):
                values += [
                    record.value for record in iter_batch_records(self._buffer, place, header) if self._counts(record)
                ]
            else:
                values += iter_batch_values(self._buffer, place, header)
        return values

    def _is_cut(self, header: BatchHeader) -> bool:
        """Whether a batch may hold records that do not count. The headers of old formats say too little."""
        starts_before = header.magic < 2 or header.base_offset < self._start
        return starts_before or (self._stop is not None and header.next_offset > self._stop)

    def _counts(self, record: Record) -> bool:
        return record.offset >= self._start and (self._stop is None or record.offset < self._stop)


# From version 13 on, Fetch names topics by id (KIP-516). That would need a request for the ids first, brokers before
# Kafka 3.1 would still need the names, and every broker up to Kafka 4 still accepts version 12.
_VERSION_MAX = 12


class FetchFrom(NamedTuple):
    """Where to read in a partition, and how many bytes at most. The first batch of an answer comes whole (KIP-74)."""

    offset: int
    max_bytes: int


async def fetch(
    wire: WireCluster,
    broker_id: int,
    wanted: Mapping[TopicPartition, FetchFrom],
    *,
    max_bytes: int,
    max_wait_ms: int = 0,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    replica_id: int = CONSUMER_REPLICA_ID,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, PartitionData | Unknown]:
    """Return one broker's answer for each partition: data without an error, or why there is none.

    While a quota holds this client back, the broker answers without partitions: wait as long as it says, and ask again.

    Args:
        max_bytes: the limit of the whole answer.
        max_wait_ms: how long the broker may wait for the first record.
        replica_id: DEBUGGING_REPLICA_ID reads any replica up to its log end.
        timeout_ms: how long to wait for the answer; None is the connection's own limit.

    Raises:
        NotFound: no live broker has this id.
        Unreachable: it does not answer.
        Refused: it refuses the request as a whole.
    """
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, partition), start in wanted.items():
        asked = FetchPartition(partition=partition, fetch_offset=start.offset, partition_max_bytes=start.max_bytes)
        topics.setdefault(topic, []).append(asked)
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    while True:
        response: FetchResponse = await wire.call_broker(
            broker_id, request, version_max=_VERSION_MAX, timeout_ms=timeout_ms
        )
        refuse(response.error_code, None, f"broker {broker_id}")
        if response.responses or not response.throttle_time_ms:
            break
        await asyncio.sleep(response.throttle_time_ms / 1000)
    shown = {
        TopicPartition(topic.topic, data.partition_index): data
        for topic in response.responses
        for data in topic.partitions
    }
    return {name: _answer(shown.get(name)) for name in wanted}


def _answer(data: PartitionData | None) -> PartitionData | Unknown:
    if data is None:
        return Unknown("the broker left it out of its answer")
    return data if data.error_code == ErrorCode.NONE else Unknown.of_code(data.error_code)


Headers = Sequence[tuple[str, bytes | None]]
RecordFilter = Callable[[bytes | None, bytes | None, Headers], bool]

_FORM = re.compile(r"(key|value|header\.[^=]+)=(.*)", re.DOTALL)


def parse_record_filter(text: str) -> RecordFilter:
    """Return a check of key, value and headers; the regular expression may match anywhere in them.

    Forms: ``REGEX`` (of key or value), ``key=REGEX``, ``value=REGEX``, ``header.NAME=REGEX``.

    Raises:
        BadRequest: it is not a regular expression.
    """
    form = _FORM.fullmatch(text)
    field, pattern_text = (form[1], form[2]) if form is not None else ("", text)
    try:
        pattern = re.compile(pattern_text.encode())
    except re.error as error:
        raise BadRequest(f"not a regular expression: {pattern_text!r} ({error})") from error

    def matches(data: bytes | None) -> bool:
        return data is not None and pattern.search(data) is not None

    if field == "key":
        return lambda key, value, headers: matches(key)
    if field == "value":
        return lambda key, value, headers: matches(value)
    if field:
        name = field.removeprefix("header.")
        return lambda key, value, headers: any(matches(data) for header, data in headers if header == name)
    return lambda key, value, headers: matches(key) or matches(value)
