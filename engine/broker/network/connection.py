"""One accepted connection: frames in, ordered answers out.

The read's own callback handles all frames of one read and answers them with one write: no task, no future, no copy
per request. Answers leave in the order of their requests (Kafka's rule). An answer that must wait holds back later
answers, but not the handling of requests. An ``async`` handler mutes the connection until it is done, so that effects
keep their order too.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter
from types import CoroutineType
from typing import Any, cast
from weakref import WeakKeyDictionary

from engine.broker.metrics.requests import NetworkTotals, RequestTimes
from engine.broker.network.inbox import Inbox
from engine.broker.network.request import (
    CLOSE_CONNECTION,
    CLOSE_FOR_FAULT,
    NO_RESPONSE,
    NOT_ENCODED,
    Deferred,
    EncodedAnswer,
    LargeAnswer,
    RequestHead,
)
from engine.broker.network.routes import Requester, Route, drop_long_texts
from engine.broker.network.sender import Sender, SocketSender
from engine.broker.network.session import ConnectionRules, Session, not_connected
from engine.common.collection import allow_full_collections, put_off_full_collections
from engine.common.errors import RemoteProtocolError
from engine.common.model import address_in_java
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.codec import Outgoing
from engine.kafka.protocol.decoder_source import MEMORY_BYTES_MIN, memory_bytes_max
from engine.kafka.protocol.frames import skip_header_tags
from engine.kafka.protocol.produce_frames import names_many_partitions
from engine.runtime.discards import Discards, message_in_pieces
from engine.runtime.offload import beside_loop
from engine.runtime.receive_buffers import ReceiveBuffers
from engine.runtime.room import Room
from engine.runtime.supervisor import Supervisor
from engine.runtime.turns import Turns

logger = logging.getLogger(__name__)
request_logger = logging.getLogger("kafka.request.logger")

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">Ii")
_CLIENT_ID_LENGTH = struct.Struct(">h")
_ANSWER_HEAD = struct.Struct(">ii")
_NO_LINGER = struct.pack("ii", 1, 0)
"""Makes the end of a connection a reset."""

QUEUED_BYTES_MAX = 1024 * 1024
"""Maximum unread answers of a slow peer before its further requests stay unread too.

As many may be ready behind one that must wait.
"""


TURN_MS_MAX = 2
"""A connection whose requests have kept the event loop for this long lets all others go on before its next request."""

LARGE_FRAME_BYTES = 32 * 1024
"""From this size on, a thread decodes the request and encodes its answer while the connection is muted.

An element takes three bytes: the 10,000 of a smaller frame hold the loop for 10 ms, those of 256 KB for 100 ms.
"""

LARGE_MEMORY_BYTES = MEMORY_BYTES_MIN
"""Large requests of one kind that are at work may take so much memory together; one that may take more is alone.

