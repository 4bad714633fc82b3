"""Our exceptions for what can go wrong with ZooKeeper; kazoo's own never leave this package.

CoordinationError
├── ZooKeeperError        the server's error, or no answer from it; ``path`` names the znode
│   ├── NoNode, NodeExists, BadVersion, NotEmpty, NoChildrenForEphemerals, NoAuth, InvalidAcl
│   ├── NotAdmitted       TLS or a login failed: TlsFailed, AuthFailed (LoginRequired)
│   ├── ConnectionLost    the answer was lost; a write may or may not have happened (retried inside this package)
│   ├── SessionLost       the session is over: ephemerals and watches are gone, cached versions mean nothing any more
│   ├── TooLarge          a write on which ZooKeeper repeatedly closes the connection
│   ├── ConnectTimedOut   no server could be reached in time
│   └── MultiFailed       ZooKeeper refused a whole multi; names the operation at fault
├── ZnodeFormatError      a znode's content is not what its class expects
└── ControllerMoved       a guarded write was refused: another controller has been elected
"""

from __future__ import annotations

from engine.common.errors import CoordinationError


class ZooKeeperError(CoordinationError):
    """ZooKeeper refused a request, or did not answer it. ``path`` is the znode's whole path, with the chroot."""

    def __init__(self, message: str = "", path: str | None = None) -> None:
        text = message or (type(self).__doc__ or "").rstrip(".")
        super().__init__(f"{text}: {path}" if path else text)
        self.path = path


class NoNode(ZooKeeperError):
    """No such znode."""


class NodeExists(ZooKeeperError):
    """The znode already exists."""


class BadVersion(ZooKeeperError):
    """The znode's version is not the expected one."""


class NotEmpty(ZooKeeperError):
    """The znode has children."""


class NoChildrenForEphemerals(ZooKeeperError):
    """An ephemeral znode cannot have children."""


class NoAuth(ZooKeeperError):
    """The znode's ACL does not allow it."""


class InvalidAcl(ZooKeeperError):
    """ZooKeeper does not accept this ACL."""


class NotAdmitted(ZooKeeperError):
    """ZooKeeper can be reached, but TLS or the login failed; nothing was sent. ``hint`` says what to do."""

    def __init__(self, message: str = "", path: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message, path)
        self.hint = hint


class TlsFailed(NotAdmitted):
    """The TLS handshake with ZooKeeper failed, or it refused this side's certificate."""


class AuthFailed(NotAdmitted):
    """ZooKeeper refused the credentials."""


class LoginRequired(AuthFailed):
    """ZooKeeper serves nobody without a login."""


class ConnectionLost(ZooKeeperError):
    """The connection broke before the answer; a write may or may not have happened."""


class SessionLost(ZooKeeperError):
    """The session with ZooKeeper is over: no answer came in time, or ZooKeeper ended it."""


class TooLarge(ZooKeeperError):
    """The write is too large for ZooKeeper (see jute.maxbuffer of its servers)."""


class ConnectTimedOut(ZooKeeperError):
    """No ZooKeeper server could be reached in time."""


class UnexpectedAnswer(ZooKeeperError):
    """ZooKeeper answered with an error that this operation does not expect."""


class MultiFailed(ZooKeeperError):
    """ZooKeeper refused a whole multi.

    Attributes:
        index: position of the operation at fault.
        error: what was wrong with that operation.
    """

    def __init__(self, index: int, error: ZooKeeperError) -> None:
        super().__init__(f"operation {index} of a multi was refused: {error}")
        self.index = index
        self.error = error
        self.path = error.path


class ZnodeFormatError(CoordinationError):
    """A znode's content cannot be understood. ``path`` names it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot understand the content of {path}: {reason}")
        self.path = path


class ControllerMoved(CoordinationError):
    """This broker is not the controller any more: its epoch was refused, it lost an election, or its session ended."""


_BY_CODE: dict[int, type[ZooKeeperError]] = {
    -4: ConnectionLost,
    -7: ConnectionLost,
    -101: NoNode,
    -102: NoAuth,
    -103: BadVersion,
    -108: NoChildrenForEphemerals,
    -110: NodeExists,
    -111: NotEmpty,
    -112: SessionLost,
    -114: InvalidAcl,
    -115: AuthFailed,
    -118: SessionLost,
    -124: LoginRequired,
}

ROLLED_BACK_CODES = frozenset({0, -2})
"""The codes that a refused multi gives the other operations: 0 before the one at fault, -2 after it."""


def error_of_code(code: int, path: str | None) -> ZooKeeperError:
    """Return the exception for one of ZooKeeper's error codes."""
    known = _BY_CODE.get(code)
    return UnexpectedAnswer(f"ZooKeeper answered with error {code}", path) if known is None else known(path=path)
