"""The ZooKeeper protocol requests that klamm sends, in the form that kazoo's connection needs. No sockets here.

They use only what ZooKeeper 3.4 knows: no create2, no addWatch, no multiRead. kazoo has classes for most of these.
Ours exist because a multi can then create null data, a read can carry the watch flag without kazoo's registry,
answers decode into our own values, and kazoo has no setWatches.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from engine.kafka.zk.errors import ROLLED_BACK_CODES, ZooKeeperError, error_of_code
from engine.kafka.zk.operations import Acl, Check, Create, Delete, Operation, OperationResult, SetData, ZnodeStat

_INT = struct.Struct(">i")
_MULTI_HEADER = struct.Struct(">iBi")
_MULTI_END = _MULTI_HEADER.pack(-1, True, -1)
_STAT = struct.Struct(">qqqqiiiqiiq")

_CREATE, _DELETE, _EXISTS, _GET_DATA, _SET_DATA, _GET_ACL, _SET_ACL = 1, 2, 3, 4, 5, 6, 7
_SYNC, _GET_CHILDREN_2, _CHECK, _MULTI, _SET_WATCHES = 9, 12, 13, 14, 101
_ERROR = -1


class WatchKind(Enum):
    """What an armed watch looks for."""

    DATA = "data"
    CHILDREN = "children"


class Request:
    """A request: its type, its bytes, its answer's decoder, and the watch it arms. Duck-typed like kazoo's own."""

    __slots__ = ("decode", "path", "payload", "type", "watch")

    def __init__(
        self,
        type_: int,
        path: str,
        payload: bytes,
        decode: Callable[[bytes, int], object],
        watch: WatchKind | None = None,
    ) -> None:
        self.type = type_
        self.path = path
        self.payload = payload
        self.decode = decode
        self.watch = watch

    def serialize(self) -> bytes:
        return self.payload

    def deserialize(self, buffer: bytes, offset: int) -> object:
        return self.decode(buffer, offset)


def exists(path: str, watch: bool) -> Request:
    """Answered with a ZnodeStat or None."""
    return Request(_EXISTS, path, _string(path) + bytes((watch,)), _read_stat, WatchKind.DATA if watch else None)


def get_data(path: str, watch: bool) -> Request:
    """Answered with data (null comes as empty) and ZnodeStat."""
    return Request(_GET_DATA, path, _string(path) + bytes((watch,)), _read_data, WatchKind.DATA if watch else None)


def get_children(path: str, watch: bool) -> Request:
    """Answered with the children's names, unordered, and ZnodeStat."""
    kind = WatchKind.CHILDREN if watch else None
    return Request(_GET_CHILDREN_2, path, _string(path) + bytes((watch,)), _read_children, kind)


def sync(path: str) -> Request:
    """Answered when our server has caught up with the ensemble's leader."""
    return Request(_SYNC, path, _string(path), _read_nothing)


def get_acl(path: str) -> Request:
    """Answered with a tuple of Acl, and ZnodeStat."""
    return Request(_GET_ACL, path, _string(path), _read_acl)


def set_acl(path: str, acl: Sequence[Acl], version: int) -> Request:
    """Answered with ZnodeStat; ``version`` is the expected ``aversion``."""
    return Request(_SET_ACL, path, _string(path) + _acl(acl) + _INT.pack(version), _read_stat)


def set_watches(
    relative_zxid: int, data_paths: Iterable[str], absent_paths: Iterable[str], children_paths: Iterable[str]
) -> Request:
    """Re-arm watches after a reconnect; the server first sends the events since ``relative_zxid``."""
    payload = struct.pack(">q", relative_zxid)
    for paths in (list(data_paths), list(absent_paths), list(children_paths)):
        payload += _INT.pack(len(paths)) + b"".join(map(_string, paths))
    return Request(_SET_WATCHES, "", payload, _read_nothing)


def write(operation: Operation, chroot: str) -> Request:
    """Return the request of a single write; a Check cannot be sent alone."""
    type_, decode = _KINDS[type(operation)]
    return Request(type_, chroot + operation.path, _body(operation, chroot), decode)


