"""Clients that keep to the protocol and mean no good: each does its worst to a broker and leaves sockets behind.

Their cost is read from /proc: open files, sockets, deleted files that are kept, memory.
"""

from __future__ import annotations

import os
import random
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from wire_client import WireClient

from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.declaration import Request
from engine.kafka.protocol.frames import encode_request

FOR_EVER_MS = 2**31 - 1
MUCH = 2**31 - 1
DEEP = 128
"""This many requests are sent before an answer is read."""

_SO_ATTACH_FILTER = 26
_DROP_EVERYTHING = struct.pack("HBBI", 0x06, 0, 0, 0)
"""One instruction of the kernel's packet filter: return 0 bytes."""


class Held(NamedTuple):
    """What a process holds at a moment."""

    files: int
    sockets: int
    deleted: int
    anonymous_bytes: int


def held_by(pid: int) -> Held:
    """Return what a process holds."""
    links = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            links.append(os.readlink(fd))
    status = Path(f"/proc/{pid}/status").read_text()
    anonymous = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:"))
    return Held(
        len(links),
        sum(link.startswith("socket:") for link in links),
        sum(link.endswith("(deleted)") for link in links),
        anonymous * 1024,
    )


class HostileClients:
    """Sockets that are left open, or abandoned. Use it as a context manager: at the end it closes all silently."""

    def __init__(self, address: str, *, full: str, empty: str, numbers: random.Random) -> None:
        """``full`` is a topic with many records, ``empty`` one without any: its readers wait."""
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._full = full
        self._empty = empty
        self._numbers = numbers
        self._left_open: list[socket.socket] = []

    def __enter__(self) -> HostileClients:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._left_open:
            reset(connection)
        self._left_open.clear()

    def wait_for_ever_in_pipelined_sessions(self, count: int) -> None:
        """Open fetch sessions and wait in each with many requests.

        Some hang up, some reset the connection, some stay.
        """
        for number in range(count):
            with WireClient(":".join(map(str, self._address))) as client:
                opened = client.ask(self._fetch(self._empty, max_wait_ms=0, session_epoch=0), 12)
                following = self._fetch(self._empty, session_id=opened.session_id, session_epoch=1)
                pipelined = b"".join(_frame(following, 12, index) for index in range(DEEP))
                with suppress(OSError):
                    client.socket.sendall(pipelined)
                if number % 3 == 0:
                    reset(client.socket)
                elif number % 3 == 1:
                    self._left_open.append(client.socket.dup())

    def queue_answers_behind_one_that_waits(self, count: int) -> None:
        """Ask for all metadata again and again behind a Fetch that is never answered."""
        everything = MetadataRequest(topics=None)
        for _ in range(count):
            connection = self._connect()
            connection.sendall(_frame(self._fetch(self._empty), 12, 0))
            for number in range(1, DEEP):
                with suppress(BlockingIOError):
                    connection.setblocking(False)
                    connection.sendall(_frame(everything, 12, number))
            self._left_open.append(connection)

    def close_one_half(self, count: int) -> None:
        """Wait forever, and say that no more requests will come."""
        for _ in range(count):
            connection = self._connect()
            connection.sendall(_frame(self._fetch(self._empty), 12, 1))
            connection.shutdown(socket.SHUT_WR)
            self._left_open.append(connection)

    def read_nothing(self, count: int) -> None:
        """Ask for everything there is, many times, and read none of it."""
        greedy = self._fetch(self._full, max_wait_ms=0)
        for _ in range(count):
            connection = self._connect(receive_bytes=4096)
            connection.setblocking(False)
            for number in range(DEEP):
                with suppress(BlockingIOError):
                    connection.sendall(_frame(greedy, 12, number))
            self._left_open.append(connection)

    def read_slowly(self, count: int) -> None:
        """Read a few bytes of a large answer and go away."""
        greedy = self._fetch(self._full, max_wait_ms=0)
        for _ in range(count):
            with self._connect(receive_bytes=4096) as connection:
                connection.sendall(_frame(greedy, 12, 1))
                connection.recv(self._numbers.randint(1, 3000))

    def send_half(self, count: int) -> None:
        """Send incomplete requests. Half of the clients then stay, half go."""
        whole = _frame(MetadataRequest(topics=None), 12, 1)
        for number in range(count):
            connection = self._connect()
            announced = struct.pack(">i", self._numbers.randint(100, 9_000_000))
            connection.sendall(announced + whole[4 : self._numbers.randint(5, len(whole) - 1)])
            if number % 2:
                connection.close()
            else:
                self._left_open.append(connection)

    def say_nothing(self, count: int) -> None:
        """Connect; some send one small request first."""
        greeting = _frame(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3, 1)
        for number in range(count):
            connection = self._connect()
            if number % 2:
                connection.sendall(greeting)
            self._left_open.append(connection)

    def join_and_go(self, count: int) -> None:
        """Join groups with the longest allowed time-outs, and leave without a word."""
        for number in range(count):
            request = JoinGroupRequest(
                group_id=f"hostile-{self._numbers.random()}",
                session_timeout_ms=6_000,
                rebalance_timeout_ms=FOR_EVER_MS,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(1000))],
            )
            connection = self._connect()
            connection.sendall(_frame(request, 3, number))
            reset(connection)

    def vanish(self, count: int) -> None:
        """Wait for an answer, or owe an acknowledgement, after the machine has lost its network."""
        greedy = self._fetch(self._full, max_wait_ms=0)
        for number in range(count):
            connection = self._connect(receive_bytes=4096)
            connection.sendall(_frame(greedy if number % 2 else self._fetch(self._empty), 12, 1))
            lose_network(connection)
            self._left_open.append(connection)

    def _connect(self, *, receive_bytes: int | None = None) -> socket.socket:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(30)
        connection.connect(self._address)
        return connection

    def _fetch(
        self, topic: str, *, max_wait_ms: int = FOR_EVER_MS, session_id: int = 0, session_epoch: int = -1
    ) -> FetchRequest:
        wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MUCH)]
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=MUCH,
            max_bytes=MUCH,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=[FetchTopic(topic=topic, partitions=wanted)] if session_epoch <= 0 else [],
        )


def lose_network(connection: socket.socket) -> None:
    """Hide everything that arrives: it is neither acknowledged nor refused, as after a cable was pulled."""
    program = _Program(_DROP_EVERYTHING)
    connection.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program.packed)


def reset(connection: socket.socket) -> None:
    """Close with a reset instead of a clean end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class _Program:
    """A program for the kernel's packet filter. The kernel copies it when it is attached."""

    def __init__(self, code: bytes) -> None:
        import ctypes

        self._code = ctypes.create_string_buffer(code, len(code))
        self.packed = struct.pack("HL", len(code) // 8, ctypes.addressof(self._code))


def _frame(request: Request, version: int, correlation_id: int) -> bytes:
    return bytes(encode_request(request, version, correlation_id, "hostile"))
