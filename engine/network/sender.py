"""Writes answers to a plain TCP connection: bytes, and ranges of files that never enter this process.

It writes to the transport's descriptor itself, and waits for room on a duplicate of it, for event loops allow no second
watcher on a transport's own descriptor. The transport's write buffer is never used, so the order is kept.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from engine.protocol.codec import Outgoing
from engine.runtime.descriptors import descriptors_for_duplicates

SENDFILE_BYTES_MIN = 32 * 1024
"""Below this a range is read and sent along with the bytes around it: two system calls less."""

GATHERED_BYTES_MAX = 128 * 1024
"""So much is read and put together at a time. The rest stays ranges: a peer that does not read costs no memory."""

GATHERED_CHUNK_BYTES_MAX = 16 * 1024
"""Larger bytes are sent as they are, without being copied."""

TURN_BYTES_MAX = 4 * 1024 * 1024
"""Bytes one connection may send before the loop turns to the others."""


SOCKET_FULL = -1


class FileRangeLike(Protocol):
    """A part of a file, open while this object lives."""

    @property
    def position(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def fd(self) -> int: ...


class RangeTruncated(OSError):
    """The file ended inside a range that was promised to the peer."""


class _Range:
    """A range under way."""

    __slots__ = ("position", "remaining", "source")

    def __init__(self, source: FileRangeLike) -> None:
        self.source = source
        self.position = source.position
        self.remaining = source.size_bytes


class Sender:
    """The outgoing side of one connection."""

    __slots__ = (
        "_descriptors_max",
        "_fd",
        "_loop",
        "_on_drained",
        "_on_error",
        "_queue",
        "_socket",
        "is_waiting",
        "last_progress_s",
        "queued_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        on_drained: Callable[[], None],
        on_error: Callable[[OSError], None],
        *,
        descriptors_max: int = 2**31 - 1,
    ) -> None:
        """``fd`` stays the transport's. ``on_drained`` is called when all that had to wait is sent.

        From the descriptor ``descriptors_max`` on they run short: a duplicate is kept only while it is needed, and from
        twice as near to the limit on there is none.
        """
        self._loop = loop
        self._descriptors_max = descriptors_max
        self._fd = fd
        self._on_drained = on_drained
        self._on_error = on_error
        self._socket: socket.socket | None = None
        self._queue: deque[memoryview | _Range] = deque()
        self.queued_bytes = 0
        self.is_waiting = False
        self.last_progress_s = 0.0
        """When, by the monotonic clock, a peer last took something that had to wait for it."""

    def send(self, out: Outgoing) -> None:
        """Send ``out`` with its ranges spliced in, now as far as the socket takes it, the rest when there is room."""
        if not self._queue and not out.ranges:
            try:
                sent = os.write(self._fd, out)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._on_error(error)
                return
            if sent == len(out):
                return
            self._enqueue(memoryview(out)[sent:])
        else:
            try:
                self._enqueue_with_ranges(out)
            except OSError as error:
                self._on_error(error)
                return
        if not self.is_waiting:
            self._pump()

    def close(self) -> None:
        """Drop what is queued and let go of the duplicate descriptor."""
        if self.is_waiting and self._socket is not None:
            self._loop.remove_writer(self._socket.fileno())
        self.is_waiting = False
        self._queue.clear()
        self.queued_bytes = 0
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _enqueue(self, chunk: memoryview) -> None:
        self._queue.append(chunk)
        self.queued_bytes += len(chunk)

    def _enqueue_with_ranges(self, out: Outgoing) -> None:
        """Queue ``out`` in wire order; the first small ranges are copied in, for they are most likely sent at once."""
        view, start, copied = memoryview(out), 0, bytearray()
        room = 0 if self._queue else GATHERED_BYTES_MAX
        for position, part in out.ranges:
            # Whatever a handler gives as records without their bytes is a range of a file.
            source = cast("FileRangeLike", part)
            copied += view[start:position]
            start = position
            size_bytes = source.size_bytes
            if size_bytes < SENDFILE_BYTES_MIN and size_bytes <= room:
                room -= size_bytes
                copied += _read(source, source.position, size_bytes)
                continue
            if copied:
                self._enqueue(memoryview(copied))
                copied = bytearray()
            if size_bytes:
                self._queue.append(_Range(source))
                self.queued_bytes += size_bytes
        copied += view[start:]
        if copied:
            self._enqueue(memoryview(copied))

    def _pump(self) -> None:
        """Send queued chunks until all are gone, the socket is full, or this connection's turn is over."""
        was_waiting = self.is_waiting
        budget = TURN_BYTES_MAX
        try:
            if self._socket is None:
                self._socket = self._duplicate()
            while self._queue and budget > 0:
                sent = self._send_head(self._socket)
                if sent == SOCKET_FULL:
                    break
                self.queued_bytes -= sent
                budget -= sent
                if was_waiting:
                    self.last_progress_s = time.monotonic()
        except OSError as error:
            self.close()
            self._on_error(error)
            return
        if self._queue:
            self._wait()
        elif was_waiting:
            self._loop.remove_writer(self._socket.fileno())
            self.is_waiting = False
            self._release_scarce()
            self._on_drained()
        else:
            self._release_scarce()

    def _duplicate(self) -> socket.socket:
        fd = os.dup(self._fd)
        if fd >= descriptors_for_duplicates(self._descriptors_max):
            os.close(fd)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return socket.socket(fileno=fd)

    def _release_scarce(self) -> None:
        if self._socket is not None and self._socket.fileno() >= self._descriptors_max:
            self._socket.close()
            self._socket = None

    def _wait(self) -> None:
        if not self.is_waiting and self._socket is not None:
            self.is_waiting = True
            self._loop.add_writer(self._socket.fileno(), self._pump)

    def _gather(self) -> None:
        """Put what is small at the head of the queue together, for one system call."""
        queue = self._queue
        gathered = bytearray()
        while queue and len(gathered) < GATHERED_BYTES_MAX and _is_small(queue[0]):
            head = queue[0]
            gathered += head if isinstance(head, memoryview) else _read(head.source, head.position, head.remaining)
            queue.popleft()
        if gathered:
            queue.appendleft(memoryview(gathered))

    def _send_head(self, sock: socket.socket) -> int:
        """Send as much of the first chunk as the socket takes; return the number of bytes, or SOCKET_FULL."""
        if len(self._queue) > 1 and _is_small(self._queue[0]):
            self._gather()
        head = self._queue[0]
        try:
            if isinstance(head, memoryview):
                sent = sock.send(head, socket.MSG_MORE if len(self._queue) > 1 else 0)
            else:
                sent = os.sendfile(sock.fileno(), head.source.fd, head.position, head.remaining)
        except BlockingIOError:
            return SOCKET_FULL
        if isinstance(head, memoryview):
            if sent == len(head):
                self._queue.popleft()
            else:
                self._queue[0] = head[sent:]
            return sent
        if sent == 0:
            raise RangeTruncated(f"the file ended at {head.position}, {head.remaining} bytes early")
        head.position += sent
        head.remaining -= sent
        if head.remaining == 0:
            self._queue.popleft()
        return sent


def _is_small(chunk: memoryview | _Range) -> bool:
    if isinstance(chunk, _Range):
        return chunk.remaining < SENDFILE_BYTES_MIN
    return len(chunk) < GATHERED_CHUNK_BYTES_MAX


def _read(source: FileRangeLike, position: int, size_bytes: int) -> bytes:
    """Read a small range; a file that ends early cannot be answered for any more."""
    data = os.pread(source.fd, size_bytes, position)
    if len(data) != size_bytes:
        raise RangeTruncated(f"the file ended {size_bytes - len(data)} bytes early")
    return data
