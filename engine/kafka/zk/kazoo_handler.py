"""Runs kazoo beside an asyncio loop: one queue for all events, and sockets that need few system calls.

kazoo puts completions and watch events into two queues with a thread each, which reorders them. Here there is one
queue. kazoo's connection thread fills it in the order of ZooKeeper's messages, and the event loop drains it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from select import POLLIN, POLLOUT, poll
from typing import Any

from kazoo.handlers.threading import KazooTimeoutError
from kazoo.handlers.utils import create_tcp_connection, create_tcp_socket

_log = logging.getLogger("engine.kafka.zk")

_ITEMS_PER_TURN = 64
_HOLD_S_MAX = 0.002
"""Maximum deliveries and time before other callbacks of the event loop get a turn: a small znode takes some
microseconds, a topic of 1,000 partitions some milliseconds.
"""

_RECEIVE_SIZE = 65_536
_SEND_SIZE = 65_536


class Inbox:
    """Carries calls from kazoo's thread into the event loop, in order, with one wake-up per burst."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self._is_scheduled = False
        self._is_deaf = False

    def put(self, call: Callable[..., None], *arguments: object) -> None:
        """Call ``call(*arguments)`` in the event loop, after all earlier calls. Any thread may use this."""
        self._items.append((call, arguments))
        if not self._is_scheduled and not self._is_deaf:
            self._is_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                # The loop is closed: no caller is left to tell.
                self._is_deaf = True

    def _drain(self) -> None:
        # Cleared first: the code below sees any later call, or that call schedules another drain.
        self._is_scheduled = False
        items = self._items
        until_s = self._loop.time() + _HOLD_S_MAX
        for _ in range(min(len(items), _ITEMS_PER_TURN)):
            call, arguments = items.popleft()
            try:
                call(*arguments)
            except Exception:
                _log.exception("A delivery from ZooKeeper failed; the others continue.")
            if self._loop.time() >= until_s:
                break
        if items and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._drain)