Those that wait for the cluster may keep as much again.
"""

KEPT_PER_BYTE = 16
"""A large request keeps at most this many times its own size while it waits for the cluster: its bytes, and
those of the answer, which may have a message for each element.
"""

PRODUCED_AT_ONCE_MAX = 2000
"""Most bytes of a Produce request are records, which nobody decodes; but a request that names more topics and
partitions than this is large.
"""


ADMIT_WITHIN_MS = 60_000
"""A peer that has to log in and has not by then loses its connection, however much it sends. So does one that has not
been let in by then.
"""


class CloseReason(Enum):
    """Why a connection ended; the log has it once."""

    PEER_CLOSED = "the peer closed it"
    PEER_GONE = "the peer is gone, though it is still owed an answer"
    PEER_BROKE_PROTOCOL = "the peer broke the protocol"
    UNSUPPORTED = "the peer asked for an unsupported API or version"
    IDLE = "it was idle for connections.max.idle.ms"
    NOT_AUTHENTICATED = "the peer could not authenticate"
    LOGIN_EXPIRED = "its login had expired, and it went on without renewing it"
    TOO_MANY = "there are too many connections"
    TOO_FAST = "its address opens more connections a second than connection_creation_rate allows"
    NO_DESCRIPTOR = "file descriptors run short"
    FAILED_ACKS_0 = "a Produce with acks=0 failed, to which Kafka sends no answer"
    FAULT = "the broker failed to answer"
    STOPPING = "the broker is stopping"
    WRITE_FAILED = "writing to the peer failed"


@dataclass(slots=True)
class ConnectionContext:
    """State that all connections of a listener share."""

    rules: ConnectionRules
    """Those of a new connection."""
    descriptors_max: int
    """From this descriptor on, descriptors run short."""
    buffers: ReceiveBuffers
    supervisor: Supervisor
    make_request: Callable[[int, int, int, str | None, Session], RequestHead]
    is_request_log_on: bool
    listener_name: str
    security_protocol: int
    now_ms: Callable[[], int]
    """The monotonic clock of the broker."""
    on_open: Callable[[Connection], CloseReason | None]
    on_close: Callable[[Connection], None]
    totals: NetworkTotals = field(default_factory=NetworkTotals)
    """Bytes of all connections of the listener."""


_ROOMS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Requester, Room]] = WeakKeyDictionary()


def _do_nothing() -> None:
    """Stands for a callback that is not set yet."""


def _encoded_without_long_texts(route: Route, answer: Any, out: Outgoing) -> bool:
    """Encode an answer that could not be, if its long texts were why; return whether it is encoded now."""
    try:
        if drop_long_texts(answer):
            route.encode(out, answer)
            return True
    except Exception:
        return False
    return False


def _takes_long(route: Route, frame: memoryview, position: int) -> bool:
    """Return whether a large frame has many elements: records are bytes that nobody decodes."""
    if route.request_has_tags:
        if any(frame[position : position + 1]):
            return True
        position += 1
    return route.api_key != ApiKey.PRODUCE or names_many_partitions(
        frame, position, route.api_version, PRODUCED_AT_ONCE_MAX
    )


class _Pending:
    """One answer's place in the order of a connection."""

    __slots__ = ("answer", "correlation_id", "route", "weight")

    def __init__(self, route: Route, correlation_id: int, answer: Any, weight: int) -> None:
        self.route = route
        self.correlation_id = correlation_id
        self.answer = answer
        self.weight = weight


