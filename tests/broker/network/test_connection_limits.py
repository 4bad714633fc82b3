"""Which connections a server keeps, closes and refuses: idle ones, and those beyond its limits (E5)."""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from certificates import Authority
from event_loop import staged, until
from login_serving import LOGIN, Peer, exchange, policy, tell_principal
from network_serving import answer_with_name, correlation_ids, metadata_request, read_frame, run, serving
from virtual_time import ManualClock

from engine.broker.network.connection import CloseReason
from engine.broker.network.connection_rates import ConnectionRates, CreationLimits
from engine.broker.network.inbox import Inbox
from engine.broker.network.request import Deferred
from engine.broker.network.server import GONE_PEERS_INTERVAL_MS, ListenerSpec, ServerLimits
from engine.common.clock import SystemClock
from engine.common.windowed_rate import Window
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import ConnectionLost
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from engine.kafka.protocol.frames import encode_request
from engine.runtime.receive_buffers import SCARCE_BYTES, ReceiveBuffers


@staged(run)
async def test_idle_connections_are_closed() -> None:
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


@staged(run)
async def test_the_clock_that_a_broker_is_given_says_who_is_idle() -> None:
    """As in Kafka, whose selector gets its Time injected."""
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


@staged(run)
async def test_a_peer_that_takes_its_time_over_a_long_answer_is_not_idle() -> None:
    """As in Kafka, where writing counts as activity. A peer that reads nothing any more is idle."""
    records = b"x" * 30_000_000
    partition = PartitionData(partition_index=0, high_watermark=0, records=records)
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    clock = ManualClock()
    async with serving({ApiKey.FETCH: lambda request, body: answer}, clock=clock) as (server, host, port):
        reader, writer = await asyncio.open_connection(host, port, limit=1024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(bytes(encode_request(FetchRequest(topics=[]), 4, 1, "slow")))
        await until(
            lambda: any(connection._sender and connection._sender.is_waiting for connection in server.connections)
        )
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


@staged(run)
async def test_brokers_get_in_where_clients_have_taken_all_connections() -> None:
    """Otherwise a storm of clients would lock the replicas out. The client that was idle longest makes room."""
    limits, clock = ServerLimits(max_connections=2, protected_listeners=frozenset({"INTERNAL"})), ManualClock()
    async with serving({}, limits, clock) as (server, host, port):
        inner_host, inner_port = await server.listen(ListenerSpec("INTERNAL", host, 0))
        clients = [BrokerClient(host, port, client_id=f"client {n}") for n in range(2)]
        for client in clients:
            clock.advance(1)
            await client.api_versions()
        busiest = max(server.connections, key=lambda connection: connection.last_active_ms)
        brokers = [BrokerClient(inner_host, inner_port, client_id=f"broker {n}") for n in range(3)]
        await brokers[0].api_versions()
        await until(lambda: len(server.connections) == 2)
        assert busiest in server.connections
        await brokers[1].api_versions()
        # As in Kafka, brokers have no more connections than everybody, too.
        third = BrokerClient(host, port, client_id="client 3")
        waiting = [asyncio.create_task(late.api_versions()) for late in (brokers[2], third)]
        await until(lambda: server.rates.waiting == 2 and server.rates.inside == 2)
        await brokers[0].close()
        await waiting[0]
        assert not waiting[1].done()
        await brokers[1].close()
        await waiting[1]
        for connection in (*clients, *brokers, third):
            await connection.close()


@staged(run)
async def test_a_connection_beyond_max_connections_waits_until_another_ends() -> None:
    clock = ManualClock()
    async with serving({}, ServerLimits(max_connections=1), clock) as (server, host, port):
        first, second, third = (BrokerClient(host, port, client_id=str(number)) for number in range(3))
        await first.api_versions()
        gone = asyncio.create_task(second.api_versions())
        await until(lambda: server.rates.waiting == 1)
        waiting = asyncio.create_task(third.api_versions())
        await until(lambda: server.rates.waiting == 2)
        gone.cancel()
        await second.close()
        clock.advance(GONE_PEERS_INTERVAL_MS + 1)

        def is_noticed() -> bool:
            server._close_gone()
            return server.rates.waiting == 1

        await until(is_noticed)
        assert not waiting.done()
        await first.close()
        await waiting
        assert (server.rates.waiting, server.rates.inside) == (0, 1)
        await third.close()


@staged(run)
async def test_connections_beyond_those_that_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel holds up those that wait for Kafka, and no more than socket.listen.backlog.size."""
    monkeypatch.setattr("engine.broker.network.server.BACKLOG_MIN", 1)
    limits = ServerLimits(max_connections=1, socket_listen_backlog_size=2)
    async with serving({}, limits) as (server, host, port):
        clients = [BrokerClient(host, port, client_id=str(number)) for number in range(4)]
        await clients[0].api_versions()
        waiting = []
        for client in clients[1:3]:
            waiting.append(asyncio.create_task(client.api_versions()))
            await until(lambda: server.rates.waiting == len(waiting))
        with pytest.raises(ConnectionLost):
            await clients[3].api_versions()
        for client in clients[:2]:
            await client.close()
        await waiting[1]
        await clients[2].close()


@staged(run)
async def test_no_more_of_them_may_wait_for_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each keeps a socket and some memory, for as long as those before it need at their rate."""
    monkeypatch.setattr("engine.broker.network.server.BACKLOG_MIN", 1)
    async with serving({}, ServerLimits(socket_listen_backlog_size=2)) as (server, host, port):
        server.rates = ConnectionRates(Window(1, 60_000), SystemClock(), frozenset())
        server.rates.limits = CreationLimits(broker=0)
        clients = [BrokerClient(host, port, client_id=str(number)) for number in range(3)]
        waiting = []
        for client in clients[:2]:
            waiting.append(asyncio.create_task(client.api_versions()))
            await until(lambda: server.rates.waiting == len(waiting))
        with pytest.raises(ConnectionLost):
            await clients[2].api_versions()
        assert server.rates.waiting == 2
        for task in waiting:
            task.cancel()
        for client in clients:
            await client.close()


@staged(run)
async def test_a_lower_limit_ends_the_connections_of_clients_that_were_silent_longest() -> None:
    limits, clock = ServerLimits(protected_listeners=frozenset({"INTERNAL"})), ManualClock()
    async with serving({}, limits, clock) as (server, host, port):
        inner_host, inner_port = await server.listen(ListenerSpec("INTERNAL", host, 0))
        broker = BrokerClient(inner_host, inner_port, client_id="broker")
        await broker.api_versions()
        clients = [BrokerClient(host, port, client_id=str(number)) for number in range(4)]
        for client in clients:
            clock.advance(1)
            await client.api_versions()
        late = BrokerClient(host, port, client_id="late")
        server.change_limits(max_connections=3)
        await until(lambda: len(server.connections) == 3)
        for client in (broker, *clients[2:]):
            await client.api_versions()
        assert len(server.connections) == 3
        waiting = asyncio.create_task(late.api_versions())
        await until(lambda: server.rates.waiting == 1)
        server.change_limits(max_connections=4)
        await waiting
        for client in (broker, late, *clients):
            await client.close()


@staged(run)
async def test_connections_beyond_the_limits_are_refused() -> None:
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


@staged(run)
async def test_connections_that_wait_do_not_count_for_their_address() -> None:
    async with serving({}, ServerLimits(max_connections=1, max_connections_per_ip=1)) as (server, host, port):
        clients = [BrokerClient(host, port, client_id=str(i)) for i in range(3)]
        await clients[0].api_versions()
        late = []
        for client in clients[1:]:
            late.append(asyncio.create_task(client.api_versions()))
            await until(lambda: server.rates.waiting == len(late))
        await clients[0].close()
        await late[0]
        server.change_limits(max_connections=2)
        with pytest.raises(ConnectionLost):
            await late[1]
        assert (server.rates.inside, server.rates.waiting) == (1, 0)
        for client in clients:
            await client.close()


@staged(run)
async def test_who_takes_no_answer_is_idle_whatever_else_it_has_asked_for() -> None:
    """A request that waits forever behind an answer that is never read must not keep a connection forever."""
    partition = PartitionData(partition_index=0, high_watermark=0, records=b"x" * 200_000)
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    def fetch(request: object, body: FetchRequest) -> Deferred | FetchResponse:
        return Deferred() if body.max_wait_ms else answer

    def asked(max_wait_ms: int) -> bytes:
        return bytes(encode_request(FetchRequest(topics=[], max_wait_ms=max_wait_ms), 4, 1, "c"))

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
        for client in (waits, deaf):
            client.transport.abort()


CA = Authority()
KB = 1024


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """What a listener asks of TLS, and what its clients do, if it encrypts."""
    if request.param == "plain":
        return SimpleNamespace(policy=None, client={})
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CA.sign("broker", ["broker.example"]).write_pem(tmp_path / "broker.pem"))
    policy = SimpleNamespace(tls=server, principal_of=lambda certificate: "User:ANONYMOUS")
    context = ssl.create_default_context(cadata=CA.pem)
    return SimpleNamespace(policy=policy, client={"ssl": context, "server_hostname": "broker.example"})


