"""Memory for incoming bytes: one shared buffer per event loop, and a pool for frames that outgrow it.

A connection between frames owns no receive memory at all. A connection with half a frame, or with large frames,
borrows a buffer from the pool and returns it. Sizes are powers of two.
"""

from __future__ import annotations

import ctypes
import mmap

SHARED_BYTES = 256 * 1024
SMALLEST_BYTES = 4 * 1024
POOLED_BYTES_MAX = 64 * 1024 * 1024
LAZY_BYTES = 256 * 1024
"""Buffers from this size on take memory as they fill: a peer that announces 100 MB and sends nothing costs nothing."""


def give_freed_memory_back() -> None:
    """Have malloc give unused pages back to the system, where it knows how to: glibc does."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class ReceiveBuffers:
    """The receive memory of one event loop."""

    def __init__(self) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self._free: dict[int, list[memoryview]] = {}
        self._pooled_bytes = 0

    def borrow(self, size_bytes: int) -> memoryview:
        """Return a writable buffer of at least ``size_bytes``; its content is undefined."""
        capacity = max(SMALLEST_BYTES, 1 << (size_bytes - 1).bit_length())
        free = self._free.get(capacity)
        if free:
            self._pooled_bytes -= capacity
            return free.pop()
        if capacity < LAZY_BYTES:
            return memoryview(bytearray(capacity))
        return memoryview(mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def give_back(self, buffer: memoryview) -> None:
        """Take a buffer back; it is kept for the next borrower while the pool is small."""
        capacity = len(buffer)
        if self._pooled_bytes + capacity <= POOLED_BYTES_MAX:
            self._pooled_bytes += capacity
            self._free.setdefault(capacity, []).append(buffer)
