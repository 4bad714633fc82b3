"""The two loops over records that cleaning consists of. Pure Python, written for speed: numbers are read in place.

Both go over the uncompressed records of a version 2 batch, whose checksum was right. A record begins with its length,
so all that follows the key is jumped over. Numbers are in zig-zag form: odd is negative, which for a length is null.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.common.errors import ErrorCode, KafkaError
from engine.protocol.records.varint import read_tail, read_varint
from engine.storage.cleaner.key_map import fold

NULL = 1
"""The one byte of a length of -1."""


class Survivors(NamedTuple):
    """What stays of a batch: ``runs`` are starts and ends of neighbouring records, in turn."""

    runs: list[int]
    record_count: int
    has_tombstone: bool
    null_keys: int
    last_start: int


def index_records(data: bytes, position: int, end: int, count: int, base_offset: int, offsets: dict[bytes, int]) -> int:
    """Put key and offset of ``count`` records between ``position`` and ``end`` into the map; return the null keys.

    Raises:
        KafkaError: CORRUPT_MESSAGE where the bytes are not exactly so many records.
    """
    null_keys = 0
    try:
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
            if key_end > following:
                raise _not_records(base_offset)
            offsets[key] = base_offset + (delta >> 1)
            position = following
    except IndexError:
        raise _not_records(base_offset) from None
    if position != end:
        raise _not_records(base_offset)
    return null_keys


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
        KafkaError: CORRUPT_MESSAGE where the bytes are not exactly so many records.
    """
    runs: list[int] = []
    kept = null_keys = 0
    run_start = run_end = last_start = -1
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
            position = following
            if base_offset + (delta >> 1) < latest(key, -1):
                continue
            if data[key_end] == NULL:
                if not keeps_tombstones:
                    continue
                has_tombstone = True
            kept += 1
            last_start = start
            if start != run_end:
                if run_end >= 0:
                    runs += (run_start, run_end)
                run_start = start
            run_end = following
    except IndexError:
        raise _not_records(base_offset) from None
    if position != end:
        raise _not_records(base_offset)
    if run_end >= 0:
        runs += (run_start, run_end)
    return Survivors(runs, kept, has_tombstone, null_keys, last_start)


def max_timestamp_delta(data: bytes, survivors: Survivors, enough: int) -> int:
    """Return the largest timestamp delta of the survivors; ``enough`` is the largest there may be."""
    largest = _timestamp_delta(data, survivors.last_start)[0]
    if largest == enough:
        return largest
    bounds = iter(survivors.runs)
    for position, end in zip(bounds, bounds, strict=True):
        while position < end:
            delta, position = _timestamp_delta(data, position)
            largest = max(largest, delta)
    return largest


def _timestamp_delta(data: bytes, position: int) -> tuple[int, int]:
    """Return a record's timestamp delta, and where the next record begins."""
    size_bytes, position = read_varint(data, position)
    delta, _ = read_varint(data, position + 1)
    return delta, position + size_bytes


def _not_records(base_offset: int) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {base_offset} does not hold the records it says")
