"""Checks whether a part of a file is in memory, and brings it there, so that disk waits stay off the event loop.

It samples one byte of each read-ahead window, without waiting (Linux's ``RWF_NOWAIT``). If the system or the file
system does not support that, everything counts as being in memory.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Final

PORTION_BYTES: Final = 1024 * 1024
"""Bytes to read in at a time."""

_SAMPLE_EVERY_BYTES: Final = 128 * 1024
_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_READERS_MAX: Final = 4


def read_if_cached(fd: int, size_bytes: int, position: int) -> bytearray | None:
    """Return these bytes; None if some are not in memory, or not in the file."""
    data = bytearray(size_bytes)
    return data if read_into_if_cached(fd, data, position) else None


def read_into_if_cached(fd: int, data: bytearray | memoryview, position: int) -> bool:
    """Fill a buffer from a file; False if some of the bytes are not in memory, or not in the file."""
    try:
        return os.preadv(fd, [data], position, _NOWAIT) == len(data)
    except BlockingIOError:
        return False
    except OSError:
        # The file system has no reads without waiting, as one in memory; or the disk fails, and this fails again.
        return os.preadv(fd, [data], position) == len(data)


def is_cached(fd: int, position: int, size_bytes: int) -> bool:
    """Return whether this part can be sent without waiting for the disk."""
    byte = bytearray(1)
    try:
        for sample in (*range(position, position + size_bytes, _SAMPLE_EVERY_BYTES), position + size_bytes - 1):
            os.preadv(fd, [byte], sample, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def bring_in(fd: int, position: int, size_bytes: int) -> Future[None]:
    """Read a part of a file in a thread, only to have it in memory; the file must stay open meanwhile."""
    return _readers().submit(_read_through, fd, position, size_bytes)


def _read_through(fd: int, position: int, size_bytes: int) -> None:
    buffer = bytearray(min(size_bytes, _SAMPLE_EVERY_BYTES))
    end = position + size_bytes
    # If the disk fails here, it fails again for the sender.
    with contextlib.suppress(OSError):
        while position < end and (read := os.preadv(fd, [memoryview(buffer)[: end - position]], position)):
            position += read


@cache
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_READERS_MAX, thread_name_prefix="klamm-cold-range")
