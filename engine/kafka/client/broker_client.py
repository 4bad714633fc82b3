"""The client side of a connection, for brokers among themselves and for tools. It pipelines requests.

It knows one address and no cluster: finding leaders and retrying are the caller's job.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple, cast

from engine.common.collection import collector_paused
from engine.common.errors import ErrorCode, RemoteProtocolError
from engine.common.model import SecurityProtocol, address_text
from engine.common.version import VERSION
from engine.kafka.client.errors import (
    ConnectFailed,
    ConnectionLost,
    NetworkError,
    NoCommonVersion,
    NotAdmitted,
    RequestTimedOut,
    Unchanged,
)
from engine.kafka.client.security import PLAINTEXT, Security
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from engine.kafka.protocol.codec import Outgoing
from engine.kafka.protocol.declaration import Request, Response
from engine.kafka.protocol.frames import decode_response, encode_request
from engine.runtime.offload import beside_loop
from engine.runtime.receive_buffers import ReceiveBuffers

logger = logging.getLogger(__name__)

_SIZE = struct.Struct(">i")
_ERRNO = re.compile(r"\[Errno (\d+)\]")

CLOSE_TIMEOUT_MS = 1000
"""How long ``close`` waits for a peer that does not read what was written."""

ANSWER_BYTES_MAX = 1024 * 1024 * 1024
"""A larger answer counts as garbage: something other than Kafka listens there."""

MANY_VALUES_BYTES = 32 * 1024
"""An answer of this size makes a thousand values and more, which hold no cycles. They are made without the collector,
which else would soon scan everything in the process for them.
"""

CLIENT_SOFTWARE_NAME = "klamm"

RENEWED_FROM, RENEWED_UNTIL = 0.85, 0.95
"""A login is renewed after a share of its life between these, as Kafka's clients do: not all of them at once."""

_LOGIN_ENDED = (
    "the broker took the login and then hung up, as it does when a token has expired: that goes by its own clock, so "
    "compare it with this machine's; or the broker has just ended"
)

CLOSED = "klamm closed the connection"
"""The error of requests that still wait for an answer, unless there is another reason."""


class ChannelTotals:
    """What connections to other brokers have done since the start; those that replace each other share one."""

    __slots__ = ("bytes_in", "bytes_out", "closed", "created", "largest_request", "requests", "responses")

    def __init__(self) -> None:
        self.created = self.closed = 0
        self.requests = self.responses = 0
        self.bytes_in = self.bytes_out = 0
        self.largest_request = 0

    def sent(self, size_bytes: int) -> None:
        """Count a request."""
        self.requests += 1
        self.bytes_out += size_bytes
        self.largest_request = max(self.largest_request, size_bytes)


class LastAnswer:
    """What an answer was made of that was decoded last: another one that is the same need not be decoded."""

    __slots__ = ("content",)

    def __init__(self) -> None:
        self.content = b""
        """Without the correlation id; empty: there was none."""


class _Waiting:
    """A request that was sent and has no answer yet."""

    __slots__ = ("api_key", "api_version", "future", "is_large", "last")

    def __init__(
        self, api_key: int, api_version: int, *, is_large: bool = False, last: LastAnswer | None = None
    ) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.last = last
        self.api_key = api_key
        self.api_version = api_version
        self.is_large = is_large


