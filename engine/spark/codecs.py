"""Compressed sections of record batches, decompressed by pyarrow, which every Python of a Spark executor has."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pyarrow as pa

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records.attributes import Codec

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_LENGTH = struct.Struct(">i")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f\x8b"
_STREAMS = {Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}
_SNAPPY = pa.Codec("snappy")


def decompress(codec: Codec, section: memoryview) -> bytes:
    """Return the plain records of a version 2 batch.

    Raises:
        KafkaError: CORRUPT_MESSAGE when the bytes are not the codec's.
    """
    if not section:
        # An emptied batch of a compacted log keeps its codec bits, but has no compressed stream in it.
        return b""
    try:
        if codec is Codec.GZIP:
            return _gunzip(bytes(section))
        if codec is Codec.SNAPPY:
            return b"".join(_snappy(block) for block in _snappy_blocks(bytes(section)))
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(section)), _STREAMS[codec]) as stream:
            return bytes(stream.read())
    except (OSError, pa.ArrowException, zlib.error, struct.error, IndexError, ValueError) as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{len(section)} bytes cannot be decompressed as {codec.kafka_name}: {error}"
        ) from None


def _gunzip(data: bytes) -> bytes:
    parts = []
    while True:
        member = zlib.decompressobj(_GZIP_WINDOW)
        parts.append(member.decompress(data))
        if not member.eof:
            raise ValueError("the gzip stream ends early")
        data = member.unused_data
        if not data.startswith(_GZIP_MAGIC):
            return b"".join(parts)


def _snappy_blocks(data: bytes) -> list[bytes]:
    """Split the framing of xerial's snappy-java; without it the data is one raw block."""
    if not data.startswith(_XERIAL_MAGIC):
        return [data]
    blocks, position = [], _XERIAL_HEADER_BYTES
    while position < len(data):
        if data.startswith(_XERIAL_MAGIC, position):
            position += _XERIAL_HEADER_BYTES
            continue
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not 0 <= length <= len(data) - position:
            raise ValueError(f"a snappy block of {length} bytes, with {len(data) - position} left")
        blocks.append(data[position : position + length])
        position += length
    return blocks


def _snappy(block: bytes) -> Any:
    """A raw block begins with its plain size, as an unsigned varint."""
    size = shift = position = 0
    while True:
        octet = block[position]
        position += 1
        size |= (octet & 127) << shift
        if octet < 128:
            break
        shift += 7
    if size > len(block) * 64:
        raise ValueError(f"a snappy block of {len(block)} bytes says that it holds {size}")
    return _SNAPPY.decompress(block, size, asbytes=True)