def multi(operations: Sequence[Operation], chroot: str) -> Request:
    """Answered with a list of results, or of errors (None for operations not at fault)."""
    payload = bytearray()
    for operation in operations:
        payload += _MULTI_HEADER.pack(_KINDS[type(operation)][0], False, -1)
        payload += _body(operation, chroot)
    payload += _MULTI_END
    paths = [chroot + operation.path for operation in operations]
    return Request(_MULTI, paths[0], bytes(payload), lambda buffer, offset: _read_multi(buffer, offset, paths))


def _body(operation: Operation, chroot: str) -> bytes:
    path = _string(chroot + operation.path)
    match operation:
        case Create():
            flags = operation.ephemeral | operation.sequential << 1
            return path + _buffer(operation.data) + _acl(operation.acl) + _INT.pack(flags)
        case SetData():
            return path + _buffer(operation.data) + _INT.pack(operation.version)
        case Delete() | Check():
            return path + _INT.pack(operation.version)


def _string(text: str) -> bytes:
    encoded = text.encode("utf-8")
    return _INT.pack(len(encoded)) + encoded


def _buffer(data: bytes | None) -> bytes:
    return _INT.pack(-1) if data is None else _INT.pack(len(data)) + data


def _acl(entries: Sequence[Acl]) -> bytes:
    packed = (_INT.pack(entry.permissions) + _string(entry.scheme) + _string(entry.identity) for entry in entries)
    return _INT.pack(len(entries)) + b"".join(packed)


def _read_nothing(buffer: bytes, offset: int) -> None:
    return None


def _read_stat(buffer: bytes, offset: int) -> ZnodeStat:
    return ZnodeStat._make(_STAT.unpack_from(buffer, offset))


def _read_string(buffer: bytes, offset: int) -> tuple[str, int]:
    (size,) = _INT.unpack_from(buffer, offset)
    start, end = offset + 4, offset + 4 + max(size, 0)
    return buffer[start:end].decode("utf-8"), end


def _read_path(buffer: bytes, offset: int) -> str:
    return _read_string(buffer, offset)[0]


def _read_data(buffer: bytes, offset: int) -> tuple[bytes, ZnodeStat]:
    (size,) = _INT.unpack_from(buffer, offset)
    start, end = offset + 4, offset + 4 + max(size, 0)
    return buffer[start:end], ZnodeStat._make(_STAT.unpack_from(buffer, end))


def _read_children(buffer: bytes, offset: int) -> tuple[list[str], ZnodeStat]:
    (count,) = _INT.unpack_from(buffer, offset)
    offset += 4
    names = []
    for _ in range(count):
        name, offset = _read_string(buffer, offset)
        names.append(name)
    return names, _read_stat(buffer, offset)


def _read_acl(buffer: bytes, offset: int) -> tuple[tuple[Acl, ...], ZnodeStat]:
    (count,) = _INT.unpack_from(buffer, offset)
    offset += 4
    entries = []
    for _ in range(count):
        (permissions,) = _INT.unpack_from(buffer, offset)
        scheme, offset = _read_string(buffer, offset + 4)
        identity, offset = _read_string(buffer, offset)
        entries.append(Acl(permissions, scheme, identity))
    return tuple(entries), _read_stat(buffer, offset)


def _read_multi(buffer: bytes, offset: int, paths: Sequence[str]) -> list[OperationResult | ZooKeeperError]:
    results: list[OperationResult | ZooKeeperError] = []
    while True:
        type_, done, _ = _MULTI_HEADER.unpack_from(buffer, offset)
        offset += _MULTI_HEADER.size
        if done:
            return results
        result: OperationResult | ZooKeeperError = None
        if type_ == _CREATE:
            result, offset = _read_string(buffer, offset)
        elif type_ == _SET_DATA:
            result, offset = _read_stat(buffer, offset), offset + _STAT.size
        elif type_ == _ERROR:
            (code,) = _INT.unpack_from(buffer, offset)
            offset += 4
            result = None if code in ROLLED_BACK_CODES else error_of_code(code, paths[len(results)])
        results.append(result)


_KINDS: dict[type, tuple[int, Callable[[bytes, int], object]]] = {
    Create: (_CREATE, _read_path),
    SetData: (_SET_DATA, _read_stat),
    Delete: (_DELETE, _read_nothing),
    Check: (_CHECK, _read_nothing),
}
