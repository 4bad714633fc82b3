"""How fast znodes are written and read, and how long the event loop is held meanwhile. Prints; asserts little."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from engine.zk.client import ZkClient
from engine.zk.operations import Check, Create

COUNT = 20_000
DATA = b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0,1,2]}'

pytestmark = pytest.mark.bench


async def _loop_delays(stop: asyncio.Event) -> list[float]:
    """Milliseconds by which a timer of 1 ms came late, again and again."""
    delays = []
    while not stop.is_set():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        delays.append((time.perf_counter() - before - 0.001) * 1000)
    return sorted(delays)


async def _measured(name: str, work: Callable[[], Awaitable[object]]) -> float:
    stop = asyncio.Event()
    watching = asyncio.ensure_future(_loop_delays(stop))
    started, cpu = time.perf_counter(), time.process_time()
    await work()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    stop.set()
    delays = await watching
    rate = COUNT / seconds
    print(
        f"\n{name:28} {rate:8.0f}/s  CPU {cpu / COUNT * 1e6:5.1f} us each"
        f"  loop late p50 {delays[len(delays) // 2]:.2f} ms p99 {delays[int(len(delays) * 0.99)]:.2f} ms"
    )
    return rate


def test_pipelined_writes_and_reads(zk_chroot: str) -> None:
    async def run() -> None:
        async with await ZkClient.connect(zk_chroot) as client:
            await client.create("/guard", b"")
            await client.create("/dir", b"")
            paths = [f"/dir/{number:06}" for number in range(COUNT)]
            multis = [[Check("/guard", 0), Create(path, DATA)] for path in paths]
            assert await _measured("check + create, pipelined", lambda: client.multi_many(multis)) > 1_000
            assert await _measured("get, pipelined", lambda: client.get_many(paths)) > 1_000
            await _measured("children of 20,000", lambda: client.children("/dir"))

    interval = sys.getswitchinterval()
    # As the broker sets it.
    sys.setswitchinterval(0.0005)
    try:
        uvloop.run(run())
    finally:
        sys.setswitchinterval(interval)
