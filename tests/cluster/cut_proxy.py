"""TCP proxies in front of brokers' inter-broker listeners, which can cut the lines between two of them.

The client id of the first request tells who connects, because brokers put their id into it. A line is cut in one of
three ways: refused (connections are reset, new ones too), silent (bytes are held back until the line is repaired, as in
a network that drops packets) or forgotten (open connections stay silent for good, and new ones work, as after a
firewall has restarted).
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar

_CLIENT_ID_AT = 4 + 8
_BROKER_ID = re.compile(rb"(?:broker-)?(\d+)(?:-fetcher-\d+|-txn-marker-sender|-txn-verifier)?")
_CHUNK_BYTES = 1 << 18

T = TypeVar("T")


class Cut(Enum):
    """How a line is cut."""

    REFUSED = "refused"
    SILENT = "silent"
    FORGOTTEN = "forgotten"


class _Line:
    """All connections between two brokers, in both directions."""

    def __init__(self) -> None:
        self.cut: Cut | None = None
        self.flows = asyncio.Event()
        self.flows.set()
        self.writers: set[asyncio.StreamWriter] = set()

    def set(self, cut: Cut | None) -> None:
        self.cut = cut
        if cut is Cut.FORGOTTEN:
            # Open connections keep the event, which nobody sets again.
            self.flows.clear()
            self.flows = asyncio.Event()
        if cut is Cut.SILENT:
            self.flows.clear()
        else:
            self.flows.set()
        if cut is Cut.REFUSED:
            for writer in list(self.writers):
                writer.transport.abort()


class CutProxies:
    """The proxies of one cluster, on an event loop in a thread of their own. Use it as a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cut-proxies", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._lines: dict[frozenset[int], _Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.strangers: set[bytes] = set()
        """Client ids that name no broker: their lines are never cut."""

    def __enter__(self) -> CutProxies:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._await(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def forward(self, host: str, port: int, to_port: int, broker_id: int) -> None:
        """Listen on ``port`` and forward everything to ``broker_id`` at ``to_port`` of the same host."""

        async def listen() -> None:
            def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = self._loop.create_task(self._serve(reader, writer, host, to_port, broker_id))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

            self._servers.append(await asyncio.start_server(serve, host, port, limit=_CHUNK_BYTES))

        self._await(listen())

    def cut(self, one: int, other: int, how: Cut) -> None:
        """Cut the line between two brokers."""
        self._call(lambda: self._line(one, other).set(how))

    def mend(self, one: int, other: int) -> None:
        """Let the two brokers talk again."""
        self._call(lambda: self._line(one, other).set(None))

    @property
    def has_cuts(self) -> bool:
        """Whether any line is cut at the moment."""
        return any(line.cut is not None for line in self._lines.values())

    def mend_all(self) -> None:
        """Let all brokers talk again."""
        self._call(lambda: [line.set(None) for line in self._lines.values()])

    def _line(self, one: int, other: int) -> _Line:
        return self._lines.setdefault(frozenset((one, other)), _Line())

    def _call(self, function: Callable[[], object]) -> None:
        async def run() -> None:
            function()

        self._await(run())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10.0)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, to_port: int, broker_id: int
    ) -> None:
        upstream: asyncio.StreamWriter | None = None
        line: _Line | None = None
        try:
            head, client_id = await _first_bytes(reader)
            match = _BROKER_ID.fullmatch(client_id)
            if match is None:
                self.strangers.add(client_id)
            line = self._line(-1 if match is None else int(match[1]), broker_id)
            if line.cut is Cut.REFUSED:
                writer.transport.abort()
                return
            line.writers.add(writer)
            from_upstream, upstream = await asyncio.open_connection(host, to_port, limit=_CHUNK_BYTES)
            flows = line.flows
            await flows.wait()
            upstream.write(head)
            both = (_pump(reader, upstream, flows), _pump(from_upstream, writer, flows))
            pumps = [self._loop.create_task(pump) for pump in both]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError):
            # One side hung up, or the broker is down: the other side sees the end of its connection.
            return
        finally:
            if line is not None:
                line.writers.discard(writer)
            for end in (writer, upstream):
                if end is not None:
                    end.transport.abort()


async def _first_bytes(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the start of the first request, and the id of the client that sends it."""
    head = await reader.readexactly(_CLIENT_ID_AT + 2)
    (size,) = struct.unpack_from(">h", head, _CLIENT_ID_AT)
    client_id = await reader.readexactly(max(size, 0))
    return head + client_id, client_id


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            await flows.wait()
            writer.write(chunk)
            await writer.drain()
