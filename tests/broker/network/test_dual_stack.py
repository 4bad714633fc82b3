"""A wildcard listener accepts IPv4 and IPv6, as Java's does, and reports each peer by its own address."""

from __future__ import annotations

import asyncio
import socket

import pytest
from event_loop import staged
from network_serving import answer_api_versions, run
from virtual_time import ManualClock

from engine.broker.network.request import RequestHead
from engine.broker.network.routes import RouteTable
from engine.broker.network.server import ListenerSpec, ServerLimits, SocketServer


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
@staged(run)
async def test_a_listener_of_every_address_is_there_for_ipv4_and_ipv6(host: str) -> None:
    server = SocketServer(RouteTable({}, answer_api_versions), RequestHead, ServerLimits(), ManualClock())
    _, port = await server.listen(ListenerSpec("PLAINTEXT", host, 0))
    try:
        for address, shown in (("127.0.0.1", "127.0.0.1"), ("::1", "0:0:0:0:0:0:0:1")):
            _, writer = await asyncio.open_connection(address, port)
            async with asyncio.timeout(10):
                while shown not in {connection.session.host for connection in server.connections}:
                    await asyncio.sleep(0.005)
            writer.close()
    finally:
        await server.stop()


@staged(run)
async def test_without_ipv6_a_listener_of_every_address_takes_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.broker.network.server._has_ipv6", lambda: False)
    server = SocketServer(RouteTable({}, answer_api_versions), RequestHead, ServerLimits(), ManualClock())
    bound = server.bind(ListenerSpec("PLAINTEXT", "", 0))
    assert bound.socket.family is socket.AF_INET
    await server.stop()