def produce(size: int, correlation_id: int) -> bytes:
    """Return a request with so many bytes of records."""
    partitions = [PartitionProduceData(index=0, records=bytes(size))]
    request = ProduceRequest(timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=partitions)])
    return bytes(encode_request(request, 8, correlation_id, "c"))


def metadata(size: int, correlation_id: int) -> bytes:
    """Return a request of about this size that a thread decodes."""
    topics = [MetadataRequestTopic(name=f"{number:08}") for number in range(size // 10)]
    return bytes(encode_request(MetadataRequest(topics=topics), 4, correlation_id, "c"))


def answer_produce(request: object, body: ProduceRequest) -> ProduceResponse:
    return ProduceResponse(responses=[])


HANDLERS: dict[ApiKey, Callable[..., Any]] = {ApiKey.PRODUCE: answer_produce, ApiKey.METADATA: answer_with_name}


@staged(run)
async def test_requests_beyond_queued_max_request_bytes_are_not_read(tls: Any) -> None:
    """One request more than the limit gets memory, as in Kafka; those behind it wait in the kernel."""
    limits = ServerLimits(queued_max_request_bytes=1024 * KB)
    async with serving(HANDLERS, limits, tls=tls.policy) as (server, host, port):
        buffers, large, small = server.buffers, produce(700 * KB, 1), produce(200 * KB, 2)

        async def begun(data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection(host, port, **tls.client)
            writer.write(data)
            return reader, writer

        first = await begun(large[:-1])
        second = await begun(large[:-1])
        async with asyncio.timeout(30):
            while not buffers.is_depleted:
                await asyncio.sleep(0.001)
        assert buffers.frames_bytes == 2 * len(large)
        third, fourth = await begun(small), await begun(metadata(100 * KB, 3))
        async with asyncio.timeout(30):
            while sum(connection._inbox.lacks_memory for connection in server.connections) < 2:
                await asyncio.sleep(0.001)
        waiting = [connection for connection in server.connections if connection._inbox.lacks_memory]
        assert all(connection._inbox._end <= SCARCE_BYTES for connection in waiting)
        assert all(len(getattr(connection, "_encrypted", b"")) < 20 * KB for connection in waiting)
        whole = await begun(metadata_request("small", 4))
        assert correlation_ids([await read_frame(whole[0])]) == [4]
        assert buffers.frames_bytes == 2 * len(large)
        first[1].write(large[-1:])
        for (reader, _), number in zip((first, third, fourth), (1, 2, 3), strict=True):
            assert correlation_ids([await read_frame(reader)]) == [number]
        assert buffers.depleted_ms > 0
        second[1].transport.abort()
        async with asyncio.timeout(30):
            while buffers.frames_bytes:
                await asyncio.sleep(0.001)
        for _, writer in (first, third, fourth, whole):
            writer.close()


@staged(run)
async def test_who_has_not_logged_in_takes_no_memory_from_others(tls: Any) -> None:
    """Otherwise silent peers would keep it for a minute each."""
    limits = ServerLimits(queued_max_request_bytes=100_000)
    handlers = {ApiKey.METADATA: tell_principal} | LOGIN
    logins = policy(ManualClock(), {})
    async with serving(handlers, limits, tls=tls.policy, logins=logins) as (server, host, port):
        _, silent = await asyncio.open_connection(host, port, **tls.client)
        peer = Peer(*await asyncio.open_connection(host, port, **tls.client))
        silent.write(struct.pack(">ihhih", 200_000, ApiKey.SASL_HANDSHAKE, 1, 1, -1))
        assert (await peer.log_in("PLAIN", exchange("PLAIN"))).error_code == 0
        assert server.buffers.frames_bytes == 0
        peer.send(produce(200_000, 1)[:1000])
        async with asyncio.timeout(30):
            while not server.buffers.is_depleted:
                await asyncio.sleep(0.001)
        silent.close()
        peer.close()


@staged(run)
async def test_who_waits_for_room_takes_no_memory_from_those_inside() -> None:
    """What it has sent counts once it is let in: otherwise those inside would wait for memory until then."""
    limits = ServerLimits(queued_max_request_bytes=100_000, max_connections=1)
    async with serving(HANDLERS, limits) as (server, host, port), asyncio.timeout(30):
        (inside, inside_writer), (waiting, waiting_writer) = [await asyncio.open_connection(host, port) for _ in "12"]
        await until(lambda: (server.rates.inside, server.rates.waiting) == (1, 1))
        (held,) = (connection for connection in server.connections if not connection.is_let_in)
        waiting_writer.write(produce(200_000, 1))
        await until(lambda: not held._inbox.is_empty)
        assert server.buffers.frames_bytes == 0
        inside_writer.write(produce(200_000, 2))
        assert correlation_ids([await read_frame(inside)]) == [2]
        inside_writer.close()
        assert correlation_ids([await read_frame(waiting)]) == [1]
        assert server.buffers.frames_bytes == 0
        waiting_writer.close()


def test_each_request_needs_memory_of_its_own() -> None:
    """Who always sends the beginning of the next one with the end of the last would otherwise never wait."""
    buffers = ReceiveBuffers(100)
    inbox = Inbox(buffers)
    frame = struct.pack(">i", 60) + bytes(60)

    def receive(data: bytes) -> None:
        inbox.room()[: len(data)] = data
        inbox.received(len(data))
        while inbox.next_frame(8, 1000):
            pass
        inbox.keep_rest()

    receive(frame[:30])
    buffers.count(60)
    assert (buffers.is_depleted, inbox.lacks_memory) == (True, False)
    receive(frame[30:50])
    assert not inbox.lacks_memory, "it has its memory"
    receive(frame[50:] + frame[:10])
    assert not inbox.lacks_memory, "without its own, others leave memory for one"
    buffers.count(60)
    receive(frame[10:] + frame[:10])
    assert (buffers.frames_bytes, inbox.lacks_memory) == (120, True)
    inbox.release()
    assert buffers.frames_bytes == 120


@pytest.mark.parametrize("begun", [2, 30], ids=["before its size", "behind a request at work"])
def test_bytes_that_came_before_a_size_was_known_are_no_grant(begun: int) -> None:
    """Otherwise each connection could have a whole frame beyond the limit."""
    buffers = ReceiveBuffers(100)
    inbox = Inbox(buffers)
    frame = struct.pack(">i", 60) + bytes(60)
    inbox.room()[:begun] = frame[:begun]
    inbox.received(begun)
    if begun < 4:
        assert inbox.next_frame(8, 1000) is None
    inbox.keep_rest()
    assert (buffers.frames_bytes, inbox.lacks_memory) == (begun, False)
    buffers.count(100)
    inbox.room()[:10] = frame[begun : begun + 10]
    inbox.received(10)
    assert inbox.next_frame(8, 1000) is None
    inbox.keep_rest()
    assert (buffers.frames_bytes, inbox.lacks_memory) == (100, True)
    buffers.count(-100)
    inbox.keep_rest()
    assert (buffers.frames_bytes, inbox.lacks_memory) == (64, False)
    inbox.keep_rest()
    assert buffers.frames_bytes == 64, "what was granted stays"


@staged(run)
async def test_who_has_gone_waits_for_memory_no_more() -> None:
    clock = iter(range(0, 1000, 10))
    buffers = ReceiveBuffers(100, lambda: next(clock))
    called: list[str] = []
    gone, other = (lambda: called.append("gone")), (lambda: called.append("other"))
    buffers.count(100)
    buffers.wait(gone)
    buffers.wait(other)
    buffers.wait_no_more(gone)
    buffers.count(-100)
    await asyncio.sleep(0)
    depleted_ms = buffers.depleted_ms
    assert (called, buffers.depleted_ms) == (["other"], depleted_ms), "nobody waits, so the time stands still"


@pytest.mark.parametrize("seed", range(2))
def test_all_are_served_whatever_waits_for_memory(seed: int, tls: Any) -> None:
    """Some hang up in the middle of a request. Nothing stays counted."""
    numbers = random.Random(seed)

    async def client(host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port, **tls.client)
        for _ in range(4):
            count = numbers.randrange(1, 4)
            requests = [
                numbers.choice([produce, metadata])(numbers.choice([10, 900, 5000, 40_000, 90_000]), number)
                for number in range(count)
            ]
            data = b"".join(requests)
            cut = numbers.randrange(len(data))
            writer.write(data[:cut])
            await asyncio.sleep(numbers.choice([0, 0.001, 0.01]))
            if numbers.random() < 0.05:
                writer.transport.abort()
                return
            writer.write(data[cut:])
            assert correlation_ids([await read_frame(reader) for _ in range(count)]) == list(range(count))
        writer.close()

    async def check() -> None:
        limits = ServerLimits(queued_max_request_bytes=50_000)
        async with serving(HANDLERS, limits, tls=tls.policy) as (server, host, port):
            await asyncio.gather(*(client(host, port) for _ in range(20)))
            async with asyncio.timeout(30):
                while server.connections or server.buffers.frames_bytes:
                    await asyncio.sleep(0.001)
            assert server.buffers.between_frames is server.buffers.shared
            assert server.buffers.depleted_ms > 0

    run(check)
