"""The server's side of a connection (E5): order, half frames, garbage, slow readers, file ranges, limits."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import struct
import weakref
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from event_loop import staged
from network_serving import answer_with_name, correlation_ids, metadata_request, read_frame, run, serving

from engine.broker.network import connection as connection_module
from engine.broker.network.connection import LARGE_FRAME_BYTES, QUEUED_BYTES_MAX, CloseReason
from engine.broker.network.inbox import BULK_BYTES, Inbox
from engine.broker.network.request import CLOSE_CONNECTION, NO_RESPONSE, Deferred, EncodedAnswer, RequestHead
from engine.broker.network.server import ListenerSpec, ServerLimits
from engine.broker.network.session import IN_FLIGHT_MAX
from engine.common.errors import OperationError, RemoteProtocolError
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import ConnectionLost
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from engine.kafka.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from engine.kafka.protocol.apis.produce import ProduceRequest, TopicProduceData
from engine.kafka.protocol.frames import decode_response, encode_request, encode_response
from engine.runtime.receive_buffers import SHARED_BYTES, ReceiveBuffers


@staged(run)
async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with serving({ApiKey.METADATA: answer_with_name}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"".join(metadata_request(f"t{i}", i) for i in range(200)))
        frames = [await read_frame(reader) for _ in range(200)]
        assert correlation_ids(frames) == list(range(200))
        assert all(f"t{i}".encode() in frame for i, frame in enumerate(frames))
        writer.close()


@staged(run)
async def test_a_deferred_answer_holds_back_later_answers_but_not_their_handling() -> None:
    deferred = Deferred()
    handled: list[int] = []

    def handler(request: RequestHead, body: MetadataRequest) -> Any:
        handled.append(request.correlation_id)
        return deferred if request.correlation_id == 0 else MetadataResponse(brokers=[], topics=[])

    async with serving({ApiKey.METADATA: handler}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"".join(metadata_request("t", i) for i in range(5)))
        async with asyncio.timeout(30):
            while len(handled) < 5:
                await asyncio.sleep(0)
        deferred.complete(MetadataResponse(brokers=[], topics=[]))
        frames = [await read_frame(reader) for _ in range(5)]
        assert correlation_ids(frames) == [0, 1, 2, 3, 4]
        writer.close()


@pytest.mark.parametrize("is_hooked", [False, True])
@staged(run)
async def test_a_plain_handler_answers_what_it_can_in_the_requests_order(is_hooked: bool) -> None:
    """It is not asked if somebody has to see the answers before they are encoded."""
    waiting: list[Deferred] = []

    def plain(request: RequestHead, frame: memoryview, position: int) -> Deferred | None:
        assert bytes(frame[position:]) == metadata_request(f"t{request.correlation_id}", 0)[4 + 8 + 2 + 4 :]
        if request.correlation_id == 5:
            raise OSError("a fault")
        if request.correlation_id % 3 == 0:
            return None
        waiting.append(Deferred())
        return waiting[-1]

    body = encode_response(MetadataResponse(brokers=[], topics=[], cluster_id="plain"), ApiKey.METADATA, 4, 0)[8:]
    hook = (lambda *_: None) if is_hooked else None
    async with serving(
        {ApiKey.METADATA: answer_with_name}, plain_handlers={ApiKey.METADATA: plain}, before_encoding=hook
    ) as (server, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"".join(metadata_request(f"t{i}", i) for i in range(5)))
        if not is_hooked:
            async with asyncio.timeout(30):
                while len(waiting) < 3:
                    await asyncio.sleep(0)
        for number, deferred in enumerate(reversed(waiting)):
            deferred.complete(EncodedAnswer(bytes(body), 7 if number else 0, 2))
        frames = [await read_frame(reader) for _ in range(5)]
        assert correlation_ids(frames) == list(range(5))
        assert [b"plain" in frame for frame in frames] == [not is_hooked and i % 3 != 0 for i in range(5)]
        assert [frame[4:] == body for frame in frames] == [b"plain" in frame for frame in frames]
        (route,) = [r for table in server.totals.values() for r in table.apis[0].values() if r is not None]
        assert route.times.answers() == (5, sum(map(len, frames)))
        if not is_hooked:
            assert route.errors == {0: 2, 7: 4}
            writer.write(metadata_request("t5", 5))
            with pytest.raises(asyncio.IncompleteReadError):
                await read_frame(reader)
        writer.close()


@staged(run)
async def test_each_request_of_a_connection_has_its_own_client_id() -> None:
    names = ["", None, "a", "ab", "a", "", "ab", "ab", None, None, "\u00e4", "\0", ""]
    seen: list[str | None] = []

    def handler(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        seen.append(request.client_id)
        return answer_with_name(request, body)

    async with serving({ApiKey.METADATA: handler}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        for number, name in enumerate(names):
            writer.write(encode_request(asked, 4, number, name))
        frames = [await read_frame(reader) for _ in names]
        assert (seen, correlation_ids(frames)) == (names, list(range(len(names))))
        writer.close()


@staged(run)
async def test_texts_of_another_code_are_read_as_java_reads_them() -> None:
    """Clients that are set up in ISO 8859-1 work on Kafka."""

    async def handler(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        assert body.topics is not None
        return MetadataResponse(brokers=[], topics=[], cluster_id=f"{request.client_id} {body.topics[0].name}")

    async with serving({ApiKey.METADATA: handler}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(metadata_request("buero", 1).replace(b"test", b"t\xfcst").replace(b"ue", b"\xfce"))
        _, answer = decode_response(await read_frame(reader), ApiKey.METADATA, 4)
        assert answer.cluster_id == "t\ufffdst b\ufffdero"
        writer.close()


@staged(run)
async def test_an_async_handler_mutes_its_connection_until_it_is_done() -> None:
    gate = asyncio.Event()
    handled: list[int] = []

    async def handler(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        handled.append(request.correlation_id)
        if request.correlation_id == 0:
            await gate.wait()
        return answer_with_name(request, body)

    async with serving({ApiKey.METADATA: handler}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"".join(metadata_request(f"t{i}", i) for i in range(3)))
        other = BrokerClient(host, port, client_id="other")
        await other.api_versions()
        assert handled == [0]
        gate.set()
        frames = [await read_frame(reader) for _ in range(3)]
        assert correlation_ids(frames) == [0, 1, 2]
        assert b"t2" in frames[2]
        await other.close()
        writer.close()


@staged(run)
async def test_frames_that_come_a_byte_at_a_time_and_larger_than_the_shared_buffer() -> None:
    sizes: list[int] = []

    def handler(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        assert body.topics is not None
        sizes.append(len(body.topics))
        return MetadataResponse(brokers=[], topics=[])

    topics = [MetadataRequestTopic(name=f"topic-{i:06}") for i in range(100_000)]
    large = bytes(encode_request(MetadataRequest(topics=topics), 4, 7, "test"))
    assert len(large) > 1024 * 1024
    async with serving({ApiKey.METADATA: handler}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        for byte in metadata_request("t", 1):
            writer.write(bytes([byte]))
            await writer.drain()
        assert correlation_ids([await read_frame(reader)]) == [1]
        writer.write(large + metadata_request("t", 8) + large + metadata_request("t", 9))
        assert correlation_ids([await read_frame(reader) for _ in range(4)]) == [7, 8, 7, 9]
        assert sizes == [1, 100_000, 1, 100_000, 1]
        writer.close()


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", -1) + bytes(20),
        struct.pack(">i", 4) + bytes(20),
        struct.pack(">i", 200_000_000),
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        struct.pack(">ihhih", 14, 3, 99, 1, -1) + bytes(4),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 4, 1, 500),
        struct.pack(">ihhi", 8, 3, 4, 1),
        struct.pack(">ihhihi", 14, 3, 4, 1, -1, 2**30),
    ],
    ids=["negative", "too small", "too large", "http", "version", "key", "client id", "short", "count"],
)
@staged(run)
async def test_garbage_closes_the_connection_and_nothing_else(garbage: bytes) -> None:
    async with serving({ApiKey.METADATA: answer_with_name}) as (server, host, port):
        good = BrokerClient(host, port, client_id="good")
        await good.connect()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(garbage)
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()
        assert (await good.api_versions())[3] == (0, 12)
        assert len(server.connections) == 1
        requests, _ = server.totals["SAFE"].received()
        assert server.answers() == {"SAFE": requests - 1}, "garbage has no answer"
        await good.close()


DAMAGED = {
    "too large": struct.pack(">i", 200_000_000),
    "version": struct.pack(">ihhih", 10, 3, 99, 1, -1),
    "client id": struct.pack(">ihhih", 10, 3, 4, 1, 500),
    "large": struct.pack(">ihhihi", 2 * LARGE_FRAME_BYTES, 3, 4, 1, -1, 2**30) + bytes(2 * LARGE_FRAME_BYTES - 14),
}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
@staged(run)
async def test_answers_that_are_owed_come_before_a_damaged_request_ends_the_connection(damaged: bytes) -> None:
    """Kafka reads no request before it has answered the one in front of it."""
    waiting, asked = Deferred(), asyncio.Event()
    handled: list[str] = []

    def fetch(request: RequestHead, body: FetchRequest) -> Deferred:
        asked.set()
        return waiting

    def metadata(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        handled.append(body.topics[0].name)  # type: ignore[index, arg-type]
        return answer_with_name(request, body)

    async with serving({ApiKey.FETCH: fetch, ApiKey.METADATA: metadata}) as (server, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(bytes(encode_request(FetchRequest(topics=[]), 11, 1, "c")) + metadata_request("before", 2))
        async with asyncio.timeout(30):
            await asked.wait()
        writer.write(damaged)
        (connection,) = server.connections
        async with asyncio.timeout(30):
            while connection.ends_because is CloseReason.PEER_CLOSED:
                await asyncio.sleep(0.001)
        assert not connection.is_closed
        writer.write(metadata_request("behind", 3))
        # By then a server that still reads from this peer has read that.
        other = BrokerClient(host, port, client_id="other")
        for _ in range(3):
            await other.send(MetadataRequest(topics=[MetadataRequestTopic(name="other")]), 4)
        await other.close()
        waiting.complete(FetchResponse(responses=[]))
        assert correlation_ids([await read_frame(reader) for _ in range(2)]) == [1, 2]
        async with asyncio.timeout(30):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            while server.connections:
                await asyncio.sleep(0.001)
        assert (handled, connection.closed_because) == (["before", *3 * ["other"]], connection.ends_because)
        writer.close()


@pytest.mark.parametrize("end", ["damaged", "half"])
def test_a_long_answer_arrives_whole_before_the_connection_ends(end: str) -> None:
    """The peer has sent a damaged request behind it, or has closed its half of the connection."""
    names = [f"{number:030000}" for number in range(QUEUED_BYTES_MAX // 30_100)]

    def metadata(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host=name, port=1) for name in names])

    async def check() -> None:
        limits = ServerLimits(socket_send_buffer_bytes=4096)
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.setblocking(False)
            async with serving({ApiKey.METADATA: metadata}, limits) as (server, host, port):
                loop = asyncio.get_running_loop()
                await loop.sock_connect(peer, (host, port))
                await loop.sock_sendall(peer, metadata_request("t", 1))
                async with asyncio.timeout(30):
                    while not any(connection.is_unread for connection in server.connections):
                        await asyncio.sleep(0.001)
                    (connection,) = server.connections
                    if end == "half":
                        peer.shutdown(socket.SHUT_WR)
                    else:
                        await loop.sock_sendall(peer, DAMAGED["version"])
                    while not connection.hears_nothing_more:
                        await asyncio.sleep(0.001)
                    got = b""
                    while part := await loop.sock_recv(peer, 65536):
                        got += part
                    while server.connections:
                        await asyncio.sleep(0.001)
                assert all(name.encode() in got for name in names)

    run(check)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 7, 101, 2**31 - 1])
def test_a_size_that_no_request_can_have_is_refused_before_anything_is_read(size: int) -> None:
    inbox = Inbox(ReceiveBuffers())
    put(inbox, struct.pack(">i", size))
    with pytest.raises(RemoteProtocolError, match=f"a request of {size} bytes, allowed are 8 to 100"):
        inbox.next_frame(8, 100)


@pytest.mark.parametrize("at_once", [1, 3, 1000])
@pytest.mark.parametrize("size", [8, 9, 99, 100])
def test_frames_of_the_smallest_and_the_largest_size_are_taken_whole(size: int, at_once: int) -> None:
    buffers = ReceiveBuffers()
    buffers.shared[:] = b"\xff" * len(buffers.shared)  # Bytes received earlier for somebody else.
    inbox = Inbox(buffers)
    first, second = bytes(range(size)), bytes(reversed(range(size)))
    came = struct.pack(">i", size) + first + struct.pack(">i", size) + second
    frames = []
    for start in range(0, len(came), at_once):
        put(inbox, came[start : start + at_once])
        while (frame := inbox.next_frame(8, 100)) is not None:
            frames.append(bytes(frame))
        inbox.keep_rest()
    assert frames == [first, second]


@pytest.mark.parametrize("follower", [b"", b"\0\0"], ids=["alone", "with the next frame behind it"])
@pytest.mark.parametrize("size", [100, BULK_BYTES, 4 * BULK_BYTES])
def test_a_frame_that_is_kept_stays_as_it_is(size: int, follower: bytes) -> None:
    """A large one alone in its buffer takes it along; every other is copied."""
    buffers = ReceiveBuffers()
    inbox = Inbox(buffers)
    came = struct.pack(">i", size) + b"k" * size + follower
    for data in (came[:6], came[6:]):
        put(inbox, data)
        frame = inbox.next_frame(8, size)
        if frame is None:
            inbox.keep_rest()
    assert frame is not None
    kept = inbox.kept(frame)
    assert (kept is frame) == (size >= BULK_BYTES and not follower)
    inbox.keep_rest()
    inbox.release()
    for other in (Inbox(buffers), inbox):
        put(other, struct.pack(">i", size))
        other.next_frame(8, size)
        other.keep_rest()
        put(other, b"o" * size)
    assert kept == b"k" * size


@pytest.mark.parametrize("seed", range(20))
def test_frames_of_connections_that_share_a_buffer_stay_whole_wherever_reads_end(seed: int) -> None:
    """A read often fills its room, or brings nothing, and then somebody else's bytes come."""
    numbers, buffers = random.Random(seed), ReceiveBuffers()
    sizes = [numbers.choice((8, 100, 8_000, 20_000, BULK_BYTES, 2 * SHARED_BYTES)) for _ in range(60)]
    frames = [numbers.randbytes(size) for size in sizes]
    ways = [(Inbox(buffers), bytearray(b"".join(struct.pack(">i", len(f)) + f for f in frames))) for _ in range(3)]
    taken: list[list[bytes]] = [[] for _ in ways]
    while any(left for _, left in ways):
        number = numbers.randrange(len(ways))
        inbox, left = ways[number]
        room = inbox.room()
        assert room
        size = numbers.choice((0, 1, 5_000, len(room), len(room)))
        if not size:
            continue
        came, left[:] = left[: min(size, len(room))], left[min(size, len(room)) :]
        room[: len(came)] = came
        inbox.received(len(came))
        while (frame := inbox.next_frame(8, 2 * SHARED_BYTES)) is not None:
            taken[number].append(bytes(frame))
        inbox.keep_rest()
    assert taken == [frames, frames, frames]