class _Wire(asyncio.BufferedProtocol):
    """Splits incoming bytes into answers and gives each to the request that waits for it."""

    def __init__(self, client: BrokerClient, *, lends_answers: bool) -> None:
        self._client = client
        self._lends_answers = lends_answers
        self._is_lent = False
        """An answer in the receive buffer is being read, so nothing may be written there."""
        self._buffers = ReceiveBuffers()
        self._buffer = self._buffers.borrow(64 * 1024)
        self._start = 0
        self._end = 0
        self.transport: asyncio.Transport | None = None
        self.lost_by: Exception | None = None
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._client.totals.bytes_in += nbytes
        wanted = 0
        while self._end - self._start >= 4:
            (size,) = _SIZE.unpack_from(self._buffer, self._start)
            if not 4 <= size <= ANSWER_BYTES_MAX:
                self._client.broken(f"the answer announces {size} bytes, which no Kafka broker sends")
                return
            stop = self._start + 4 + size
            if stop > self._end:
                wanted = size + 4
                break
            answer = self._buffer[self._start + 4 : stop]
            self._start = stop
            if self._lends_answers:
                self._is_lent = True
                self._client.answered(answer)
            else:
                # Answers outlive the receive buffer, because their reader may be slow: each gets its own bytes.
                self._client.answered(memoryview(bytes(answer)))
        self._make_room(wanted)

    def take_back(self) -> None:
        """Reuse the lent buffer: its reader has finished."""
        self._is_lent = False
        self._make_room(0)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        self.lost_by = exc
        self._client.wire_lost(self, "the connection was closed" if exc is None else f"the connection broke: {exc}")

    def _make_room(self, wanted: int) -> None:
        rest = self._end - self._start
        needed = max(wanted, rest + 4)
        if self._start + needed > len(self._buffer):
            must_move = self._is_lent or needed > len(self._buffer)
            target = self._buffers.borrow(needed) if must_move else self._buffer
            self._is_lent = False
            target[:rest] = self._buffer[self._start : self._end]
            self._buffer, self._start, self._end = target, 0, rest
        elif rest == 0 and not self._is_lent:
            self._start = self._end = 0


class SetupTimeouts(NamedTuple):
    """How long the network may take to open a connection, TLS included: each failure doubles it, up to the most."""

    first_ms: int = 10_000
    most_ms: int = 30_000

    @property
    def steady(self) -> SetupTimeouts:
        """The same without growth."""
        return SetupTimeouts(min(self), min(self))

    def after(self, failures: int) -> int:
        return min(self.first_ms << min(failures, 32), self.most_ms)


DEFAULT_SETUP_TIMEOUTS = SetupTimeouts()


