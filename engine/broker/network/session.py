"""Who is at the other end of a connection, and what the connection lets it send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a peer that has not said who it is, in Kafka's spelling."""

UNKNOWN_SOFTWARE: Final = "unknown"
"""Name and version of the software of a peer that has not named it (KIP-511)."""

SMALLEST_FRAME_BYTES: Final = 8
"""API key, version and correlation id: no request is shorter."""

IN_FLIGHT_MAX: Final = 128
"""Maximum requests in flight on one connection; it reads no more until it has answered some."""


class ClientSoftware(NamedTuple):
    """The software of a peer, and whether it fetches as a follower."""

    name: str = UNKNOWN_SOFTWARE
    version: str = UNKNOWN_SOFTWARE
    is_follower: bool = False


class Routes(Protocol):
    """A ``RouteTable``, which knows sessions."""

    def __getitem__(self, word: int, /) -> Any:
        """Return the ``Route`` of an API key and version; None: the API is not served."""


@dataclass(frozen=True, slots=True)
class ConnectionRules:
    """What a connection accepts. The next frame is the first under new rules."""

    routes: Routes
    frame_bytes_max: int
    frame_bytes_min: int = SMALLEST_FRAME_BYTES
    in_flight_max: int = IN_FLIGHT_MAX
    """At least 1: then each request waits for the answer to the one before."""


def not_connected(ms: int) -> None:
    """Nothing is read from a session without a connection."""


class Session:
    """One connection as handlers see it.

    A handler may change the principal, the client's software and the rules: they belong to this connection alone.
    """

    __slots__ = (
        "client_software_name",
        "client_software_version",
        "commits",
        "decisions",
        "host",
        "is_by_token",
        "is_follower",
        "listener_name",
        "login",
        "mute",
        "port",
        "principal",
        "rules",
        "security_protocol",
    )

    def __init__(
        self, host: str, port: int, listener_name: str, security_protocol: int, rules: ConnectionRules
    ) -> None:
        self.host = host
        self.port = port
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.rules = rules
        self.principal = ANONYMOUS
        self.decisions: Any = None
        """What the peer may do, as far as it is known (``security.authorizer.Decisions``)."""
        self.is_by_token = False
        """Whether the peer has logged in with a delegation token."""
        self.is_follower = False
        """Whether the peer's last Fetch was that of a follower."""
        self.commits: list[Any] = []
        """The answers (``Deferred``) to the peer's OffsetCommits from the first one on that is not there yet."""
        self.login: Any = None
        """The login (``security.logins.Login``) on a listener where peers have to log in; else None."""
        self.mute: Callable[[int], None] = not_connected
        """Reads nothing more from the connection for this many milliseconds, from now on; answers still leave."""
        self.client_software_name = UNKNOWN_SOFTWARE
        self.client_software_version = UNKNOWN_SOFTWARE

    def note_commit(self, answer: Any) -> None:
        """Note the answer to an OffsetCommit, and forget those that are there."""
        commits = self.commits
        while commits and commits[0].response is not None:
            del commits[0]
        commits.append(answer)

    @property
    def network(self) -> str:
        """The peer's address, or the first half of an IPv6 one (its /64): whoever has that has all that begin with it.

        Addresses take turns by it, so nobody gets more of them with more addresses.
        """
        numbers = self.host.split(":")
        return self.host if len(numbers) == 1 else ":".join(numbers[:4])

    @property
    def software(self) -> ClientSoftware:
        """What the peer has called its software."""
        return ClientSoftware(self.client_software_name, self.client_software_version, self.is_follower)
