"""What can go wrong on a connection, as the client sees it."""

from __future__ import annotations

from engine.common.errors import KlammError


class Unchanged(Exception):
    """The answer is the same as the last one, byte for byte. Only a caller that asked for this gets it."""


class NetworkError(KlammError):
    """A request got no answer over the network. ``address`` names the other end."""

    def __init__(self, message: str, *, address: str) -> None:
        super().__init__(f"{message}: {address}")
        self.address = address


class ConnectFailed(NetworkError):
    """Nothing accepts connections at the address, or the name does not resolve."""


class ConnectionLost(NetworkError):
    """The connection ended before the answer came; the request may or may not have taken effect.

    ``hint`` says what to do, where more is known than that.
    """

    def __init__(self, message: str, *, address: str, hint: str | None = None) -> None:
        super().__init__(message, address=address)
        self.hint = hint


class RequestTimedOut(NetworkError):
    """No answer came in time; the request may or may not have taken effect."""


class NoCommonVersion(NetworkError):
    """The broker answers no version of the API that this side can send."""


class NotAdmitted(NetworkError):
    """The broker can be reached, but TLS or the login failed; nothing was sent. ``hint`` says what to do."""

    def __init__(self, message: str, *, address: str, hint: str | None = None) -> None:
        super().__init__(message, address=address)
        self.hint = hint


class TlsFailed(NotAdmitted):
    """The TLS handshake failed, or the broker refused this client's certificate."""


class LoginFailed(NotAdmitted):
    """The broker refused the login, or what it needs cannot be obtained."""
