"""The peer of a command in this process freezes at the Nth request; from then on time goes faster.

From that request on everything that klamm writes to brokers and ZooKeeper is dropped: the kernel of a frozen machine
accepts the bytes, and nobody reads them. Connections stay open and new ones are accepted. Waiting takes a fraction of
the time from then on: event loops, kazoo's thread and ``time.monotonic`` run faster.
"""

from __future__ import annotations

import asyncio
import gc
import selectors
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from kazoo.protocol.connection import ConnectionHandler

from engine.admin.reassignment.lock_by_group import GROUP
from engine.kafka.client import broker_client
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.frames import decode_request
from engine.kafka.zk.kazoo_handler import InboxHandler

SPEED = 50.0
"""Time goes faster by this factor while everything is frozen."""

CHANGES = {
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_GROUPS,
    ApiKey.DELETE_RECORDS,
    ApiKey.DELETE_TOPICS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_DELETE,
    ApiKey.PRODUCE,
    ApiKey.WRITE_TXN_MARKERS,
}
_ZK_PING_XID = -2
_ZK_OPERATIONS = {
    1: "create", 2: "delete", 3: "exists", 4: "get", 5: "set", 8: "children", 12: "children2", 13: "check",
    14: "multi", 15: "create2",
}  # fmt: skip
_ZK_WRITES = {"create", "delete", "set", "multi", "create2"}


@dataclass(frozen=True)
class Question:
    """One written request: its kind, and whether it changes the cluster."""

    kind: str
    is_change: bool


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Waits for a fraction of the time while everything is frozen."""

    def __init__(self, ice: Ice) -> None:
        super().__init__()
        self._ice = ice

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0 or not self._ice.is_frozen:
            return super().select(timeout)
        started = self._ice.real()
        ready = super().select(timeout / SPEED)
        # The load of the machine does not count: a timer that fires late has waited as long as it wanted to.
        self._ice.waited_s += min(timeout, (self._ice.real() - started) * SPEED)
        return ready


class _Poller:
    """Waits in kazoo's thread for a fraction of the time while everything is frozen."""

    def __init__(self, poller: Any, ice: Ice) -> None:
        self._poller = poller
        self._ice = ice

    def poll(self, timeout_ms: float | None) -> Any:
        return self._poller.poll(timeout_ms / SPEED if timeout_ms and self._ice.is_frozen else timeout_ms)


class _Policy(asyncio.DefaultEventLoopPolicy):
    def __init__(self, ice: Ice) -> None:
        super().__init__()
        self._ice = ice

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        self._ice.loop = asyncio.SelectorEventLoop(_Selector(self._ice))
        return self._ice.loop


class _Sink:
    """Wraps a transport and drops what is written while everything is frozen."""

    def __init__(self, transport: asyncio.Transport, ice: Ice) -> None:
        self._transport = transport
        self._ice = ice

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._ice.takes_frame(bytes(data)):
            self._transport.write(data)


class Ice:
    """Freezes at the request with a given number, counted from 0; ``asked`` holds all that were written."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.freezes_at: int | None = None
        self.side = "wire"
        self.waited_s = 0.0
        """How long the command has waited since everything froze, by its own clock."""
        self.real = time.monotonic
        self.loop: asyncio.AbstractEventLoop | None = None
        """The newest event loop, which is the command's."""
        self._frozen_s: float | None = None
        self._is_watching = False

    @property
    def is_frozen(self) -> bool:
        return self._frozen_s is not None

    def monotonic(self) -> float:
        now = self.real()
        return now if self._frozen_s is None else self._frozen_s + (now - self._frozen_s) * SPEED

    @contextmanager
    def freezing(self, at: int | None, side: str) -> Iterator[None]:
        """Freeze at a request over ``wire`` or to ``znodes``, or (None) at the first change; thaw at the end."""
        self.asked, self.freezes_at, self.side, self._frozen_s, self.waited_s = [], at, side, None, 0.0
        self._is_watching = True
        try:
            yield
        finally:
            self._is_watching, self._frozen_s = False, None

    def takes_frame(self, frame: bytes) -> bool:
        """Return whether a request to a broker vanishes."""
        header, request = decode_request(frame[4:])
        key = ApiKey(header.api_key)
        is_change = key in CHANGES and not getattr(request, "validate_only", False)
        if getattr(request, "transactional_id", None) is not None:
            # A new producer of a transactional id fences the one before.
            is_change = True
        if GROUP in (getattr(request, "groups_names", None) or ()):
            # The lock of plans is not a change: it goes with its holder.
            is_change = False
        return self._takes("wire", Question(key.name, is_change))

    def takes_packet(self, packet: bytes) -> bool:
        """Return whether a request to ZooKeeper vanishes. Pings and session openings do not count."""
        xid, operation = struct.unpack_from(">ii", packet, 4)
        name = _ZK_OPERATIONS.get(operation)
        if xid == _ZK_PING_XID or xid < 0 or name is None:
            return self.is_frozen and self.side == "znodes" and xid != 0
        # The lock of plans is not a change: it goes with its holder.
        is_change = name in _ZK_WRITES and b"/klamm" not in packet
        return self._takes("znodes", Question(name, is_change))

    def _takes(self, side: str, question: Question) -> bool:
        if side != self.side or not self._is_watching:
            return False
        self.asked.append(question)
        is_here = question.is_change if self.freezes_at is None else len(self.asked) == self.freezes_at + 1
        if not self.is_frozen and is_here:
            self._frozen_s = self.real()
            if self.loop is not None and not self.loop.is_closed():
                # kazoo's thread asks while the loop waits, so the loop's wait must end sooner.
                self.loop.call_soon_threadsafe(lambda: None)
        return self.is_frozen


@pytest.fixture
def ice(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ice]:
    """Freezes brokers and ZooKeeper for commands that run in this process."""
    ice = Ice()
    made = broker_client._Wire.connection_made

    def connection_made(wire: Any, transport: Any) -> None:
        made(wire, _Sink(transport, ice))  # type: ignore[arg-type]

    written = ConnectionHandler._write

    def write(handler: Any, message: bytes, timeout: float) -> None:
        if not ice.takes_packet(message):
            written(handler, message, timeout)

    monkeypatch.setattr(broker_client._Wire, "connection_made", connection_made)
    monkeypatch.setattr(ConnectionHandler, "_write", write)
    poller = InboxHandler._poller
    monkeypatch.setattr(InboxHandler, "_poller", lambda handler, readers: _Poller(poller(handler, readers), ice))
    monkeypatch.setattr(time, "monotonic", ice.monotonic)
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(_Policy(ice))
    try:
        yield ice
    finally:
        asyncio.set_event_loop_policy(before)
        # The garbage collector closes what a command has given up: in this test, not in a later one.
        gc.collect()
