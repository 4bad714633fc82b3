"""Keeps a ZooKeeper session open: opens the first, replaces each lost one, and tells listeners. Moves no data.

A session counts as open after its first answer: then ZooKeeper has accepted the credentials and the newest zxid is
known.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any

from kazoo.hosts import collect_hosts

from engine.kafka.zk import requests
from engine.kafka.zk.errors import (
    AuthFailed,
    ConnectionLost,
    ConnectTimedOut,
    LoginRequired,
    NotAdmitted,
    SessionLost,
    TlsFailed,
    ZooKeeperError,
)
from engine.kafka.zk.security import ZkSecurity, in_zookeepers_words
from engine.kafka.zk.session import ConnectionState, Latencies, Session, WatchEventType

_log = logging.getLogger("engine.kafka.zk")


_TLS_FAILURES_MAX = 3
"""A server that starts or ends may cut a handshake; one that cuts this many does not speak TLS."""


class SessionEvent(Enum):
    """The events that session listeners receive."""

    SUSPENDED = "suspended"
    """The connection broke; the session may live on. Calls wait."""
    RECONNECTED = "reconnected"
    """The same session continues; missed watch events follow."""
    LOST = "lost"
    """The session is over: its ephemerals go, and pending calls end with SessionLost. Forget cached versions."""
    NEW_SESSION = "new session"
    """Another session is open; the watch callbacks run right after."""
    AUTH_FAILED = "auth failed"
    """The server refuses our credentials; nothing will work any more."""


SessionListener = Callable[[SessionEvent], None]


class SessionKeeper:
    """A client's current session, and the steps to the next one. Belongs to one event loop.

    Args:
        patience_ms: how long after a broken connection the session counts as lost, though ZooKeeper may keep it; None
            waits forever for the next connection.
        on_watch: called for each watch that fires in the current session (session, type, full path).
        on_renewed: awaited with each new session except the first.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int,
        client_name: str,
        security: ZkSecurity,
        patience_ms: int | None,
        on_watch: Callable[[Session, WatchEventType, str], None],
        on_renewed: Callable[[Session], Coroutine[Any, Any, None]],
    ) -> None:
        self.hosts = hosts
        self.session_timeout_ms = session_timeout_ms
        self.client_name = client_name
        self.is_closed = False
        self.listeners: list[SessionListener] = []
        self.latencies = Latencies()
        self._security = security
        self._tls_failures: Counter[tuple[str, int]] = Counter()
        self._patience_ms = patience_ms
        self._giving_up: asyncio.TimerHandle | None = None
        self._on_watch = on_watch
        self._on_renewed = on_renewed
        self._loop = asyncio.get_running_loop()
        self._session: Session | None = None
        self._replaced: Session | None = None
        self._is_open = False
        self._was_open = False
        self._has_given_up = False
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def session_id(self) -> int:
        """Id of the open session; 0 if there is none."""
        return self._session.id if self._session is not None and self._is_open else 0

    @property
    def silent_s(self) -> float:
        """How many seconds ZooKeeper has left all requests of the open session unanswered; 0 if there are none."""
        return self._session.silent_s if self._session is not None and self._is_open else 0.0

    def current(self) -> Session:
        """Return the open session; raises SessionLost if there is none now, AuthFailed if there never will be."""
        if self._session is not None and not self.is_closed and self._is_open:
            return self._session
        if self._session is not None and self._session.end_state is ConnectionState.AUTH_FAILED:
            raise self._session.end_error()
        if self.is_closed:
            raise SessionLost("the ZooKeeper client is closed")
        raise SessionLost("ZooKeeper does not answer" if self._has_given_up else "")

    async def open_first(self, timeout_ms: int) -> None:
        """Open the first session.

        Raises:
            ConnectTimedOut: no server answered in time.
            NotAdmitted: TLS failed with each server, or ZooKeeper refused the login.
        """
        self._start_session()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.wait_open()
        except TimeoutError:
            raise ConnectTimedOut(f"no ZooKeeper server answered at {self.hosts} within {timeout_ms} ms") from None

    async def wait_open(self) -> None:
        """Wait until a session is open; return at once if one is."""
        while not self._is_open:
            # Shielded: one waiter's cancellation must not cancel the others' future.
            await asyncio.shield(self._opened)

    async def close(self) -> None:
        """End the session for good; waiting calls end with SessionLost."""
        if self.is_closed:
            return
        self.is_closed = True
        self._be_patient_again()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        if not self._opened.done():
            self._fail_opening(SessionLost("the ZooKeeper client is closed"))

    def _start_session(self) -> None:
        session = Session(
            self.hosts,
            session_timeout_ms=self.session_timeout_ms,
            security=self._security,
            on_tls_failure=lambda host, port, error: self._take_tls_failure(session, host, port, error),
            on_state=lambda state: self._take_state(session, state),
            on_watch=lambda event_type, path: self._take_watch(session, event_type, path),
        )
        session.latencies = self.latencies
        self._session = session
        session.start()

    def _take_watch(self, session: Session, event_type: WatchEventType, path: str) -> None:
        if session is self._session:
            self._on_watch(session, event_type, path)

    def _take_state(self, session: Session, state: ConnectionState) -> None:
        if self.is_closed or session is not self._session or session is self._replaced:
            # An abandoned session still reports its end, or that it has connected after all.
            return
        match state:
            case ConnectionState.CONNECTED if self._is_open:
                _log.info("Connected to ZooKeeper again. client=%s session=0x%x", self.client_name, session.id)
                if self._giving_up is not None:
                    self._ask_again(session)
                self._tell(SessionEvent.RECONNECTED)
            case ConnectionState.CONNECTED:
                self._ask_first(session)
            case ConnectionState.SUSPENDED if self._is_open:
                _log.warning("Lost the connection to ZooKeeper, connecting again. client=%s", self.client_name)
                if self._patience_ms is not None and self._giving_up is None:
                    self._giving_up = self._loop.call_later(self._patience_ms / 1000, self._give_up, session)
                self._tell(SessionEvent.SUSPENDED)
            case ConnectionState.SUSPENDED:
                _log.debug("A connection to ZooKeeper broke before the session was open. client=%s", self.client_name)
            case ConnectionState.AUTH_FAILED:
                self._take_refusal(session.refusal or AuthFailed())
            case ConnectionState.LOST | ConnectionState.CLOSED:
                self._take_lost(session)

    def _ask_first(self, session: Session) -> None:
        def on_answer(_value: object, error: ZooKeeperError | None) -> None:
            # The next connection follows a broken one, and asks again.
            if self.is_closed or session is not self._session or isinstance(error, ConnectionLost | SessionLost):
                return
            if isinstance(error, LoginRequired):
                self._take_refusal(LoginRequired(hint="name a JAAS file with a section Client"))
            elif not self._is_open and not self._opened.done() and not isinstance(error, AuthFailed):
                self._take_open(session)

        session.submit(requests.exists("/", watch=False), on_answer)

    def _ask_again(self, session: Session) -> None:
        """Reset the patience once ZooKeeper answers: a hanging server may accept connections and answer nothing."""

        def on_answer(_value: object, error: ZooKeeperError | None) -> None:
            if session is self._session and error is None:
                self._be_patient_again()

        session.submit(requests.exists("/", watch=False), on_answer)

    def _take_open(self, session: Session) -> None:
        _log.info("Opened a ZooKeeper session. client=%s session=0x%x", self.client_name, session.id)
        self._is_open = True
        self._has_given_up = False
        self._opened.set_result(None)
        if self._was_open:
            self._tell(SessionEvent.NEW_SESSION)
            self._spawn(self._on_renewed(session))
        self._was_open = True

    def _take_refusal(self, error: NotAdmitted) -> None:
        _log.error("%s. client=%s servers=%s", error, self.client_name, self.hosts)
        self._is_open = False
        if not self._opened.done():
            self._fail_opening(error)
        self._tell(SessionEvent.AUTH_FAILED)

    def _take_tls_failure(self, session: Session, host: str, port: int, error: Exception) -> None:
        """Give up the first session if TLS fails with every server: trying again would not help."""
        if self.is_closed or session is not self._session:
            return
        is_clear = isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)
        self._tls_failures[host, port] += _TLS_FAILURES_MAX if is_clear else 1
        if self._was_open:
            _log.warning("TLS with ZooKeeper failed: %s. client=%s server=%s:%d", error, self.client_name, host, port)
        elif all(self._tls_failures[host] >= _TLS_FAILURES_MAX for host in collect_hosts(self.hosts)[0]):
            self._spawn(self._explain_tls_failure(host, port, error))

    async def _explain_tls_failure(self, host: str, port: int, error: Exception) -> None:
        from engine.kafka.client.tls.context import tls_failure

        assert self._security.tls is not None
        failure = await tls_failure(error, self._security.tls, host, port)
        hint = None if failure.hint is None else in_zookeepers_words(failure.hint)
        if not self._opened.done():
            self._fail_opening(TlsFailed(in_zookeepers_words(str(failure)), hint=hint))

    def _be_patient_again(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _give_up(self, session: Session) -> None:
        self._giving_up = None
        if session is self._session and self._is_open and not self.is_closed:
            self._has_given_up = session.is_given_up = True
            self._take_lost(session)

    def _take_lost(self, session: Session) -> None:
        self._replaced = session
        self._be_patient_again()
        if self._is_open:
            _log.warning("The ZooKeeper session is over, opening another one. client=%s", self.client_name)
            self._is_open = False
            self._opened = self._loop.create_future()
            self._tell(SessionEvent.LOST)
        self._spawn(self._replace(session))

    async def _replace(self, ended: Session) -> None:
        await ended.close()
        self._start_session()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name=f"zookeeper-session-{self.client_name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _fail_opening(self, error: ZooKeeperError) -> None:
        self._opened.set_exception(error)
        # This marks it as seen: there may be no waiter.
        self._opened.exception()

    def _tell(self, event: SessionEvent) -> None:
        # Goes through the loop's own queue, behind the tasks whose calls ended with the same burst.
        for listener in list(self.listeners):
            self._loop.call_soon(listener, event)
