"""The outgoing side of a connection. ``Sender`` is what a connection needs of it; the listener decides which it gets.

``SocketSender`` serves unencrypted connections: it sends bytes, and ranges of files that never enter this process. It
writes to the transport's descriptor itself, and waits for room on a duplicate, because event loops allow no second
watcher on a transport's own descriptor. It never uses the transport's write buffer, so the order is kept. A thread
first reads what is not in memory.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from engine.broker.network.cold_ranges import PORTION_BYTES, bring_in, is_cached, read_if_cached
from engine.kafka.protocol.codec import Outgoing
from engine.kafka.protocol.large_arrays import EncodedPiece
from engine.runtime.descriptors import descriptors_for_duplicates

SENDFILE_BYTES_MIN = 32 * 1024
"""Below this size a range is read and sent with the bytes around it, which saves two system calls."""

GATHERED_BYTES_MAX = 128 * 1024
"""Bytes to read and join at a time. The rest stays ranges, so that a peer that does not read costs no memory."""

GATHERED_CHUNK_BYTES_MAX = 16 * 1024
"""Larger byte strings are sent without a copy."""

TURN_BYTES_MAX = 4 * 1024 * 1024
"""Bytes that one connection may send before the others get their turn."""


_MORE_FOLLOWS: Final[int] = getattr(socket, "MSG_MORE", 0)
"""Linux then joins what is sent with what follows. Elsewhere it makes a packet of its own."""

SOCKET_FULL = -1
NOT_IN_MEMORY = -2


class FileRangeLike(Protocol):
    """A part of a file, open while this object lives."""

    @property
    def position(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def fd(self) -> int: ...


class RangeTruncated(OSError):
    """The file ended inside a range promised to the peer."""


class Range:
    """A range being sent."""

    __slots__ = ("cached_until", "position", "remaining", "source")

    def __init__(self, source: FileRangeLike) -> None:
        self.source = source
        self.cached_until = 0
        """Up to this position it was in memory a moment ago, and is sent without another check."""
        self.position = source.position
        self.remaining = source.size_bytes


def _call_nobody(*_: object) -> None:
    """Stands for the callbacks of a closed sender."""


class Sender(Protocol):
    """The outgoing side of one connection, which keeps the order of what it is given."""

    queued_bytes: int
    """Bytes that the peer has not taken yet."""
    last_progress_ms: int
    """Monotonic time when the peer last took something that had to wait for it."""

    def send(self, out: Outgoing) -> None:
        """Send ``out`` with its ranges spliced in: now as much as the peer takes, the rest when there is room."""

    def close(self) -> None:
        """Drop what is unsent. The transport stays the connection's; no callback runs any more."""


