"""LZ4 frames as Kafka writes and reads them, including the wrong header checksum of its early clients.

Kafka writes independent blocks of 64 KB, without block or content checksums and without content size. Clients of
message format v0 included the frame magic in the header checksum. This code writes that for v0, and accepts it in v0
(KAFKA-3160).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import cramjam

from engine.kafka.protocol.records.decompression import decompress_within
from engine.kafka.protocol.records.faults import Corrupt
from engine.kafka.protocol.records.layout import Buffer

_MAGIC = b"\x04\x22\x4d\x18"
_DESCRIPTOR = b"\x60\x40"
_HEADER_CHECKSUM = b"\x82"
_HEADER_CHECKSUM_V0 = b"\x1a"
_END_MARK = bytes(4)
_BLOCK_BYTES = 64 * 1024
_STORED_BIT = 0x8000_0000
_BLOCK_LENGTH = struct.Struct("<I")
_RATIO_MAX = 255
_STRONG_LEVEL_MIN = 3
_FAST_LEVEL = 9
"""Kafka's default level means the fast compressor; all others mean the high-compression one."""


def compress(data: Buffer, level: int, magic: int) -> bytes:
    """Return one LZ4 frame; ``magic`` 0 gets the wrong header checksum that readers of that format expect."""
    parts = [_MAGIC, _DESCRIPTOR, _HEADER_CHECKSUM_V0 if magic == 0 else _HEADER_CHECKSUM]
    if level == _FAST_LEVEL:
        parts += _fast_blocks(memoryview(data))
    else:
        parts += _strong_blocks(data, max(level, _STRONG_LEVEL_MIN))
    parts.append(_END_MARK)
    return b"".join(parts)


def _fast_blocks(data: memoryview) -> Iterator[bytes]:
    for start in range(0, len(data), _BLOCK_BYTES):
        block = data[start : start + _BLOCK_BYTES]
        packed = cramjam.lz4.compress_block(block, store_size=False)
        if len(packed) < len(block):
            yield _BLOCK_LENGTH.pack(len(packed))
            yield bytes(packed)
        else:
            yield _BLOCK_LENGTH.pack(len(block) | _STORED_BIT)
            yield bytes(block)


def _strong_blocks(data: Buffer, level: int) -> Iterator[bytes]:
    """Yield high-compression blocks: the library only makes them in whole frames, with a checksum each."""
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    frame = bytes(compressor.finish())
    trailer = 4 if frame[4] & 0x10 else 0
    position = 7
    while True:
        (length,) = _BLOCK_LENGTH.unpack_from(frame, position)
        if length == 0:
            return
        end = position + 4 + (length & ~_STORED_BIT)
        yield frame[position:end]
        position = end + trailer


def decompress(data: bytes, size_max: int, magic: int) -> bytes:
    """Return the plain bytes of the first frame; ignore what follows, as in Kafka. Raises Corrupt, TooLarge."""
    if len(data) < 7 or not data.startswith(_MAGIC):
        raise Corrupt("no LZ4 frame header")
    flags, block_descriptor = data[4], data[5]
    if flags >> 6 != 1 or flags & 0x03 or block_descriptor & 0x8F or block_descriptor >> 4 < 4:
        raise Corrupt("an LZ4 frame descriptor with reserved bits or an unknown version")
    if not flags & 0x20:
        raise Corrupt("an LZ4 frame with dependent blocks, which Kafka does not read")
    descriptor_end = 14 if flags & 0x08 else 6
    bound, end = _walk(data, descriptor_end + 1, flags, 1 << (2 * (block_descriptor >> 4) + 8))
    frame = data[:end]
    if magic == 0:
        frame = _with_right_checksum(frame, descriptor_end)
    return decompress_within(cramjam.lz4, frame, bound, size_max)


def _walk(data: bytes, position: int, flags: int, block_max: int) -> tuple[int, int]:
    """Return (an upper bound of the plain size, the frame's end) from the block lengths alone."""
    block_trailer = 4 if flags & 0x10 else 0
    bound = 0
    while position + 4 <= len(data):
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += 4
        if length == 0:
            end = position + (4 if flags & 0x04 else 0)
            if end > len(data):
                break
            return bound, end
        stored = length & _STORED_BIT
        length &= ~_STORED_BIT
        if length > block_max:
            raise Corrupt(f"an LZ4 block of {length} bytes, above the frame's {block_max}")
        bound += length if stored else min(block_max, length * _RATIO_MAX)
        position += length + block_trailer
    raise Corrupt("the LZ4 frame ends early")


def _with_right_checksum(frame: bytes, position: int) -> bytes:
    # Only readers of the oldest format need it.
    import xxhash

    checksum = xxhash.xxh32_intdigest(frame[4:position]) >> 8 & 0xFF
    return b"".join((frame[:position], bytes((checksum,)), frame[position + 1 :]))
