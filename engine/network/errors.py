"""What can go wrong between two ends of a connection, seen from the side that asks."""

from __future__ import annotations

from engine.common.errors import KlammError


class NetworkError(KlammError):
    """A request could not be answered over the network. ``address`` names the other end."""

    def __init__(self, message: str, *, address: str) -> None:
        super().__init__(f"{message}: {address}")
        self.address = address


class ConnectFailed(NetworkError):
    """Nobody accepts connections at the address, or the name does not resolve."""


class ConnectionLost(NetworkError):
    """The connection ended before the answer came; the request may or may not have been carried out."""


class RequestTimedOut(NetworkError):
    """No answer within the time allowed; the request may or may not have been carried out."""


class NoCommonVersion(NetworkError):
    """The broker answers no version of the API that this side can send."""
