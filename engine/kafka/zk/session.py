"""One ZooKeeper session over kazoo: sends requests, reports events, and ends for good when the session does.

When a session expires, kazoo opens another by itself and sends the old session's requests in it. Here a session
object is one session; ``engine.kafka.zk.session_keeper`` opens the next. kazoo also forgets watches when a connection
breaks. This class re-arms them as ZooKeeper's own client does, with setWatches before any other request.

There are two threads: kazoo's connection thread runs the methods marked so below, and the event loop runs the rest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    EXCEPTIONS,
    AuthFailedError,
    ConnectionClosedError,
    ConnectionDropped,
    ConnectionLoss,
    KazooException,
    SessionExpiredError,
    WriterNotClosedException,
    ZookeeperError,
)
from kazoo.protocol.serialization import SASL, Watch
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from engine.kafka.client.sasl.exchange import Exchange, SaslError
from engine.kafka.zk.errors import AuthFailed, ConnectionLost, SessionLost, ZooKeeperError, error_of_code
from engine.kafka.zk.kazoo_handler import Inbox, InboxHandler
from engine.kafka.zk.requests import Request, WatchKind, set_watches
from engine.kafka.zk.security import ZkSecurity

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger("engine.kafka.zk")
_kazoo_log = logging.getLogger("engine.kafka.zk.kazoo")
_kazoo_log.setLevel(logging.ERROR)

_WATCHES_PER_REQUEST = 1_000
_GRACE_S = 1.0
_TRIES_PER_SESSION = 3
_TRY_S_MIN = 2.0
"""A busy server needs time for its first answer: short sessions get fewer tries."""

_SILENT_REFUSALS = 3
"""Before 3.5 a server that refuses a login only ends the connection. So does one that dies, but not so many times."""


class _LoginRequiredError(ZookeeperError):  # type: ignore[misc]
    """The answer of a server that serves nobody without a login, which kazoo does not know."""

    code = -124


EXCEPTIONS.setdefault(_LoginRequiredError.code, _LoginRequiredError)

OnAnswer = Callable[[Any, ZooKeeperError | None], None]
"""Receives an answer or an error, in the event loop."""


class ConnectionState(Enum):
    """The state that a session reports."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    AUTH_FAILED = "auth failed"
    CLOSED = "closed"


class WatchEventType(Enum):
    """The type of a fired watch; the numbers are ZooKeeper's."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class _Completion:
    """kazoo's end of a request: its connection thread calls ``set`` or ``set_exception``, sometimes twice."""

    __slots__ = ("_is_done", "_on_answer", "_request", "_session")

    def __init__(self, session: Session, request: Request, on_answer: OnAnswer) -> None:
        self._session = session
        self._request = request
        self._on_answer = on_answer
        self._is_done = False

    def set(self, value: Any = None) -> None:
        if not self._is_done:
            self._is_done = True
            self._session.heard_at = time.monotonic()
            if self._request.watch is not None:
                self._session.watches.armed(self._request, exists=value is not None)
            self._session.inbox.put(self._on_answer, value, None)

    def set_exception(self, error: Exception) -> None:
        if not self._is_done:
            self._is_done = True
            self._session.inbox.put(self._on_answer, None, _translated(error, self._request.path))


class _ArmedWatches:
    """The watches that the server holds for us. Only the connection thread touches this, in wire order."""

    def __init__(self) -> None:
        self._data: set[str] = set()
        self._absent: set[str] = set()
        self._children: set[str] = set()

    def armed(self, request: Request, exists: bool) -> None:
        if request.watch is WatchKind.CHILDREN:
            self._children.add(request.path)
        else:
            (self._data if exists else self._absent).add(request.path)

    def fired(self, event_type: WatchEventType, path: str) -> None:
        if event_type is WatchEventType.CHILDREN_CHANGED:
            self._children.discard(path)
            return
        self._data.discard(path)
        self._absent.discard(path)
        if event_type is WatchEventType.DELETED:
            self._children.discard(path)

    def rearming(self, relative_zxid: int) -> Iterator[Request]:
        """Yield the setWatches requests that re-arm all watches."""
        pending = [*((0, p) for p in self._data), *((1, p) for p in self._absent), *((2, p) for p in self._children)]
        paths = iter(pending)
        while chunk := list(islice(paths, _WATCHES_PER_REQUEST)):
            yield set_watches(relative_zxid, *([path for kind, path in chunk if kind == k] for k in range(3)))


