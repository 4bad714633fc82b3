"""Reads a segment batch by batch and checks every checksum: a damaged batch must not get a new, correct one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from engine.broker.log.batch_scan import parse_batch
from engine.broker.log.cleaner.throttle import Pace
from engine.common.errors import CorruptFileError
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.header import BatchHeader
from engine.kafka.protocol.records.layout import BATCH_OVERHEAD


def read_segment(path: Path, buffer_bytes: int, pace: Pace) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Yield a buffer, the position in it where a whole batch begins, and the batch's header.

    The buffer has ``buffer_bytes``, or more for a batch that is larger.

    Raises:
        CorruptFileError: bytes that are not a batch, or a wrong checksum, with file and position.
        OSError: the disk fails.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size_bytes = os.fstat(fd).st_size
        position = start = 0
        buffer = b""
        while position < size_bytes:
            index = position - start
            if index + BATCH_OVERHEAD > len(buffer):
                buffer, start, index = _read(fd, buffer_bytes, position, pace), position, 0
            header = parse_batch(buffer, index)
            if header is None or position + header.size_bytes > size_bytes:
                raise _damaged(path, position, "the bytes there are no batch")
            if index + header.size_bytes > len(buffer):
                wanted = max(buffer_bytes, header.size_bytes)
                buffer, start, index = _read(fd, wanted, position, pace), position, 0
            if not verify_crc(buffer, index, header.size_bytes):
                raise _damaged(path, position, f"the batch at offset {header.base_offset} has a wrong checksum")
            yield buffer, index, header
            position += header.size_bytes
    finally:
        os.close(fd)


def _read(fd: int, size_bytes: int, position: int, pace: Pace) -> bytes:
    data = os.pread(fd, size_bytes, position)
    pace.spend(len(data))
    # A message of the old formats may be shorter than the expected header.
    return data if len(data) >= BATCH_OVERHEAD else data + bytes(BATCH_OVERHEAD - len(data))


def _damaged(path: Path, position: int, what: str) -> CorruptFileError:
    return CorruptFileError(f"Log segment {path} is damaged at position {position}: {what}", path=str(path))
