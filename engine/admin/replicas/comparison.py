"""Are all replicas of a partition the same? Their batches compared over one range of offsets. Pure.

It compares batches by offsets, leader epoch and checksum, and computes each checksum again to find bytes that went bad
on one disk. Brokers clean a compacted log at different times: there, records that both replicas have must be equal, and
any may be missing. Each replica is compared with the leader's log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from engine.common.errors import KafkaError
from engine.common.moments import calendar_time
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.record import Record

_SHOWN_BYTES = 60
_SHOWN_RECORDS = 10


class DifferenceKind(StrEnum):
    """How two replicas differ."""

    CHECKSUM = "checksum"
    LEADER_EPOCH = "leader_epoch"
    OFFSETS = "offsets"
    RECORD = "record"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class Unit:
    """What is compared: a batch, or one record of a compacted log.

    ``batch`` holds its bytes; they are decoded only for the units that differ.
    """

    first_offset: int
    last_offset: int
    leader_epoch: int
    digest: bytes
    is_corrupt: bool
    batch: bytes

    def records(self) -> dict[int, Record]:
        """Return its records by offset.

        Raises:
            KafkaError: they cannot be decoded.
        """
        return {
            record.offset: record
            for position, header in iter_batches(self.batch)
            for record in iter_batch_records(self.batch, position, header)
            if self.first_offset <= record.offset <= self.last_offset
        }


@dataclass(frozen=True, slots=True)
class Side:
    """One replica at the first difference; offsets None mean that it has nothing there.

    ``records`` are those of its records that the other side does not have in the same form, as a person sees them: long
    keys and values are cut to the part where they differ. ``error`` says why they cannot be decoded.
    """

    broker: int
    first_offset: int | None
    last_offset: int | None
    leader_epoch: int | None
    records: tuple[Mapping[str, Any], ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where a replica differs from the leader's."""

    offset: int
    kind: DifferenceKind
    sides: tuple[Side, ...]


def units(buffer: bytes, start: int, stop: int, *, is_compacted: bool) -> Iterator[Unit]:
    """Yield the units to compare in the complete batches of ``buffer``, within offsets ``start`` to ``stop`` - 1.

    A batch that begins before ``start`` (a log start within it) is taken record by record.

    Raises:
        KafkaError: the bytes are not batches.
    """
    for position, header in iter_batches(buffer):
        if header.last_offset < start or header.base_offset >= stop:
            continue
        batch = bytes(buffer[position : position + header.size_bytes])
        is_corrupt = not verify_crc(batch, 0, len(batch))
        if is_corrupt or not (is_compacted or header.base_offset < start):
            digest = f"{header.crc}/{header.record_count}".encode()
            epoch = header.partition_leader_epoch
            yield Unit(header.base_offset, header.last_offset, epoch, digest, is_corrupt, batch)
            continue
        yield from _records(batch, header, start, stop)


def compare(leader: Unit | None, other: Unit | None, *, is_compacted: bool) -> DifferenceKind | None:
    """Return how a replica's next unit differs from the leader's at the same place; None is a unit that is missing."""
    for replica in (leader, other):
        if replica is not None and replica.is_corrupt:
            return DifferenceKind.CORRUPT
    if leader is None or other is None or leader.first_offset != other.first_offset:
        return None if is_compacted else DifferenceKind.OFFSETS
    if leader.last_offset != other.last_offset:
        return DifferenceKind.OFFSETS
    if leader.digest != other.digest:
        return DifferenceKind.RECORD if is_compacted else DifferenceKind.CHECKSUM
    return DifferenceKind.LEADER_EPOCH if leader.leader_epoch != other.leader_epoch else None


def difference(kind: DifferenceKind, leader: tuple[int, Unit | None], other: tuple[int, Unit | None]) -> Difference:
    """Return a difference between two brokers' units with both sides decoded."""
    offset = min(unit.first_offset for _, unit in (leader, other) if unit is not None)
    ours, our_error = _decoded(leader[1])
    theirs, their_error = _decoded(other[1])
    return Difference(offset, kind, (_side(*leader, ours, theirs, our_error), _side(*other, theirs, ours, their_error)))


def _decoded(unit: Unit | None) -> tuple[dict[int, Record], str | None]:
    try:
        return ({}, None) if unit is None else (unit.records(), None)
    except KafkaError as error:
        return {}, f"cannot be decoded: {error}"


def _side(
    broker: int, unit: Unit | None, mine: Mapping[int, Record], others: Mapping[int, Record], error: str | None
) -> Side:
    if unit is None:
        return Side(broker, None, None, None)
    shown = [_shown(record, others.get(offset)) for offset, record in mine.items() if others.get(offset) != record]
    return Side(broker, unit.first_offset, unit.last_offset, unit.leader_epoch, tuple(shown[:_SHOWN_RECORDS]), error)


def _records(batch: bytes, header: BatchHeader, start: int, stop: int) -> Iterator[Unit]:
    for record in iter_batch_records(batch, 0, header):
        if start <= record.offset < stop:
            digest = blake2b(repr(_content(record)).encode(), digest_size=16).digest()
            yield Unit(record.offset, record.offset, header.partition_leader_epoch, digest, False, batch)


def _content(record: Record) -> tuple[object, ...]:
    return (record.timestamp_ms, record.key, record.value, tuple(record.headers))


def _shown(record: Record, other: Record | None) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": None if record.timestamp_ms < 0 else calendar_time(record.timestamp_ms),
        "key": _text(record.key, None if other is None else other.key),
        "value": _text(record.value, None if other is None else other.value),
    }


def _text(data: bytes | None, other: bytes | None) -> str | None:
    """Return a key or value as text; for a long one the part around its first difference from the other side's."""
    if data is None:
        return None
    pairs = enumerate(zip(data, other or b"", strict=False))
    same = 0 if other == data else next((at for at, (mine, theirs) in pairs if mine != theirs), 0)
    start = max(0, same - _SHOWN_BYTES // 2)
    text = bytes(data[start : start + _SHOWN_BYTES]).decode("utf-8", "backslashreplace")
    return f"{'…' if start else ''}{text}{'…' if len(data) > start + _SHOWN_BYTES else ''}"