class _OneSessionClient(KazooClient):  # type: ignore[misc]
    """A KazooClient that ends with its session and leaves watches to us. All methods run in its connection thread."""

    def __init__(self, session: Session, **options: Any) -> None:
        self._session = session
        super().__init__(**options)
        self._connection._read_watch_event = self._take_watch_event
        self._read_answer = self._connection._read_response
        self._connection._read_response = self._take_answer
        if session.security.login is not None:
            self._connection.sasl_options = {}
            self._connection._authenticate_with_sasl = self._log_in
        self._silent_refusals = 0

    def _session_callback(self, state: str) -> None:
        before = self._state
        if state == KeeperState.EXPIRED_SESSION:
            # The connection loop sees this before it would open a new session.
            self._stopped.set()
        is_end = state in (KeeperState.EXPIRED_SESSION, KeeperState.CLOSED, KeeperState.AUTH_FAILED)
        # Listeners learn of the end before the pending calls end: a caller that gets SessionLost finds the session
        # gone.
        if is_end and state != before:
            self._session.state_changed(before, state)
        super()._session_callback(state)
        if not is_end and state != before:
            self._session.state_changed(before, state)

    def _log_in(self, host: str, timeout_s: float) -> None:
        """Log in by SASL, instead of kazoo's way, which needs a library that nobody maintains."""
        login = self._session.security.login
        assert login is not None
        try:
            self._exchange(login.exchange(host), timeout_s)
        except (SaslError, AuthFailedError) as error:
            reason = f": {error}" if isinstance(error, SaslError) else ""
            hint = "check username and password of the JAAS section for ZooKeeper"
            self._session.refusal = AuthFailed(f"ZooKeeper refuses {login.identity}{reason}", hint=hint)
            raise AuthFailedError() from error
        self._silent_refusals = 0

    def _exchange(self, exchange: Exchange, timeout_s: float) -> None:
        """Carry the exchange's tokens to the server and back."""
        token = next(exchange)
        for xid in count(1):
            self._connection._submit(SASL(token), timeout_s, xid)
            try:
                header, buffer, offset = self._connection._read_header(timeout_s)
            except ConnectionDropped:
                self._silent_refusals += 1
                if self._silent_refusals < _SILENT_REFUSALS:
                    raise
                raise AuthFailedError() from None
            if header.err:
                raise EXCEPTIONS[header.err]()
            try:
                token = exchange.send(SASL.deserialize(buffer, offset)[0] or b"")
            except StopIteration:
                return

    def _take_answer(self, header: Any, buffer: bytes, offset: int) -> Any:
        """Break the connection at an answer that is not for the oldest request, as ZooKeeper's own client does.

        kazoo would end the session, but only here: its ephemeral znodes would stay until ZooKeeper ends it, too.
        """
        if not self._pending or header.xid != self._pending[0][-1]:
            _log.warning("ZooKeeper sent an answer out of order. session=0x%x xid=%d", self._session.id, header.xid)
            raise ConnectionDropped("answer out of order")
        return self._read_answer(header, buffer, offset)

    def _take_watch_event(self, buffer: bytes, offset: int) -> None:
        event, _ = Watch.deserialize(buffer, offset)
        self._session.watch_fired(event.type, event.path)


class Latencies:
    """How long a client's requests took, of all its sessions."""

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.slowest_s = 0.0
        self.recent_s: deque[float] = deque(maxlen=128)

    def add(self, took_s: float) -> None:
        self.count += 1
        self.total_s += took_s
        self.slowest_s = max(self.slowest_s, took_s)
        self.recent_s.append(took_s)


