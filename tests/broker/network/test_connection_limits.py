"""Which connections a server keeps, closes and refuses: idle ones, and those beyond its limits (E5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from manual_clock import ManualClock
from network_serving import run, serving

from engine.broker.network.connection import CloseReason
from engine.broker.network.request import Deferred
from engine.broker.network.server import ListenerSpec, ServerLimits
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import ConnectionLost
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from engine.kafka.protocol.frames import encode_request


def test_idle_connections_are_closed() -> None:
    async def check() -> None:
        limits, clock = ServerLimits(connections_max_idle_ms=200), ManualClock()
        async with serving({}, limits, clock) as (server, host, port):
            server.start_idle_sweep()
            reader, writer = await asyncio.open_connection(host, port)
            async with asyncio.timeout(30):
                while not server.connections:
                    await asyncio.sleep(0.001)
                clock.advance(201)
                assert await reader.read() == b""
            writer.close()

    run(check)


def test_the_clock_that_a_broker_is_given_says_who_is_idle() -> None:
    """As in Kafka, whose selector gets its Time injected."""

    async def check() -> None:
        limits, clock = ServerLimits(connections_max_idle_ms=600_000), ManualClock()
        async with serving({}, limits, clock) as (server, host, port):
            silent, heard = BrokerClient(host, port, client_id="silent"), BrokerClient(host, port, client_id="heard")
            await silent.api_versions()
            (first,) = server.connections
            clock.advance(600_000)
            await heard.api_versions()
            (second,) = server.connections - {first}
            server._close_idle()
            assert (first.closed_because, second.closed_because) == (None, None)
            clock.advance(1)
            server._close_idle()
            assert (first.closed_because, second.closed_because) == (CloseReason.IDLE, None)
            await silent.close()
            await heard.close()

    run(check)


def test_a_peer_that_takes_its_time_over_a_long_answer_is_not_idle() -> None:
    """As in Kafka, where writing counts as activity. A peer that reads nothing any more is idle."""

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.001)

    async def check() -> None:
        records = b"x" * 30_000_000
        partition = PartitionData(partition_index=0, high_watermark=0, records=records)
        answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
        clock = ManualClock()
        async with serving({ApiKey.FETCH: lambda request, body: answer}, clock=clock) as (server, host, port):
            reader, writer = await asyncio.open_connection(host, port, limit=1024)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(bytes(encode_request(FetchRequest(topics=[]), 4, 1, "slow")))
            await until(lambda: any(one._sender and one._sender.is_waiting for one in server.connections))
            (connection,) = server.connections
            sender = connection._sender
            assert sender is not None
            clock.advance(server.limits.connections_max_idle_ms + 1)
            queued_bytes = sender.queued_bytes
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            while sender.queued_bytes == queued_bytes:
                await asyncio.wait_for(reader.read(1_000_000), 30)
            server._close_idle()
            assert connection.closed_because is None
            clock.advance(server.limits.connections_max_idle_ms + 1)
            server._close_idle()
            assert connection.closed_because is CloseReason.IDLE
            writer.transport.abort()

    run(check)


def test_brokers_get_in_where_clients_have_taken_all_connections() -> None:
    """Otherwise a storm of clients would lock the replicas out. The client that was idle longest makes room."""

    async def check() -> None:
        limits, clock = ServerLimits(max_connections=2, protected_listeners=frozenset({"INTERNAL"})), ManualClock()
        async with serving({}, limits, clock) as (server, host, port):
            inner_host, inner_port = await server.listen(ListenerSpec("INTERNAL", host, 0))
            clients = [BrokerClient(host, port, client_id=f"client {n}") for n in range(2)]
            for client in clients:
                clock.advance(1)
                await client.api_versions()
            busiest = max(server.connections, key=lambda one: one.last_active_ms)
            brokers = [BrokerClient(inner_host, inner_port, client_id=f"broker {n}") for n in range(3)]
            await brokers[0].api_versions()
            async with asyncio.timeout(30):
                while len(server.connections) > 2:
                    await asyncio.sleep(0.001)
            assert busiest in server.connections
            for broker in brokers[1:]:
                await broker.api_versions()
            third = BrokerClient(host, port, client_id="client 3")
            with pytest.raises(ConnectionLost):
                await third.api_versions()
            for one in (*clients, *brokers, third):
                await one.close()

    run(check)


def test_connections_beyond_the_limits_are_refused() -> None:
    async def check() -> None:
        async with serving({}, ServerLimits(max_connections_per_ip=2)) as (_, host, port):
            clients = [BrokerClient(host, port, client_id=str(i)) for i in range(3)]
            await clients[0].api_versions()
            await clients[1].api_versions()
            with pytest.raises(ConnectionLost):
                await clients[2].api_versions()
            await clients[0].close()
            async with asyncio.timeout(30):
                while True:
                    try:
                        await clients[2].api_versions()
                    except ConnectionLost:
                        continue
                    break
            for client in clients:
                await client.close()

    run(check)


def test_who_takes_no_answer_is_idle_whatever_else_it_has_asked_for() -> None:
    """A request that waits forever behind an answer that is never read must not keep a connection forever."""
    partition = PartitionData(partition_index=0, high_watermark=0, records=b"x" * 200_000)
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    def fetch(request: object, body: FetchRequest) -> Deferred | FetchResponse:
        return Deferred() if body.max_wait_ms else answer

    def asked(max_wait_ms: int) -> bytes:
        return bytes(encode_request(FetchRequest(topics=[], max_wait_ms=max_wait_ms), 4, 1, "c"))

    async def check() -> None:
        async with (
            asyncio.timeout(30),
            serving({ApiKey.FETCH: fetch}, ServerLimits(connections_max_idle_ms=300)) as (server, host, port),
        ):
            _, deaf = await asyncio.open_connection(host, port, limit=1024)
            deaf.transport.pause_reading()  # type: ignore[attr-defined]
            while not (server.connections and next(iter(server.connections))._sender.queued_bytes):  # type: ignore[union-attr]
                deaf.write(asked(0))
                await asyncio.sleep(0.002)
            deaf.write(asked(600_000))
            (connection,) = server.connections
            while not connection.is_busy:
                await asyncio.sleep(0.002)
            _, waits = await asyncio.open_connection(host, port)
            waits.write(asked(600_000))
            server.start_idle_sweep()
            while connection.closed_because is None:
                await asyncio.sleep(0.005)
            assert connection.closed_because is CloseReason.IDLE
            (left,) = server.connections - {connection}
            assert left.is_waited_for, "it waits for us, and may"
            for one in (waits, deaf):
                one.transport.abort()

    run(check)
