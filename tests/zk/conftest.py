"""Fixtures of the ZooKeeper tests: clients by the dozen, and ways to end a session behind its owner's back."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from engine.zk.client import ZkClient

Connect = Callable[..., AbstractAsyncContextManager[ZkClient]]


@pytest.fixture
def connect(zk_chroot: str) -> Connect:
    """``async with connect() as client``: a client below the test's own chroot."""

    @asynccontextmanager
    async def connected(hosts: str = zk_chroot, **options: object) -> AsyncIterator[ZkClient]:
        client = await ZkClient.connect(hosts, **{"session_timeout_ms": 6_000, **options})  # type: ignore[arg-type]
        try:
            yield client
        finally:
            await client.close()

    return connected


@pytest.fixture
def end_session(zk_chroot: str) -> Callable[[ZkClient], Awaitable[None]]:
    """Ends a client's session on the server, as an expiry does: its owner learns of it when it connects again."""
    host, port = zk_chroot.partition("/")[0].split(":")

    def steal_and_close(session_id: int, password: bytes) -> None:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            body = struct.pack(">iqiqi16sB", 0, 0, 6_000, session_id, 16, password, 0)
            connection.sendall(struct.pack(">i", len(body)) + body)
            assert connection.recv(4_096)
            connection.sendall(struct.pack(">iii", 8, 1, -11))
            assert connection.recv(4_096)

    async def end(client: ZkClient) -> None:
        await asyncio.to_thread(steal_and_close, *client.session_credentials)

    return end


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """``await until(lambda: …)``: waits for a condition, at most ten seconds."""

    async def wait(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.005)

    return wait
