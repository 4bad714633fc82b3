"""Listeners and the connections they accept: limits, idle close, and an orderly end."""

from __future__ import annotations

import asyncio
import errno
import heapq
import logging
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from engine.broker.metrics.requests import SIZE_BYTES, NetworkTotals
from engine.broker.network.connection import ADMIT_WITHIN_MS, CloseReason, Connection, ConnectionContext, request_logger
from engine.broker.network.connection_rates import ConnectionRates
from engine.broker.network.request import CLOSE_UNAUTHENTICATED, RequestHead
from engine.broker.network.routes import Route, RouteTable
from engine.broker.network.session import ConnectionRules, Session
from engine.broker.network.tcp_info import is_peer_gone, keep_alive, read_tcp_info
from engine.broker.network.tls import TlsConnection, TlsPolicy
from engine.common.clock import Clock
from engine.common.errors import OperationError, RemoteProtocolError
from engine.common.model import SecurityProtocol
from engine.common.windowed_rate import METRICS_WINDOW, Window
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.codec import Outgoing
from engine.runtime.receive_buffers import ReceiveBuffers, give_freed_memory_back
from engine.runtime.supervisor import Supervisor

_ALL_ADDRESSES = ("", "0.0.0.0", "::")

logger = logging.getLogger(__name__)

BACKLOG_MIN = 1024
"""Minimum backlog of connections, even if ``socket.listen.backlog.size`` is lower: an event loop returns to its
listeners later than Kafka's acceptor thread does, and a client that finds no room waits for a second.
"""

GONE_PEERS_INTERVAL_MS = 5000
"""Interval of checks on connections whose peers seem to wait for something."""

GONE_PEERS_TURNS = 6
"""Each of the other connections is checked once in this many of these rounds."""

IDLE_SWEEPS = 10
"""How many times per idle time the server checks all connections: one is closed at most a tenth too late."""

GIVEN_BACK_AFTER = 1000
"""After so many connections have ended, malloc gives freed memory back to the system. That takes 20 ms."""

SHORTAGE_TOLD_MS = 10_000
"""Interval of log lines about old connections closed to make room for new ones, and about new ones that wait."""


_API_KEY = struct.Struct(">h")
_NO_ROUTE = cast("Route", None)
"""Of bare tokens: what answers them is bytes already."""
_OF_LOGINS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


class Logins(Protocol):
    """How peers log in on a listener (``security.logins.LoginPolicy``)."""

    @property
    def routes(self) -> RouteTable: ...
    def rules(self) -> ConnectionRules: ...
    def begin(self, session: Session, rules: ConnectionRules, admitted: Any) -> Any: ...


class LoginConnection(Connection):
    """A connection whose peer has to log in."""

    def __init__(self, context: ConnectionContext, logins: Logins) -> None:
        self._logins = logins
        super().__init__(context)
        self.admit_until_ms = context.now_ms() + ADMIT_WITHIN_MS

    def _new_session(self, host: str, port: int) -> Session:
        session = super()._new_session(host, port)
        session.login = self._logins.begin(session, session.rules, self._admitted)
        session.rules = self._logins.rules()
        # As in Kafka, whose memory pool nobody can use up without a login.
        self._inbox.is_exempt = True
        return session

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # The login knows this object: that is a cycle, and the collector comes too seldom for what TLS holds.
        self.session.login = None

    def _admitted(self) -> None:
        totals, login = self._context.totals, self.session.login
        if self.admit_until_ms is None:
            totals.renewals += 1
            totals.renewal_times_ms.append((self._context.now_ms(), login.took_ms))
        else:
            totals.logins += 1
            totals.logins_without_renewal += not login.knows_renewal
        self.admit_until_ms = None
        self._inbox.is_exempt = False

    def _handle_frame(self, frame: memoryview, out: Outgoing, begun_s: float) -> None:
        login = self.session.login
        totals = self._context.totals
        if login.takes_tokens:
            totals.other_requests += 1
            totals.other_bytes_in += SIZE_BYTES + len(frame)
            answer = login.take_token(bytes(frame))
            if type(answer) is Outgoing:
                totals.other_bytes_out += len(answer)
            self._place(_NO_ROUTE, 0, answer, out)
            return
        if len(frame) < self.session.rules.frame_bytes_min or len(frame) < 8:
            raise RemoteProtocolError(f"a request of {len(frame)} bytes")
        if login.has_expired and _API_KEY.unpack_from(frame)[0] not in _OF_LOGINS:
            self._end(CloseReason.LOGIN_EXPIRED)
            totals.other_requests += 1
            totals.other_bytes_in += SIZE_BYTES + len(frame)
            totals.unanswered += 1
            return
        super()._handle_frame(frame, out, begun_s)

    def _encode(self, route: Route, correlation_id: int, response: Any, out: Outgoing) -> None:
        if response is CLOSE_UNAUTHENTICATED:
            self._context.totals.unanswered += 1
        else:
            super()._encode(route, correlation_id, response, out)
        login = self.session.login
        if login is not None and login.is_over:
            self._end(CloseReason.NOT_AUTHENTICATED)


