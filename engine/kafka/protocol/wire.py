"""What compiled codecs call: variable-length numbers, tagged fields, cached structs. Bytes only, no messages.

A varint here is Kafka's unsigned one: seven bits a byte, least significant first, at most five bytes (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

STRING_BYTES_MAX = 0x7FFF
"""Kafka's limit for a string in UTF-8, compact or not."""

_COUNT_MAX = 0x7FFFFFFF
_CACHED_MAX = 64


class Malformed(ValueError):
    """Bytes that are not a message; a decoder turns it into RemoteProtocolError."""


class Unfit(ValueError):
    """A value that cannot be written; an encoder turns it into LocalProtocolError."""


def rest_of_varint(buffer: Any, position: int, first: int) -> tuple[int, int]:
    """Return (value, next position) of a varint whose first byte, with its high bit set, has been read."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > _COUNT_MAX:
                raise Malformed(f"the length {value} is too large")
            return value, position
    raise Malformed("a varint of more than five bytes")


def read_varint(buffer: Any, position: int) -> tuple[int, int]:
    """Return (value, next position)."""
    first = buffer[position]
    return (first, position + 1) if first < 128 else rest_of_varint(buffer, position + 1, first)


def append_varint(out: bytearray, value: int) -> None:
    """Append ``value``, which must not be negative."""
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def skip_tagged(buffer: Any, position: int, first: int) -> int:
    """Return the position after a section of tagged fields; ``first``, the first byte of its count, has been read."""
    count = first
    if first > 127:
        count, position = rest_of_varint(buffer, position, first)
    end = len(buffer)
    for _ in range(count):
        # 128,000 small tags fit into a request that is read on the loop.
        if buffer[position] < 128 and (size := buffer[position + 1]) < 128:
            position += 2 + size
        else:
            _, position = read_varint(buffer, position)
            size, position = read_varint(buffer, position)
            position += size
        if position > end:
            raise Malformed("a tagged field reaches behind the end")
    return position


class RepeatedUnpack(dict[int, Callable[..., tuple[Any, ...]]]):
    """By count: a function (buffer, offset) that unpacks this many values of one type. ``label`` names them in
    errors."""

    def __init__(self, code: str, label: str) -> None:
        self._code = code
        self._label = label

    def __missing__(self, count: int) -> Callable[..., tuple[Any, ...]]:
        if count < 0:
            raise Malformed(f"{self._label} has the count {count}")
        # A huge count allocates nothing here, and fails once the buffer turns out to be too short.
        unpack = struct.Struct(f">{count}{self._code}").unpack_from
        if count <= _CACHED_MAX:
            self[count] = unpack
        return unpack


class RepeatedPack(dict[int, Callable[..., bytes]]):
    """By count: a function that packs this many values of one type."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __missing__(self, count: int) -> Callable[..., bytes]:
        pack = struct.Struct(f">{count}{self._code}").pack
        if count <= _CACHED_MAX:
            self[count] = pack
        return pack


PACK_REPEATED = {code: RepeatedPack(code) for code in "bhiqd?"}
