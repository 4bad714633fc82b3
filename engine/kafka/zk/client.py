"""The asynchronous ZooKeeper client: znodes, watches and sessions for code that lives in an event loop.

Beyond a plain session, it opens another session when one is lost, settles lost answers, keeps many requests in flight
at once, and keeps callbacks registered across reconnects and sessions. It knows nothing about Kafka.

All answers, fired watches and session events reach the loop through one queue in the order of the wire, so a watch
event never comes after an answer that already contains the change.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from engine.kafka.zk import requests
from engine.kafka.zk.connect_string import normalized_chroot, split_connect_string
from engine.kafka.zk.errors import ConnectionLost, NoAuth, NodeExists, NoNode, SessionLost, ZooKeeperError
from engine.kafka.zk.operations import (
    ANY_VERSION,
    Acl,
    Check,
    Create,
    Delete,
    Operation,
    OperationResult,
    SetData,
    ZnodeStat,
)
from engine.kafka.zk.pipeline import Convert, send_all
from engine.kafka.zk.security import OPEN, ZkSecurity
from engine.kafka.zk.session import Latencies, Session, WatchEventType
from engine.kafka.zk.session_keeper import SessionKeeper, SessionListener
from engine.kafka.zk.watches import WatchCallback, WatchEvent, WatchEventKind, WatchRegistry
from engine.kafka.zk.writes import MultiOutcome, write_multis, write_one, write_singles
from engine.runtime.turns import Breather

_log = logging.getLogger("engine.kafka.zk")

_EVENT_KINDS = {
    WatchEventType.CREATED: WatchEventKind.CREATED,
    WatchEventType.DELETED: WatchEventKind.DELETED,
    WatchEventType.DATA_CHANGED: WatchEventKind.DATA_CHANGED,
    WatchEventType.CHILDREN_CHANGED: WatchEventKind.CHILDREN_CHANGED,
}


T = TypeVar("T")

ReadOutcome = tuple[bytes, ZnodeStat] | ZooKeeperError
"""The outcome of reading one of many znodes: its data (null as empty) and stat, or an error."""


class ZkClient:
    """A client of one ZooKeeper ensemble, below one chroot. ``connect`` creates it; it belongs to one event loop.

    While the connection is broken, calls wait for the next one, but no longer than the client's patience. They end
    with SessionLost when the session is over, and until the next session is open.
    """

    def __init__(
        self,
        hosts: str,
        chroot: str,
        *,
        session_timeout_ms: int,
        client_name: str,
        security: ZkSecurity = OPEN,
        patience_ms: int | None = None,
    ) -> None:
        self.chroot = chroot
        self.security = security
        self.unanswered: deque[str] = deque(maxlen=10)
        """Paths of the last writes whose outcome is unknown: the caller gave up, or the session ended. Empty paths
        stand for several writes at once."""
        self.write_count = 0
        self.written: deque[str] = deque(maxlen=10)
        """Paths of the last writes that succeeded, but for those of many at once."""
        self._watches = WatchRegistry()
        self._keeper = SessionKeeper(
            hosts,
            session_timeout_ms=session_timeout_ms,
            client_name=client_name,
            security=security,
            patience_ms=patience_ms,
            on_watch=self._take_watch,
            on_renewed=self._rearm,
        )

    @property
    def latencies(self) -> Latencies:
        """How long its requests took."""
        return self._keeper.latencies

    @classmethod
    async def connect(
        cls,
        hosts: str,
        *,
        chroot: str = "",
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int | None = None,
        client_name: str = "klamm",
        security: ZkSecurity = OPEN,
        make_chroot: bool = True,
        patience_ms: int | None = None,
    ) -> ZkClient:
        """Open a session and return the client.

        Args:
            hosts: ``host:port,…``; a chroot may follow, as in Kafka's ``zookeeper.connect``.
            chroot: a chroot below the one in ``hosts``.
            session_timeout_ms: ephemeral znodes disappear when ZooKeeper has not heard from the client for this long.
            connection_timeout_ms: how long to wait for the first connection; None is the session time-out.
            client_name: the client's name in log lines.
            security: TLS, logins, and the access lists of new znodes.
            make_chroot: create the chroot if it is missing, as a broker does; a tool should not.
            patience_ms: how long after a broken connection the session counts as lost, so that calls end, though
                ZooKeeper has not said so. None, which is right for a broker, waits for ZooKeeper as long as it takes.

        Raises:
            ConnectTimedOut: no server answered in time.
            NotAdmitted: TLS or a login failed.
            NoNode: the chroot is missing and ``make_chroot`` is off.
            ConfigError: ``hosts`` names no servers, or a store for TLS cannot be used.
        """
        servers, path = split_connect_string(hosts)
        await security.check()
        client = cls(
            servers,
            normalized_chroot(path + "/" + chroot),
            session_timeout_ms=session_timeout_ms,
            client_name=client_name,
            security=security,
            patience_ms=patience_ms,
        )
        try:
            await client._keeper.open_first(
                session_timeout_ms if connection_timeout_ms is None else connection_timeout_ms
            )
            await client._check_chroot(make_chroot)
        except BaseException:
            await client.close()
            raise
        return client

    async def close(self) -> None:
        """End the session; its ephemeral znodes disappear. Waiting calls end with SessionLost."""
        await self._keeper.close()

    async def __aenter__(self) -> ZkClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Session

    @property
    def session_id(self) -> int:
        """Id of the current session, which owns the ephemeral znodes created now; 0 between two sessions."""
        return self._keeper.session_id

    @property
    def session_timeout_ms(self) -> int:
        """The requested session timeout; the server may have granted another."""
        return self._keeper.session_timeout_ms

    @property
    def silent_s(self) -> float:
        """How many seconds ZooKeeper has left all requests unanswered; 0 if there are none."""
        return self._keeper.silent_s

    def add_session_listener(self, listener: SessionListener) -> None:
        """Call ``listener`` in the event loop with each SessionEvent from now on."""
        self._keeper.listeners.append(listener)

    def break_connection(self) -> None:
        """Cut the connection, if there is one, as a failing network does; the client connects again. For fault tests.

        Between two sessions there is none: the client may already have noticed the end of its session.
        """
        with suppress(SessionLost):
            self._keeper.current().break_connection()

    # Reads

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """Return a znode's data (null as empty) and stat; arms the path's data callbacks, even if the znode is missing.

        Raises:
            NoNode: there is none.
        """
        while True:
            try:
                data, stat = await self._read(requests.get_data(self._full(path), self._watches.wants_data(path)))
                return data, stat
            except NoNode:
                # Reading a missing znode arms nothing; only ``exists`` does.
                if not self._watches.wants_data(path) or await self.exists(path) is None:
                    raise

    async def exists(self, path: str) -> ZnodeStat | None:
        """Return a znode's stat, or None if there is none; arms the path's data callbacks either way."""
        stat: ZnodeStat | None = await self._read(requests.exists(self._full(path), self._watches.wants_data(path)))
        return stat

    async def children(self, path: str) -> list[str]:
        """Return the names of a znode's children, unordered; arms the path's children callbacks.

        Raises:
            NoNode: there is no such znode.
        """
        return (await self.children_and_stat(path))[0]

    async def children_and_stat(self, path: str) -> tuple[list[str], ZnodeStat]:
        """Like ``children``, with the parent's stat."""
        names, stat = await self._read(requests.get_children(self._full(path), self._watches.wants_children(path)))
        return names, stat

    async def get_many(self, paths: Iterable[str]) -> list[ReadOutcome]:
        """Read many znodes, with up to 1,000 requests in flight; errors, mostly NoNode, are values in the result."""
        return await self.read_many(paths, lambda _, outcome: outcome)

    async def read_many(self, paths: Iterable[str], convert: Callable[[int, ReadOutcome], T]) -> list[T]:
        """Like ``get_many``, but convert each outcome as it arrives, so that the event loop never blocks for long.

        Args:
            convert: receives the path's position, and the data with stat or an error.
        """
        wants = self._watches.wants_data
        return await self._read_many(paths, lambda p: requests.get_data(self._full(p), wants(p)), convert)

    async def exists_many(self, paths: Iterable[str]) -> list[ZnodeStat | ZooKeeperError | None]:
        """Return the stats of many znodes, None for those that are missing."""
        wants = self._watches.wants_data
        return await self._read_many(paths, lambda p: requests.exists(self._full(p), wants(p)))

    async def children_many(self, paths: Iterable[str]) -> list[list[str] | ZooKeeperError]:
        """Return the children of many znodes; errors are values in the result."""
        wants = self._watches.wants_children
        return await self._read_many(
            paths,
            lambda p: requests.get_children(self._full(p), wants(p)),
            lambda _, answer: answer if isinstance(answer, ZooKeeperError) else answer[0],
        )

    async def sync(self, path: str = "/") -> None:
        """Make the server that we are connected to catch up with the ensemble."""
        await self._read(requests.sync(self._full(path)))

    async def get_acl(self, path: str) -> tuple[tuple[Acl, ...], ZnodeStat]:
        """Return a znode's access list and stat."""
        acl, stat = await self._read(requests.get_acl(self._full(path)))
        return acl, stat

    async def set_acl(self, path: str, acl: Sequence[Acl], version: int = ANY_VERSION) -> ZnodeStat:
        """Replace a znode's access list; ``version`` is the expected ``aversion``."""
        stat: ZnodeStat = await self._read(requests.set_acl(self._full(path), acl, version))
        return stat

    async def get_acl_many(self, paths: Iterable[str]) -> list[tuple[tuple[Acl, ...], ZnodeStat] | ZooKeeperError]:
        """Return the access lists and stats of many znodes; errors are values in the result."""
        return await self._read_many(paths, lambda path: requests.get_acl(self._full(path)))

    async def set_acl_many(self, wanted: Iterable[tuple[str, Sequence[Acl]]]) -> list[ZnodeStat | ZooKeeperError]:
        """Replace the access lists of many znodes in this order; errors are values in the result."""
        lists = dict(wanted)
        self.write_count += len(lists)
        return await self._read_many(lists, lambda p: requests.set_acl(self._full(p), lists[p], ANY_VERSION))

    # Writes

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: Sequence[Acl] | None = None,
    ) -> str:
        """Create a znode and return its path (a sequential one's ends in ten digits).

        Its access list is the one that the client's security gives, unless there is another.

        Raises:
            NodeExists: it already exists, and this call did not create it.
            NoNode: its parent is missing.
        """
        result = await self._write(
            Create(path, data, ephemeral, sequential, self.security.default_acl if acl is None else tuple(acl))
        )
        assert isinstance(result, str)
        return result

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> ZnodeStat:
        """Write a znode's data if it has this version; return its new stat.

        Raises:
            BadVersion: it has another version.
            NoNode: there is none.
        """
        result = await self._write(SetData(path, data, version))
        assert isinstance(result, ZnodeStat)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a znode if it has this version.

        Raises:
            NoNode, BadVersion, NotEmpty: as they say.
        """
        await self._write(Delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Do all operations or none, and return their results.

        Raises:
            MultiFailed: ZooKeeper refused one; the error says which and why.
        """
        (outcome,) = await self.multi_many([operations])
        if isinstance(outcome, ZooKeeperError):
            raise outcome
        self.written += [operation.path for operation in operations if not isinstance(operation, Check)]
        return outcome

    async def multi_many(self, multis: Iterable[Sequence[Operation]]) -> list[MultiOutcome]:
        """Do many independent multis, up to 1,000 in flight; a refused one is a MultiFailed in the result.

        Raises:
            SessionLost: the session ended before the answers; some may have succeeded.
        """
        session, multis = self._keeper.current(), list(multis)
        written = [operation.path for operation in multis[0] if not isinstance(operation, Check)] if multis else []
        with self._noting_lost(written[0] if len(multis) == 1 and written else ""):
            return await write_multis(session, multis, self.chroot)

    async def write_many(self, operations: Iterable[Operation]) -> list[OperationResult | ZooKeeperError]:
        """Do many independent writes, up to 1,000 in flight; errors are values in the result."""
        session = self._keeper.current()
        with self._noting_lost(""):
            return await write_singles(session, operations, self.chroot)

    async def ensure_path(self, path: str, acl: Sequence[Acl] | None = None) -> None:
        """Create a persistent znode without data, and its missing parents; existing znodes stay as they are."""
        try:
            await self.create(path, acl=acl)
        except NodeExists:
            return
        except NoAuth:
            # ZooKeeper asks for the right to create before it looks whether the znode exists.
            if await self.exists(path) is None:
                raise
        except NoNode:
            parent = path.rpartition("/")[0]
            if not parent:
                raise
            await self.ensure_path(parent, acl)
            with suppress(NodeExists):
                await self.create(path, acl=acl)

    async def delete_tree(self, path: str) -> None:
        """Remove a znode and all below it, children first; it is no error if others remove some at the same time."""
        with suppress(NoNode):
            for name in await self.children(path):
                await self.delete_tree(f"{path.rstrip('/')}/{name}")
            await self.delete(path)

    # Watches

    def watch_data(self, path: str, callback: WatchCallback) -> None:
        """Register a callback for creation, deletion and data changes of a znode.

        The next ``get`` or ``exists`` of the path arms it, as in Kafka; after an event it re-arms itself. It stays
        registered across reconnects and new sessions; a new session calls it with ``NEW_SESSION``.
        """
        self._watches.add_data(path, callback)

    def watch_children(self, path: str, callback: WatchCallback) -> None:
        """Register a callback for changes of a znode's children; each ``children`` arms it for one event."""
        self._watches.add_children(path, callback)

    def unwatch(self, path: str, callback: WatchCallback | None = None) -> None:
        """Forget one callback of a path, or all of them. Events already on their way are no longer delivered."""
        self._watches.remove(path, callback)

    # Inside

    async def _check_chroot(self, may_make: bool) -> None:
        if not self.chroot or await self.exists("/") is not None:
            return
        if not may_make:
            raise NoNode("the chroot does not exist in ZooKeeper", self.chroot)
        chroot, self.chroot = self.chroot, ""
        try:
            await self.ensure_path(chroot)
        finally:
            self.chroot = chroot

    def _take_watch(self, session: Session, event_type: WatchEventType, full_path: str) -> None:
        path = full_path[len(self.chroot) :] or "/"
        if event_type is not WatchEventType.CHILDREN_CHANGED and self._watches.wants_data(path):
            session.submit(requests.exists(full_path, watch=True), _ignore_answer)
        # Goes through the loop's own queue, behind the tasks that earlier answers of the same burst woke.
        session.loop.call_soon(self._notify, WatchEvent(path, _EVENT_KINDS[event_type]))

    async def _rearm(self, session: Session) -> None:
        """Re-arm all registered watches in a new session, then tell every callback to read again."""
        data_paths, children_paths = self._watches.data_paths(), self._watches.children_paths()
        try:
            await send_all(session, (requests.exists(self._full(path), True) for path in data_paths))
            await send_all(session, (requests.get_children(self._full(path), True) for path in children_paths))
        except SessionLost:
            _log.info("The ZooKeeper session was lost again while arming its watches; the next one arms them.")
            return
        breather = Breather()
        for path in dict.fromkeys([*data_paths, *children_paths]):
            self._notify(WatchEvent(path, WatchEventKind.NEW_SESSION))
            await breather.give_way()

    def _notify(self, event: WatchEvent) -> None:
        for callback in self._watches.callbacks_of(event):
            try:
                callback(event)
            except Exception:
                _log.exception("A watch callback failed. path=%s kind=%s", event.path, event.kind.value)

    def _full(self, path: str) -> str:
        return self.chroot + path if path != "/" or not self.chroot else self.chroot

    async def _read(self, request: requests.Request) -> Any:
        session = self._keeper.current()
        while True:
            try:
                return await session.call(request)
            except ConnectionLost:
                # Sent again, it waits for the next connection, or ends with SessionLost.
                continue

    async def _read_many(
        self,
        paths: Iterable[str],
        make_request: Callable[[str], requests.Request],
        convert: Convert = lambda _, answer: answer,
    ) -> list[Any]:
        session = self._keeper.current()
        every = list(paths)
        outcomes = await send_all(session, map(make_request, every), convert)
        while lost := [index for index, outcome in enumerate(outcomes) if isinstance(outcome, ConnectionLost)]:
            wanted = (make_request(every[index]) for index in lost)
            again = await send_all(session, wanted, lambda position, answer: convert(lost[position], answer))
            for index, outcome in zip(lost, again, strict=True):
                outcomes[index] = outcome
        return outcomes

    async def _write(self, operation: Operation) -> OperationResult:
        session = self._keeper.current()
        with self._noting_lost(operation.path):
            result = await write_one(session, operation, self.chroot)
        self.written.append(operation.path)
        return result

    @contextmanager
    def _noting_lost(self, path: str) -> Iterator[None]:
        """Note a write whose outcome stays unknown; ``path`` is empty if there are many."""
        self.write_count += 1
        try:
            yield
        except (SessionLost, asyncio.CancelledError):
            self.unanswered.append(path)
            raise


def _ignore_answer(_value: object, _error: ZooKeeperError | None) -> None:
    """Ignore the answer of a request that was sent only to set a watch."""