class SocketSender:
    """Sends through the descriptor itself, past the transport."""

    __slots__ = (
        "_cold",
        "_descriptors_max",
        "_fd",
        "_loop",
        "_now_ms",
        "_on_drained",
        "_on_error",
        "_queue",
        "_socket",
        "is_waiting",
        "last_progress_ms",
        "queued_bytes",
    )

    turn_bytes_max = TURN_BYTES_MAX

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        on_drained: Callable[[], None],
        on_error: Callable[[OSError], None],
        now_ms: Callable[[], int],
        *,
        descriptors_max: int = 2**31 - 1,
    ) -> None:
        """``fd`` still belongs to the transport. ``on_drained`` is called when everything that had to wait is sent.

        From the descriptor ``descriptors_max`` on, descriptors run short: a duplicate is kept only while needed. At
        half that distance from the limit, there is none.
        """
        self._loop = loop
        self._now_ms = now_ms
        self._descriptors_max = descriptors_max
        self._fd = fd
        self._on_drained = on_drained
        self._on_error = on_error
        self._socket: socket.socket | None = None
        self._queue: deque[memoryview | Range] = deque()
        self._cold: Range | None = None
        """The head of the queue while a thread reads it."""
        self.queued_bytes = 0
        self.is_waiting = False
        self.last_progress_ms = now_ms()
        """Time, by ``now_ms``, when the peer last read something that had to wait for it."""

    def send(self, out: Outgoing) -> None:
        """Send ``out`` with its ranges spliced in: now as much as the socket takes, the rest when there is room."""
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
            if not self.is_waiting and self._cold is None:
                self._pump()
        else:
            self._begin_to_send(out)

    def close(self) -> None:
        """Drop the queue and close the duplicate descriptor; no callback runs any more."""
        self._wait_no_more()
        # Its owner holds this object: that is a cycle, and only the collector would free the connection.
        self._on_drained = self._on_error = _call_nobody
        self._cold = None
        self._queue.clear()
        self.queued_bytes = 0
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _begin_to_send(self, out: Outgoing) -> None:
        try:
            self._enqueue_with_ranges(out)
        except OSError as error:
            self._on_error(error)
            return
        if not self.is_waiting and self._cold is None:
            self._pump()

    def _enqueue(self, chunk: memoryview) -> None:
        self._queue.append(chunk)
        self.queued_bytes += len(chunk)

    def _enqueue_with_ranges(self, out: Outgoing) -> None:
        """Queue ``out`` in wire order; copy in the first small ranges, because they are most likely sent at once."""
        view, start, copied = memoryview(out), 0, bytearray()
        room = 0 if self._queue else GATHERED_BYTES_MAX
        # A piece, or records that a handler returns without their bytes, which are always a range of a file.
        source: Any
        for position, source in out.ranges:
            copied += view[start:position]
            start = position
            if type(source) is EncodedPiece:
                if copied:
                    self._enqueue(memoryview(copied))
                    copied = bytearray()
                self._enqueue(source.data)
                room = 0
                continue
            size_bytes = source.size_bytes
            if size_bytes < SENDFILE_BYTES_MIN and size_bytes <= room:
                data = read_if_cached(source.fd, size_bytes, source.position)
                if data is not None:
                    room -= size_bytes
                    copied += data
                    continue
                # What follows waits for this one.
                room = 0
            if copied:
                self._enqueue(memoryview(copied))
                copied = bytearray()
            if size_bytes:
                self._queue.append(Range(source))
                self.queued_bytes += size_bytes
        copied += view[start:]
        if copied:
            self._enqueue(memoryview(copied))

    def _pump(self, *, was_held_up: bool = False) -> None:
        """Send queued chunks until all are gone, something must wait, or this connection's turn is over."""
        was_held_up = was_held_up or self.is_waiting
        budget = self.turn_bytes_max
        try:
            if self._socket is None:
                self._socket = self._duplicate()
            while self._queue and budget > 0:
                sent = self._send_head(self._socket)
                if sent < 0:
                    break
                self.queued_bytes -= sent
                budget -= sent
                if was_held_up:
                    self.last_progress_ms = self._now_ms()
        except OSError as error:
            on_error = self._on_error
            self.close()
            on_error(error)
            return
        if self._cold is not None:
            self._wait_no_more()
        elif self._queue:
            self._wait()
        else:
            self._wait_no_more()
            self._release_scarce()
            if was_held_up:
                self._on_drained()

    def _bring_in(self, head: Range, size_bytes: int) -> None:
        """Have a thread read the next part of a range, and continue when it is in memory."""
        self._cold = head

        def brought_in(_: object) -> None:
            # This also keeps the file open as long as the thread reads it.
            if self._cold is head:
                self._cold = None
                head.cached_until = head.position + size_bytes
                self._pump(was_held_up=True)

        reading = asyncio.wrap_future(bring_in(head.source.fd, head.position, size_bytes), loop=self._loop)
        reading.add_done_callback(brought_in)

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

    def _wait_no_more(self) -> None:
        if self.is_waiting and self._socket is not None:
            self._loop.remove_writer(self._socket.fileno())
        self.is_waiting = False

    def _gather(self) -> None:
        """Join small chunks at the head of the queue for one system call."""
        queue = self._queue
        gathered = bytearray()
        while queue and len(gathered) < GATHERED_BYTES_MAX and _is_small(queue[0]):
            head = queue[0]
            data = head if isinstance(head, memoryview) else _read(head)
            if data is None:
                break
            gathered += data
            queue.popleft()
        if gathered:
            queue.appendleft(memoryview(gathered))

    def _send_head(self, sock: socket.socket) -> int:
        """Send as much of the first chunk as the socket takes; return the number of bytes, or what it waits for."""
        if len(self._queue) > 1 and _is_small(self._queue[0]):
            self._gather()
        head = self._queue[0]
        try:
            if isinstance(head, memoryview):
                sent = sock.send(head, _MORE_FOLLOWS if len(self._queue) > 1 else 0)
            else:
                size_bytes = self._sendable(head)
                if size_bytes == 0:
                    return NOT_IN_MEMORY
                sent = os.sendfile(sock.fileno(), head.source.fd, head.position, size_bytes)
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

    def _sendable(self, head: Range) -> int:
        """Return how much of a range can be sent without waiting for the disk; if 0, a thread is already reading it."""
        if head.cached_until <= head.position:
            size_bytes = min(head.remaining, PORTION_BYTES)
            if not is_cached(head.source.fd, head.position, size_bytes):
                self._bring_in(head, size_bytes)
                return 0
            head.cached_until = head.position + size_bytes
        return min(head.remaining, head.cached_until - head.position)


def _is_small(chunk: memoryview | Range) -> bool:
    if isinstance(chunk, Range):
        return chunk.remaining < SENDFILE_BYTES_MIN
    return len(chunk) < GATHERED_CHUNK_BYTES_MAX


def _read(head: Range) -> bytes | bytearray | None:
    """Read a small range; None if that would wait for the disk.

    Raises:
        RangeTruncated: the file has ended early, so the promised bytes cannot be sent.
    """
    if head.cached_until < head.position + head.remaining:
        return read_if_cached(head.source.fd, head.remaining, head.position)
    data = os.pread(head.source.fd, head.remaining, head.position)
    if len(data) != head.remaining:
        raise RangeTruncated(f"the file ended {head.remaining - len(data)} bytes early")
    return data
