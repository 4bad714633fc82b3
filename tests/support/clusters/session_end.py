"""When ZooKeeper ends a broker's session, the cluster itself learns that the broker is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.watches import WatchEvent

SEEN_WITHIN_S = 2.0
"""The dashboard shows the end of a broker's session within this time."""
_DEADLINE_S = 60.0


async def session_ended(zk: ZkClient, broker_id: int, kill: Callable[[], None]) -> float:
    """Kill a broker; return the loop's time when ZooKeeper has ended its session."""
    gone = asyncio.Event()

    def on_event(event: WatchEvent) -> None:
        gone.set()

    path = f"/brokers/ids/{broker_id}"
    zk.watch_data(path, on_event)
    assert await zk.exists(path) is not None
    await asyncio.to_thread(kill)
    async with asyncio.timeout(_DEADLINE_S):
        await gone.wait()
    return asyncio.get_running_loop().time()
