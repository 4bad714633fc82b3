"""What an answer costs whose peer takes its time: ranges of files stay ranges until the socket has room for them."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.network.sender import GATHERED_BYTES_MAX, SENDFILE_BYTES_MIN, Sender
from engine.protocol.codec import Outgoing
from engine.storage.file_range import FileRange, OpenFile

PATIENCE_S = 20.0


@pytest.fixture
def data(tmp_path: Path) -> tuple[OpenFile, bytes]:
    content = random.Random(1).randbytes(1_000_000)
    (tmp_path / "f").write_bytes(content)
    return OpenFile(os.open(tmp_path / "f", os.O_RDONLY)), content


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    here.setblocking(False)
    there.settimeout(PATIENCE_S)
    yield here, there
    here.close()
    there.close()


def answer(data: tuple[OpenFile, bytes], sizes: list[int]) -> tuple[Outgoing, bytes]:
    """Return an answer with a range of each size, some bytes around each, and what the peer should get."""
    file, content = data
    out, expected = Outgoing(), bytearray()
    for number, size in enumerate(sizes):
        head = b"<%d>" % number
        out += head
        expected += head
        position = number * 1000 % (len(content) - size)
        out.splice(FileRange(file, position, size))
        expected += content[position : position + size]
    out += b"end"
    return out, bytes(expected + b"end")


def test_small_ranges_for_a_peer_that_does_not_read_are_not_read_either(
    data: tuple[OpenFile, bytes], pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = pair
    read_bytes = 0
    pread = os.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        nonlocal read_bytes
        read_bytes += size
        return pread(fd, size, position)

    monkeypatch.setattr(os, "pread", counted)

    async def run() -> None:
        out, expected = answer(data, [SENDFILE_BYTES_MIN - 1] * 300)
        drained = asyncio.Event()
        sender = Sender(asyncio.get_running_loop(), here.fileno(), drained.set, pytest.fail)
        sender.send(out)
        assert read_bytes <= GATHERED_BYTES_MAX + SENDFILE_BYTES_MIN
        queued = sender.queued_bytes
        assert len(expected) - 1_000_000 < queued < len(expected)
        received = await asyncio.to_thread(_read, there, len(expected))
        assert received == expected
        async with asyncio.timeout(PATIENCE_S):
            await drained.wait()
        assert sender.queued_bytes == 0
        sender.close()

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(5))
def test_ranges_of_all_sizes_arrive_in_order(
    data: tuple[OpenFile, bytes], pair: tuple[socket.socket, socket.socket], seed: int
) -> None:
    here, there = pair
    rng = random.Random(seed)

    async def run() -> None:
        sender = Sender(asyncio.get_running_loop(), here.fileno(), lambda: None, pytest.fail)
        expected = b""
        for _ in range(4):
            sizes = [rng.choice([0, 1, 500, SENDFILE_BYTES_MIN - 1, SENDFILE_BYTES_MIN, 90_000]) for _ in range(20)]
            out, more = answer(data, sizes)
            sender.send(out)
            plain = Outgoing(rng.randbytes(rng.choice([3, 100_000])))
            expected += more + bytes(plain)
            sender.send(plain)
        assert await asyncio.to_thread(_read, there, len(expected)) == expected
        sender.close()

    asyncio.run(run())


def _read(there: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = there.recv(65536)
        assert chunk, "the connection ended early"
        received += chunk
    return bytes(received)
