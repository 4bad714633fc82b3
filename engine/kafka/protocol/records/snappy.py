"""Snappy as Kafka sees it: blocks in the framing of xerial's snappy-java (from the Java client), or one raw block.

It is not the framing format of Google's snappy.
"""

from __future__ import annotations

import struct

import cramjam

from engine.kafka.protocol.records.faults import Corrupt, TooLarge
from engine.kafka.protocol.records.layout import Buffer

_MAGIC = b"\x82SNAPPY\x00"
_FRAME_HEADER = _MAGIC + struct.pack(">ii", 1, 1)
"""Magic, version, oldest version that can read it."""

_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
_RATIO_MAX = 64
"""Maximum expansion of any element. A length beyond it is false, and is refused before any allocation."""


def compress(data: Buffer) -> bytes:
    """Return the data in xerial framing, blocks of 32 KB."""
    parts = [_FRAME_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _BLOCK_BYTES]))
        parts.append(_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def decompress(data: bytes, size_max: int) -> bytes:
    """Return the plain bytes of either framing. Raises Corrupt or TooLarge."""
    if not data.startswith(_MAGIC):
        return _raw(data, size_max)
    if len(data) < len(_FRAME_HEADER):
        raise Corrupt("the snappy stream ends inside its header")
    parts = []
    total = 0
    for block in _blocks(data):
        plain = _raw(block, size_max - total)
        total += len(plain)
        parts.append(plain)
    return b"".join(parts)


def _blocks(data: bytes) -> list[bytes]:
    """Split xerial framing. Streams may be concatenated: a whole frame header may take the place of a length."""
    blocks = []
    position = len(_FRAME_HEADER)
    while position < len(data):
        if data.startswith(_MAGIC, position):
            position += len(_FRAME_HEADER)
            continue
        if position + 4 > len(data):
            raise Corrupt("the snappy stream ends inside a block's length")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += 4
        if not 0 <= length <= len(data) - position:
            raise Corrupt(f"a snappy block of {length} bytes, with {len(data) - position} left")
        blocks.append(data[position : position + length])
        position += length
    return blocks


def _raw(block: bytes, size_max: int) -> bytes:
    if not block:
        raise Corrupt("an empty snappy block")
    try:
        size = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise Corrupt(str(error)) from None
    if size > len(block) * _RATIO_MAX:
        raise Corrupt(f"a snappy block of {len(block)} bytes says that it holds {size}")
    if size > size_max:
        raise TooLarge
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise Corrupt(str(error)) from None
