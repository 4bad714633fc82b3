"""Sends writes.

If an answer is lost, finds out whether the write happened, and resends it if not. Applies the chroot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from engine.kafka.zk import requests
from engine.kafka.zk.errors import ConnectionLost, MultiFailed, NoNode, TooLarge, ZooKeeperError
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
from engine.kafka.zk.pipeline import send_all
from engine.kafka.zk.session import Session


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
        for operation, znode in zip(self.operations, seen, strict=True):
            if not self._is_done(operation, znode, final_data):
                return None
            results.append(_result(operation, znode))
        return results

    def is_made_by(self, operation: Create, znode: ZnodeSeen) -> bool:
        """Return whether this create made the znode, judging by its data."""
        return self._is_new(operation, znode, operation.data or b"")

    def _is_done(self, operation: Operation, znode: ZnodeSeen | None, final_data: dict[str, bytes]) -> bool:
        match operation:
            case Create():
                return znode is not None and self._is_new(operation, znode, final_data[operation.path])
            case SetData():
                return znode is not None and self._is_set(operation, znode, final_data[operation.path])
            case Delete():
                return znode is None
            case Check():
                return True

    def _is_new(self, operation: Create, znode: ZnodeSeen, data: bytes) -> bool:
        owner = self.session_id if operation.ephemeral else 0
        is_ours = znode.stat.ephemeral_owner == owner and znode.stat.czxid > self.zxid_before
        return is_ours and znode.data == data

    def _is_set(self, operation: SetData, znode: ZnodeSeen, data: bytes) -> bool:
        if znode.data != data or znode.stat.mzxid <= self.zxid_before:
            return False
        return operation.version == ANY_VERSION or znode.stat.version == operation.version + 1


def _result(operation: Operation, znode: ZnodeSeen | None) -> OperationResult:
    if znode is None or isinstance(operation, Check | Delete):
        return None
    return znode.path if isinstance(operation, Create) else znode.stat


T = TypeVar("T")

LARGE_BYTES = 1_000_000
"""A server closes the connection on requests of 1 MiB or more (jute.maxbuffer), unless configured for larger ones."""

LOSSES_OF_LARGE_MAX = 3
"""After this many broken connections, the server is refusing a large write.

Resent forever, it would break every new connection and lose the answers of all other requests.
"""

MultiOutcome = list[OperationResult] | ZooKeeperError
"""The results of a successful multi, or the reason for its refusal."""


async def write_one(session: Session, operation: Operation, chroot: str) -> OperationResult:
    """Do one write. Raises the server's error, or SessionLost if the session ends before the outcome is known."""
    zxid_before = session.last_zxid
    try:
        result: OperationResult = _below(chroot, await session.call(requests.write(operation, chroot)))
        return result
    except ConnectionLost:
        outcome = await _settle_single(session, LostWrite([operation], zxid_before, session.id), chroot)
        if isinstance(outcome, ZooKeeperError):
            raise outcome from None
        return outcome


async def write_singles(
    session: Session, operations: Iterable[Operation], chroot: str
) -> list[OperationResult | ZooKeeperError]:
    """Do many independent writes with a window in flight; errors are values in the result."""
    zxid_before = session.last_zxid
    kept: list[Operation] = []
    wanted = (requests.write(operation, chroot) for operation in _keeping(operations, kept))
    outcomes = await send_all(session, wanted, lambda _, answer: _below(chroot, answer))
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, ConnectionLost):
            outcomes[index] = await _settle_single(session, LostWrite([kept[index]], zxid_before, session.id), chroot)
    return outcomes


async def write_multis(session: Session, multis: Iterable[Sequence[Operation]], chroot: str) -> list[MultiOutcome]:
    """Do many multis with a window in flight; each succeeds or fails by itself."""
    zxid_before = session.last_zxid
    kept: list[Sequence[Operation]] = []
    wanted = (requests.multi(operations, chroot) for operations in _keeping(multis, kept))
    outcomes = await send_all(session, wanted, lambda _, answer: _outcome(chroot, answer))
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, ConnectionLost):
            outcomes[index] = await _settle_multi(session, LostWrite(kept[index], zxid_before, session.id), chroot)
    return outcomes


