"""Zig-zag variable-length integers of records in format v2, not the unsigned ones of flexible messages."""

from __future__ import annotations

from engine.common.errors import ErrorCode, KafkaError

_CACHED_LIMIT = 8192


class _Varints(dict[int, bytes]):
    """The bytes of each number. It caches small numbers, which are nearly all; it builds others each time."""

    def __missing__(self, number: int) -> bytes:
        encoded = _encode(number)
        if -_CACHED_LIMIT <= number < _CACHED_LIMIT:
            self[number] = encoded
        return encoded


def _encode(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else ~(number << 1)
    encoded = bytearray()
    while zigzag > 127:
        encoded.append(zigzag & 127 | 128)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


VARINTS = _Varints()
"""``VARINTS[n]`` is the zig-zag varint of n; ten bytes at most for a 64-bit number."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return (number, position after it) of a zig-zag varint of at most 64 bits.

    Raises:
        IndexError: the bytes end inside the number; record code turns that into its own error.
        KafkaError: CORRUPT_MESSAGE for more than ten bytes.
    """
    zigzag = data[position]
    position += 1
    if zigzag > 127:
        zigzag, position = read_tail(data, position, zigzag)
    return (zigzag >> 1) ^ -(zigzag & 1), position


def read_tail(data: bytes, position: int, first: int) -> tuple[int, int]:
    """Continue after a first byte above 127; return (number in zig-zag form, position after it). Errors as above."""
    zigzag = first & 127
    shift = 7
    while True:
        byte = data[position]
        position += 1
        zigzag |= (byte & 127) << shift
        if byte < 128:
            return zigzag, position
        shift += 7
        if shift > 63:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a varint before position {position} is longer than ten bytes")
