"""Compression of record sections and of v0/v1 message sets: all of Kafka's codecs, with limited memory.

``compress`` writes what Kafka itself writes, so that every client can read it. ``decompress`` reads everything that
clients are known to send. Codecs load on first use: Spark's Python workers read headers without them.
"""

from __future__ import annotations

import struct
import zlib

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.records.attributes import Codec, codec_named, codec_of
from engine.kafka.protocol.records.faults import Corrupt, TooLarge
from engine.kafka.protocol.records.layout import Buffer

__all__ = ["DECOMPRESSED_BYTES_MAX", "DEFAULT_LEVELS", "Codec", "codec_named", "codec_of", "compress", "decompress"]

DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
"""Maximum memory for one decompressed batch, unless a caller says otherwise."""

DEFAULT_LEVELS = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}
"""Kafka 3.9's defaults of ``compression.<codec>.level`` (KIP-390); the other codecs have none."""

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_HEADER = _GZIP_MAGIC + b"\x08\x00\x00\x00\x00\x00\x00\xff"
"""As Java writes it from version 16 on: no time, whatever the level, and an unknown operating system."""

_GZIP_END = struct.Struct("<II")
"""CRC-32 and size of the plain bytes, which are never 4 GB."""


def compress(codec: Codec, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """Compress a record section as Kafka 3.9 does; ``level`` None is Kafka's default for the codec.

    ``magic`` is the batch's: LZ4 in format v0 has its own header, and zstd exists from v2 on.

    Raises:
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE for zstd below magic 2.
    """
    if level is None:
        level = DEFAULT_LEVELS.get(codec, 0)
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
        end = _GZIP_END.pack(zlib.crc32(data), len(data))
        return b"".join((_GZIP_HEADER, compressor.compress(data), compressor.flush(), end))
    if codec is Codec.SNAPPY:
        from engine.kafka.protocol.records import snappy

        return snappy.compress(data)
    if codec is Codec.LZ4:
        from engine.kafka.protocol.records import lz4

        return lz4.compress(data, level, magic)
    _refuse_old_zstd(magic)
    from engine.kafka.protocol.records import zstd

    return zstd.compress(data, level)


def decompress(codec: Codec, data: Buffer, *, magic: int = 2, size_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Return the plain bytes; never holds more than ``size_max`` of them in memory.

    Raises:
        KafkaError: CORRUPT_MESSAGE if the bytes are not the codec's, MESSAGE_TOO_LARGE if they would unpack to more
            than ``size_max``, UNSUPPORTED_COMPRESSION_TYPE for zstd below magic 2.
    """
    packed = bytes(data)
    try:
        if codec is Codec.ZSTD:
            _refuse_old_zstd(magic)
            from engine.kafka.protocol.records import zstd

            return zstd.decompress(packed, size_max)
        if codec is Codec.LZ4:
            from engine.kafka.protocol.records import lz4

            return lz4.decompress(packed, size_max, magic)
        if codec is Codec.SNAPPY:
            from engine.kafka.protocol.records import snappy

            return snappy.decompress(packed, size_max)
        if codec is Codec.GZIP:
            return _gunzip(packed, size_max)
        return packed
    except TooLarge:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{len(packed)} bytes of {codec.kafka_name} would decompress to more than the {size_max} bytes allowed",
        ) from None
    except (Corrupt, zlib.error) as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{len(packed)} bytes cannot be decompressed as {codec.kafka_name}: {error}"
        ) from None


def _gunzip(data: bytes, size_max: int) -> bytes:
    """Read one gzip member after another, as Java's reader does; ignore other bytes after a member."""
    parts = []
    room = size_max
    while True:
        member = zlib.decompressobj(_GZIP_WINDOW)
        plain = member.decompress(data, room + 1)
        if len(plain) > room:
            raise TooLarge
        if not member.eof:
            raise Corrupt("the gzip stream ends early")
        room -= len(plain)
        parts.append(plain)
        data = member.unused_data
        if not data.startswith(_GZIP_MAGIC):
            return b"".join(parts)


def _refuse_old_zstd(magic: int) -> None:
    if magic < 2:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd cannot be used with message format v{magic}, only from v2 on"
        )
