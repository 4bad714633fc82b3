"""What the network knows of a request before and after its handler ran. Knows no API and no part of a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Peer:
    """Who sits at the other end of a connection."""

    host: str
    port: int
    listener_name: str
    security_protocol: int
    principal: str = "User:ANONYMOUS"


class RequestHead:
    """One request's header fields and its peer. Each request has a new one; small on purpose."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id", "peer")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, peer: Peer) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.peer = peer

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r}, "
            f"peer={self.peer.host}:{self.peer.port})"
        )


class Deferred:
    """An answer that comes later. The handler returns it; whoever has the answer calls ``complete`` once.

    The connection goes on with its peer's next requests meanwhile and keeps the order of the answers. ``abandon`` tells
    the owner of the waiting operation that the connection is gone; it is called at most once, never after ``complete``.
    """

    __slots__ = ("_on_complete", "abandon", "response")

    def __init__(self, abandon: Callable[[], None] | None = None) -> None:
        self.response: Any = None
        self.abandon = abandon
        self._on_complete: Callable[[], None] | None = None

    @property
    def is_complete(self) -> bool:
        return self.response is not None

    def complete(self, response: Any) -> None:
        """Give the answer: a response message, or ``NO_RESPONSE``. Calling it again is a programming error."""
        assert self.response is None, "a deferred answer is given once"
        self.response = response
        self.abandon = None
        if self._on_complete is not None:
            self._on_complete()

    def give_up(self) -> None:
        """Tell the owner that nobody waits any more. What the operation holds, open files too, is let go at once."""
        abandon, self.abandon = self.abandon, None
        if abandon is not None:
            abandon()

    def on_complete(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the answer is there; at once if it is there already."""
        if self.response is not None:
            callback()
        else:
            self._on_complete = callback


class LargeAnswer:
    """An answer that is encoded beside the event loop. A coroutine returns it; nothing changes in it from then on."""

    __slots__ = ("response",)

    def __init__(self, response: Any) -> None:
        self.response = response


class _NoResponse:
    """Type of ``NO_RESPONSE``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NO_RESPONSE"


NO_RESPONSE: Final = _NoResponse()
"""What a handler returns when the protocol wants no answer (Produce with acks=0)."""


class _CloseConnection:
    """Type of ``CLOSE_CONNECTION``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "CLOSE_CONNECTION"


CLOSE_FOR_FAULT: Final = _CloseConnection()
"""What a deferred answer is completed with that nobody can give any more: the program has failed."""

CLOSE_CONNECTION: Final = _CloseConnection()
"""What a handler returns to have the connection closed without an answer (a failed Produce with acks=0)."""
