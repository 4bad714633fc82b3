"""How fast our client writes and reads 20,000 znodes, and how late the event loop is meanwhile, set up as in a broker.

The peer is the same session with one call at a time: the first 2,000 of them.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop
from tabulate import tabulate

from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.operations import Check, Create
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

COUNT = 20_000
ONE_BY_ONE = 2_000
DATA = b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0,1,2]}'


def main() -> None:
    """Print the table."""
    interval_s = sys.getswitchinterval()
    # As the broker sets it.
    sys.setswitchinterval(0.0005)
    try:
        with EmbeddedZooKeeper(host=own_loopback_address(), fsync=False) as zookeeper:
            rows = uvloop.run(measured(f"{zookeeper.connect_string}/bench"))
    finally:
        sys.setswitchinterval(interval_s)
    headers = ["", "znodes/s", "CPU µs each", "loop late, ms: p50", "p99"]
    print(tabulate(rows, headers, floatfmt=(None, ",.0f", ".1f", ".2f", ".2f")))


async def measured(chroot: str) -> list[list[object]]:
    """Write and read below a chroot that does not exist yet; return the rows of the table."""
    async with await ZkClient.connect(chroot) as client:
        await client.create("/guard", b"")
        await client.create("/dir", b"")
        paths = [f"/dir/{number:06}" for number in range(COUNT)]
        multis = [[Check("/guard", 0), Create(path, DATA)] for path in paths]

        async def write_one_by_one() -> None:
            for multi in multis[:ONE_BY_ONE]:
                await client.multi(multi)

        async def read_one_by_one() -> None:
            for path in paths[:ONE_BY_ONE]:
                await client.get(path)

        return [
            await row("check + create, one by one", ONE_BY_ONE, write_one_by_one),
            await row("check + create, pipelined", COUNT - ONE_BY_ONE, lambda: client.multi_many(multis[ONE_BY_ONE:])),
            await row("get, one by one", ONE_BY_ONE, read_one_by_one),
            await row("get, pipelined", COUNT, lambda: client.get_many(paths)),
            await row("the names of all children", COUNT, lambda: client.children("/dir")),
        ]


async def row(name: str, count: int, work: Callable[[], Awaitable[object]]) -> list[object]:
    """Do the work; return its rate, its CPU time and how late the loop was."""
    stop = asyncio.Event()
    watching = asyncio.ensure_future(loop_delays_ms(stop))
    began_s, cpu_s = time.perf_counter(), time.process_time()
    await work()
    seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    stop.set()
    delays = await watching
    p50, p99 = delays[len(delays) // 2], delays[int(len(delays) * 0.99)]
    return [name, count / seconds, cpu_s / count * 1e6, p50, p99]


async def loop_delays_ms(stop: asyncio.Event) -> list[float]:
    """Note how late a timer of 1 ms fires, again and again."""
    delays = []
    while not stop.is_set():
        before_s = time.perf_counter()
        await asyncio.sleep(0.001)
        delays.append((time.perf_counter() - before_s - 0.001) * 1000)
    return sorted(delays)