class Connection(asyncio.BufferedProtocol):
    """The server side of one connection. Everything runs on the event loop's thread."""

    def __init__(self, context: ConnectionContext) -> None:
        self._context = context
        # Nobody logs in before there is a peer.
        self.session = Connection._new_session(self, "", 0)
        self.closed_because: CloseReason | None = None
        self.ends_because = CloseReason.PEER_CLOSED
        """Why it ends once the peer has all that it is owed, if nothing more is to be heard."""
        self.last_active_ms = context.now_ms()
        self.descriptor = -1
        self.admit_until_ms: int | None = None
        """Until then the peer must have said who it is; None: it has, or need not."""
        self._transport: asyncio.Transport | None = None
        self._sender: Sender | None = None
        self._inbox = Inbox(context.buffers)
        self._pending: deque[_Pending] = deque()
        self._held_bytes = 0
        self._in_flight = 0
        self._is_async_running = False
        self._waits_for_turn = False
        self._waits_since_s = 0.0
        self._queued_s = 0.0
        """For how long the requests that are handled now have waited for the connection's turns."""
        self._on_async_answer: Callable[[], None] = _do_nothing
        self._is_handling = False
        self._is_reading_paused = False
        self._muted_until_ms = 0
        self._unmuting: asyncio.TimerHandle | None = None
        self._is_held = False
        self.is_let_in = False
        """Whether it counts as one of the connections that the broker may have."""
        self.hears_nothing_more = False
        self._client_id: str | None = ""
        self._client_id_bytes = b"\0\0"
        """The client id with its length, as the last header had it: it hardly ever changes."""

    # The transport's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        # Rules, quotas and groups know a peer by the address that Kafka gives it.
        self.session = self._new_session(address_in_java(host) if ":" in host else host, port)
        self.descriptor = transport.get_extra_info("socket").fileno()
        self.session.mute = self._mute
        self._sender = self._make_sender(self._transport)
        refusal = self._context.on_open(self)
        if refusal is not None:
            self.close(refusal)

    def _make_sender(self, transport: asyncio.Transport) -> Sender:
        context = self._context
        return SocketSender(
            asyncio.get_running_loop(), self.descriptor, self._go_on, self._on_write_error, context.now_ms,
            descriptors_max=context.descriptors_max,
        )  # fmt: skip

    def _new_session(self, host: str, port: int) -> Session:
        context = self._context
        return Session(host, port, context.listener_name, context.security_protocol, context.rules)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed_because = self.closed_because or CloseReason.PEER_CLOSED
        if self._sender is not None:
            self._sender.close()
        self._context.totals.unanswered += self.owed_answers
        self._context.totals.other_bytes_out -= self._held_bytes
        pending, self._pending = self._pending, deque()
        self._is_async_running = False
        self._in_flight = 0
        for slot in pending:
            if isinstance(slot.answer, Deferred):
                slot.answer.give_up()
        self._inbox.release()
        self._context.buffers.wait_no_more(self._take_memory)
        self.session.mute = not_connected
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._context.on_close(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_ms = self._context.now_ms()
        self._inbox.received(nbytes)
        self._handle()

    def eof_received(self) -> bool:
        """The peer sends no more; its requests still get answers."""
        self.hears_nothing_more = True
        return self._is_owed

    @property
    def is_busy(self) -> bool:
        """Whether the peer is still owed an answer."""
        return bool(self._pending) or self._is_async_running or self._waits_for_turn

    @property
    def owed_answers(self) -> int:
        """How many requests are neither answered nor known to need no answer."""
        return len(self._pending) + self._is_async_running

    @property
    def is_waited_for(self) -> bool:
        """Whether the peer waits for this side: it is owed an answer, and none is ready that it does not read."""
        return self.is_busy and (self._sender is None or self._sender.queued_bytes == 0)

    @property
    def owes_answers(self) -> bool:
        """Whether an answer is still owed or in transit."""
        return self.closed_because is None and (self.is_busy or self.is_unread)

    @property
    def last_used_ms(self) -> int:
        """Time of the last bytes in or out: a peer that reads a long answer slowly is not idle."""
        return self.last_active_ms if self._sender is None else max(self.last_active_ms, self._sender.last_progress_ms)

    @property
    def is_muted(self) -> bool:
        """Whether nothing is read from the peer because it has used more than its share."""
        return self._unmuting is not None

    @property
    def is_unread(self) -> bool:
        """Whether answers are ready that the peer does not read."""
        return self._sender is not None and self._sender.queued_bytes > 0

    @property
    def _is_owed(self) -> bool:
        """Whether the peer is still to get an answer, or the rest of one, or may be asking for one."""
        return self.is_busy or self.is_muted or self.is_unread

    @property
    def is_closed(self) -> bool:
        return self.closed_because is not None

    def hold(self) -> None:
        """Handle nothing until ``let_in``; what the peer sends waits in the kernel, but for what one read takes."""
        self._is_held = self._inbox.is_exempt = True

    def let_in(self) -> None:
        """Begin to serve the connection. Its peer has not been able to log in before."""
        self._is_held, self.is_let_in = False, True
        self._inbox.is_exempt = self.session.login is not None
        if self.admit_until_ms is not None:
            self.admit_until_ms = self._context.now_ms() + ADMIT_WITHIN_MS
        self._go_on()

    def turn_away(self, after_ms: int) -> None:
        """Close the connection after this time: a peer that is refused at once comes back at once.

        A peer that has asked something sees a reset, as with Kafka, which reads nothing from it.
        """
        self._is_held = True
        self._unmuting = asyncio.get_running_loop().call_later(after_ms / 1000, self._close_unheard)

    def refuse(self, most: int) -> None:
        """Close the connection: its address has ``most`` already, and may not have more."""
        logger.warning(
            "Refused a connection: its address already has the %d that max.connections.per.ip or "
            "max.connections.per.ip.overrides allows it peer=%s",
            most,
            self.session.host,
        )
        self.close(CloseReason.TOO_MANY)

    def _close_unheard(self) -> None:
        if self._transport is not None and not self._inbox.is_empty:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.close(CloseReason.TOO_FAST)

    def close(self, reason: CloseReason) -> None:
        """End the connection; the log gets the first reason given."""
        self.closed_because = self.closed_because or reason
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: CloseReason) -> None:
        """Stop reading, and close once all owed answers are sent: Kafka reads the next request only then."""
        if self.ends_because is CloseReason.PEER_CLOSED:
            self.ends_because = reason
        self.hears_nothing_more = self._is_held = True

    # Frames in.

    def _can_handle(self) -> bool:
        return (
            not self._is_async_running
            and not self._waits_for_turn
            and self._unmuting is None
            and not self._is_held
            and (not self._in_flight or self._in_flight < self.session.rules.in_flight_max)
            and self.closed_because is None
            and self._sender is not None
            and self._sender.queued_bytes < QUEUED_BYTES_MAX
            and self._held_bytes < QUEUED_BYTES_MAX
        )

    def _handle(self) -> None:
        """Handle the whole frames received and send the ready answers, usually in one write.

        What is left when the connection's turn is over waits for its next one.
        """
        self._is_handling = True
        begun_s = perf_counter()
        until_s = begun_s + TURN_MS_MAX / 1000
        while self._can_handle():
            out = Outgoing()
            is_exhausted = self._handle_frames(out, begun_s, until_s)
            self._flush(out)
            if is_exhausted:
                break
            begun_s = perf_counter()
        self._is_handling = False
        self._inbox.keep_rest()
        if self._inbox.lacks_memory:
            self._wait_for_memory()
        self._settle()

    def _handle_frames(self, out: Outgoing, begun_s: float, until_s: float) -> bool:
        """Handle frames until no whole one is left, the turn is over or there is much to send; return whether none is
        left. The caller knows that the first may be handled.
        """
        inbox, session = self._inbox, self.session
        try:
            while True:
                rules = session.rules
                frame = inbox.next_frame(rules.frame_bytes_min, rules.frame_bytes_max)
                if frame is None:
                    return True
                self._handle_frame(frame, out, begun_s)
                if inbox.is_empty:
                    return True
                begun_s = perf_counter()
                if begun_s >= until_s:
                    self._wait_for_turn()
                if len(out) >= QUEUED_BYTES_MAX or not self._can_handle():
                    return False
        except Exception as error:
            self._context.totals.other_requests += 1
            self._context.totals.unanswered += 1
            self._refuse(error)
            inbox.release()
        return False

    def _handle_frame(self, frame: memoryview, out: Outgoing, begun_s: float) -> None:
        word, correlation_id = _HEAD.unpack_from(frame)
        route: Route | None = self.session.rules.routes[word]
        if route is None:
            self._end(CloseReason.UNSUPPORTED)
            raise RemoteProtocolError(f"API {word >> 16} version {word & 0xFFFF} is not supported here")
        if route.deprecated is not None:
            route.count_deprecated(self.session.software)
        size, position = len(frame), 8
        client_id: str | None = None
        if route.has_client_id:
            position += len(self._client_id_bytes)
            if frame[8:position] != self._client_id_bytes:
                position = self._read_client_id(frame)
            client_id = self._client_id
        is_large = size >= LARGE_FRAME_BYTES and route.decode is not None and _takes_long(route, frame, position)
        request = self._context.make_request(route.api_key, route.api_version, correlation_id, client_id, self.session)
        request.size_bytes = size
        if route.is_async or is_large:
            # It outlives the receive buffer, so its request gets its own bytes.
            frame = self._inbox.kept(frame)
        if is_large:
            self._is_async_running = True
            self._context.supervisor.start(self._handle_large(route, request, frame, position), route.name)
            self._note_async(route.follower_times if self.session.is_follower else route.times, size, begun_s)
            return
        if route.request_has_tags:
            position = skip_header_tags(frame, position)
        answer = None
        if route.plain_handler is not None and not self._context.is_request_log_on:
            try:
                answer = route.plain_handler(request, frame, position)
            except Exception:
                answer = self._fault(route, request)
        if answer is None:
            body = None if route.decode is None else route.decode(frame, position)[0]
            if self._context.is_request_log_on:
                request_logger.debug("Received %s %r %r", route.name, request, body)
            try:
                answer = route.handler(request, body)
            except Exception:
                answer = self._fault(route, request)
        times = route.times
        if route.is_fetch and self.session.is_follower:
            times = route.follower_times
        if type(answer) is route.response_class and not self._pending:
            self._encode(route, correlation_id, answer, out)
        elif type(answer) is CoroutineType:
            self._is_async_running = True
            self._context.supervisor.start(self._finish(route, request, answer), route.name)
            self._note_async(times, size, begun_s)
            return
        elif type(answer) is Deferred and answer.response is None:
            self._keep(route, correlation_id, answer, answer.weight)
            answer.on_complete(self._deferred_completed)
            times.new_requests.append(size)
            # Few are timed, and a follower's Fetch almost always waits: to call that for each would cost half of all
            # counting.
            if begun_s >= times.timed_from_s:
                answer.on_answered = self._time_wait(times, begun_s)
            return
        else:
            self._place(route, correlation_id, answer, out)
        times.new_requests.append(size)
        if begun_s >= times.timed_from_s:
            times.answered_at_once(self._queued_s, perf_counter() - begun_s, times.stands_for(begun_s))

    def _note_async(self, times: RequestTimes, size_bytes: int, begun_s: float) -> None:
        """Count a request that began at ``begun_s`` and that a coroutine answers."""
        times.new_requests.append(size_bytes)
        is_timed = begun_s >= times.timed_from_s
        self._on_async_answer = self._time_wait(times, begun_s) if is_timed else _do_nothing

    def _time_wait(self, times: RequestTimes, begun_s: float) -> Callable[[], None]:
        """Time a request that began at ``begun_s``; return what to call when its answer is there."""
        weight, now_s = times.stands_for(begun_s), perf_counter()
        queued_s, local_s = self._queued_s, now_s - begun_s

        def answered() -> None:
            times.answered_later(queued_s, local_s, perf_counter() - now_s, weight)

        return answered

    def _read_client_id(self, frame: memoryview) -> int:
        """Keep the client id; return where the header continues."""
        if len(frame) < 10:
            raise RemoteProtocolError("the request ends inside its header")
        (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, 8)
        position: int = 10 + max(length, 0)
        if len(frame) < position:
            raise RemoteProtocolError("the request ends inside its client id")
        # As in Java, what is no UTF-8 becomes U+FFFD: clients of other codes work as well.
        self._client_id = None if length < 0 else str(frame[10:position], "utf-8", "replace")
        self._client_id_bytes = bytes(frame[8:position])
        return position

    async def _handle_large(self, route: Route, request: RequestHead, frame: memoryview, position: int) -> None:
        """Decode a large request, handle it and encode its answer; only the handler itself uses the event loop."""
        size, decoding = len(frame), beside_loop(route.decode_large, frame, position)
        # Only decoding needs it: the body has its own bytes.
        del frame
        with ExitStack() as waiting:
            waiting.callback(decoding.close)
            self._context.buffers.count(size)
            waiting.callback(self._context.buffers.count, -size)
            async with self._room_for(route).held(memory_bytes_max(size), KEPT_PER_BYTE * size, self.session.network):
                put_off_full_collections()
                try:
                    await self._handle_beside(route, request, decoding, waiting.close)
                finally:
                    allow_full_collections()

    def _room_for(self, route: Route) -> Room:
        """Return what requests of its kind share."""
        rooms = _ROOMS.setdefault(asyncio.get_running_loop(), {})
        if route.requester not in rooms:
            rooms[route.requester] = Room(LARGE_MEMORY_BYTES)
        return rooms[route.requester]

    async def _handle_beside(
        self, route: Route, request: RequestHead, decoding: Coroutine[Any, Any, Any], forget_frame: Callable[[], None]
    ) -> None:
        try:
            body = await decoding
            forget_frame()
            await Turns.of_loop().wait()
        except Exception as error:
            self._context.totals.unanswered += self._is_async_running
            self._is_async_running = False
            self._refuse(error)
            self._settle()
            return
        if self._context.is_request_log_on:
            request_logger.debug("Received %s %r %r", route.name, request, body)
        route = route.of_large_answers()
        try:
            answer = route.large_handler(request, body)
            if type(answer) is CoroutineType:
                answer = await answer
        except Exception:
            answer = self._fault(route, request)
        if isinstance(answer, LargeAnswer):
            answer = answer.response
        if not isinstance(answer, Deferred) and answer not in NOT_ENCODED:
            answer = await self._encoded_beside(route, request, answer, body)
        del body
        self._answer_of_async(route, request, answer)

    async def _encoded_beside(self, route: Route, request: RequestHead, answer: Any, body: Any = None) -> Outgoing:
        """Encode an answer in a thread. What it and a large request hold is freed piece by piece afterwards."""
        encoded = Outgoing()

        def encode() -> list[object]:
            self._encode(route, request.correlation_id, answer, encoded)
            return [*message_in_pieces(answer), *message_in_pieces(body)]

        Discards.of_loop().put(await beside_loop(encode))
        return encoded

    async def _finish(self, route: Route, request: RequestHead, coroutine: CoroutineType[Any, Any, Any]) -> None:
        try:
            await Turns.of_loop().wait()
            answer = await coroutine
        except asyncio.CancelledError:
            coroutine.close()
            raise
        except Exception:
            answer = self._fault(route, request)
        if isinstance(answer, LargeAnswer):
            answer = await self._encoded_beside(route, request, answer.response)
        self._answer_of_async(route, request, answer)

    def _answer_of_async(self, route: Route, request: RequestHead, answer: Any) -> None:
        is_owed, self._is_async_running = self._is_async_running, False
        if isinstance(answer, Deferred) and not answer.is_complete:
            answer.on_answered = self._on_async_answer
        else:
            self._on_async_answer()
        if self.closed_because is None:
            if type(answer) is Outgoing and not self._pending:
                # A copy of a large one would take as much again.
                out = answer
            else:
                out = Outgoing()
                self._place(route, request.correlation_id, answer, out)
            self._flush(out)
        else:
            # If the connection is lost already, it has counted what it owed.
            self._context.totals.unanswered += is_owed
        self._settle()
        self._go_on()

    def _fault(self, route: Route, request: RequestHead) -> Any:
        """Report a failed handler in the log, and to the peer if the API has a field for it."""
        logger.exception("Cannot handle a request api=%s request=%r", route.name, request)
        response = route.fault_response()
        if response is None:
            return CLOSE_FOR_FAULT
        return response

    def _refuse(self, error: Exception) -> None:
        """Log that a request is unreadable, by the peer's fault or ours, and close the connection."""
        is_peers_fault = isinstance(error, RemoteProtocolError)
        reason = CloseReason.PEER_BROKE_PROTOCOL if is_peers_fault else CloseReason.FAULT
        self._end(reason)
        logger.log(
            logging.WARNING if is_peers_fault else logging.ERROR,
            "Closing a connection because %s: %s peer=%s:%d listener=%s",
            self.ends_because.value,
            error,
            self.session.host,
            self.session.port,
            self.session.listener_name,
            exc_info=None if is_peers_fault else error,
        )

    # Answers out.

    def _place(self, route: Route, correlation_id: int, answer: Any, out: Outgoing) -> None:
        """Encode the answer; if it is not its turn yet, keep it in its place."""
        if isinstance(answer, Deferred):
            self._keep(route, correlation_id, answer, answer.weight)
            answer.on_complete(self._deferred_completed)
        elif self._pending:
            self._keep(route, correlation_id, self._held(route, correlation_id, answer), 1)
        elif type(answer) is Outgoing:
            out.append_whole(answer)
        else:
            self._encode(route, correlation_id, answer, out)

    def _keep(self, route: Route, correlation_id: int, answer: Any, weight: int) -> None:
        self._pending.append(_Pending(route, correlation_id, answer, weight))
        self._in_flight += weight

    def _held(self, route: Route, correlation_id: int, answer: Any) -> Any:
        """Return the bytes of an answer that waits for an earlier one: the object would take many times the memory."""
        if answer in NOT_ENCODED:
            # What follows an end is never handled.
            self._is_held |= answer is not NO_RESPONSE
            return answer
        if type(answer) is Outgoing:
            held = answer
        else:
            held = Outgoing()
            self._encode(route, correlation_id, answer, held)
        self._held_bytes += held.memory_bytes if held.ranges else len(held)
        return held

    def _deferred_completed(self) -> None:
        if self._is_handling or self.closed_because is not None:
            return
        self._flush(Outgoing())
        sender = self._sender
        if self._is_reading_paused or self.hears_nothing_more or sender is None or sender.queued_bytes:
            self._settle()
            self._go_on()

    def _take_ready(self, out: Outgoing) -> None:
        """Encode the pending answers whose turn it is."""
        while self._pending:
            slot = self._pending[0]
            answer = slot.answer
            if isinstance(answer, Deferred):
                answer = answer.response
                if answer is None:
                    return
            self._pending.popleft()
            self._in_flight -= slot.weight
            if type(answer) is Outgoing:
                self._held_bytes -= answer.memory_bytes if answer.ranges else len(answer)
                out.append_whole(answer)
            else:
                self._encode(slot.route, slot.correlation_id, answer, out)

    def _encode(self, route: Route, correlation_id: int, response: Any, out: Outgoing) -> None:
        if response is NO_RESPONSE or response is CLOSE_FOR_FAULT or response is CLOSE_CONNECTION:
            self._context.totals.unanswered += 1
            if response is not NO_RESPONSE:
                self._end(CloseReason.FAULT if response is CLOSE_FOR_FAULT else CloseReason.FAILED_ACKS_0)
            return
        if type(response) is EncodedAnswer:
            route.errors[response.error_code] += response.error_count
            size = 4 + route.response_has_tags + len(response.body)
            route.new_answers.append(size)
            out += _ANSWER_HEAD.pack(size, correlation_id)
            if route.response_has_tags:
                out.append(0)
            out += response.body
            return
        if route.counts_errors:
            if route.count_errors is None:
                if response.error_code:
                    route.errors[response.error_code] += 1
            elif type(response) is route.response_class:
                route.count_errors(route.errors, response)
        start, ranges_before = len(out), len(out.ranges)
        out += _ANSWER_HEAD.pack(0, correlation_id)
        if route.response_has_tags:
            out.append(0)
        try:
            route.encode(out, response)
        except Exception:
            del out[start + (9 if route.response_has_tags else 8) :]
            if out.ranges:
                del out.ranges[ranges_before:]
            if not _encoded_without_long_texts(route, response, out):
                # If raised further, it would reach the code that completed the answer, and leave the peer hanging.
                logger.exception("Cannot encode an answer api=%s version=%d", route.name, route.api_version)
                del out[start:]
                if out.ranges:
                    del out.ranges[ranges_before:]
                self._end(CloseReason.FAULT)
                self._context.totals.unanswered += 1
                return
        size = len(out) - start - 4
        if len(out.ranges) > ranges_before:
            size += sum(part.size_bytes for _, part in out.ranges[ranges_before:])
        route.new_answers.append(size)
        _SIZE.pack_into(out, start, size)

    def _flush(self, out: Outgoing) -> None:
        """Send ``out`` and the pending answers whose turn it is."""
        if self._pending:
            self._take_ready(out)
        if out and self._sender is not None:
            self._sender.send(out)

    def _settle(self) -> None:
        """End the connection if there is a reason to; continue reading only if new requests can be handled."""
        if self.closed_because is None and self.hears_nothing_more and not self._is_owed:
            self.closed_because = self.ends_because
        if self.closed_because is not None:
            self._shut()
        elif not self._is_reading_paused and not self._can_handle():
            self._is_reading_paused = True
            self._pause_reading()

    def _wait_for_memory(self) -> None:
        """Read on when there is memory for the frame that has begun."""
        self._is_held = True
        self._context.buffers.wait(self._take_memory)

    def _take_memory(self) -> None:
        if self._inbox.lacks_memory and not self.hears_nothing_more:
            self._inbox.keep_rest()
            if self._inbox.lacks_memory:
                self._wait_for_memory()
            else:
                self._is_held = False
                self._go_on()

    def _wait_for_turn(self) -> None:
        self._waits_for_turn = True
        self._waits_since_s = perf_counter()
        Turns.of_loop().put(self._take_turn)

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        self._queued_s += perf_counter() - self._waits_since_s
        self._go_on()
        if not self._waits_for_turn:
            self._queued_s = 0.0

    def _go_on(self) -> None:
        """Resume after a delay: handle the requests already received, then read on."""
        if self._is_reading_paused and self._can_handle():
            self._handle()
            if self._can_handle():
                self._is_reading_paused = False
                self._resume_reading()
        elif self.hears_nothing_more:
            self._settle()

    def _mute(self, ms: int) -> None:
        """Handle and read nothing more for this time: the peer has used more than its share."""
        now_ms = self._context.now_ms()
        self._muted_until_ms = max(self._muted_until_ms, now_ms + ms)
        if self._unmuting is None and self.closed_because is None:
            delay_s = (self._muted_until_ms - now_ms) / 1000
            self._unmuting = asyncio.get_running_loop().call_later(delay_s, self._unmute)
            if not self._is_handling:
                self._settle()

    def _unmute(self) -> None:
        self._unmuting = None
        left_ms = self._muted_until_ms - self._context.now_ms()
        if left_ms > 0:
            self._mute(left_ms)
        else:
            self._go_on()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _on_write_error(self, error: OSError) -> None:
        logger.debug("Writing to a peer failed peer=%s:%d error=%s", self.session.host, self.session.port, error)
        self.close(CloseReason.WRITE_FAILED)

    def _shut(self) -> None:
        """Close after pending writes; drop the unsent bytes of a peer that does not read."""
        if self._transport is not None:
            self._transport.close()
