"""What an answer to a slow peer costs: file ranges stay ranges until the socket has room for them."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from event_loop import in_event_loop
from virtual_time import ManualClock

from engine.broker.log.file_range import FileRange, OpenFile
from engine.broker.network.sender import GATHERED_BYTES_MAX, SENDFILE_BYTES_MIN, RangeTruncated, SocketSender
from engine.kafka.protocol.codec import Outgoing
from engine.kafka.protocol.large_arrays import EncodedPiece

NOW_MS = ManualClock().monotonic_ms

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
    """Return an answer with a range of each size, a piece in memory behind each and some bytes around both, and the
    bytes that the peer should get.
    """
    file, content = data
    out, expected = Outgoing(), bytearray()
    for number, size in enumerate(sizes):
        head = b"<%d>" % number
        out += head
        expected += head
        position = number * 1000 % (len(content) - size)
        out.splice(FileRange(file, position, size))
        expected += content[position : position + size]
        if number % 2:
            out += b"between"
            expected += b"between"
        piece = EncodedPiece(b"left out" + 500 * head + b"left out", 8, 8 + 500 * len(head))
        out.splice(piece)
        expected += piece.data
    out += b"end"
    return out, bytes(expected + b"end")


@in_event_loop
async def test_small_ranges_for_a_peer_that_does_not_read_are_not_read_either(
    data: tuple[OpenFile, bytes], pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, receiver = pair
    read_bytes = 0
    preadv = os.preadv

    def counted(fd: int, buffers: list[bytearray], position: int, flags: int = 0) -> int:
        nonlocal read_bytes
        read = preadv(fd, buffers, position, flags)
        read_bytes += read
        return read

    monkeypatch.setattr(os, "preadv", counted)
    out, expected = answer(data, [SENDFILE_BYTES_MIN - 1] * 300)
    drained = asyncio.Event()
    sender = SocketSender(asyncio.get_running_loop(), here.fileno(), drained.set, pytest.fail, NOW_MS)
    sender.send(out)
    assert 0 < read_bytes <= GATHERED_BYTES_MAX + SENDFILE_BYTES_MIN
    queued = sender.queued_bytes
    assert len(expected) - 1_000_000 < queued < len(expected)
    received = await asyncio.to_thread(_read, receiver, len(expected))
    assert received == expected
    async with asyncio.timeout(PATIENCE_S):
        await drained.wait()
    assert sender.queued_bytes == 0
    sender.close()


@pytest.mark.parametrize("seed", range(5))
@in_event_loop
async def test_ranges_of_all_sizes_arrive_in_order(
    data: tuple[OpenFile, bytes], pair: tuple[socket.socket, socket.socket], seed: int
) -> None:
    here, receiver = pair
    rng = random.Random(seed)
    sender = SocketSender(asyncio.get_running_loop(), here.fileno(), lambda: None, pytest.fail, NOW_MS)
    expected = b""
    for _ in range(4):
        sizes = [rng.choice([0, 1, 500, SENDFILE_BYTES_MIN - 1, SENDFILE_BYTES_MIN, 90_000]) for _ in range(20)]
        out, more = answer(data, sizes)
        sender.send(out)
        plain = Outgoing(rng.randbytes(rng.choice([3, 100_000])))
        expected += more + bytes(plain)
        sender.send(plain)
    assert await asyncio.to_thread(_read, receiver, len(expected)) == expected
    sender.close()


class SlowDisk:
    """Replaces ``os``: at first no file is in memory, and a read from the disk blocks until ``may_read``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_read = threading.Event()
        self.asked = 0
        self._cached: set[int] = set()
        self._preadv, self._pread, self._sendfile = os.preadv, os.pread, os.sendfile
        monkeypatch.setattr(os, "preadv", self.preadv)
        monkeypatch.setattr(os, "pread", self.pread)
        monkeypatch.setattr(os, "sendfile", self.sendfile)

    def _pages(self, position: int, size: int) -> set[int]:
        return set(range(position // 4096, (position + max(size, 1) - 1) // 4096 + 1))

    def _check(self, position: int, size: int) -> None:
        if not self._pages(position, size) <= self._cached:
            pytest.fail("the event loop waits for the disk")

    def preadv(self, fd: int, buffers: list[bytearray], position: int, flags: int = 0) -> int:
        pages = self._pages(position, len(buffers[0]))
        if flags == os.RWF_NOWAIT and not pages <= self._cached:
            raise BlockingIOError
        if not flags:
            assert threading.current_thread() is not threading.main_thread()
            self.asked += 1
            assert self.may_read.wait(PATIENCE_S)
            self._cached |= pages
        return self._preadv(fd, buffers, position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._check(position, size)
        return self._pread(fd, size, position)

    def sendfile(self, to: int, fd: int, position: int, size: int) -> int:
        self._check(position, size)
        return self._sendfile(to, fd, position, size)


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "sizes", [[900_000], [100], [SENDFILE_BYTES_MIN - 1] * 30, [5, 400_000, 7, 0, SENDFILE_BYTES_MIN, 20_000]]
)
@in_event_loop
async def test_the_loop_does_not_wait_for_what_is_not_in_memory(
    data: tuple[OpenFile, bytes],
    pair: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    sizes: list[int],
) -> None:
    here, receiver = pair
    disk = SlowDisk(monkeypatch)
    drained = asyncio.Event()
    sender = SocketSender(asyncio.get_running_loop(), here.fileno(), drained.set, pytest.fail, NOW_MS)
    out, expected = answer(data, sizes)
    sender.send(out)
    sender.send(Outgoing(b"and more"))
    expected += b"and more"
    await _until(lambda: disk.asked)
    assert sender.queued_bytes > 0 and not drained.is_set()
    disk.may_read.set()
    assert await asyncio.to_thread(_read, receiver, len(expected)) == expected
    await _until(drained.is_set)
    assert sender.queued_bytes == 0
    sender.close()


@in_event_loop
async def test_a_connection_that_ends_while_the_disk_is_waited_for(
    data: tuple[OpenFile, bytes], pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    sender = SocketSender(asyncio.get_running_loop(), pair[0].fileno(), pytest.fail, pytest.fail, NOW_MS)
    sender.send(answer(data, [500_000])[0])
    await _until(lambda: disk.asked)
    sender.close()
    asked = disk.asked
    disk.may_read.set()
    await _until(lambda: disk.asked > asked)
    await asyncio.sleep(0)
    assert sender.queued_bytes == 0


@in_event_loop
async def test_a_file_that_ends_early_while_it_is_read(
    data: tuple[OpenFile, bytes], pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    disk.may_read.set()
    errors: list[OSError] = []
    sender = SocketSender(asyncio.get_running_loop(), pair[0].fileno(), pytest.fail, errors.append, NOW_MS)
    out = Outgoing()
    out.splice(FileRange(data[0], len(data[1]) - 10, 1000))
    sender.send(out)
    await _until(lambda: errors)
    assert isinstance(errors[0], RangeTruncated)


@in_event_loop
async def test_a_file_system_that_cannot_tell_is_read_as_it_is(
    data: tuple[OpenFile, bytes], pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system in memory refuses non-blocking reads."""
    preadv = os.preadv

    def refusing(fd: int, buffers: list[bytearray], position: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return preadv(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", refusing)
    sender = SocketSender(asyncio.get_running_loop(), pair[0].fileno(), lambda: None, pytest.fail, NOW_MS)
    out, expected = answer(data, [10, 100_000, 20])
    sender.send(out)
    assert await asyncio.to_thread(_read, pair[1], len(expected)) == expected
    sender.close()


def _read(there: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = there.recv(65536)
        assert chunk, "the connection ended early"
        received += chunk
    return bytes(received)
