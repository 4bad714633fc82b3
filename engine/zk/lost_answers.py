"""Decides whether a write happened whose answer got lost with the connection. Pure: others read what it is given.

The connection broke between sending a write and hearing of it. ZooKeeper gives every write a zxid higher than any it
told us before, so a znode made or changed by the lost write carries a zxid above ``zxid_before``; together with the
data (or, for an ephemeral, its owner) that settles whose write it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.zk.operations import ANY_VERSION, Check, Create, Delete, Operation, OperationResult, SetData, ZnodeStat


@dataclass(frozen=True, slots=True)
class ZnodeSeen:
    """A znode as found after the reconnect; null data is empty."""

    path: str
    data: bytes
    stat: ZnodeStat


@dataclass(frozen=True, slots=True)
class LostWrite:
    """A write without an answer: one operation, or those of a multi.

    Attributes:
        zxid_before: the newest zxid known when it was sent.
        session_id: the session that sent it.
    """

    operations: Sequence[Operation]
    zxid_before: int
    session_id: int

    def results(self, seen: Sequence[ZnodeSeen | None]) -> list[OperationResult] | None:
        """Return the results if all looks as after the write, else None: then it is to be sent again.

        Args:
            seen: what was found for each operation, None if there is no such znode (and for a Check).
        """
        # A multi may make a znode and write it: then only the last data can be seen.
        final_data = {op.path: op.data or b"" for op in self.operations if isinstance(op, Create | SetData)}
        results: list[OperationResult] = []
        for operation, found in zip(self.operations, seen, strict=True):
            if not self._is_done(operation, found, final_data):
                return None
            results.append(_result(operation, found))
        return results

    def is_made_by(self, operation: Create, found: ZnodeSeen) -> bool:
        """Whether a znode is the one that this create made, going by its data."""
        return self._is_new(operation, found, operation.data or b"")

    def _is_done(self, operation: Operation, found: ZnodeSeen | None, final_data: dict[str, bytes]) -> bool:
        match operation:
            case Create():
                return found is not None and self._is_new(operation, found, final_data[operation.path])
            case SetData():
                return found is not None and self._is_set(operation, found, final_data[operation.path])
            case Delete():
                return found is None
            case Check():
                return True

    def _is_new(self, operation: Create, found: ZnodeSeen, data: bytes) -> bool:
        owner = self.session_id if operation.ephemeral else 0
        is_ours = found.stat.ephemeral_owner == owner and found.stat.czxid > self.zxid_before
        return is_ours and found.data == data

    def _is_set(self, operation: SetData, found: ZnodeSeen, data: bytes) -> bool:
        if found.data != data or found.stat.mzxid <= self.zxid_before:
            return False
        return operation.version == ANY_VERSION or found.stat.version == operation.version + 1


def _result(operation: Operation, found: ZnodeSeen | None) -> OperationResult:
    if found is None or isinstance(operation, Check | Delete):
        return None
    return found.path if isinstance(operation, Create) else found.stat
