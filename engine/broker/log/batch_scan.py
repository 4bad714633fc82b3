"""Scans the batches of a segment file by their headers, whatever their format. Reads no record.

There are two scans: ``scan_batches`` reads headers only (to find a position), ``check_batches`` reads and checks every
byte (to recover a segment). In the formats v0 and v1 a "batch" is one message, or the wrapper of compressed ones, whose
offset is that of the last message inside.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from crc32c import crc32c

from engine.common.errors import KafkaError
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.header import BatchHeader, read_batch_header
from engine.kafka.protocol.records.layout import ATTRIBUTES, BATCH_HEADER, BATCH_OVERHEAD, LOG_OVERHEAD

HEADER_TO_MAGIC = 17
"""Bytes up to and including the magic byte, which is at the same place in all formats."""

LOOKUP_CHUNK_BYTES = 4096
CHECK_CHUNK_BYTES = 1024 * 1024

_PLACE = struct.Struct(">qi4xb6xi")
"""base_offset, batch_length, magic, last_offset_delta"""

_PREFIX = struct.Struct(">qi")
"""base_offset, batch_length"""

_LENGTH_MIN_V2 = BATCH_OVERHEAD - LOG_OVERHEAD
_new = tuple.__new__


def parse_batch(buffer: bytes | memoryview, index: int) -> BatchHeader | None:
    """Return the header at ``buffer[index]``, or None if there is no valid one.

    ``BATCH_OVERHEAD`` bytes must be there, if only as padding behind a shorter message.
    """
    fields = BATCH_HEADER.unpack_from(buffer, index)
    if fields[3] == 2:
        if fields[1] < _LENGTH_MIN_V2 or fields[6] < 0:
            return None
        return _new(BatchHeader, fields)
    try:
        return read_batch_header(buffer, index)
    except KafkaError:
        return None


def batch_size_at(fd: int, position: int) -> int:
    """Return the size in bytes of the batch that begins at ``position``; 0 if the file ends there."""
    prefix = os.pread(fd, LOG_OVERHEAD, position)
    return LOG_OVERHEAD + _PREFIX.unpack(prefix)[1] if len(prefix) == LOG_OVERHEAD else 0


def scan_batches(fd: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch from ``position`` on.

    It ends before a batch that reaches past ``end``, and at bytes that are not a batch.
    """
    chunk, start = b"", position
    while position + HEADER_TO_MAGIC <= end:
        if position - start + BATCH_OVERHEAD > len(chunk):
            chunk, start = os.pread(fd, min(LOOKUP_CHUNK_BYTES, end - position), position), position
            if len(chunk) < HEADER_TO_MAGIC:
                return
            if len(chunk) < BATCH_OVERHEAD:
                chunk += bytes(BATCH_OVERHEAD - len(chunk))
        header = parse_batch(chunk, position - start)
        if header is None or position + header.size_bytes > end:
            return
        yield position, header
        position += header.size_bytes


def find_batch(fd: int, position: int, end: int, offset: int) -> int:
    """Return the position of the first batch from ``position`` on that reaches ``offset``; -1 if none does.

    The same scan as ``scan_batches``, as fast as possible: each read of a lagging reader costs one.
    """
    unpack, chunk, start = _PLACE.unpack_from, b"", position
    while position + HEADER_TO_MAGIC <= end:
        index = position - start
        if index + _PLACE.size > len(chunk):
            chunk, start, index = os.pread(fd, min(LOOKUP_CHUNK_BYTES, end - position), position), position, 0
            if len(chunk) < HEADER_TO_MAGIC:
                return -1
            if len(chunk) < _PLACE.size:
                chunk += bytes(_PLACE.size)
        first_offset, length, magic, delta = unpack(chunk, index)
        last_offset = first_offset + delta if magic == 2 else first_offset
        following = position + LOG_OVERHEAD + length
        if following > end or length <= 0:
            return -1
        if last_offset >= offset:
            return position
        position = following
    return -1


def check_batches(fd: int, end: int, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield position, header and bytes of each batch from ``position`` on, while they are whole and checksums right.

    The bytes are valid until the next batch is requested.
    """
    room = CHECK_CHUNK_BYTES
    view = memoryview(bytearray(room + BATCH_OVERHEAD))
    start, filled = position, 0
    while position + HEADER_TO_MAGIC <= end:
        if start + filled < min(position + BATCH_OVERHEAD, end):
            start, filled = position, os.preadv(fd, [view[:room]], position)
        if start + filled < position + HEADER_TO_MAGIC:
            return
        header = parse_batch(view, position - start)
        if header is None:
            return
        size_bytes = LOG_OVERHEAD + header.batch_length
        if position + size_bytes > end:
            return
        if position + size_bytes > start + filled:
            if size_bytes > room:
                room = size_bytes
                view = memoryview(bytearray(room + BATCH_OVERHEAD))
            start, filled = position, os.preadv(fd, [view[:room]], position)
            if filled < size_bytes:
                return
        index = position - start
        data = view[index : index + size_bytes]
        if header.magic == 2:
            if crc32c(data[ATTRIBUTES:]) != header.crc:
                return
        elif not verify_crc(data, 0, size_bytes):
            return
        yield position, header, data
        position += size_bytes
