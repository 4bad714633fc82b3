"""The end of a dead broker's session in ZooKeeper: at once, as when its time is up, or awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kazoo.client import KazooClient

from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.watches import WatchEvent
from engine.local.cluster import LocalCluster
from engine.local.probe import four_letter_word

_SUPER_SECRET = 0xB3415C00
"""A ZooKeeper server makes the password of a session from its id and this number."""
_JAVA_MULTIPLIER = 0x5DEECE66D

SEEN_WITHIN_S = 2.0
"""The dashboard shows the end of a broker's session within this time, on a machine that is idle."""
_DEADLINE_S = 60.0


def kill_for_good(cluster: LocalCluster, *broker_ids: int) -> None:
    """Kill brokers (SIGKILL), all of them first; ZooKeeper ends their sessions now."""
    for broker_id in broker_ids:
        cluster.kill_broker(broker_id)
    for broker_id in broker_ids:
        end_session(cluster, broker_id)


def end_session(cluster: LocalCluster, broker_id: int) -> None:
    """End the session that holds a broker's registration; do nothing if there is none."""
    session_id = _owner(cluster, broker_id)
    if session_id is None:
        return
    close_session(cluster.zookeeper.connect_string, session_id)
    assert _owner(cluster, broker_id) != session_id


def close_session(connect_string: str, session_id: int) -> None:
    """Close somebody else's session: ZooKeeper removes its ephemeral znodes."""
    client = KazooClient(connect_string, client_id=(session_id, _password(session_id)))
    try:
        client.start()
    finally:
        client.stop()
        client.close()


def _owner(cluster: LocalCluster, broker_id: int) -> int | None:
    """Return the id of the session that holds a broker's registration."""
    session_id, path = None, f"{cluster.chroot}/brokers/ids/{broker_id}"
    for line in four_letter_word(cluster.zookeeper.host, cluster.zookeeper.port, "dump").splitlines():
        if line.startswith("0x") and line.endswith(":"):
            session_id = int(line[:-1], 16)
        elif line.strip() == path:
            return session_id
    return None


def _password(session_id: int) -> bytes:
    """Return what ZooKeeper's ``generatePasswd`` returns: sixteen bytes of ``java.util.Random``."""
    state = (session_id ^ _SUPER_SECRET ^ _JAVA_MULTIPLIER) & ((1 << 48) - 1)
    password = b""
    for _ in range(4):
        state = (state * _JAVA_MULTIPLIER + 0xB) & ((1 << 48) - 1)
        password += (state >> 16).to_bytes(4, "little")
    return password


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
