"""Fixtures of the ZooKeeper tests: many clients, and ways to end a session without its owner's knowledge."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import pytest

from engine.common.model import BrokerInfo, Endpoint, SecurityProtocol
from engine.kafka.zk.brokers import BrokerRegistration
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.controller import ControllerEpoch
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.local.addresses import own_loopback_address

Connect = Callable[..., AbstractAsyncContextManager[ZkClient]]


_TIMEOUT = slice(8, 12)
"""Where the answer to a login has the session's time-out, behind two other numbers."""


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
    """Ends a client's session on the server, as an expiry does. The owner learns of it when it reconnects."""
    host, port = zk_chroot.partition("/")[0].split(":")

    def steal_and_close(session_id: int, password: bytes) -> bool:
        """Return whether the server has closed the session, now or before. The owner may have reclaimed it first."""
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            body = struct.pack(">iqiqi16sB", 0, 0, 6_000, session_id, 16, password, 0)
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.recv(4_096)
            if len(answer) < _TIMEOUT.stop:
                return False
            if answer[_TIMEOUT] == bytes(4):  # there is no such session any more
                return True
            connection.sendall(struct.pack(">iii", 8, 1, -11))
            return bool(connection.recv(4_096))

    async def end(client: ZkClient) -> None:
        credentials = client._keeper.current().credentials
        async with asyncio.timeout(20):
            while not await asyncio.to_thread(steal_and_close, *credentials):
                await asyncio.sleep(0.01)

    return end


class Proxy:
    """A TCP proxy in front of ZooKeeper that can hold back requests or answers, and cut all connections."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.may_ask, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_ask.set()
        self.may_answer.set()
        self.unserved = 0
        """How many of the next connections are accepted, and then neither served nor closed."""
        self.garble: Callable[[bytes], bytes] | None = None
        """What to do to the next answer."""
        self._writers: set[asyncio.StreamWriter] = set()
        self.address = ""

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, own_loopback_address(), 0)
        host, port = server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.unserved:
            self.unserved -= 1
            self._writers.add(writer)
            return
        inner_reader, inner_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, inner_writer}
        await asyncio.gather(
            self._pump(reader, inner_writer, self.may_ask), self._pump(inner_reader, writer, self.may_answer)
        )
        self._writers -= {writer, inner_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        with suppress(OSError):
            while chunk := await reader.read(65_536):
                await gate.wait()
                if self.garble is not None and gate is self.may_answer:
                    chunk, self.garble = self.garble(chunk), None
                writer.write(chunk)
        writer.close()

    def cut(self) -> None:
        """Break all connections; what was held back is lost."""
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
def open_proxy(zk_chroot: str) -> Callable[[], AbstractAsyncContextManager[Proxy]]:
    """``async with open_proxy() as proxy``: connect to ``proxy.address + chroot``."""
    host, port = zk_chroot.partition("/")[0].split(":")

    @asynccontextmanager
    async def opened() -> AsyncIterator[Proxy]:
        proxy = Proxy(host, int(port))
        server = await proxy.start()
        try:
            yield proxy
        finally:
            proxy.may_ask.set()
            proxy.may_answer.set()
            proxy.cut()
            server.close()
            await server.wait_closed()

    return opened


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """``await until(lambda: …)``: waits for a condition, for at most half a minute."""

    async def wait(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.005)

    return wait


@pytest.fixture
def registration() -> Callable[..., BrokerRegistration]:
    """Builds what a broker writes about itself; for broker 0 it matches the recording."""

    def made(broker_id: int = 0, timestamp_ms: int = 1_795_263_665_394) -> BrokerRegistration:
        endpoint = Endpoint("127.0.0.1", 29_392 + broker_id, "PLAINTEXT", SecurityProtocol.PLAINTEXT)
        return BrokerRegistration(BrokerInfo(broker_id, (endpoint,), "a"), timestamp_ms)

    return made


@pytest.fixture
def first_broker(registration: Callable[..., BrokerRegistration]) -> Callable[..., Awaitable[ControllerEpoch]]:
    """Acts as the first broker of a cluster does, up to becoming its controller."""

    async def start(zk: KafkaZkClient) -> ControllerEpoch:
        await zk.cluster.make_persistent_paths()
        await zk.cluster.get_or_create_cluster_id("GUdN0FDdRo6mPXfsw59WFg")
        await zk.brokers.register_broker(registration())
        elected = await zk.controller.elect_controller(0)
        assert elected is not None
        return elected

    return start
