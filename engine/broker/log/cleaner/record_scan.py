"""The loops over records in a cleaning. Pure Python, written for speed: numbers are read in place.

They scan the uncompressed records of a version 2 batch whose checksum was right. A record begins with its length, so
everything after the key is skipped. Numbers are in zig-zag form: odd means negative, which for a length means null.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from engine.broker.log.cleaner.key_map import fold
from engine.broker.log.cleaner.record_runs import RUN_MIN, find_run
from engine.kafka.protocol.records.varint import VARINTS, read_tail, read_varint

NULL = 1
"""The one byte that encodes a length of -1."""

ONE_BY_ONE_MIN = 32
"""Where no run begins, so many records are read one by one before the next look for a run, then twice as many."""


class NotRecordsError(Exception):
    """The bytes are not the records that their batch says."""


class Survivors(NamedTuple):
    """What stays of a batch: ``bounds`` holds the start and the end of each record in turn."""

    bounds: list[int]
    has_tombstone: bool
    null_keys: int

    @property
    def record_count(self) -> int:
        return len(self.bounds) // 2


def index_records(data: bytes, position: int, end: int, count: int, first_place: int, places: dict[bytes, int]) -> int:
    """Put keys and places of ``count`` records between ``position`` and ``end`` into the map; count the null keys.

    The place of a record is ``first_place`` and the distance of its first byte from ``position``.

    Raises:
        NotRecordsError: the bytes are not exactly this many records.
    """
    null_keys, one_by_one, origin = 0, ONE_BY_ONE_MIN, first_place - position
    try:
        while count:
            run = find_run(data, position, end, count)
            if run is not None:
                following = position + run.record_count * run.size_bytes
                run_places = range(origin + position, origin + following, run.size_bytes)
                places.update(zip(run.keys(data, position), run_places, strict=True))
                position = following
                count -= run.record_count
                continue
            together = min(count, one_by_one)
            position, nulls = _index_each(data, position, together, origin, places)
            null_keys += nulls
            count -= together
            one_by_one *= 2
    except IndexError:
        raise NotRecordsError from None
    if position != end:
        raise NotRecordsError
    return null_keys


def _index_each(data: bytes, position: int, count: int, origin: int, places: dict[bytes, int]) -> tuple[int, int]:
    """Do the same for records that need not have one form; return where they end, and the number of null keys.

    Raises IndexError if the bytes end inside a record.
    """
    null_keys = 0
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
        while data[position] > 127:
            position += 1
        number = data[position + 1]
        position += 2
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
            raise NotRecordsError
        places[key] = origin + start
        position = following
    return position, null_keys


def skip_records(data: bytes, position: int, end: int, delta: int) -> tuple[int, int]:
    """Return where the first record with this offset delta or a later one begins, and how many are before it.

    Raises:
        NotRecordsError: the bytes end inside a record.
    """
    skipped = 0
    try:
        while position < end:
            length, body = read_varint(data, position)
            if length < 0:
                raise NotRecordsError
            _, delta_at = read_varint(data, body + 1)
            if read_varint(data, delta_at)[0] >= delta:
                break
            position, skipped = body + length, skipped + 1
    except IndexError:
        raise NotRecordsError from None
    return position, skipped


def find_survivors(
    data: bytes,
    position: int,
    end: int,
    count: int,
    first_place: int,
    places: dict[bytes, int],
    *,
    keeps_tombstones: bool,
) -> Survivors:
    """Return the records that are at or beyond their key's place in the map, or whose key is not in it.

    Raises:
        NotRecordsError: the bytes are not exactly this many records.
    """
    bounds: list[int] = []
    null_keys = 0
    has_tombstone = False
    origin, place_of = first_place - position, places.get
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
            while data[position] > 127:
                position += 1
            position += 1
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
                raise NotRecordsError
            position = following
            place = origin + start
            if place >= place_of(key, place):
                if data[key_end] != NULL:
                    bounds += (start, following)
                elif keeps_tombstones:
                    has_tombstone = True
                    bounds += (start, following)
    except IndexError:
        raise NotRecordsError from None
    if position != end:
        raise NotRecordsError
    return Survivors(bounds, has_tombstone, null_keys)


def find_live(data: bytes, starts: list[int], end: int, *, keeps_tombstones: bool) -> Survivors:
    """Return the records that begin at these ascending positions, all before ``end``.

    For batches that ``index_records`` has scanned: it reads nothing but these records.

    Raises:
        NotRecordsError: the data ends inside a record.
    """
    bounds: list[int] = []
    has_tombstone = False
    first, count = 0, len(starts)
    try:
        while count - first >= RUN_MIN and (run := find_run(data, starts[first], end, end)) is not None:
            size_bytes, key_end = run.size_bytes, run.key_end
            following = bisect_left(starts, starts[first] + run.record_count * size_bytes, first)
            for start in starts[first:following]:
                is_tombstone = data[start + key_end] == NULL
                if keeps_tombstones or not is_tombstone:
                    has_tombstone = has_tombstone or is_tombstone
                    bounds += (start, start + size_bytes)
            first = following
        for start in starts[first:]:
            number, position = data[start], start + 1
            if number > 127:
                number, position = read_tail(data, position, number)
            following = position + (number >> 1)
            position += 1
            while data[position] > 127:
                position += 1
            position += 1
            while data[position] > 127:
                position += 1
            number, position = data[position + 1], position + 2
            if number > 127:
                number, position = read_tail(data, position, number)
            is_tombstone = data[position + (number >> 1)] == NULL
            if keeps_tombstones or not is_tombstone:
                has_tombstone = has_tombstone or is_tombstone
                bounds += (start, following)
    except IndexError:
        raise NotRecordsError from None
    return Survivors(bounds, has_tombstone, 0)


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
