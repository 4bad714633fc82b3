"""The layer between kazoo's thread and the event loop: order, wake-ups, buffers."""

from __future__ import annotations

import asyncio
import socket
import threading
from types import SimpleNamespace

import pytest
from event_loop import in_event_loop

from engine.kafka.zk.kazoo_handler import BufferedSocket, Inbox, InboxHandler, WakePipe


@in_event_loop
async def test_inbox_keeps_order_and_wakes_the_loop_once_per_burst() -> None:
    loop = asyncio.get_running_loop()
    wakes = 0
    wake = loop.call_soon_threadsafe

    def counting(*arguments, **options):
        nonlocal wakes
        wakes += 1
        return wake(*arguments, **options)

    loop.call_soon_threadsafe = counting  # type: ignore[method-assign]
    inbox, got = Inbox(loop), []
    done = asyncio.Event()
    for number in range(5_000):
        inbox.put(got.append, number)
    inbox.put(done.set)
    await done.wait()
    assert got == list(range(5_000))
    assert wakes == 1


@in_event_loop
async def test_inbox_takes_from_many_bursts_of_another_thread() -> None:
    inbox, got = Inbox(asyncio.get_running_loop()), []
    done = asyncio.Event()

    def put_all() -> None:
        for number in range(20_000):
            inbox.put(got.append, number)
        inbox.put(done.set)

    thread = threading.Thread(target=put_all)
    thread.start()
    await asyncio.wait_for(done.wait(), 20)
    thread.join()
    assert got == list(range(20_000))


def test_a_failing_delivery_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        inbox, done = Inbox(asyncio.get_running_loop()), asyncio.Event()
        inbox.put(lambda: 1 // 0)
        inbox.put(done.set)
        await asyncio.wait_for(done.wait(), 20)

    asyncio.run(run())
    assert "A delivery from ZooKeeper failed" in caplog.text


@in_event_loop
async def test_others_have_their_turn_after_a_delivery_that_takes_long() -> None:
    """A new controller's 64 topics of 1,000 partitions used to be decoded in one go: 130 ms."""
    loop = asyncio.get_running_loop()
    inbox, done = Inbox(loop), asyncio.Event()
    clock_s, turns = 0.0, [0]
    turn_of: list[int] = []

    def take_long(number: int) -> None:
        nonlocal clock_s
        clock_s += 0.005
        turn_of.append(turns[0])
        if number == 4:
            done.set()

    def another() -> None:
        turns[0] += 1
        if not done.is_set():
            loop.call_soon(another)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(
            inbox,
            "_loop",
            SimpleNamespace(
                time=lambda: clock_s, call_soon=loop.call_soon, call_soon_threadsafe=loop.call_soon_threadsafe
            ),
        )
        for number in range(5):
            inbox.put(take_long, number)
        loop.call_soon(another)
        async with asyncio.timeout(20):
            await done.wait()
    assert len(set(turn_of)) == 5


def test_inbox_of_a_closed_loop_is_silent() -> None:
    loop = asyncio.new_event_loop()
    inbox = Inbox(loop)
    loop.close()
    inbox.put(print)
    inbox.put(print)


def test_socket_is_read_in_large_pieces_and_written_in_bursts() -> None:
    inner, peer = socket.socketpair()
    with peer:
        buffered = BufferedSocket(inner, write_timeout_s=1)
        peer.sendall(b"abcdefgh")
        assert buffered.recv(4) == b"abcd"
        assert buffered.pending() == 4
        assert buffered.recv(9) == b"efgh"
        assert buffered.pending() == 0
        for _ in range(3):
            assert buffered.send(memoryview(b"xyz")) == 3
        peer.setblocking(False)
        with pytest.raises(BlockingIOError):
            peer.recv(10)
        buffered.flush()
        assert peer.recv(10) == b"xyzxyzxyz"
        buffered.shutdown()
        assert buffered.recv(1) == b""
        buffered.close()


def test_peer_that_takes_nothing_ends_the_write_in_time() -> None:
    inner, peer = socket.socketpair()
    with peer:
        inner.setblocking(False)
        buffered = BufferedSocket(inner, write_timeout_s=0.05)
        with pytest.raises(TimeoutError):
            while True:
                buffered.send(memoryview(bytes(100_000)))
        buffered.close()


def test_bare_wake_up_is_not_taken_for_a_timeout() -> None:
    """kazoo takes an empty answer of select for a time-out, and drops the connection."""
    queue: list[str] = []
    handler = InboxHandler(lambda: bool(queue), connect_timeout_s=1, write_timeout_s=1)
    inner, peer = socket.socketpair()
    pipe, _ = handler.create_socket_pair()
    buffered = BufferedSocket(inner, write_timeout_s=1)
    assert isinstance(pipe, WakePipe)
    try:
        pipe.send(b"\0")
        assert handler.select([buffered, pipe], [], [], 0.05) == ([], [], [])
        pipe.send(b"\0")
        timer = threading.Timer(0.05, peer.sendall, [b"x"])
        timer.start()
        assert handler.select([buffered, pipe], [], [], 5)[0] == [buffered]
        timer.join()
        buffered.recv(1)
        timer = threading.Timer(0.05, lambda: (queue.append("request"), pipe.send(b"\0")))
        timer.start()
        assert handler.select([buffered, pipe], [], [], 5)[0] == [pipe]
        timer.join()
    finally:
        pipe.close()
        buffered.close()
        peer.close()