class BrokerClient:
    """A connection to one broker. Use it from one event loop."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        setup_timeouts: SetupTimeouts | None = None,
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        lends_answers: bool = False,
        security: Security = PLAINTEXT,
        totals: ChannelTotals | None = None,
    ) -> None:
        """With ``lends_answers`` the bytes of an answer (its records) are not copied, and are valid only until the
        next request. This suits a caller that asks again only after using the answer, as a follower does.
        ``connect_timeout_ms`` includes a login; ``setup_timeouts`` end earlier what hangs before it.
        """
        self.host = host
        self.port = port
        self.client_id = client_id
        self.totals = totals or ChannelTotals()
        self._setup_timeouts = setup_timeouts
        self._failed_setups = 0
        """Number of the last tries to open the connection, all of which failed."""
        self._connect_timeout_ms = connect_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._lends_answers = lends_answers
        self._security = security
        self._held: list[Outgoing] | None = None
        """What is sent while a login is under way, as no other request may come between its steps; else None."""
        self._is_admitted = False
        """The connection may be used: TLS and the login are done."""
        self._responses_at_login = -1
        """How many answers had come when it was admitted by a login; -1: it needs none."""
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._wire: _Wire | None = None
        self._connecting = asyncio.Lock()
        self._closings = 0
        """Number of closes: a connection that opens after a close would have no owner."""
        self._waiting: dict[int, _Waiting] = {}
        self._next_correlation_id = 0
        self._versions: dict[int, tuple[int, int]] | None = None

    @property
    def address(self) -> str:
        return address_text(self.host, self.port)

    @property
    def is_connected(self) -> bool:
        return self._wire is not None and self._is_admitted

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The broker's certificate as ``ssl`` describes it; None without TLS or a connection."""
        transport = None if self._wire is None else self._wire.transport
        return None if transport is None else transport.get_extra_info("peercert")

    async def connect(self) -> None:
        """Open the connection if it is not open, with TLS and a login if its security asks for them.

        Raises:
            ConnectFailed: refused, unreachable, no answer in time, or closed during the attempt.
            NotAdmitted: TLS or the login failed.
            ConfigError: a key store or trust store cannot be used.
        """
        if self._wire is not None:
            return
        closings = self._closings
        try:
            # Simultaneous calls share one connection: nothing would notice the loss of a second one.
            async with asyncio.timeout(self._connect_timeout_ms / 1000), self._connecting:
                if self._wire is not None:
                    return
                wire = await self._open_in_time()
                if self._closings != closings:
                    if wire.transport is not None:
                        wire.transport.close()
                    raise ConnectFailed("klamm gave up this connection before it was open", address=self.address)
                self._wire = wire
                self.totals.created += 1
                self._versions = None
                if self._security.protocol is not SecurityProtocol.PLAINTEXT:
                    await self._be_admitted(wire)
                self._is_admitted = True
                self._responses_at_login = -1 if self._security.sasl is None else self.totals.responses
        except TimeoutError as error:
            raise ConnectFailed(f"no connection within {self._connect_timeout_ms} ms", address=self.address) from error
        except OSError as error:
            raise ConnectFailed(f"cannot connect ({_reason(error)})", address=self.address) from error

    async def _open_in_time(self) -> _Wire:
        if self._setup_timeouts is None:
            return await self._open()
        failures, self._failed_setups = self._failed_setups, 0
        limit_ms = self._setup_timeouts.after(failures)
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await self._open()
        except OSError as error:
            self._failed_setups = failures + 1
            if not isinstance(error, TimeoutError):
                raise
            raise ConnectFailed(f"no connection within {limit_ms} ms", address=self.address) from error

    async def _open(self) -> _Wire:
        """Open the connection, and TLS on it if there is any."""

        def factory() -> _Wire:
            return _Wire(self, lends_answers=self._lends_answers)

        loop, settings = asyncio.get_running_loop(), self._security.tls
        if settings is None:
            _, wire = await loop.create_connection(factory, self.host, self.port)
            return wire
        from engine.kafka.client.tls.context import client_context, tls_failure

        context = await asyncio.to_thread(client_context, settings)
        try:
            _, wire = await loop.create_connection(
                factory, self.host, self.port, ssl=context, server_hostname=self.host,
                ssl_handshake_timeout=self._connect_timeout_ms / 1000,
            )  # fmt: skip
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, EOFError) as error:
            raise await tls_failure(error, settings, self.host, self.port) from error
        return wire

    async def _be_admitted(self, wire: _Wire) -> None:
        """Ask for the broker's versions, and log in.

        Under TLS 1.3 only the first answer tells a client that its certificate is refused.
        """
        self._held = []
        try:
            await self.api_versions()
            await self._log_in()
        except ConnectionLost as error:
            if self._security.tls is not None and isinstance(wire.lost_by, ssl.SSLError):
                from engine.kafka.client.tls.context import tls_failure

                raise await tls_failure(wire.lost_by, self._security.tls, self.host, self.port) from error
            hint = "does security.protocol name the protocol of this listener?"
            raise NotAdmitted("the broker closes the connection", address=self.address, hint=hint) from error
        except BaseException:
            if wire is self._wire:
                self.broken("the login failed")
            raise
        finally:
            self._send_held()

    async def _log_in(self) -> None:
        """Log in, and again before the broker ends the session (KIP-368)."""
        if self._security.sasl is None:
            return
        from engine.kafka.client.sasl.login import log_in

        lifetime_ms = await log_in(self._ask_now, self._security.sasl, await self.api_versions(), self.address)
        if lifetime_ms > 0:
            after_s = lifetime_ms / 1000 * random.uniform(RENEWED_FROM, RENEWED_UNTIL)
            self._renewal = asyncio.get_running_loop().call_later(after_s, self._renew)

    def _renew(self) -> None:
        self._renewing = asyncio.create_task(self._log_in_again(), name=f"log-in-again-{self.address}")

    async def _log_in_again(self) -> None:
        self._held = []
        try:
            async with asyncio.timeout(self._request_timeout_ms / 1000):
                await self._log_in()
        except (NetworkError, RemoteProtocolError, TimeoutError) as error:
            # The next request opens a new connection, whose login tells what is wrong.
            logger.warning("the login at %s could not be renewed: %s", self.address, error)
            self.broken(f"the login could not be renewed: {error or 'no answer in time'}")
        finally:
            if self._renewing is asyncio.current_task():
                self._renewing = None
                self._send_held()

    def _send_held(self) -> None:
        held, self._held = self._held, None
        for frame in held or ():
            if self._wire is not None and self._wire.transport is not None:
                self._wire.transport.write(frame)

    async def _ask_now(self, request: Request, api_version: int) -> Any:
        """Ask at once, though other requests are held back."""
        held, self._held = self._held, None
        try:
            future = self.post(request, api_version)
        finally:
            self._held = held
        return await future

    async def send(
        self,
        request: Request,
        api_version: int,
        *,
        timeout_ms: int | None = None,
        is_large: bool = False,
        last: LastAnswer | None = None,
    ) -> Any:
        """Send a request in a given version and return its answer; several may be in flight at once.

        A thread encodes a request that ``is_large``, and decodes its answer, which a client that lends answers cannot
        do. The request must not change until then, and later requests may overtake it.

        Raises:
            ConnectionLost, RemoteProtocolError.
            RequestTimedOut: the connection is closed as well, since the peer may be gone without a word.
            Unchanged: the answer is the ``last`` one.
        """
        if not self.is_connected and self._held is None:
            await self.connect()
        if is_large:
            correlation_id = self._take_correlation_id()
            frame = await beside_loop(encode_request, request, api_version, correlation_id, self.client_id)
            waiting = _Waiting(int(request.api_key), api_version, is_large=not self._lends_answers)
            future: asyncio.Future[Any] = self._post(frame, waiting, correlation_id)
        else:
            future = self.post(request, api_version, last)
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                answer = await future
                if isinstance(answer, memoryview):
                    _, answer = await beside_loop(decode_response, answer, request.api_key, api_version)
                return answer
        except TimeoutError as error:
            silence = _silence(request, limit_ms)
            self._was_not_answered(future, silence)
            raise RequestTimedOut(silence, address=self.address) from error
        except asyncio.CancelledError:
            # The answer is still due: others may ask here, and be as impatient.
            loop = asyncio.get_running_loop()
            loop.call_later(limit_ms / 1000, self._was_not_answered, future, _silence(request, limit_ms))
            raise

    def _was_not_answered(self, future: asyncio.Future[Any], silence: str) -> None:
        """End the connection, unless an earlier request still has time: answers come in the order of the requests."""
        for waiting in self._waiting.values():
            if waiting.future is future:
                self.broken(silence)
                return
            if not waiting.future.done():
                return

    def post(self, request: Request, api_version: int, last: LastAnswer | None = None) -> asyncio.Future[Response]:
        """Write a request now and return a future for its answer; the connection must be open."""
        if self._wire is None:
            raise ConnectionLost("not connected", address=self.address)
        correlation_id = self._take_correlation_id()
        frame = encode_request(request, api_version, correlation_id, self.client_id)
        return self._post(frame, _Waiting(int(request.api_key), api_version, last=last), correlation_id)

    def _take_correlation_id(self) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        return correlation_id

    def _post(self, frame: Outgoing, waiting: _Waiting, correlation_id: int) -> asyncio.Future[Any]:
        """Write a request; its future is given the answer, or what was received if it ``is_large``."""
        if self._wire is None or self._wire.transport is None:
            raise ConnectionLost("not connected", address=self.address)
        if self._lends_answers:
            self._wire.take_back()
        self.totals.sent(len(frame))
        self._waiting[correlation_id] = waiting
        self._write(self._wire.transport, frame)
        return waiting.future

    def _write(self, transport: asyncio.Transport, frame: Outgoing) -> None:
        if self._held is None:
            transport.write(frame)
        else:
            self._held.append(frame)

    def tell(self, request: Request, api_version: int) -> None:
        """Write a request that has no answer (Produce with acks=0); the connection must be open."""
        if self._wire is None or self._wire.transport is None:
            raise ConnectionLost("not connected", address=self.address)
        correlation_id = self._take_correlation_id()
        self._write(self._wire.transport, encode_request(request, api_version, correlation_id, self.client_id))

    async def call(self, request: Request, *, timeout_ms: int | None = None, version_max: int | None = None) -> Any:
        """Send a request in the highest common version, and return its answer.

        Raises:
            NoCommonVersion: the broker answers this API in no version that we have.
        """
        api_version = await self.version_for(request.api_key, version_max=version_max)
        return await self.send(request, api_version, timeout_ms=timeout_ms)

    async def version_for(self, key: ApiKey, *, version_max: int | None = None) -> int:
        """Return the highest version of an API that both sides have, at most ``version_max``."""
        spec = API_SPECS[key]
        lowest, highest = (await self.api_versions()).get(int(key), (0, -1))
        best = min(highest, spec.max_version, spec.max_version if version_max is None else version_max)
        if best < max(lowest, spec.min_version):
            raise NoCommonVersion(f"the broker does not offer {key.name} in a version known here", address=self.address)
        return best

    async def api_versions(self) -> dict[int, tuple[int, int]]:
        """Return the broker's versions, as (lowest, highest) by API key; asks once per connection."""
        if self._versions is None:
            response = await self._ask_api_versions(3)
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
                response = await self._ask_api_versions(0)
            if response.error_code != ErrorCode.NONE:
                raise RemoteProtocolError(f"the answer to ApiVersions has error {response.error_code}")
            self._versions = {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}
        return self._versions

    async def close(self, reason: str = CLOSED) -> None:
        """Close the connection after pending writes; requests in flight end with ConnectionLost and this reason.

        A Produce with acks=0 has no answer to wait for, so ``close`` must not drop anything that was sent.
        """
        self._closings += 1
        if self._renewing is not None:
            await asyncio.wait([self._renewing], timeout=CLOSE_TIMEOUT_MS / 1000)
        wire = self._wire
        if wire is None or wire.transport is None:
            return
        transport, self._wire = wire.transport, None
        self.totals.closed += 1
        transport.close()
        self.broken(reason)
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
                await wire.closed.wait()
        except TimeoutError:
            transport.abort()

    def answered(self, frame: memoryview) -> None:
        """Pass an answer to the request that waits for it. Only the wire calls this."""
        self.totals.responses += 1
        (correlation_id,) = _SIZE.unpack_from(frame)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            self.broken(f"an answer to request {correlation_id}, which was never asked")
            return
        try:
            self._settle(waiting, frame)
        except asyncio.InvalidStateError:
            # The first Ctrl-C, or TERM, cancels a wait in whatever line it finds the program.
            return

    @staticmethod
    def _settle(waiting: _Waiting, frame: memoryview) -> None:
        if waiting.future.done():
            return
        if waiting.is_large:
            waiting.future.set_result(frame)
            return
        content = b"" if waiting.last is None else bytes(frame[_SIZE.size :])
        if waiting.last is not None and content == waiting.last.content:
            waiting.future.set_exception(Unchanged())
            return
        try:
            with collector_paused() if len(frame) >= MANY_VALUES_BYTES else nullcontext():
                _, response = decode_response(frame, ApiKey(waiting.api_key), waiting.api_version)
        except RemoteProtocolError as error:
            waiting.future.set_exception(error)
        else:
            waiting.future.set_result(response)
            if waiting.last is not None:
                waiting.last.content = content

    def wire_lost(self, wire: _Wire, reason: str) -> None:
        """The connection ended; ignore one that was given up before. Only the wire calls this."""
        if wire is self._wire:
            is_login_all = self._is_admitted and self.totals.responses == self._responses_at_login
            self.broken(reason, hint=_LOGIN_ENDED if is_login_all else None)

    def broken(self, reason: str, *, hint: str | None = None) -> None:
        """End the connection and every request in flight; ``hint`` says what to do, where more is known."""
        wire, self._wire = self._wire, None
        self.totals.closed += wire is not None
        self._is_admitted = False
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        if self._renewing is not None:
            # Its next step would come amid the login of the next connection, which what it held is not for.
            if self._renewing is not asyncio.current_task():
                self._renewing.cancel()
            self._renewing = self._held = None
        waiting, self._waiting = self._waiting, {}
        for request in waiting.values():
            if not request.future.done():
                request.future.set_exception(ConnectionLost(reason, address=self.address, hint=hint))
        if wire is not None and wire.transport is not None:
            wire.transport.abort()

    async def _ask_api_versions(self, api_version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=VERSION)
        if self._is_admitted or self._wire is None:
            return cast("ApiVersionsResponse", await self.send(request, api_version))
        return cast("ApiVersionsResponse", await self._ask_now(request, api_version))


__all__ = ["BrokerClient", "NetworkError"]


def _silence(request: Request, limit_ms: float) -> str:
    return f"no answer to {type(request).__name__.removesuffix('Request')} within {limit_ms / 1000:g} s"


def _reason(error: OSError) -> str:
    """Return why a connection failed, in the system's words; asyncio's repeat the address in Python's form.

    If a name has several addresses, the text has the reasons of all of them.
    """
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    codes = [error.errno] if error.errno is not None else [int(code) for code in _ERRNO.findall(str(error))]
    return ", ".join(dict.fromkeys(os.strerror(code).lower() for code in codes)) or str(error)