class WakePipe:
    """kazoo's pipe from callers to its connection thread, with one byte per burst instead of one per request."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._is_signalled = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def send(self, _byte: bytes) -> int:
        if not self._is_signalled:
            self._is_signalled = True
            self._writer.send(b"\0")
        return 1

    def recv(self, _size: int) -> bytes:
        """Return a byte, since kazoo reads one per request; ``clear`` reads the real ones."""
        return b"\0"

    def clear(self) -> None:
        """Forget past signals. The caller then looks at the request queue, so it misses none."""
        if self._is_signalled:
            self._is_signalled = False
            try:
                self._reader.recv(64)
            except BlockingIOError:
                # Announced but not written yet: the byte will wake the next poll needlessly.
                return

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class BufferedSocket:
    """A socket that reads large pieces and writes in bursts, because kazoo reads and writes small ones."""

    def __init__(
        self,
        inner: socket.socket,
        write_timeout_s: float,
        on_tls_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._inner = inner
        self._write_timeout_s = write_timeout_s
        self._on_tls_failure = on_tls_failure
        self._received = b""
        self._position = 0
        self._unsent = bytearray()

    def fileno(self) -> int:
        return self._inner.fileno()

    def setblocking(self, flag: bool) -> None:
        self._inner.setblocking(flag)

    def getpeername(self) -> Any:
        return self._inner.getpeername()

    def pending(self) -> int:
        """Bytes that can be read without the network."""
        waiting = len(self._received) - self._position
        if not waiting and isinstance(self._inner, ssl.SSLSocket):
            return self._inner.pending()
        return waiting

    def recv(self, size: int) -> bytes:
        if self._position == len(self._received):
            try:
                self._received, self._position = self._inner.recv(_RECEIVE_SIZE), 0
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                # Under TLS 1.3 only this tells a client that its certificate is refused.
                self._on_tls_failure(error)
                raise
        chunk = self._received[self._position : self._position + size]
        self._position += len(chunk)
        return chunk

    def send(self, data: memoryview) -> int:
        self._unsent += data
        if len(self._unsent) > _SEND_SIZE:
            self.flush()
        return len(data)

    def flush(self) -> None:
        """Write what is pending. Raises OSError: the peer is gone, or accepts nothing until the write time-out."""
        while self._unsent:
            try:
                sent = self._inner.send(self._unsent)
            except (BlockingIOError, ssl.SSLWantWriteError):
                poller = poll()
                poller.register(self.fileno(), POLLOUT)
                if not poller.poll(self._write_timeout_s * 1000):
                    raise TimeoutError("the server takes no requests") from None
                continue
            del self._unsent[:sent]

    def shutdown(self) -> None:
        """Break the connection; the reading thread sees it end."""
        try:
            # An SSLSocket's own would make the reading thread take what is encrypted for ZooKeeper's answers.
            socket.socket.shutdown(self._inner, socket.SHUT_RDWR)
        except OSError:
            # Already broken, as intended.
            return

    def close(self) -> None:
        self._inner.close()


class InboxHandler:
    """kazoo's handler interface over an Inbox. One per kazoo client."""

    name = "klamm_inbox_handler"
    timeout_exception = KazooTimeoutError
    sleep_func = staticmethod(time.sleep)

    def __init__(
        self,
        has_requests: Callable[[], bool],
        *,
        connect_timeout_s: float,
        write_timeout_s: float,
        tls: ssl.SSLContext | None = None,
        on_tls_failure: Callable[[str, int, Exception], None] = lambda host, port, error: None,
    ) -> None:
        """``on_tls_failure`` is called in kazoo's thread with the server whose TLS failed."""
        self._has_requests = has_requests
        self._tls = tls
        self._on_tls_failure = on_tls_failure
        self._connect_timeout_s = connect_timeout_s
        self._write_timeout_s = write_timeout_s
        self._pollers: dict[tuple[int, ...], poll] = {}
        self._connection: BufferedSocket | None = None
        self._is_connecting = False
        self.running = False

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _errors: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Do what select.select does for kazoo's calls: one writer, which buffers, or readers, some with buffers."""
        if writers:
            return [], list(writers), []
        if any(isinstance(reader, WakePipe) for reader in readers):
            self._is_connecting = False
        elif self._is_connecting and timeout is not None:
            # The server's first answers. kazoo would wait for them as long as a single server's session lives.
            timeout = min(timeout, self._connect_timeout_s)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            ready = self._ready_at_once(readers)
            if ready:
                return ready, [], []
            left_ms = None if deadline is None else max(deadline - time.monotonic(), 0) * 1000
            hits = {descriptor for descriptor, _ in self._poller(readers).poll(left_ms)}
            ready = [reader for reader in readers if reader.fileno() in hits and not isinstance(reader, WakePipe)]
            # A wake-up alone is no answer: only the queue shows whether there are requests. And kazoo takes an empty
            # answer for a time-out.
            if ready or not hits:
                return ready, [], []

    def _poller(self, readers: Sequence[Any]) -> poll:
        descriptors = tuple(reader.fileno() for reader in readers)
        poller = self._pollers.get(descriptors)
        if poller is None:
            poller = self._pollers[descriptors] = poll()
            for descriptor in descriptors:
                poller.register(descriptor, POLLIN)
        return poller

    def _ready_at_once(self, readers: Sequence[Any]) -> list[Any]:
        ready = []
        for reader in readers:
            if isinstance(reader, WakePipe):
                reader.clear()
                if self._has_requests():
                    ready.append(reader)
            elif reader.pending():
                ready.append(reader)
        if self._connection is not None and not any(isinstance(reader, WakePipe) for reader in ready):
            self._connection.flush()
        return ready

    def socket(self) -> Any:
        return create_tcp_socket(socket)

    def create_connection(self, address: tuple[str, int], hostname: str = "", **_: Any) -> BufferedSocket:
        # kazoo would wait for an unreachable server as long as the session lives.
        inner = create_tcp_connection(socket, address, timeout=self._connect_timeout_s)
        failed = partial(self._on_tls_failure, hostname, address[1])
        if self._tls is not None:
            try:
                inner = self._tls.wrap_socket(inner, server_hostname=hostname)
            except (ssl.SSLError, ConnectionResetError) as error:
                failed(error)
                inner.close()
                raise
        connection = BufferedSocket(inner, self._write_timeout_s, failed)
        self._connection, self._is_connecting = connection, True
        return connection

    def create_socket_pair(self) -> tuple[WakePipe, WakePipe]:
        pipe = WakePipe()
        return pipe, pipe

    def break_connection(self) -> None:
        """Cut the connection to the server, as a failing network does. Any thread may call this."""
        if self._connection is not None:
            self._connection.shutdown()

    def event_object(self) -> threading.Event:
        return threading.Event()

    def lock_object(self) -> Any:
        return threading.Lock()

    def rlock_object(self) -> Any:
        return threading.RLock()

    def spawn(self, function: Callable[..., object], *arguments: object, **options: object) -> threading.Thread:
        thread = threading.Thread(target=function, args=arguments, kwargs=options, name="zookeeper", daemon=True)
        thread.start()
        return thread
