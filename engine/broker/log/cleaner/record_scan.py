"""The loops over records in a cleaning. Pure Python, written for speed: numbers are read in place.

They scan the uncompressed records of a version 2 batch whose checksum was right. A record begins with its length, so
everything after the key is skipped. Numbers are in zig-zag form: odd means negative, which for a length means null.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from engine.broker.log.cleaner.key_map import fold
from engine.broker.log.cleaner.record_runs import find_run
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records.varint import VARINTS, read_tail, read_varint

NULL = 1
"""The one byte that encodes a length of -1."""

ONE_BY_ONE_MIN = 32
"""Where no run begins, so many records are read one by one before the next look for a run, then twice as many."""


class Survivors(NamedTuple):
    """What stays of a batch: ``bounds`` holds the start and the end of each record in turn."""

    bounds: list[int]
    has_tombstone: bool
    null_keys: int

    @property
    def record_count(self) -> int:
        return len(self.bounds) // 2


def index_records(data: bytes, position: int, end: int, count: int, base_offset: int, offsets: dict[bytes, int]) -> int:
    """Put keys and offsets of ``count`` records between ``position`` and ``end`` into the map; count the null keys.

    Raises:
        KafkaError: CORRUPT_MESSAGE if the bytes are not exactly this many records.
    """
    null_keys, one_by_one = 0, ONE_BY_ONE_MIN
    try:
        while count:
            run = find_run(data, position, end, count)
            if run is not None:
                first_offset = base_offset + run.delta
                run_offsets = range(first_offset, first_offset + run.record_count)
                offsets.update(zip(run.keys(data, position), run_offsets, strict=True))
                position += run.record_count * run.size_bytes
                count -= run.record_count
                continue
            together = min(count, one_by_one)
            position, nulls = _index_each(data, position, together, base_offset, offsets)
            null_keys += nulls
            count -= together
            one_by_one *= 2
    except IndexError:
        raise _not_records(base_offset) from None
    if position != end:
        raise _not_records(base_offset)
    return null_keys


def _index_each(data: bytes, position: int, count: int, base_offset: int, offsets: dict[bytes, int]) -> tuple[int, int]:
    """Do the same for records that need not have one form; return where they end, and the number of null keys.

    Raises IndexError if the bytes end inside a record.
    """
    null_keys = 0
    for _ in range(count):
        number = data[position]
        position += 1
        if number > 127:
            second = data[position]
            if second < 128:
                number += (second << 7) - 128
                position += 1
            else:
                number, position = read_tail(data, position, number)
        following = position + (number >> 1)
        position += 1
        while data[position] > 127:
            position += 1
        position += 1
        delta = data[position]
        position += 1
        if delta > 127:
            second = data[position]
            if second < 128:
                delta += (second << 7) - 128
                position += 1
            else:
                delta, position = read_tail(data, position, delta)
        number = data[position]
        position += 1
        if number < 128:
            if number & 1:
                null_keys += 1
                position = following
                continue
            key_end = position + (number >> 1)
            key = data[position:key_end]
        else:
            number, position = read_tail(data, position, number)
            key_end = position + (number >> 1)
            key = fold(data[position:key_end])
        if key_end >= following:
            raise _not_records(base_offset)
        offsets[key] = base_offset + (delta >> 1)
        position = following
    return position, null_keys


def find_survivors(
    data: bytes,
    position: int,
    end: int,
    count: int,
    base_offset: int,
    offsets: dict[bytes, int],
    *,
    keeps_tombstones: bool,
) -> Survivors:
    """Return the records that are at or beyond their key's offset in the map, or whose key is not in it.

    Raises:
        KafkaError: CORRUPT_MESSAGE if the bytes are not exactly this many records.
    """
    bounds: list[int] = []
    null_keys = 0
    has_tombstone = False
    latest = offsets.get
    try:
        for _ in range(count):
            start = position
            number = data[position]
            position += 1
            if number > 127:
                second = data[position]
                if second < 128:
                    number += (second << 7) - 128
                    position += 1
                else:
                    number, position = read_tail(data, position, number)
            following = position + (number >> 1)
            position += 1
            while data[position] > 127:
                position += 1
            position += 1
            delta = data[position]
            position += 1
            if delta > 127:
                delta, position = read_tail(data, position, delta)
            number = data[position]
            position += 1
            if number == NULL:
                null_keys += 1
                position = following
                continue
            if number < 128:
                key_end = position + (number >> 1)
                key = data[position:key_end]
            else:
                number, position = read_tail(data, position, number)
                key_end = position + (number >> 1)
                key = fold(data[position:key_end])
            if key_end >= following:
                raise _not_records(base_offset)
            position = following
            if base_offset + (delta >> 1) >= latest(key, -1):
                if data[key_end] != NULL:
                    bounds += (start, following)
                elif keeps_tombstones:
                    has_tombstone = True
                    bounds += (start, following)
    except IndexError:
        raise _not_records(base_offset) from None
    if position != end:
        raise _not_records(base_offset)
    return Survivors(bounds, has_tombstone, null_keys)


def find_live(
    data: bytes, position: int, end: int, base_offset: int, live_offsets: list[int], *, keeps_tombstones: bool
) -> Survivors | None:
    """Return the records with these ascending offsets; None if they are not found in this order.

    For batches that ``index_records`` has scanned: it looks up no keys, and reads nothing after the last record. That
    halves the time of ``find_survivors``. In a run it looks at nothing but the records that it returns.
    """
    bounds: list[int] = []
    has_tombstone = False
    found = 0
    while (run := find_run(data, position, end, end)) is not None:
        first_offset = base_offset + run.delta
        if live_offsets[found] < first_offset:
            return None
        size_bytes, following = run.size_bytes, bisect_left(live_offsets, first_offset + run.record_count, found)
        for offset in live_offsets[found:following]:
            start = position + (offset - first_offset) * size_bytes
            is_tombstone = data[start + run.key_end] == NULL
            if keeps_tombstones or not is_tombstone:
                has_tombstone = has_tombstone or is_tombstone
                bounds += (start, start + size_bytes)
        if following == len(live_offsets):
            return Survivors(bounds, has_tombstone, 0)
        found = following
        position += run.record_count * size_bytes
    wanted = iter(live_offsets[found:])
    wanted_delta = (next(wanted) - base_offset) << 1
    while position < end:
        start = position
        number = data[position]
        position += 1
        if number > 127:
            second = data[position]
            if second < 128:
                number += (second << 7) - 128
                position += 1
            else:
                number, position = read_tail(data, position, number)
        following = position + (number >> 1)
        position += 1
        while data[position] > 127:
            position += 1
        position += 1
        delta = data[position]
        position += 1
        if delta > 127:
            second = data[position]
            if second < 128:
                delta += (second << 7) - 128
                position += 1
            else:
                delta, position = read_tail(data, position, delta)
        if delta == wanted_delta:
            size, position = read_varint(data, position)
            is_tombstone = data[position + size] == NULL
            if keeps_tombstones or not is_tombstone:
                has_tombstone = has_tombstone or is_tombstone
                bounds += (start, following)
            live_offset = next(wanted, -1)
            if live_offset < 0:
                return Survivors(bounds, has_tombstone, 0)
            wanted_delta = (live_offset - base_offset) << 1
        position = following
    return None


def max_timestamp_delta(data: bytes, survivors: Survivors, enough: int) -> int:
    """Return the largest timestamp delta of the survivors; ``enough`` is the largest possible one."""
    largest = timestamp_delta(data, survivors.bounds[-2])
    if largest == enough:
        return largest
    for position in survivors.bounds[:-2:2]:
        # As ``timestamp_delta``, whose calls would take twice the time.
        while data[position] > 127:
            position += 1
        zigzag = data[position + 2]
        if zigzag > 127:
            zigzag, _ = read_tail(data, position + 3, zigzag)
        delta = (zigzag >> 1) ^ -(zigzag & 1)
        if delta > largest:
            largest = delta
    return largest


def counted_from_later(data: bytes, survivors: Survivors, shift_ms: int) -> bytes:
    """Return the survivors with timestamps that count from a base which is ``shift_ms`` later."""
    parts: list[bytes] = []
    bounds = iter(survivors.bounds)
    for start, end in zip(bounds, bounds, strict=True):
        position = start
        while data[position] > 127:
            position += 1
        zigzag = data[position + 2]
        following = position + 3
        if zigzag > 127:
            zigzag, following = read_tail(data, following, zigzag)
        encoded = VARINTS[((zigzag >> 1) ^ -(zigzag & 1)) - shift_ms]
        attributes = data[position + 1 : position + 2]
        parts += (VARINTS[1 + len(encoded) + end - following], attributes, encoded, data[following:end])
    return b"".join(parts)


def timestamp_delta(data: bytes, position: int) -> int:
    """Return by how much the timestamp of the record that begins at ``position`` is after its batch's base."""
    _, position = read_varint(data, position)
    return read_varint(data, position + 1)[0]


def _not_records(base_offset: int) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {base_offset} does not hold the records it says")
