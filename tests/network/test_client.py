"""A client's connection that is given up while it opens."""

from __future__ import annotations

import asyncio

import pytest

from engine.network.client import BrokerClient, ConnectFailed


def test_a_connection_that_opens_after_the_close_is_not_kept() -> None:
    async def run() -> None:
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await reader.read() == b""
            writer.close()
            ended.set()

        server = await asyncio.start_server(serve, "127.0.0.1")
        host, port = server.sockets[0].getsockname()
        client = BrokerClient(host, port, client_id="test")
        connecting = asyncio.create_task(client.connect())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ConnectFailed, match="closed by this side"):
            await connecting
        assert not client.is_connected
        await asyncio.wait_for(ended.wait(), 10)
        await client.connect()
        assert client.is_connected, "it may be opened again"
        await client.close()
        server.close()
        await server.wait_closed()

    asyncio.run(run())
