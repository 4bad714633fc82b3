"""Writes as values: a single write, or one part of a multi. Sends nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

ANY_VERSION = -1
"""Expected version that matches every version."""


class Acl(NamedTuple):
    """One entry of a znode's access list: permission bits (read 1, write 2, create 4, delete 8, admin 16) and who has
    them.
    """

    permissions: int
    scheme: str
    identity: str


OPEN_ACL = (Acl(31, "world", "anyone"),)
"""Everybody may do everything: Kafka's default without ``zookeeper.set.acl``."""
CREATOR_ACL = (Acl(31, "auth", ""),)
"""Only its creator may do anything; only for authenticated sessions."""
PROTECTED_ACL = (*CREATOR_ACL, Acl(1, "world", "anyone"))
"""Its creator may do everything, and everyone may read it."""


_PERMISSIONS = ((4, "c"), (8, "d"), (1, "r"), (2, "w"), (16, "a"))


def acl_text(entry: Acl, *, raw: bool = False) -> str:
    """Return an entry as ZooKeeper's shell shows it. A digest's hash can be guessed at: only the raw form has it."""
    permissions = "".join(letter for bit, letter in _PERMISSIONS if entry.permissions & bit)
    identity = entry.identity if raw or entry.scheme != "digest" else entry.identity.partition(":")[0]
    return f"{entry.scheme}:{identity}:{permissions}"


def acl_texts(acl: Iterable[Acl], *, raw: bool = False) -> tuple[str, ...]:
    """Return all entries of an access list as texts."""
    return tuple(acl_text(entry, raw=raw) for entry in acl)


class ZnodeStat(NamedTuple):
    """What ZooKeeper knows about a znode besides its data; zxids order all writes of the ensemble.

    ``version`` counts writes of the data, ``cversion`` changes of the children, ``aversion`` those of the access list;
    ``pzxid`` is the last change of the children; ``ephemeral_owner`` is the owning session's id, 0 for persistent ones.
    """

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode. If ``data`` is None, store null, as Kafka does for folders. The result is the path."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False
    acl: tuple[Acl, ...] = OPEN_ACL


@dataclass(frozen=True, slots=True)
class SetData:
    """Write a znode's data if it has this version. The result is the new ZnodeStat."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a znode without children if it has this version. The result is None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """In a multi only: refuse everything unless the znode has this version. The result is None."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check
OperationResult = str | ZnodeStat | None
