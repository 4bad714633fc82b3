"""What can go wrong on a connection, as the client sees it."""

from __future__ import annotations

from engine.common.errors import KlammError


class NetworkError(KlammError):
    """A request got no answer over the network. ``address`` names the other end."""

    def __init__(self, message: str, *, address: str) -> None:
        super().__init__(f"{message}: {address}")
        self.address = address


class ConnectFailed(NetworkError):
    """Nobody accepts connections at the address, or the name does not resolve."""


class ConnectionLost(NetworkError):
    """The connection ended before the answer came; the request may or may not have taken effect."""


class RequestTimedOut(NetworkError):
    """No answer came in time; the request may or may not have taken effect."""


class NoCommonVersion(NetworkError):
    """The broker answers no version of the API that this side can send."""
