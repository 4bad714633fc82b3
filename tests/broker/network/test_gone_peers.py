"""Peers that close the connection, half or whole, or vanish while answers are due: dropped within seconds."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest
from event_loop import staged
from hostile_clients import lose_network, reset
from network_serving import run, serving

from engine.broker.network import server as network_server
from engine.broker.network import tcp_info
from engine.broker.network.connection import CloseReason, Connection
from engine.broker.network.request import Deferred
from engine.broker.network.server import SocketServer
from engine.broker.network.session import IN_FLIGHT_MAX
from engine.broker.network.tcp_info import KEEP_ALIVE_IDLE_S, UNHEARD_MS_MAX, is_peer_gone, read_tcp_info
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from engine.kafka.protocol.frames import encode_request

ESTABLISHED, CLOSE, CLOSE_WAIT = 1, 7, 8


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_server, "GONE_PEERS_INTERVAL_MS", 50)


def info(state: int = ESTABLISHED, *, probes: int = 0, unacknowledged: int = 0, unheard_ms: int = 0) -> bytes:
    return struct.pack("=8B13I", state, 0, 0, probes, 0, 0, 0, 0, *(0,) * 4, unacknowledged, *(0,) * 7, unheard_ms)


@pytest.mark.parametrize(
    ("reported", "is_gone"),
    [
        (info(), False),
        (info(unheard_ms=10 * UNHEARD_MS_MAX), False),
        (info(unacknowledged=3, unheard_ms=UNHEARD_MS_MAX - 1), False),
        (info(unacknowledged=3, unheard_ms=UNHEARD_MS_MAX), True),
        (info(probes=2, unheard_ms=UNHEARD_MS_MAX), True),
        (info(CLOSE_WAIT), True),
        (info(CLOSE), True),
        (b"", False),
    ],
)
def test_who_acknowledges_nothing_is_gone_and_who_waits_is_not(reported: bytes, is_gone: bool) -> None:
    assert is_peer_gone(reported) is is_gone


async def the_connection(server: SocketServer) -> Connection:
    async with asyncio.timeout(20):
        while not any(connection.owes_answers for connection in server.connections):
            await asyncio.sleep(0.001)
    return next(connection for connection in server.connections if connection.owes_answers)


@pytest.mark.parametrize("how", ["half", "whole"])
@pytest.mark.parametrize("is_muted", [False, True])
@staged(run)
async def test_who_has_hung_up_is_let_go_with_all_that_waits(how: str, is_muted: bool) -> None:
    """This also holds while the server reads nothing from the peer because it is busy with an earlier request."""
    abandoned: list[str] = []
    ended: list[str] = []

    async def wait_for_ever(request: object, body: Any) -> MetadataResponse:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("metadata")
        return MetadataResponse()

    def fetch(request: object, body: FetchRequest) -> Deferred:
        return Deferred(abandon=lambda: abandoned.append("fetch"))

    async with serving({ApiKey.FETCH: fetch, ApiKey.METADATA: wait_for_ever}) as (server, host, port):
        server.start_idle_sweep()
        _, writer = await asyncio.open_connection(host, port)
        writer.write(bytes(encode_request(FetchRequest(topics=[], max_wait_ms=2**31 - 1), 4, 1, "c")))
        if is_muted:
            writer.write(bytes(encode_request(MetadataRequest(topics=[]), 4, 2, "c")))
        connection = await the_connection(server)
        if how == "half":
            writer.write_eof()
        else:
            writer.close()
        async with asyncio.timeout(20):
            while server.connections:
                await asyncio.sleep(0.005)
        assert connection.closed_because in (CloseReason.PEER_GONE, CloseReason.PEER_CLOSED)
        assert abandoned == ["fetch"]
        writer.close()


@staged(run)
async def test_who_waits_or_reads_slowly_is_kept() -> None:
    records = b"x" * 10_000_000
    waiting: list[Deferred] = []

    def fetch(request: object, body: FetchRequest) -> Deferred | FetchResponse:
        if body.max_wait_ms:
            waiting.append(Deferred())
            return waiting[0]
        partition = PartitionData(partition_index=0, high_watermark=0, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    async with serving({ApiKey.FETCH: fetch}) as (server, host, port):
        looked = 0

        def count(fd: int) -> bytes:
            nonlocal looked
            looked += 1
            return read_tcp_info(fd)

        network_server.read_tcp_info = count  # type: ignore[attr-defined]
        try:
            server.start_idle_sweep()
            writers = [(await asyncio.open_connection(host, port, limit=1024))[1] for _ in range(2)]
            for writer, wait_ms in zip(writers, (600_000, 0), strict=True):
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                request = FetchRequest(topics=[], max_wait_ms=wait_ms)
                writer.write(bytes(encode_request(request, 4, 1, "c")))
            async with asyncio.timeout(20):
                while looked < 10:
                    await asyncio.sleep(0.01)
            assert [connection.closed_because for connection in server.connections] == [None, None]
        finally:
            network_server.read_tcp_info = read_tcp_info  # type: ignore[attr-defined]
        for writer in writers:
            writer.transport.abort()


@staged(run)
async def test_the_kernel_looks_after_connections_that_nothing_is_sent_over() -> None:
    async with serving({ApiKey.FETCH: lambda request, body: Deferred()}) as (server, host, port):
        _, writer = await asyncio.open_connection(host, port)
        writer.write(bytes(encode_request(FetchRequest(topics=[]), 4, 1, "c")))
        connection = await the_connection(server)
        lent = socket.socket(fileno=connection.descriptor)
        try:
            assert lent.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert lent.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEP_ALIVE_IDLE_S
        finally:
            lent.detach()
        writer.close()


def connected(host: str, port: int, requests: int) -> socket.socket:
    """Connect, and send this many requests that are never answered."""
    client = socket.create_connection((host, port), timeout=20)
    for number in range(requests):
        client.sendall(bytes(encode_request(FetchRequest(topics=[], max_wait_ms=2**31 - 1), 4, number, "c")))
    return client


@pytest.mark.parametrize("requests", [1, IN_FLIGHT_MAX, 2 * IN_FLIGHT_MAX])
@staged(run)
async def test_who_resets_a_connection_is_let_go_also_where_it_is_not_read(requests: int) -> None:
    """With this many answers due the server reads nothing, so the event loop does not see the reset."""
    abandoned: list[str] = []
    handlers = {ApiKey.FETCH: lambda request, body: Deferred(abandon=lambda: abandoned.append("fetch"))}
    async with serving(handlers) as (server, host, port):
        server.start_idle_sweep()
        client = await asyncio.to_thread(connected, host, port, requests)
        await the_connection(server)
        reset(client)
        async with asyncio.timeout(20):
            while server.connections:
                await asyncio.sleep(0.005)
        assert 1 <= len(abandoned) <= min(requests, IN_FLIGHT_MAX)


@pytest.mark.parametrize("requests", [1, IN_FLIGHT_MAX])
@pytest.mark.parametrize("is_sent_something", [False, True])
def test_whose_network_is_gone_is_let_go(
    requests: int, is_sent_something: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing arrives any more: no data, no acknowledgement, no end of the connection."""
    for name in ("KEEP_ALIVE_IDLE_S", "KEEP_ALIVE_INTERVAL_S", "KEEP_ALIVE_COUNT"):
        monkeypatch.setattr(tcp_info, name, 1)
    monkeypatch.setattr(tcp_info, "UNHEARD_MS_MAX", 1000)
    waiting: list[Deferred] = []

    def fetch(request: object, body: FetchRequest) -> Deferred:
        waiting.append(Deferred())
        return waiting[-1]

    async def check() -> None:
        async with serving({ApiKey.FETCH: fetch}) as (server, host, port):
            server.start_idle_sweep()
            client = await asyncio.to_thread(connected, host, port, requests)
            await the_connection(server)
            lose_network(client)
            if is_sent_something:
                waiting[0].complete(FetchResponse(responses=[]))
            async with asyncio.timeout(20):
                while server.connections:
                    await asyncio.sleep(0.01)
            client.close()

    run(check)
