"""Zstandard frames. Their headers show the maximum size before any decompression (RFC 8878)."""

from __future__ import annotations

import cramjam

from engine.kafka.protocol.records.decompression import decompress_within
from engine.kafka.protocol.records.faults import Corrupt
from engine.kafka.protocol.records.layout import Buffer

_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK_MAX = 128 * 1024
_RLE = 1
_RESERVED = 3


def compress(data: Buffer, level: int) -> bytes:
    """Return one zstd frame."""
    return bytes(cramjam.zstd.compress(data, level))


def decompress(data: bytes, size_max: int) -> bytes:
    """Return the plain bytes of all frames in the data. Raises Corrupt or TooLarge."""
    return decompress_within(cramjam.zstd, data, _size_bound(data), size_max)


def _size_bound(data: bytes) -> int:
    """Return an upper bound of the plain size: the sum over the blocks, each of which holds at most 128 KB."""
    bound = 0
    position = 0
    while position < len(data):
        if data.startswith(_MAGIC, position):
            size, position = _frame(data, position)
            bound += size
        elif _is_skippable(data, position):
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
        else:
            raise Corrupt("no zstd frame header")
    return bound


def _is_skippable(data: bytes, position: int) -> bool:
    return data[position + 1 : position + 4] == b"\x2a\x4d\x18" and data[position] >> 4 == 5


def _frame(data: bytes, position: int) -> tuple[int, int]:
    if position + 5 > len(data):
        raise Corrupt("the zstd frame ends inside its header")
    descriptor = data[position + 4]
    is_single_segment = descriptor & 0x20
    position += 5 + (0 if is_single_segment else 1) + (0, 1, 2, 4)[descriptor & 0x03]
    position += (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    bound = 0
    while position + 3 <= len(data):
        block = int.from_bytes(data[position : position + 3], "little")
        position += 3
        kind, size = block >> 1 & 3, block >> 3
        if kind == _RESERVED or size > _BLOCK_MAX:
            raise Corrupt("a zstd block of a reserved kind or size")
        bound += _BLOCK_MAX if kind == 2 else size
        position += 1 if kind == _RLE else size
        if block & 1:
            return bound, position + (4 if descriptor & 0x04 else 0)
    raise Corrupt("the zstd frame ends early")