class Session:
    """One session. Create it in a running event loop; ``start`` begins to connect.

    Args:
        hosts: ``host:port,…`` without chroot.
        security: TLS and logins.
        on_tls_failure: called in the event loop with each server (host, port) with which TLS failed.
        on_state: called in the event loop at each change of the connection.
        on_watch: called in the event loop for each fired watch (type, full path), never after a newer answer.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int,
        security: ZkSecurity,
        on_tls_failure: Callable[[str, int, Exception], None],
        on_state: Callable[[ConnectionState], None],
        on_watch: Callable[[WatchEventType, str], None],
    ) -> None:
        self.latencies = Latencies()
        """A client's sessions share one."""
        self.inbox = Inbox(asyncio.get_running_loop())
        self.security = security
        self.refusal: AuthFailed | None = None
        """Why the login failed; the connection thread writes this."""
        self.watches = _ArmedWatches()
        self.end_state: ConnectionState | None = None
        self.is_given_up = False
        """Whether this side closed it because the server fell silent."""
        self.loop = asyncio.get_running_loop()
        self.heard_at = 0.0
        """When the newest answer arrived; the connection thread writes this."""
        self._asked_at = 0.0
        self._on_state = on_state
        self._on_watch = on_watch
        self._suspended_zxid: int | None = None
        timeout_s = session_timeout_ms / 1000
        # ZooKeeper's own client divides the session among its servers, however many are unreachable. But while it
        # starts, a ZooKeeper 3.9 can accept a connection, fail on it, and neither serve nor close it. A client of a
        # single server would wait for it until its session is over.
        share_s = timeout_s / len(hosts.split(","))
        connect_timeout_s = min(share_s, max(timeout_s / _TRIES_PER_SESSION, _TRY_S_MIN))
        self._handler = InboxHandler(
            self._has_requests,
            connect_timeout_s=connect_timeout_s,
            write_timeout_s=timeout_s,
            tls=_tls_context(security),
            on_tls_failure=partial(self.inbox.put, on_tls_failure),
        )
        retry = KazooRetry(max_tries=-1, delay=0.02, backoff=2, max_delay=1.0, sleep_func=self._handler.sleep_func)
        self._kazoo = _OneSessionClient(
            self,
            hosts=hosts,
            timeout=timeout_s,
            handler=self._handler,
            auth_data=list(security.auth),
            connection_retry=retry,
            logger=_kazoo_log,
        )

    @property
    def id(self) -> int:
        """ZooKeeper's id of this session; 0 before it is open. Ephemeral znodes carry it as owner."""
        return int(self._kazoo._session_id or 0)

    @property
    def credentials(self) -> tuple[int, bytes]:
        """Session id and password: a client that has both can take the session over."""
        return self.id, bytes(self._kazoo._session_passwd)

    @property
    def last_zxid(self) -> int:
        """The newest zxid in an answer; a write sent from now on gets a higher one."""
        return int(self._kazoo.last_zxid)

    def start(self) -> None:
        """Start connecting. The state becomes CONNECTED when a session is open."""
        self._kazoo.start_async()

    def submit(self, request: Request, on_answer: OnAnswer) -> None:
        """Send a request, or hold it while the connection is broken. ``on_answer`` is always called."""
        if self.end_state is not None:
            self.loop.call_soon(on_answer, None, self.end_error())
            return
        if self.heard_at >= self._asked_at and not self._is_asking():
            self._asked_at = time.monotonic()
        self._kazoo._call(request, _Completion(self, request, on_answer))

    async def call(self, request: Request) -> Any:
        """Send a request and return its answer.

        Raises:
            ZooKeeperError: the server's error, ConnectionLost, or SessionLost.
        """
        future: asyncio.Future[Any] = self.loop.create_future()
        begun_s = time.monotonic()

        def on_answer(value: Any, error: ZooKeeperError | None) -> None:
            self.latencies.add(time.monotonic() - begun_s)
            if not future.done():
                future.set_result(value) if error is None else future.set_exception(error)

        self.submit(request, on_answer)
        return await future

    @property
    def silent_s(self) -> float:
        """How many seconds waiting requests have gone without any answer; 0 if no request waits."""
        return max(0.0, time.monotonic() - max(self._asked_at, self.heard_at)) if self._is_asking() else 0.0

    def _is_asking(self) -> bool:
        return bool(self._kazoo._queue or self._kazoo._pending)

    def end_error(self) -> ZooKeeperError:
        """The error for every call on a session that is over."""
        if self.end_state is ConnectionState.AUTH_FAILED:
            return self.refusal or error_of_code(-115, None)
        if self.is_given_up:
            return SessionLost("ZooKeeper does not answer")
        return SessionLost("the ZooKeeper client is closed" if self.end_state is ConnectionState.CLOSED else "")

    def break_connection(self) -> None:
        """Cut the connection to the server; kazoo connects again at once. For fault tests."""
        self._handler.break_connection()

    async def close(self) -> None:
        """End the session.

        Its ephemeral znodes go at once if the message reaches the server, else with the time-out.
        """
        ended: asyncio.Future[None] = self.loop.create_future()
        if not self.id:
            # There is no session for the server to end: no need to wait for a server that has never answered.
            self._kazoo._stopped.set()
            self._handler.break_connection()
        # Its own thread: the loop would wait for one of its threads when it ends, however long a connect hangs.
        self._handler.spawn(self._stop, ended)
        done, _ = await asyncio.wait([ended], timeout=_GRACE_S)
        if not done:
            # The server does not answer; without its connection kazoo's thread ends.
            self._handler.break_connection()
            done, _ = await asyncio.wait([ended], timeout=_GRACE_S)
        if not done:
            _log.debug("A connection to ZooKeeper did not end in time; its thread ends by itself.")

    def _stop(self, ended: asyncio.Future[None]) -> None:
        """Runs in its own thread."""
        try:
            if self._kazoo._stopped.is_set():
                # It ended by itself; its thread may still be finishing.
                self._kazoo._safe_close()
            else:
                self._kazoo.stop()
            self._kazoo.close()
        except WriterNotClosedException:
            _log.debug("A kazoo thread still hangs in a connect.")
        self.inbox.put(_set_done, ended)

    def _has_requests(self) -> bool:
        """Runs in the connection thread."""
        return bool(self._kazoo._queue)

    def state_changed(self, before: str, state: str) -> None:
        """Runs in the connection thread."""
        known = _STATES.get(state)
        if state == KeeperState.CONNECTING:
            if before != KeeperState.CONNECTED:
                return
            self._suspended_zxid = self._kazoo.last_zxid
        elif known is ConnectionState.CONNECTED and self._suspended_zxid is not None:
            self._send_first(self.watches.rearming(self._suspended_zxid))
        if known is not None:
            self.inbox.put(self._take_state, known)

    def watch_fired(self, event_type: int, path: str) -> None:
        """Runs in the connection thread."""
        if event_type not in _WATCH_EVENT_TYPES:
            # For removed or persistent watches: none are ours.
            return
        known = WatchEventType(event_type)
        self.watches.fired(known, path)
        self.inbox.put(self._on_watch, known, path)

    def _send_first(self, requests: Iterable[Request]) -> None:
        """Runs in the connection thread, before it takes the first request for a new connection."""
        queue: deque[tuple[Request, None]] = self._kazoo._queue
        for request in requests:
            queue.appendleft((request, None))

    def _take_state(self, state: ConnectionState) -> None:
        if self.end_state is not None:
            return
        if state not in (ConnectionState.CONNECTED, ConnectionState.SUSPENDED):
            self.end_state = state
        self._on_state(state)


_WATCH_EVENT_TYPES = frozenset(each.value for each in WatchEventType)
_STATES = {
    KeeperState.CONNECTED: ConnectionState.CONNECTED,
    KeeperState.CONNECTED_RO: ConnectionState.CONNECTED,
    KeeperState.CONNECTING: ConnectionState.SUSPENDED,
    KeeperState.EXPIRED_SESSION: ConnectionState.LOST,
    KeeperState.AUTH_FAILED: ConnectionState.AUTH_FAILED,
    KeeperState.CLOSED: ConnectionState.CLOSED,
}


def _translated(error: Exception, path: str) -> ZooKeeperError:
    if isinstance(error, ConnectionClosedError | SessionExpiredError):
        return SessionLost()
    if isinstance(error, ConnectionLoss):
        return ConnectionLost(path=path)
    code = getattr(error, "code", None)
    if isinstance(error, KazooException) and isinstance(code, int):
        return error_of_code(code, path)
    return ZooKeeperError(f"unreadable answer: {error!r}", path)


def _tls_context(security: ZkSecurity) -> ssl.SSLContext | None:
    if security.tls is None:
        return None
    from engine.kafka.client.tls.context import client_context

    return client_context(security.tls)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
