"""Checksums of batches: CRC-32C for format v2, CRC-32 for v0 and v1.

Separate from ``header`` because importing the C library is slow (40-55 ms): code that only reads headers avoids it.
"""

from __future__ import annotations

import struct
import zlib

from crc32c import crc32c

from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.layout import Buffer

_CRC = struct.Struct(">I")


def verify_crc(buffer: Buffer, position: int, size_bytes: int) -> bool:
    """Return whether the batch's stored checksum matches its bytes.

    ``size_bytes`` covers the whole batch, including base offset and length, and must lie within the buffer.
    """
    view = memoryview(buffer)
    if view[position + layout.MAGIC] >= 2:
        (stored,) = _CRC.unpack_from(view, position + layout.CRC)
        return bool(stored == crc32c(view[position + layout.ATTRIBUTES : position + size_bytes]))
    (stored,) = _CRC.unpack_from(view, position + layout.LEGACY_CRC)
    return bool(stored == zlib.crc32(view[position + layout.MAGIC : position + size_bytes]))


def stamp_crc(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    """Write the CRC-32C of a version 2 batch into its place."""
    covered = memoryview(buffer)[position + layout.ATTRIBUTES : position + size_bytes]
    _CRC.pack_into(buffer, position + layout.CRC, crc32c(covered))
