"""What a Fetch brings for a reader of a partition. Pure.

Readers of committed records do not see every batch (KIP-98): with each answer the broker lists the aborted transactions
in the range, as producer and first offset. A transaction's records run from there to its abort marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from itertools import repeat
from typing import NamedTuple, Protocol

from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
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
        """The offset after all of them."""
        reached = self._batches[-1][1].next_offset
        return reached if self._stop is None else min(reached, self._stop)

    @cached_property
    def records(self) -> list[ConsumedRecord]:
        """All of them."""
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
