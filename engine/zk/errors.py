"""What can go wrong with ZooKeeper, as exceptions of ours; kazoo's never leave this package.

CoordinationError
├── ZooKeeperError        an answer of the server, or the want of one; ``path`` names the znode
│   ├── NoNode, NodeExists, BadVersion, NotEmpty, NoChildrenForEphemerals, NoAuth, InvalidAcl
│   ├── AuthFailed        the server refused our credentials
│   ├── ConnectionLost    the answer got lost; a write may or may not have happened (retried inside this package)
│   ├── SessionLost       the session is over: ephemerals and watches are gone, cached versions mean nothing any more
│   ├── TooLarge          a write that ZooKeeper hangs up on, again and again
│   ├── ConnectTimedOut   no server could be reached in time
│   └── MultiFailed       a multi was refused as a whole; names the operation that was the reason
├── ZnodeFormatError      a znode's content is not what its class expects
└── ControllerMoved       a guarded write was refused, for another controller has been elected
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
    """The znode exists already."""


class BadVersion(ZooKeeperError):
    """The znode has another version than expected."""


class NotEmpty(ZooKeeperError):
    """The znode has children."""


class NoChildrenForEphemerals(ZooKeeperError):
    """An ephemeral znode cannot have children."""


class NoAuth(ZooKeeperError):
    """Not allowed by the znode's ACL."""


class InvalidAcl(ZooKeeperError):
    """ZooKeeper does not accept this ACL."""


class AuthFailed(ZooKeeperError):
    """ZooKeeper refused the credentials."""


class ConnectionLost(ZooKeeperError):
    """The connection broke before the answer; a write may or may not have happened."""


class SessionLost(ZooKeeperError):
    """The ZooKeeper session is over; its ephemeral znodes are gone."""


class TooLarge(ZooKeeperError):
    """The write is too large for ZooKeeper (see jute.maxbuffer of its servers)."""


class ConnectTimedOut(ZooKeeperError):
    """No ZooKeeper server could be reached in time."""


class UnexpectedAnswer(ZooKeeperError):
    """ZooKeeper answered with an error that this operation does not expect."""


class MultiFailed(ZooKeeperError):
    """A multi was refused as a whole.

    Attributes:
        index: position of the operation that was the reason.
        error: what was wrong with it.
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
    """This is not the controller any more: its epoch is refused, an election was lost, or the session ended."""


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
}

ROLLED_BACK_CODES = frozenset({0, -2})
"""What a refused multi says of the operations that were not the reason: before it 0, after it -2."""


def error_of_code(code: int, path: str | None) -> ZooKeeperError:
    """Return the exception for one of ZooKeeper's error codes."""
    known = _BY_CODE.get(code)
    return UnexpectedAnswer(f"ZooKeeper answered with error {code}", path) if known is None else known(path=path)
