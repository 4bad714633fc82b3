"""Looks at znodes: one, or a whole tree read level by level with all reads of a level in flight at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Do, Operation, Phrase
from engine.admin.znodes.decoding import decode_znode, raw_text
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import NoAuth, NoNode, ZooKeeperError
from engine.kafka.zk.operations import Acl, ZnodeStat, acl_texts


@dataclass(frozen=True, slots=True)
class Znode:
    """One znode as it is shown. ``data`` is decoded, or text where the raw form was wanted.

    ``acl`` holds texts such as ``sasl:kafka:cdrwa``; None if it was not asked for, or may not be read.
    """

    path: str
    kind: str | None
    data: object
    complaint: str | None
    version: int
    children_count: int
    ephemeral_owner: str | None
    czxid: int
    mzxid: int
    created: datetime | None
    modified: datetime | None
    acl: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2] or "/"

    @property
    def depth(self) -> int:
        return 0 if self.path == "/" else self.path.count("/")


async def get_znode(zk: ZkClient, path: str, *, raw: bool = False) -> Znode:
    """Return one znode.

    Raises:
        BadRequest: not a path.
        NotFound: there is no such znode.
    """
    path = checked_path(path)
    try:
        data, stat = await zk.get(path)
    except NoNode as error:
        raise _missing(path) from error
    (acl,) = await zk.get_acl_many([path])
    return replace(_znode(path, data, stat, raw=raw), acl=_acl(acl, raw=raw))


async def get_tree(
    zk: ZkClient, path: str, *, depth_max: int | None = None, raw: bool = False, with_acls: bool = False
) -> list[Znode]:
    """Return a znode and everything below it, depth first by name; what disappears meanwhile is left out.

    A znode that this session may not read has a complaint instead of data.

    Args:
        depth_max: how many levels below the root to show.

    Raises:
        BadRequest: not a path.
        NotFound: there is no such znode.
    """
    root = checked_path(path)
    found: dict[str, Znode] = {}
    await _add(zk, found, [root], raw=raw)
    if not found:
        raise _missing(root)
    level, depth = [root], 0
    while level and (depth_max is None or depth < depth_max):
        level = await _children_of(zk, [path for path in level if found[path].children_count])
        await _add(zk, found, level, raw=raw)
        level = [path for path in level if path in found]
        depth += 1
    if with_acls:
        paths = list(found)
        for path, acl in zip(paths, await zk.get_acl_many(paths), strict=True):
            found[path] = replace(found[path], acl=_acl(acl, raw=raw))
    return [found[path] for path in sorted(found, key=lambda path: path.split("/"))]


def checked_path(path: str) -> str:
    """Return a path as ZooKeeper wants it, without a slash at the end.

    Raises:
        BadRequest: it does not begin with a slash, or has an empty part.
    """
    trimmed = path.rstrip("/") or "/"
    if not trimmed.startswith("/") or "//" in trimmed:
        raise BadRequest(f"not a path: {path!r}", hint="a path begins with / and is relative to the chroot")
    return trimmed


_UNKNOWN = ZnodeStat(-1, -1, -1, -1, -1, -1, -1, 0, 0, 0, -1)
"""Of a znode of which only the name may be known."""


async def _add(zk: ZkClient, found: dict[str, Znode], paths: Sequence[str], *, raw: bool) -> None:
    """Read znodes. What a znode is can be seen without the right to read it."""
    hidden = []
    for path, answer in zip(paths, await zk.get_many(paths), strict=True):
        if isinstance(answer, NoAuth):
            hidden.append(path)
        elif isinstance(answer, ZooKeeperError):
            _only_no_node(answer)
        else:
            found[path] = _znode(path, *answer, raw=raw)
    for path, stat in zip(hidden, await zk.exists_many(hidden), strict=True):
        if isinstance(stat, ZooKeeperError) and not isinstance(stat, NoAuth):
            _only_no_node(stat)
        elif stat is not None:
            # Since ZooKeeper 3.8.3, seeing that a znode exists needs the right to read it.
            known = stat if isinstance(stat, ZnodeStat) else _UNKNOWN
            found[path] = replace(_znode(path, b"", known, raw=raw), complaint=f"its ACL hides it from you: {path}")


def _acl(read: tuple[tuple[Acl, ...], object] | ZooKeeperError, *, raw: bool) -> tuple[str, ...] | None:
    return None if isinstance(read, ZooKeeperError) else acl_texts(read[0], raw=raw)


async def _children_of(zk: ZkClient, paths: Sequence[str]) -> list[str]:
    children: list[str] = []
    for path, answer in zip(paths, await zk.children_many(paths), strict=True):
        if isinstance(answer, NoAuth):
            continue
        if isinstance(answer, ZooKeeperError):
            _only_no_node(answer)
        else:
            prefix = "" if path == "/" else path
            children += [f"{prefix}/{name}" for name in answer]
    return children


def _only_no_node(error: ZooKeeperError) -> None:
    """Ignore a znode that disappeared while the tree was read; raise anything else."""
    if not isinstance(error, NoNode):
        raise error


def _znode(path: str, data: bytes, stat: ZnodeStat, *, raw: bool) -> Znode:
    decoded = decode_znode(path, data, stat)
    return Znode(
        path=path,
        kind=decoded.kind,
        data=raw_text(data) if raw else decoded.value,
        complaint=None if raw else decoded.complaint,
        version=stat.version,
        children_count=stat.num_children,
        ephemeral_owner=f"0x{stat.ephemeral_owner & (1 << 64) - 1:x}" if stat.ephemeral_owner else None,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        created=_time(stat.ctime_ms),
        modified=_time(stat.mtime_ms),
    )


def _time(timestamp_ms: int) -> datetime | None:
    return None if timestamp_ms < 0 else datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def _missing(path: str) -> NotFound:
    parent = path.rpartition("/")[0] or "/"
    return NotFound("no such znode", where=path, hint=Phrase("see what exists: ", Do(Operation.LIST_ZNODES, parent)))