class LoginTlsConnection(LoginConnection, TlsConnection):
    """The same over TLS."""

    def __init__(self, context: ConnectionContext, policy: TlsPolicy, logins: Logins) -> None:
        self._logins = logins
        TlsConnection.__init__(self, context, policy)


@dataclass(frozen=True, slots=True)
class ListenerSpec:
    """One address to listen on. An empty host is every interface; port 0 takes a free one."""

    name: str
    host: str
    port: int
    security_protocol: int = SecurityProtocol.PLAINTEXT


@dataclass(frozen=True, slots=True)
class BoundListener:
    """A listener whose address is taken."""

    spec: ListenerSpec
    socket: socket.socket

    @property
    def port(self) -> int:
        """The real port, even if 0 was requested."""
        port: int = self.socket.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of the network, with the names of Kafka's settings. A buffer size of -1 leaves it to the system."""

    socket_request_max_bytes: int = 104_857_600
    queued_max_request_bytes: int = -1
    """Bytes of requests that have begun to arrive and are not handled yet. Above it, only small ones that arrive whole
    are read. -1: no limit."""
    socket_listen_backlog_size: int = 50
    socket_send_buffer_bytes: int = 102_400
    socket_receive_buffer_bytes: int = 102_400
    connections_max_idle_ms: int = 600_000
    max_connections: int = 2**31 - 1
    max_connections_of_listeners: Mapping[str, int] = field(default_factory=dict)
    """Of those that have a limit of their own."""
    max_connections_per_ip: int = 2**31 - 1
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    descriptors_max: int = 2**31 - 1
    """Descriptors from this number on are reserved for files, not connections."""
    protected_listeners: frozenset[str] = frozenset()
    """The brokers' listeners, if clients have others: there ``max.connections`` counts only their own, as in Kafka."""


