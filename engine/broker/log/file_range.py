"""Open segment files, and ranges of them that reach the network without passing through this process."""

from __future__ import annotations

import os
from collections.abc import Callable

from engine.common.errors import ErrorCode, KafkaError


class OpenFile:
    """An open descriptor that closes when its last user releases it: a range being sent outlives a deletion."""

    __slots__ = ("__weakref__", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)


class FileRange:
    """``size_bytes`` bytes of a segment from ``position`` on; the file stays open while the range lives."""

    __slots__ = ("file", "position", "size_bytes")

    def __init__(self, file: OpenFile, position: int, size_bytes: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes

    @property
    def fd(self) -> int:
        return self.file.fd

    def __repr__(self) -> str:
        return f"FileRange(fd={self.fd}, position={self.position}, size_bytes={self.size_bytes})"

    def read(self) -> bytes:
        """Return the range's bytes.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if the file has become shorter since the range was made.
        """
        return read_fully(self.file.fd, self.position, self.size_bytes)


def read_fully(fd: int, position: int, size_bytes: int) -> bytes:
    """Return exactly ``size_bytes`` bytes from ``position`` on.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR if the file ends earlier.
    """
    data = os.pread(fd, size_bytes, position)
    if len(data) == size_bytes:
        return data
    chunks = [data]
    missing = size_bytes - len(data)
    while missing:
        data = os.pread(fd, missing, position + size_bytes - missing)
        if not data:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"The file ends {missing} bytes before the end of a range position={position}",
            )
        chunks.append(data)
        missing -= len(data)
    return b"".join(chunks)


def write_fully(fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Write all of ``data`` at ``position``. If the disk takes only a part, the next try says why (OSError)."""
    written = os.pwrite(fd, data, position)
    size_bytes = len(data)
    while written < size_bytes:
        written += os.pwrite(fd, memoryview(data)[written:], position + written)
