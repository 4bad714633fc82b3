"""Memory for incoming bytes: one shared buffer per event loop, and a pool for frames that outgrow it.

A connection between frames owns no receive memory at all. A connection with half a frame, or with large frames,
borrows a buffer from the pool and returns it. Sizes are powers of two.

There may be a limit for all frames that are not handled yet. Above the limit a new frame gets no buffer: its
connection waits, and connections between frames read a little at a time, which is enough for small requests.
"""

from __future__ import annotations

import asyncio
import ctypes
import mmap
from collections.abc import Callable

SHARED_BYTES = 256 * 1024
SMALLEST_BYTES = 4 * 1024
POOLED_BYTES_MAX = 64 * 1024 * 1024
LAZY_BYTES = 256 * 1024
"""Buffers from this size on take memory as they fill: a peer that announces 100 MB and sends nothing costs nothing."""
SCARCE_BYTES = 1024
"""What a connection between frames reads at a time while the limit is reached."""


def give_freed_memory_back() -> None:
    """Have malloc give unused pages back to the system, where it knows how to: glibc does."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class ReceiveBuffers:
    """The receive memory of one event loop."""

    def __init__(self, frames_bytes_max: int = 0, now_ms: Callable[[], int] = lambda: 0) -> None:
        """``frames_bytes_max``: that many bytes of frames may wait to be handled, and one frame more; 0: no limit.

        ``now_ms`` is the clock that measures how long others wait.
        """
        self.shared = self.between_frames = memoryview(bytearray(SHARED_BYTES))
        self.frames_bytes_max = frames_bytes_max
        self.frames_bytes = 0
        self._now_ms = now_ms
        self._depleted_ms = 0
        self._depleted_since_ms: int | None = None
        self._waiting: dict[Callable[[], None], None] = {}
        """What to call when there is memory, in order."""
        self._free: dict[int, list[memoryview]] = {}
        self._pooled_bytes = 0

    @property
    def is_depleted(self) -> bool:
        """Whether no memory is left for another frame."""
        return 0 < self.frames_bytes_max <= self.frames_bytes

    @property
    def depleted_ms(self) -> int:
        """For how long frames have waited for memory, all in all."""
        since_ms = self._depleted_since_ms
        return self._depleted_ms + (0 if since_ms is None else self._now_ms() - since_ms)

    def count(self, size_bytes: int) -> None:
        """Count more bytes of frames, or fewer, which lets the next one in."""
        self.frames_bytes += size_bytes
        self.between_frames = self.shared[:SCARCE_BYTES] if self.is_depleted else self.shared
        if self._waiting and not self.is_depleted:
            # The caller may be in the middle of something.
            asyncio.get_running_loop().call_soon(self._let_in)

    def wait(self, let_in: Callable[[], None]) -> None:
        """Call this when there is memory for a frame; it waits again if others were faster."""
        if self._depleted_since_ms is None:
            self._depleted_since_ms = self._now_ms()
        self._waiting[let_in] = None

    def wait_no_more(self, let_in: Callable[[], None]) -> None:
        """Forget who waits for memory, if it does."""
        self._waiting.pop(let_in, None)
        self._note_waiting()

    def _let_in(self) -> None:
        while self._waiting and not self.is_depleted:
            let_in = next(iter(self._waiting))
            del self._waiting[let_in]
            let_in()
        self._note_waiting()

    def _note_waiting(self) -> None:
        if not self._waiting:
            self._depleted_ms, self._depleted_since_ms = self.depleted_ms, None

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