@pytest.mark.parametrize(("size", "is_joined"), [(8_000, True), (30_000, True), (40_000, False)])
def test_the_read_behind_a_part_of_a_frame_may_bring_many_more(size: int, is_joined: bool) -> None:
    """Pipelined frames would else take a read each. Copies of larger ones would cost more than that."""
    inbox = Inbox(ReceiveBuffers())
    put(inbox, struct.pack(">i", size) + bytes(size // 2))
    assert inbox.next_frame(8, size) is None
    inbox.keep_rest()
    assert (len(inbox.room()) > SHARED_BYTES - size) == is_joined


def put(inbox: Inbox, data: bytes) -> None:
    """Deliver data to an inbox."""
    inbox.room()[: len(data)] = data
    inbox.received(len(data))


@staged(run)
async def test_half_a_frame_holds_up_nobody() -> None:
    async with serving({ApiKey.METADATA: answer_with_name}) as (_, host, port):
        _, half = await asyncio.open_connection(host, port)
        half.write(metadata_request("half", 1)[:-3])
        await half.drain()
        good = BrokerClient(host, port, client_id="good")
        answer = await good.send(MetadataRequest(topics=[MetadataRequestTopic(name="whole")]), 4)
        assert answer.cluster_id == "whole"
        await good.close()
        half.close()


@staged(run)
async def test_a_peer_that_never_reads_is_not_served_without_end() -> None:
    handled_of_slow = 0
    answer = MetadataResponse(brokers=[], topics=[], cluster_id="x" * 30_000)

    def handler(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        nonlocal handled_of_slow
        handled_of_slow += request.client_id == "test"
        return answer

    async with serving({ApiKey.METADATA: handler}) as (_, host, port):
        _, slow = await asyncio.open_connection(host, port, limit=1024)
        slow.transport.pause_reading()  # type: ignore[attr-defined]
        slow.write(b"".join(metadata_request("t", i) for i in range(2000)))
        good = BrokerClient(host, port, client_id="good")
        seen = -1
        async with asyncio.timeout(20):
            while seen != handled_of_slow:
                seen = handled_of_slow
                for _ in range(50):
                    await good.send(MetadataRequest(topics=[]), 4)
        assert 0 < handled_of_slow < 1000
        await good.close()
        slow.transport.abort()


@pytest.mark.parametrize("later", ["deferred", "coroutine"])
@staged(run)
async def test_an_answer_counts_once_it_is_sent_and_never_if_its_peer_has_gone(later: str) -> None:
    waiting, begun = Deferred(), asyncio.Event()

    def deferred(request: RequestHead, body: FetchRequest) -> Deferred:
        begun.set()
        return waiting

    async def coroutine(request: RequestHead, body: FetchRequest) -> FetchResponse:
        begun.set()
        response = asyncio.get_running_loop().create_future()
        waiting.on_complete(lambda: response.set_result(waiting.response))
        await response
        return FetchResponse(responses=[])

    handlers = {ApiKey.METADATA: answer_with_name, ApiKey.FETCH: deferred if later == "deferred" else coroutine}
    async with serving(handlers) as (server, host, port):
        totals = server.totals["SAFE"]
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(metadata_request("t", 1) + bytes(encode_request(FetchRequest(topics=[]), 11, 2, "test")))
        await read_frame(reader)
        await begun.wait()
        assert (totals.received()[0], server.answers()) == (2, {"SAFE": 1})
        next(iter(server.connections)).close(CloseReason.WRITE_FAILED)
        async with asyncio.timeout(30):
            while server.connections:
                await asyncio.sleep(0)
        writer.close()
        assert (totals.unanswered, server.answers()) == (1, {"SAFE": 1})
        waiting.complete(FetchResponse(responses=[]))
        for _ in range(10):
            await asyncio.sleep(0)
        assert (totals.unanswered, server.answers()) == (1, {"SAFE": 1})


@pytest.mark.parametrize("is_behind_another", [False, True])
@staged(run)
async def test_small_and_large_file_ranges_are_spliced_in(tmp_path: Path, is_behind_another: bool) -> None:
    content = os.urandom(3_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    ranges = [(0, 100), (1000, 40_000), (50_000, 2_500_000), (7, 1)]
    waiting: list[Deferred] = []

    def handler(request: RequestHead, body: FetchRequest) -> FetchResponse | Deferred:
        if is_behind_another and not waiting:
            waiting.append(Deferred())
            asyncio.get_running_loop().call_later(0.05, waiting[0].complete, answer())
            return waiting[0]
        return answer()

    def answer() -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic="t",
                    partitions=[
                        PartitionData(
                            partition_index=index,
                            error_code=0,
                            high_watermark=index,
                            records=SimpleNamespace(fd=fd, position=position, size_bytes=size),
                        )
                        for index, (position, size) in enumerate(ranges)
                    ],
                )
            ]
        )

    async with serving({ApiKey.FETCH: handler}) as (_, host, port):
        client = BrokerClient(host, port, client_id="reader")
        answers = await asyncio.gather(*(client.send(FetchRequest(topics=[]), 11) for _ in range(5)))
        for answer in answers:
            got = [bytes(p.records) for p in answer.responses[0].partitions]
            assert got == [content[position : position + size] for position, size in ranges]
        await client.close()
    os.close(fd)


@staged(run)
async def test_a_range_beyond_the_files_end_closes_the_connection_instead_of_lying(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(100_000))
    fd = os.open(path, os.O_RDONLY)

    def handler(request: RequestHead, body: FetchRequest) -> FetchResponse:
        size = body.max_wait_ms
        data = PartitionData(
            partition_index=0,
            error_code=0,
            high_watermark=0,
            records=SimpleNamespace(fd=fd, position=0, size_bytes=size),
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

    async with serving({ApiKey.FETCH: handler}) as (_, host, port):
        for size in (200_000, 100_001):
            client = BrokerClient(host, port, client_id="reader")
            with pytest.raises(ConnectionLost):
                await client.send(FetchRequest(topics=[], max_wait_ms=size), 11)
    os.close(fd)


@staged(run)
async def test_no_response_and_close_connection() -> None:
    answers: list[Any] = [NO_RESPONSE, NO_RESPONSE, CLOSE_CONNECTION]

    def handler(request: RequestHead, body: ProduceRequest) -> Any:
        return answers.pop(0)

    async with serving({ApiKey.PRODUCE: handler, ApiKey.METADATA: answer_with_name}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        produce = bytes(encode_request(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), 7, 5, "p"))
        writer.write(produce + produce + metadata_request("after", 6))
        assert correlation_ids([await read_frame(reader)]) == [6]
        writer.write(produce)
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("topics", [1, LARGE_FRAME_BYTES // 10])
def test_a_failing_handler_answers_unknown_server_error_or_closes(
    is_async: bool, topics: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        def handler(request: RequestHead, body: Any) -> Any:
            raise RuntimeError("broken on purpose")

        async def handler_later(request: RequestHead, body: Any) -> Any:
            await asyncio.sleep(0)
            handler(request, body)

        failing = handler_later if is_async else handler
        async with serving({ApiKey.FETCH: failing, ApiKey.METADATA: failing}) as (_, host, port):
            client = BrokerClient(host, port, client_id="c")
            assert (await client.send(FetchRequest(topics=[]), 11)).error_code == -1
            named = [MetadataRequestTopic(name=f"topic-{number}") for number in range(topics)]
            with pytest.raises(ConnectionLost):
                await client.send(MetadataRequest(topics=named), 4, timeout_ms=20_000)

    run(check)
    assert "broken on purpose" in caplog.text


@pytest.mark.parametrize("topics", [1, LARGE_FRAME_BYTES // 10])
@pytest.mark.parametrize(("what", "is_waiting"), [("decode", False), ("encode", False), ("encode", True)])
def test_a_codec_that_fails_closes_the_connection_and_says_why(
    what: str, topics: int, is_waiting: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no protocol error but a fault of ours. Without an answer or a close the peer would wait forever."""
    waiting, asked = Deferred(), asyncio.Event()

    def broken(*_: object) -> Any:
        raise RuntimeError("broken on purpose")

    def metadata(request: RequestHead, body: Any) -> Any:
        asked.set()
        return waiting if is_waiting else MetadataResponse()

    async def check() -> None:
        async with serving({ApiKey.METADATA: metadata}) as (server, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            named = [MetadataRequestTopic(name=f"topic-{number}") for number in range(topics)]
            writer.write(bytes(encode_request(MetadataRequest(topics=named), 4, 1, "c")))
            if is_waiting:
                async with asyncio.timeout(20):
                    await asked.wait()
                waiting.complete(MetadataResponse())
            async with asyncio.timeout(20):
                assert await reader.read() == b""
                while server.connections:
                    await asyncio.sleep(0.001)
            writer.close()

    monkeypatch.setattr(f"engine.broker.network.routes.{what}r", lambda *_, **__: broken)
    run(check)
    assert "broken on purpose" in caplog.text


@staged(run)
async def test_a_taken_port_is_named_with_a_hint() -> None:
    async with serving({}) as (server, host, port):
        with pytest.raises(OperationError, match=f"{host}:{port}") as caught:
            await server.listen(ListenerSpec("PLAINTEXT", host, port))
        assert str(port) in (caught.value.hint or "")


@staged(run)
async def test_a_thousand_connections_are_served_and_cost_little() -> None:
    async with serving({ApiKey.METADATA: answer_with_name}) as (server, host, port):
        clients = [BrokerClient(host, port, client_id="c") for _ in range(300)]
        await asyncio.gather(*(client.connect() for client in clients))
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        answers = await asyncio.gather(*(client.send(request, 4) for client in clients))
        assert len(answers) == 300
        assert len(server.connections) == 300
        for client in clients:
            await client.close()


def test_what_a_connection_costs_is_freed_with_it_and_not_by_the_collector() -> None:
    """Otherwise cycles of closed connections would wait for a collection: a megabyte for each 500 connections."""

    async def test() -> None:
        async with serving({ApiKey.METADATA: answer_with_name}) as (server, host, port):
            gc.disable()
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(metadata_request("t", 1))
            await read_frame(reader)
            (connection,) = server.connections
            gone = weakref.ref(connection)
            del connection
            writer.close()
            async with asyncio.timeout(30):
                while gone() is not None:
                    await asyncio.sleep(0.01)

    try:
        run(test)
    finally:
        gc.enable()


@staged(run)
async def test_what_was_sent_without_an_answer_arrives_before_a_close() -> None:
    seen = asyncio.Event()
    sizes: list[int] = []

    def handler(request: RequestHead, body: ProduceRequest) -> Any:
        sizes.append(len(body.topic_data))
        seen.set()
        return NO_RESPONSE

    async with serving({ApiKey.PRODUCE: handler}) as (_, host, port):
        client = BrokerClient(host, port, client_id="c")
        await client.connect()
        topics = [TopicProduceData(name=f"topic-{i}", partition_data=[]) for i in range(200_000)]
        answer = client.post(ProduceRequest(acks=0, timeout_ms=1, topic_data=topics), 7)
        await client.close()
        with pytest.raises(ConnectionLost):
            await answer
        async with asyncio.timeout(30):
            await seen.wait()
        assert sizes == [200_000]


@staged(run)
async def test_what_is_ready_behind_an_answer_that_waits_is_bounded_and_keeps_its_order() -> None:
    """A limit on their number is not enough: a small request may have a large answer."""
    first = Deferred()
    large = MetadataResponse(cluster_id="c" * 20_000)
    asked: list[int] = []

    def metadata(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        asked.append(request.correlation_id)
        return large

    async with serving({ApiKey.FETCH: lambda request, body: first, ApiKey.METADATA: metadata}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(bytes(encode_request(FetchRequest(topics=[]), 4, 0, "c")))
        for number in range(1, IN_FLIGHT_MAX):
            writer.write(bytes(encode_request(MetadataRequest(topics=[]), 4, number, "c")))
        async with asyncio.timeout(20):
            while len(asked) < QUEUED_BYTES_MAX // 20_100:
                await asyncio.sleep(0.001)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.read(1)
        assert len(asked) <= QUEUED_BYTES_MAX // 20_000 + 1
        first.complete(FetchResponse(responses=[]))
        got = [int.from_bytes((await read_frame(reader))[:4]) for _ in range(IN_FLIGHT_MAX)]
        assert got == list(range(IN_FLIGHT_MAX))
        assert len(asked) == IN_FLIGHT_MAX - 1
        writer.close()


@staged(run)
async def test_connections_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten connections that pipeline costly requests must not make another wait until all of theirs are answered."""
    monkeypatch.setattr(connection_module, "TURN_MS_MAX", 0)
    handled: list[str] = []

    def handler(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        handled.append(body.topics[0].name)  # type: ignore[index, arg-type]
        return answer_with_name(request, body)

    async with serving({ApiKey.METADATA: handler}) as (server, host, port):
        peers = [await asyncio.open_connection(host, port) for _ in range(3)]
        async with asyncio.timeout(30):
            while len(server.connections) < len(peers):
                await asyncio.sleep(0)
        for name, (_, writer) in enumerate(peers):
            writer.write(b"".join(metadata_request(f"{name}", i) for i in range(50)))
            writer.write_eof()
        for reader, _ in peers:
            assert correlation_ids([await read_frame(reader) for _ in range(50)]) == list(range(50))
            assert await reader.read() == b""
        for _, writer in peers:
            writer.close()
    # All their bytes have come after a pass or two; from then on nobody has two requests more than another.
    middle = handled[6:-6]
    assert all(len(set(middle[at : at + 3])) == 3 for at in range(len(middle) - 3)), handled


@staged(run)
async def test_heavy_answers_that_wait_fill_a_connection_sooner() -> None:
    """A connection that pipelines Fetches without end must not keep 128 of them in memory."""
    handled: list[Deferred] = []

    def fetch(request: RequestHead, body: FetchRequest) -> Deferred:
        handled.append(Deferred(weight=IN_FLIGHT_MAX // 4))
        return handled[-1]

    async with serving({ApiKey.FETCH: fetch, ApiKey.METADATA: answer_with_name}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        for number in range(10):
            writer.write(bytes(encode_request(FetchRequest(topics=[]), 4, number, "c")))
        other = BrokerClient(host, port, client_id="other")
        await other.api_versions()
        assert len(handled) == 4
        for number in range(10):
            async with asyncio.timeout(20):
                while len(handled) <= number:
                    await asyncio.sleep(0)
            handled[number].complete(FetchResponse(responses=[]))
            assert correlation_ids([await read_frame(reader)]) == [number]
        await other.close()
        writer.close()


def test_an_answer_that_is_there_keeps_no_connection_alive() -> None:
    """A session keeps the answer to its last commit. The collector comes too seldom to free a connection."""

    class Owner:
        def tell(self) -> None:
            pass

    owner, answer = Owner(), Deferred()
    answer.on_complete(owner.tell)
    answer.on_answered = owner.tell
    gone = weakref.ref(owner)
    answer.complete("answer")
    del owner
    assert gone() is None
