"""A connection whose peer has used more than its share: nothing more is read from it for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from event_loop import staged
from network_serving import answer_with_name, correlation_ids, metadata_request, read_frame, run, serving
from virtual_time import ManualClock

from engine.broker.network.connection import CloseReason
from engine.broker.network.request import Deferred, RequestHead
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse

MUTED_MS = 150


class Muting:
    """A handler that mutes its connection for the first request."""

    def __init__(self, ms: int = MUTED_MS) -> None:
        self.handled: list[int] = []
        self._ms = ms

    def __call__(self, request: RequestHead, body: MetadataRequest) -> Any:
        self.handled.append(request.correlation_id)
        if request.correlation_id == 0:
            request.session.mute(self._ms)
        return answer_with_name(request, body)


@staged(run)
async def test_the_answer_comes_at_once_and_the_next_request_waits() -> None:
    handler = Muting()
    async with serving({ApiKey.METADATA: handler}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        other_reader, other_writer = await asyncio.open_connection(host, port)
        begin = asyncio.get_running_loop().time()
        writer.write(b"".join(metadata_request("t", number) for number in range(5)))
        assert correlation_ids([await read_frame(reader)]) == [0]
        other_writer.write(metadata_request("t", 77))
        assert correlation_ids([await read_frame(other_reader)]) == [77]
        assert handler.handled == [0, 77]
        assert correlation_ids([await read_frame(reader) for _ in range(4)]) == [1, 2, 3, 4]
        assert asyncio.get_running_loop().time() - begin >= MUTED_MS / 1000 - 0.002
        for client in (writer, other_writer):
            client.close()


@staged(run)
async def test_a_muted_connection_holds_no_more_than_a_read() -> None:
    async with serving({ApiKey.METADATA: Muting(3_600_000)}) as (server, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(metadata_request("t", 0))
        await read_frame(reader)
        (connection,) = server.connections
        large = metadata_request("x" * 200, 1)
        writer.write(large * (8_000_000 // len(large)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.3)
        assert connection.is_muted
        assert not connection.is_busy
        writer.transport.abort()


@staged(run)
async def test_a_later_and_longer_wait_counts_and_a_shorter_one_does_not_cut_it() -> None:
    handler, clock = Muting(100), ManualClock()
    async with serving({ApiKey.METADATA: handler}, clock=clock) as (server, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(metadata_request("t", 0))
        await read_frame(reader)
        (connection,) = server.connections
        connection.session.mute(10_000)
        connection.session.mute(1)
        writer.write(metadata_request("t", 1))
        clock.advance(9_999)
        connection._unmute()
        await asyncio.sleep(0)
        assert connection.is_muted and handler.handled == [0]
        clock.advance(1)
        connection._unmute()
        await read_frame(reader)
        writer.close()


@staged(run)
async def test_what_a_peer_sent_before_it_hung_up_is_handled_after_its_wait() -> None:
    """A producer with acks=0 sends, closes and goes; Kafka reads what it sent when its wait is over."""
    handler = Muting()
    async with serving({ApiKey.METADATA: handler}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"".join(metadata_request("t", number) for number in range(3)))
        writer.write_eof()
        frames = [await read_frame(reader) for _ in range(3)]
        assert correlation_ids(frames) == handler.handled == [0, 1, 2]
        assert await reader.read() == b""
        writer.close()


@staged(run)
async def test_a_silent_muted_connection_is_idle_and_is_not_taken_for_gone() -> None:
    clock = ManualClock()
    async with serving({ApiKey.METADATA: Muting(10_000_000)}, clock=clock) as (server, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(metadata_request("t", 0))
        await read_frame(reader)
        (connection,) = server.connections
        writer.write_eof()
        clock.advance(server.limits.connections_max_idle_ms)
        for _ in range(6):
            server._close_gone()
        assert connection.closed_because is None
        clock.advance(1)
        server._close_idle()
        assert connection.closed_because is CloseReason.IDLE
        writer.close()


@staged(run)
async def test_an_answer_that_comes_later_mutes_the_connection_then() -> None:
    deferred, handled = Deferred(), []

    def handler(request: RequestHead, body: MetadataRequest) -> Any:
        handled.append(request.correlation_id)
        return deferred if request.correlation_id == 0 else answer_with_name(request, body)

    def hook(request: RequestHead, answer: Any) -> None:
        if request.correlation_id == 0:
            request.session.mute(MUTED_MS)

    async with serving({ApiKey.METADATA: handler}, before_encoding=hook) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(metadata_request("t", 0))
        async with asyncio.timeout(30):
            while not handled:
                await asyncio.sleep(0)
        deferred.complete(MetadataResponse(brokers=[], topics=[]))
        assert correlation_ids([await read_frame(reader)]) == [0]
        begin = asyncio.get_running_loop().time()
        writer.write(metadata_request("t", 1))
        assert correlation_ids([await read_frame(reader)]) == [1]
        assert asyncio.get_running_loop().time() - begin >= MUTED_MS / 1000 - 0.02
        writer.close()
