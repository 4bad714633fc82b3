"""What the network knows about a request before and after its handler. It knows no API and no part of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

from engine.broker.network.session import Session
from engine.runtime.purgatory import DelayedOperation


class RequestUse:
    """What one request has used, kept only while a client has a quota."""

    __slots__ = ("_began_ns", "_held_ns", "mutations")

    def __init__(self) -> None:
        self._held_ns = self._began_ns = 0
        self.mutations: Any = None
        """What the request may change in the cluster, if that is limited."""

    def begin(self) -> None:
        """The request begins to keep the event loop."""
        self._began_ns = perf_counter_ns()

    def pause(self) -> None:
        """It gives the event loop back."""
        self._held_ns, self._began_ns = self.held_ns, 0

    @property
    def held_ns(self) -> int:
        """How long the request has kept the event loop until now."""
        return self._held_ns + (perf_counter_ns() - self._began_ns if self._began_ns else 0)


class RequestHead:
    """One request's header fields and its session. Each request creates one, so it is small."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id", "session", "size_bytes", "use")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, session: Session
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.session = session
        self.size_bytes = 0
        self.use: RequestUse | None = None

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r}, "
            f"peer={self.session.host}:{self.session.port})"
        )


class Deferred:
    """An answer that comes later. The handler returns it; the code that has the answer calls ``complete`` once.

    Meanwhile the connection handles its peer's next requests and keeps the order of the answers. ``abandon`` tells
    the owner of the waiting operation that the connection is gone; it is called at most once, and never after
    ``complete``.
    """

    __slots__ = ("_on_complete", "_waiter", "abandon", "on_answered", "response", "weight")

    def __init__(self, abandon: Callable[[], None] | None = None, *, weight: int = 1) -> None:
        """``weight``: for how many of the answers that a connection may owe it counts."""
        self.weight = weight
        self.response: Any = None
        self.abandon = abandon
        self.on_answered: Callable[[], None] | None = None
        """Called before the answer is sent; it measures how long it took."""
        self._on_complete: Callable[[], None] | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_complete(self) -> bool:
        return self.response is not None

    def complete(self, response: Any) -> None:
        """Set the answer: a response message, or ``NO_RESPONSE``. A second call is a programming error."""
        assert self.response is None, "a deferred answer is given once"
        self.response = response
        self.abandon = None
        on_answered, on_complete = self.on_answered, self._on_complete
        # They know the connection, which keeps its last answers: that would be a cycle.
        self.on_answered = self._on_complete = None
        # First: whatever the others do, the request that waits is handled.
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if on_answered is not None:
            on_answered()
        if on_complete is not None:
            on_complete()

    async def wait(self) -> None:
        """Return when the answer is there. One request may wait for another's: a later one of its connection."""
        if self.response is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def give_up(self) -> None:
        """Tell the owner that nobody waits any more, so that it releases everything at once, including open files."""
        abandon, self.abandon = self.abandon, None
        if abandon is not None:
            abandon()

    def on_complete(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the answer is there; at once if it already is."""
        if self.response is not None:
            callback()
        else:
            self._on_complete = callback


class DelayedAnswer(DelayedOperation):
    """An operation that a request waits for. Its end completes ``deferred``, which the handler returns."""

    __slots__ = ("deferred",)

    def __init__(self, delay_ms: int, *, weight: int = 1) -> None:
        super().__init__(delay_ms)
        self.deferred = Deferred(abandon=self.cancel, weight=weight)

    def on_fault(self) -> None:
        """Close the connection: there is no answer to give."""
        if not self.deferred.is_complete:
            self.deferred.complete(CLOSE_FOR_FAULT)


class LargeAnswer:
    """An answer that a thread encodes. A coroutine returns it, and nothing may change it from then on."""

    __slots__ = ("response",)

    def __init__(self, response: Any) -> None:
        self.response = response


class EncodedAnswer:
    """An answer whose bytes are made already: many requests get the same. It completes deferred answers only."""

    __slots__ = ("body", "error_code", "error_count")

    def __init__(self, body: bytes, error_code: int, error_count: int) -> None:
        """``error_count``: how many times it has the error, which may be none."""
        self.body = body
        self.error_code = error_code
        self.error_count = error_count


class _NoResponse:
    """Type of ``NO_RESPONSE``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NO_RESPONSE"


NO_RESPONSE: Final = _NoResponse()
"""A handler's result if the protocol wants no answer (Produce with acks=0)."""


class _CloseConnection:
    """Type of ``CLOSE_CONNECTION``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "CLOSE_CONNECTION"


CLOSE_FOR_FAULT: Final = _CloseConnection()
"""Completes a deferred answer that can no longer be given, because the program has failed."""

CLOSE_CONNECTION: Final = _CloseConnection()
"""A handler's result to close the connection without an answer (a failed Produce with acks=0)."""

CLOSE_UNAUTHENTICATED: Final = _CloseConnection()
"""A result that closes the connection without an answer, because its peer has not authenticated."""

NOT_ENCODED: Final = (NO_RESPONSE, CLOSE_FOR_FAULT, CLOSE_CONNECTION, CLOSE_UNAUTHENTICATED)
"""Results of a handler that send nothing."""