class SocketServer:
    """All listeners of one broker."""

    def __init__(
        self,
        routes: RouteTable,
        make_request: Callable[[int, int, int, str | None, Session], RequestHead],
        limits: ServerLimits,
        clock: Clock,
        tls: Mapping[str, TlsPolicy] | None = None,
        logins: Mapping[str, Logins] | None = None,
        rate_window: Window | None = None,
        metrics_window: Window = METRICS_WINDOW,
    ) -> None:
        """``tls`` has the listeners that encrypt, by name, ``logins`` those where peers have to log in: also those that
        open later, if they are there by then.
        """
        self._tls = {} if tls is None else tls
        self._logins = {} if logins is None else logins
        self.limits = limits
        self._clock = clock
        self.connections: set[Connection] = set()
        self._routes = routes
        self._tables: list[RouteTable] = []
        """Those of all listeners."""
        self._make_request = make_request
        self.buffers = ReceiveBuffers(max(0, limits.queued_max_request_bytes), clock.monotonic_ms)
        self.totals: dict[str, NetworkTotals] = {}
        """By listener."""
        self.rates = ConnectionRates(
            rate_window or Window(), clock, limits.protected_listeners, self._find_room, metrics_window, self._most_from
        )
        self._servers: dict[str, asyncio.Server] = {}
        """By listener."""
        self._bound: list[BoundListener] = []
        self._supervisor = Supervisor("network")
        self._is_stopping = False
        self._shortage_told_ms: int | None = None
        self._full_told_ms: int | None = None
        self._gone_peers_turn = 0
        self._closed_in_all = 0
        """As of when freed memory was last given back."""

    def bind(self, listener: ListenerSpec) -> BoundListener:
        """Take the address and listen; connections wait there, since nobody answers yet.

        Raises:
            OperationError: the address is taken, or does not belong to this machine.
        """
        bound = BoundListener(listener, bound_socket(listener, self.limits))
        self._bound.append(bound)
        return bound

    async def accept(self, bound: BoundListener) -> None:
        """Start accepting connections on a bound listener."""
        loop = asyncio.get_running_loop()
        make = self._maker_of(bound.spec)
        server = await loop.create_server(make, sock=bound.socket, backlog=_backlog(self.limits))
        self._servers[bound.spec.name] = server
        self._bound.remove(bound)
        host = bound.spec.host or "0.0.0.0"
        logger.info("Awaiting socket connections on %s:%d. listener=%s", host, bound.port, bound.spec.name)

    async def listen(self, listener: ListenerSpec) -> tuple[str, int]:
        """Bind and accept; return the bound host and port."""
        bound = self.bind(listener)
        await self.accept(bound)
        return listener.host, bound.port

    async def close_listener(self, name: str) -> None:
        """Close a listener and its connections. What was counted there stays."""
        server = self._servers.pop(name)
        server.close()
        for connection in list(self.connections):
            if connection.session.listener_name == name:
                connection.close(CloseReason.STOPPING)
        await server.wait_closed()

    def start_idle_sweep(self) -> None:
        """Start closing connections that have been silent for ``connections.max.idle.ms``, or whose peer is gone."""
        self._supervisor.every(GONE_PEERS_INTERVAL_MS, self._close_gone, "gone peers")
        self._supervisor.every(GONE_PEERS_INTERVAL_MS, self._close_unknown, "unknown peers")
        self._supervisor.every(GONE_PEERS_INTERVAL_MS, self._give_memory_back, "freed memory")
        idle_ms = self.limits.connections_max_idle_ms
        if idle_ms > 0:
            self._supervisor.every(max(100, idle_ms // IDLE_SWEEPS), self._close_idle, "idle connections")

    def routes(self) -> list[Route]:
        """Return the APIs of each listener, in the versions that somebody has used there."""
        return [route for table in self._tables for route in table.values() if route is not None]

    def answers(self) -> dict[str, int]:
        """Return how many answers each listener has sent: to all requests but those that still wait."""
        sent = {name: totals.received()[0] - totals.unanswered for name, totals in self.totals.items()}
        for connection in self.connections:
            sent[connection.session.listener_name] -= connection.owed_answers
        return sent

    def stop_accepting(self) -> None:
        """Accept no new connections; existing ones continue."""
        for server in self._servers.values():
            server.close()

    async def stop(self) -> None:
        """Close the listeners and every connection."""
        self._is_stopping = True
        self.rates.stop()
        self.stop_accepting()
        for bound in self._bound:
            bound.socket.close()
        for connection in list(self.connections):
            connection.close(CloseReason.STOPPING)
        await self._supervisor.stop()
        for server in list(self._servers.values()):
            await server.wait_closed()

    def _maker_of(self, listener: ListenerSpec) -> Callable[[], Connection]:
        """Return what makes a listener's connections."""
        context = self._context(listener)
        policy, logins = self._tls.get(listener.name), self._logins.get(listener.name)
        match SecurityProtocol(listener.security_protocol):
            case SecurityProtocol.PLAINTEXT:
                return lambda: Connection(context)
            case SecurityProtocol.SSL if policy is not None:
                return lambda: TlsConnection(context, policy)
            case SecurityProtocol.SASL_PLAINTEXT if logins is not None:
                return lambda: LoginConnection(context, logins)
            case SecurityProtocol.SASL_SSL if policy is not None and logins is not None:
                return lambda: LoginTlsConnection(context, policy, logins)
        raise ValueError(f"nothing here protects listener {listener.name} as its security protocol promises")

    def _context(self, listener: ListenerSpec) -> ConnectionContext:
        totals = self.totals.setdefault(listener.name, NetworkTotals())
        routes = self._routes.of_listener()
        tables = [routes]
        if listener.name in self._logins:
            tables.append(self._logins[listener.name].routes)
        self._tables += tables
        totals.apis += tables
        return ConnectionContext(
            rules=ConnectionRules(routes, self.limits.socket_request_max_bytes),
            descriptors_max=self.limits.descriptors_max,
            buffers=self.buffers,
            supervisor=self._supervisor,
            make_request=self._make_request,
            is_request_log_on=request_logger.isEnabledFor(logging.DEBUG),
            listener_name=listener.name,
            security_protocol=listener.security_protocol,
            now_ms=self._clock.monotonic_ms,
            on_open=self._opened,
            on_close=self._closed,
            totals=totals,
        )

    def _opened(self, connection: Connection) -> CloseReason | None:
        self.connections.add(connection)
        host, listener = connection.session.host, connection.session.listener_name
        self.totals[listener].accepted += 1
        if self._is_stopping or listener not in self._servers:
            return CloseReason.STOPPING
        limits = self.limits
        if connection.descriptor >= limits.descriptors_max and not self._close_silent(connection):
            logger.warning("Refused a connection: no file descriptor is left for it peer=%s", host)
            return CloseReason.NO_DESCRIPTOR
        waiting = self.rates.waiting_at(listener)
        if waiting >= _backlog(limits):
            logger.warning(
                "Refused a connection: too many wait already peer=%s open=%d waiting=%d",
                host,
                self.rates.inside,
                waiting,
            )
            return CloseReason.TOO_MANY
        self.rates.admit(connection, listener, host)
        return None

    def change_limits(self, **changes: Any) -> None:
        """Change ``limits``. If there are too many connections now, this closes clients' longest-silent ones; if there
        may be more, it lets waiting ones in.
        """
        self.limits = replace(self.limits, **changes)
        self._close_excess(0)
        self.rates.look_for_room()

    def _most_from(self, address: str) -> int:
        """Return how many connections an address may have."""
        limits = self.limits
        return limits.max_connections_per_ip_overrides.get(address, limits.max_connections_per_ip)

    def _find_room(self, listener: str) -> bool:
        """Say whether a listener may have one more connection now; make room for one of a broker.

        Source: ConnectionQuotas of Kafka 3.9.
        """
        limits = self.limits
        of_listener = limits.max_connections_of_listeners.get(listener, limits.max_connections)
        has_room = self.rates.inside_of(listener) < of_listener
        if has_room and listener in limits.protected_listeners:
            self._close_excess(1)
        elif has_room:
            has_room = self.rates.inside < limits.max_connections
        now_ms = self._clock.monotonic_ms()
        if not has_room and (self._full_told_ms is None or now_ms - self._full_told_ms > SHORTAGE_TOLD_MS):
            self._full_told_ms = now_ms
            logger.warning(
                "New connections wait until others have ended: max.connections are open listener=%s open=%d of_all=%d",
                listener,
                self.rates.inside_of(listener),
                self.rates.inside,
            )
        return has_room

    def _close_excess(self, coming: int) -> None:
        """Close the longest-silent connections of clients until no more than max.connections are open.

        ``coming``: how many of brokers are about to be let in.
        """
        limits = self.limits
        if self.rates.inside + coming <= limits.max_connections:
            return
        there = [connection for connection in self.connections if connection.is_let_in and not connection.is_closed]
        excess = len(there) + coming - limits.max_connections
        clients = [c for c in there if c.session.listener_name not in limits.protected_listeners]
        for silent in heapq.nsmallest(excess, clients, key=lambda connection: connection.last_used_ms):
            logger.warning(
                "Closing a client's connection, since more than max.connections=%d are open peer=%s",
                limits.max_connections,
                silent.session.host,
            )
            silent.close(CloseReason.TOO_MANY)

    def _close_silent(self, newcomer: Connection) -> bool:
        """Close the longest-silent connection that is owed nothing, if there is one."""
        others = [
            connection
            for connection in self.connections
            if not (connection is newcomer or connection.is_busy or connection.closed_because)
        ]
        silent = min(others, key=lambda connection: connection.last_used_ms, default=None)
        if silent is None:
            return False
        now_ms = self._clock.monotonic_ms()
        if self._shortage_told_ms is None or now_ms - self._shortage_told_ms > SHORTAGE_TOLD_MS:
            self._shortage_told_ms = now_ms
            logger.warning(
                "Closing silent connections to make room for new ones: file descriptors are running out open=%d "
                "limit=%d. Raise the limit of open files (ulimit -n)",
                len(self.connections),
                self.limits.descriptors_max,
            )
        silent.close(CloseReason.NO_DESCRIPTOR)
        return True

    def _closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        totals = self.totals[connection.session.listener_name]
        totals.closed += 1
        totals.idle_closed += connection.closed_because is CloseReason.IDLE
        login = connection.session.login
        if connection.closed_because is CloseReason.NOT_AUTHENTICATED or (login is not None and login.is_over):
            if login is not None and login.was_complete:
                totals.failed_renewals += 1
            else:
                totals.failed_logins += 1
        host = connection.session.host
        self.rates.ended(connection, connection.session.listener_name, host)
        logger.debug("A connection ended: %s peer=%s:%d", _reason(connection), host, connection.session.port)

    def _close_gone(self) -> None:
        """Close connections that owe answers to peers that have hung up or vanished; otherwise only a send would
        notice.

        A peer that has only closed its sending side gets a moment to receive its answers. Nothing is read from those
        that wait to be let in. A peer that is owed nothing may not have received its last answer: this checks those in
        turn, because there may be many.
        """
        since_ms = self._clock.monotonic_ms() - GONE_PEERS_INTERVAL_MS
        self._gone_peers_turn = (self._gone_peers_turn + 1) % GONE_PEERS_TURNS
        turn = self._gone_peers_turn
        # What a muted peer sent before it hung up is still to be read.
        silent = [c for c in self.connections if c.last_used_ms < since_ms and not c.closed_because and not c.is_muted]
        awaited = [c for c in silent if c.owes_answers or not c.is_let_in or c.descriptor % GONE_PEERS_TURNS == turn]
        for connection in awaited:
            if is_peer_gone(read_tcp_info(connection.descriptor)):
                connection.close(CloseReason.PEER_GONE)

    def _close_unknown(self) -> None:
        """Close connections whose peers have taken too long to say who they are."""
        now_ms = self._clock.monotonic_ms()
        late = [c for c in self.connections if c.admit_until_ms is not None and c.admit_until_ms < now_ms]
        for connection in late:
            connection.close(CloseReason.NOT_AUTHENTICATED if connection.is_let_in else CloseReason.TOO_MANY)

    async def _give_memory_back(self) -> None:
        """Give the system what the connections had that have ended, if they were many.

        A handshake takes 45 kB in pieces, between which others live: by itself malloc gives back nothing.
        """
        closed = sum(totals.closed for totals in self.totals.values())
        if closed - self._closed_in_all >= GIVEN_BACK_AFTER:
            self._closed_in_all = closed
            await asyncio.to_thread(give_freed_memory_back)

    def _close_idle(self) -> None:
        oldest_ms = self._clock.monotonic_ms() - self.limits.connections_max_idle_ms
        for connection in [c for c in self.connections if c.last_used_ms < oldest_ms and not c.is_waited_for]:
            connection.close(CloseReason.IDLE)


def _reason(connection: Connection) -> str:
    return connection.closed_because.value if connection.closed_because else "unknown"


def bound_socket(listener: ListenerSpec, limits: ServerLimits) -> socket.socket:
    """Return a listening socket with the buffer sizes that accepted connections inherit.

    It listens at once: two processes can bind one address with SO_REUSEADDR, but only one can listen there.

    Raises:
        OperationError: the address is taken, or does not belong to this machine.
    """
    is_for_all = listener.host in _ALL_ADDRESSES and _has_ipv6()
    family = socket.AF_INET6 if is_for_all or ":" in listener.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    if is_for_all:
        # As in Java: IPv4 and IPv6, whatever the operating system's setting.
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if limits.socket_receive_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.socket_receive_buffer_bytes)
    if limits.socket_send_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.socket_send_buffer_bytes)
    keep_alive(sock)
    sock.setblocking(False)
    try:
        sock.bind(("::" if is_for_all else listener.host, listener.port))
        sock.listen(_backlog(limits))
    except OSError as error:
        sock.close()
        raise _bind_error(listener, error) from error
    return sock


def _has_ipv6() -> bool:
    """Return whether IPv6 works on this machine: it may be built in but switched off."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _backlog(limits: ServerLimits) -> int:
    return max(BACKLOG_MIN, limits.socket_listen_backlog_size)


def _bind_error(listener: ListenerSpec, error: OSError) -> OperationError:
    where = f"{listener.host or '0.0.0.0'}:{listener.port}"
    if error.errno == errno.EADDRINUSE:
        return OperationError(
            f"the address of listener {listener.name} is taken: {where}",
            hint=f"end the program that listens there ('ss -ltnp sport = :{listener.port}' names it), "
            "or change 'listeners'",
        )
    return OperationError(
        f"listener {listener.name} cannot be bound: {where}: {error.strerror}",
        hint="'listeners' must name an address of this machine; 'advertised.listeners' is what others are told",
    )
