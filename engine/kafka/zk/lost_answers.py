"""Decides whether a write happened if its answer was lost with the connection. Pure: others read the znodes.

The connection broke after a write was sent and before its answer came. ZooKeeper gives every write a zxid above all
earlier ones, so a znode that the lost write created or changed has a zxid above ``zxid_before``. Together with the
data (or, for an ephemeral, the owner), that settles whose write it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.kafka.zk.operations import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Operation,
    OperationResult,
    SetData,
    ZnodeStat,
)


@dataclass(frozen=True, slots=True)
class ZnodeSeen:
    """A znode as read after the reconnect; null data is empty."""

    path: str
    data: bytes
    stat: ZnodeStat


@dataclass(frozen=True, slots=True)
class LostWrite:
    """A write without an answer: one operation, or those of a multi.

    Attributes:
        zxid_before: the newest zxid known at sending.
        session_id: the session that sent it.
    """

    operations: Sequence[Operation]
    zxid_before: int
    session_id: int

    def results(self, seen: Sequence[ZnodeSeen | None]) -> list[OperationResult] | None:
        """Return the results if everything looks as it does after the write; None means to send it again.

        Args:
            seen: what was found for each operation, None if there is no such znode (and for a Check).
        """
        # A multi may create a znode and then write it: only the last data is visible.
        final_data = {op.path: op.data or b"" for op in self.operations if isinstance(op, Create | SetData)}
        results: list[OperationResult] = []
        for operation, found in zip(self.operations, seen, strict=True):
            if not self._is_done(operation, found, final_data):
                return None
            results.append(_result(operation, found))
        return results

    def is_made_by(self, operation: Create, found: ZnodeSeen) -> bool:
        """Return whether this create made the znode, judging by its data."""
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
