"""The received, unhandled bytes of one connection, split into Kafka's frames."""

from __future__ import annotations

import struct

from engine.common.errors import RemoteProtocolError
from engine.runtime.receive_buffers import SHARED_BYTES, ReceiveBuffers

_SIZE = struct.Struct(">i")

BULK_BYTES = SHARED_BYTES // 4
"""A connection whose last frame was at least this large keeps its own receive buffer between frames."""


JOINED_BYTES_MAX = 32 * 1024
"""What is kept in a buffer of at most this size is copied in front of the next bytes in the shared buffer.

Frames that are pipelined then come many in one read; in their own buffer they would come one by one.
"""


class Inbox:
    """Receive buffer and frame splitter in one, because frames are handled in place."""

    __slots__ = (
        "_buffer",
        "_buffers",
        "_counted",
        "_end",
        "_is_handed_out",
        "_last_size",
        "_own",
        "_start",
        "_wanted",
        "is_exempt",
        "lacks_memory",
    )

    def __init__(self, buffers: ReceiveBuffers) -> None:
        self._buffers = buffers
        self._own: memoryview | None = None
        self._buffer = buffers.shared
        self._start = 0
        self._end = 0
        self._last_size = 0
        self._wanted = 0
        self._counted = 0
        """Bytes counted towards the limit on unhandled frames, if there is one."""
        self._is_handed_out = False
        """Whether the frame that these bytes were counted for was handed out."""
        self.is_exempt = False
        """Whether its frames do not count: of peers who have not logged in, which are small, or not been let in."""
        self.lacks_memory = False
        """Whether there is no memory for the frame that has begun: nothing more may be received."""

    def room(self) -> memoryview:
        """Return the space for the next bytes; never empty while reading is on."""
        own = self._own
        if own is None:
            return self._buffers.between_frames
        if len(own) > JOINED_BYTES_MAX:
            return own[self._end :]
        # Only a copy: if nothing comes now, others use the shared buffer before the next read.
        rest, shared = self._end - self._start, self._buffers.shared
        shared[:rest] = own[self._start : self._end]
        return shared[rest:]

    def received(self, size_bytes: int) -> None:
        """Note that ``room`` has received this many bytes."""
        if self._own is not None and len(self._own) <= JOINED_BYTES_MAX:
            rest = self._end - self._start
            self._return_buffer()
            self._end = rest
        self._end += size_bytes

    @property
    def is_empty(self) -> bool:
        """Whether every received byte belongs to a frame that was handed out."""
        return self._start == self._end

    def next_frame(self, size_min: int, size_max: int) -> memoryview | None:
        """Return the next whole frame without its size, or None until more bytes come.

        The frame is valid until ``keep_rest`` is called.

        Raises:
            RemoteProtocolError: the announced size is below ``size_min`` or above ``size_max``.
        """
        start = self._start
        if self._end - start < 4:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, start)
        if not size_min <= size <= size_max:
            raise RemoteProtocolError(f"a request of {size} bytes, allowed are {size_min} to {size_max}")
        stop = start + 4 + size
        if stop > self._end:
            self._wanted = size + 4
            return None
        self._start = stop
        self._last_size = size
        self._is_handed_out = True
        return self._buffer[start + 4 : stop]

    def keep_rest(self) -> None:
        """Move unhandled bytes out of the shared buffer, with room for the whole frame that they begin."""
        rest = self._end - self._start
        if self._buffers.frames_bytes_max and not self.is_exempt and not self._has_memory_for(rest):
            own = self._own
            self._move_to(self._buffers.borrow(rest), rest)
            if own is not None:
                self._buffers.give_back(own)
            return
        if rest == 0:
            if self._own is not None and self._last_size < BULK_BYTES:
                self._return_buffer()
            self._start = self._end = 0
            return
        # Never exactly full; and only checked sizes count.
        needed, self._wanted = max(self._wanted, rest + 4), 0
        own = self._own
        if own is None:
            self._move_to(self._buffers.borrow(needed), rest)
        elif self._start + needed > len(own):
            if needed <= len(own):
                self._move_to(own, rest)
            else:
                self._move_to(self._buffers.borrow(needed), rest)
                self._buffers.give_back(own)

    def _has_memory_for(self, rest: int) -> bool:
        """Count what is kept. A frame that begins gets no memory if none is left, as in Kafka.

        The few bytes that came before its size was known are no grant for the whole frame.
        """
        buffers = self._buffers
        if self._counted and (self._is_handed_out or self._counted < self._wanted):
            buffers.count(-self._counted)
            self._counted = 0
        self._is_handed_out = False
        self.lacks_memory = bool(self._wanted) and not self._counted and buffers.is_depleted
        if not self.lacks_memory:
            size = max(self._wanted, rest, self._counted)
            buffers.count(size - self._counted)
            self._counted = size
        return not self.lacks_memory

    def kept(self, frame: memoryview) -> memoryview:
        """Return the last frame as bytes that stay valid: the buffer itself if nothing else is in it, else a copy.

        To copy 86 MB would hold the event loop for 100 ms.
        """
        if self._own is None or not self.is_empty or len(frame) < BULK_BYTES:
            return memoryview(bytearray(frame))
        self._own, self._buffer = None, self._buffers.shared
        self._start = self._end = 0
        return frame

    def release(self) -> None:
        """Return a borrowed buffer; its content is gone."""
        if self._counted:
            self._buffers.count(-self._counted)
            self._counted = 0
        self.lacks_memory = self._is_handed_out = False
        self._return_buffer()

    def _return_buffer(self) -> None:
        if self._own is not None:
            self._buffers.give_back(self._own)
        self._own = None
        self._buffer = self._buffers.shared
        self._start = self._end = 0

    def _move_to(self, target: memoryview, rest: int) -> None:
        target[:rest] = self._buffer[self._start : self._end]
        self._own = self._buffer = target
        self._start, self._end = 0, rest