def _keeping(items: Iterable[T], kept: list[T]) -> Iterator[T]:
    """Yield the items and keep them: a lost answer means that its item is needed again."""
    for item in items:
        kept.append(item)
        yield item


async def _settle_single(session: Session, lost: LostWrite, chroot: str) -> OperationResult | ZooKeeperError:
    losses = _Losses(lost.operations)
    while True:
        done = await _look_for(session, lost, chroot)
        if done is not None:
            return done[0]
        if (refusal := losses.refusal()) is not None:
            return refusal
        (answer,) = await send_all(session, [requests.write(lost.operations[0], chroot)])
        if not isinstance(answer, ConnectionLost):
            outcome: OperationResult | ZooKeeperError = _below(chroot, answer)
            return outcome


async def _settle_multi(session: Session, lost: LostWrite, chroot: str) -> MultiOutcome:
    losses = _Losses(lost.operations)
    while True:
        done = await _look_for(session, lost, chroot)
        if done is not None:
            return done
        if (refusal := losses.refusal()) is not None:
            return refusal
        try:
            return _outcome(chroot, await session.call(requests.multi(lost.operations, chroot)))
        except ConnectionLost:
            continue


class _Losses:
    """Counts how often a write was lost with its connection, to distinguish bad luck from a server that refuses it."""

    __slots__ = ("_count", "_path", "_size_bytes")

    def __init__(self, operations: Sequence[Operation]) -> None:
        written = [operation for operation in operations if isinstance(operation, Create | SetData)]
        self._size_bytes = sum(len(operation.data or b"") for operation in written)
        self._path = written[0].path if written else None
        self._count = 0

    def refusal(self) -> TooLarge | None:
        """Count one more loss; return an error if the write should not be retried."""
        self._count += 1
        if self._count < LOSSES_OF_LARGE_MAX or self._size_bytes < LARGE_BYTES:
            return None
        return TooLarge(f"A write of {self._size_bytes} bytes is too large for ZooKeeper (jute.maxbuffer)", self._path)


async def _look_for(session: Session, lost: LostWrite, chroot: str) -> list[OperationResult] | None:
    """Return the results of a write whose answer was lost, or None if it did not happen."""
    while True:
        try:
            # The current server may be behind the one that took the write.
            await session.call(requests.sync(chroot or "/"))
            return lost.results([await _see(session, lost, operation, chroot) for operation in lost.operations])
        except ConnectionLost:
            continue


async def _see(session: Session, lost: LostWrite, operation: Operation, chroot: str) -> ZnodeSeen | None:
    if isinstance(operation, Check):
        return None
    if isinstance(operation, Create) and operation.sequential:
        return await _find_sequential(session, lost, operation, chroot)
    return await _look_at(session, operation.path, chroot)


async def _find_sequential(session: Session, lost: LostWrite, wanted: Create, chroot: str) -> ZnodeSeen | None:
    parent, _, prefix = wanted.path.rpartition("/")
    names, _ = await session.call(requests.get_children((chroot + parent) or "/", watch=False))
    for name in sorted((name for name in names if name.startswith(prefix)), reverse=True):
        znode = await _look_at(session, f"{parent}/{name}", chroot)
        if znode is not None and znode.stat.czxid <= lost.zxid_before:
            return None
        if znode is not None and lost.is_made_by(wanted, znode):
            return znode
    return None


async def _look_at(session: Session, path: str, chroot: str) -> ZnodeSeen | None:
    try:
        data, stat = await session.call(requests.get_data(chroot + path, watch=False))
    except NoNode:
        return None
    return ZnodeSeen(path, data, stat)


def _outcome(chroot: str, answer: Any) -> MultiOutcome:
    if isinstance(answer, ZooKeeperError):
        return answer
    for index, result in enumerate(answer):
        if isinstance(result, ZooKeeperError):
            return MultiFailed(index, result)
    return [_below(chroot, result) for result in answer]


def _below(chroot: str, result: Any) -> Any:
    """Return a path without the chroot, anything else as it is."""
    return result[len(chroot) :] if isinstance(result, str) else result
