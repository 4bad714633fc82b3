"""Large requests and answers: encoded and decoded outside the event loop, complete and in order."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
from typing import Any

import pytest
from event_loop import staged
from network_serving import correlation_ids, metadata_request, read_frame, run, serving

from engine.broker.controller.topic_admin import MetadataWaiter
from engine.broker.handlers.answer_lists import answer_list
from engine.broker.network import connection
from engine.broker.network.connection import LARGE_FRAME_BYTES, PRODUCED_AT_ONCE_MAX
from engine.broker.network.request import Deferred, LargeAnswer, RequestHead
from engine.broker.network.routes import Route
from engine.broker.replication.metadata_cache import MetadataCache
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from engine.kafka.protocol.apis.fetch import FetchRequest, FetchResponse, FetchTopic
from engine.kafka.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from engine.kafka.protocol.frames import encode_request
from engine.kafka.protocol.produce_frames import names_many_partitions
from engine.kafka.protocol.wire import append_varint
from engine.runtime import room
from engine.runtime.offload import beside_loop


@staged(run)
async def test_a_large_answer_is_encoded_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for a request of any size. The answers keep their order."""
    beside: list[str] = []

    async def noted(function: Any, *args: Any) -> Any:
        beside.append(function.__name__)
        return await beside_loop(function, *args)

    monkeypatch.setattr("engine.broker.network.connection.beside_loop", noted)

    async def metadata(request: RequestHead, body: MetadataRequest) -> LargeAnswer:
        return LargeAnswer(MetadataResponse(cluster_id=str(len(body.topics or ()))))

    async with serving({ApiKey.METADATA: metadata}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        names = [MetadataRequestTopic(name=f"topic-{number}") for number in range(LARGE_FRAME_BYTES // 10)]
        writer.write(metadata_request("t", 1) + metadata_request("t", 2))
        writer.write(bytes(encode_request(MetadataRequest(topics=names), 4, 3, "c")))
        answers = [await read_frame(reader) for _ in range(3)]
        assert correlation_ids(answers) == [1, 2, 3]
        assert str(len(names)).encode() in answers[2]
        assert len(beside) == 4, "three answers, and one request"
        writer.close()


def test_nothing_scans_all_objects_while_a_large_request_is_at_work() -> None:
    """A scan of what a request with 200,000 elements has made held the loop for 300 ms of CPU."""
    before, seen = gc.get_threshold(), []

    async def metadata(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        seen.append(gc.get_threshold())
        return MetadataResponse()

    async def check() -> None:
        async with serving({ApiKey.METADATA: metadata}) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            names = [MetadataRequestTopic(name=f"topic-{number}") for number in range(LARGE_FRAME_BYTES // 10)]
            for number, some in enumerate((names[:1], names)):
                writer.write(bytes(encode_request(MetadataRequest(topics=some), 4, number, "c")))
                await read_frame(reader)
            async with asyncio.timeout(60):
                while gc.get_threshold() != before:
                    # What the request has made is freed piece by piece.
                    await asyncio.sleep(0)
            writer.close()

    run(check)
    assert seen == [before, (*before[:2], 100 * before[2])]


def produce_request(partitions: int, records: bytes, transactional_id: str | None = "an id") -> ProduceRequest:
    data = [PartitionProduceData(index=p, records=memoryview(records)) for p in range(partitions)]
    topic = TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=1, transactional_id=transactional_id, topic_data=[topic])


@pytest.mark.parametrize("version", [2, 3, 8, 9, 11])
def test_produce_requests_are_large_by_their_partitions(version: int) -> None:
    """A request with many records for a few partitions is handled where it was received."""
    many = PRODUCED_AT_ONCE_MAX + 1
    seen: list[tuple[str, int, int]] = []

    def noted(how: str) -> Any:
        def produce(request: RequestHead, body: ProduceRequest) -> ProduceResponse:
            (topic,) = body.topic_data
            records = topic.partition_data[-1].records
            assert records is not None
            seen.append((how, len(topic.partition_data), len(records)))
            return ProduceResponse(responses=[])

        return produce

    async def check() -> None:
        handlers = {ApiKey.PRODUCE: noted("at once")}
        async with serving(handlers, large_handlers={ApiKey.PRODUCE: noted("in turns")}) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            sent = [(1, LARGE_FRAME_BYTES), (many - 2, 200), (many, 200), (many, 4)]
            for number, (partitions, size) in enumerate(sent):
                request = produce_request(partitions, bytes(size), None if version < 3 else "an id")
                writer.write(bytes(encode_request(request, version, number, "c")))
            assert correlation_ids([await read_frame(reader) for _ in sent]) == list(range(len(sent)))
            ways = ["at once", "at once", "in turns", "at once"]
            assert seen == [(how, *record) for how, record in zip(ways, sent, strict=True)]
            writer.close()

    run(check)


def test_counting_partitions_stops_where_a_frame_makes_no_sense() -> None:
    frame = bytes(encode_request(produce_request(50, b"r" * 90), 11, 0, None))[15:]
    assert names_many_partitions(frame, 0, 11, 50)
    assert not names_many_partitions(frame, 0, 11, 51)
    for length in range(len(frame)):
        assert names_many_partitions(frame[:length], 0, 11, 50) in (True, False)
        assert not names_many_partitions(frame[:length], 0, 11, 51)


@pytest.mark.parametrize("is_async", [True, False])
def test_large_requests_are_decoded_and_encoded_beside_the_loop(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[str] = []

    async def noted(function: Any, *args: Any) -> Any:
        beside.append(function.__name__)
        return await beside_loop(function, *args)

    monkeypatch.setattr("engine.broker.network.connection.beside_loop", noted)
    names = [MetadataRequestTopic(name=f"topic-{number}") for number in range(LARGE_FRAME_BYTES // 10)]

    def metadata(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(cluster_id=str(len(body.topics or ())))

    async def metadata_later(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        await asyncio.sleep(0)
        return metadata(request, body)

    async def check() -> None:
        waiting = Deferred()
        handlers = {
            ApiKey.METADATA: metadata_later if is_async else metadata,
            ApiKey.FETCH: lambda request, body: waiting,
        }
        async with serving(handlers) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            for number, topics in enumerate((names[:1], names, names[:2])):
                writer.write(bytes(encode_request(MetadataRequest(topics=topics), 4, number, "c")))
            writer.write(bytes(encode_request(FetchRequest(topics=[]), 4, 3, "c")))
            writer.write(bytes(encode_request(MetadataRequest(topics=names), 4, 4, "c")))
            answers = [await read_frame(reader) for _ in range(3)]
            assert correlation_ids(answers) == [0, 1, 2]
            assert str(len(names)).encode() in answers[1]
            async with asyncio.timeout(20):
                while len(beside) < 4:
                    await asyncio.sleep(0.001)
            waiting.complete(FetchResponse(responses=[]))
            assert correlation_ids([await read_frame(reader) for _ in range(2)]) == [3, 4]
            assert len(beside) == 4, "decoded and encoded, twice"

            damaged = bytearray(encode_request(MetadataRequest(topics=names), 4, 5, "c"))
            damaged[-20:] = b"\xff" * 20
            writer.write(bytes(damaged))
            async with asyncio.timeout(20):
                assert await reader.read() == b""
            writer.close()

    run(check)


def with_tags(frame: bytes, position: int, tags: int) -> bytes:
    """Return the frame with so many empty tagged fields at ``position``, where it has none."""
    assert frame[position] == 0
    count = bytearray()
    append_varint(count, tags)
    longer = frame[4:position] + count + bytes(2 * tags) + frame[position + 1 :]
    return len(longer).to_bytes(4, "big") + longer


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.PRODUCE])
@pytest.mark.parametrize("is_in_header", [True, False])
def test_very_many_tagged_fields_are_read_beside_the_loop(
    key: ApiKey, is_in_header: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two million of them, which the protocol allows, would hold the loop for a third of a second."""
    decoded_in: list[int] = []
    decode = Route.decode_large

    def noted(*args: Any) -> Any:
        decoded_in.append(threading.get_ident())
        return decode(*args)

    monkeypatch.setattr(Route, "decode_large", noted)
    answers = {ApiKey.METADATA: MetadataResponse(), ApiKey.PRODUCE: ProduceResponse(responses=[])}
    request = MetadataRequest(topics=[]) if key is ApiKey.METADATA else produce_request(1, b"r")
    version = 12 if key is ApiKey.METADATA else 9
    frame = bytes(encode_request(request, version, 7, "c"))
    longer = with_tags(frame, 4 + 8 + 3 if is_in_header else len(frame) - 1, LARGE_FRAME_BYTES)

    async def check() -> None:
        async with serving({key: lambda head, body: answers[key]}) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(longer)
            assert correlation_ids([await read_frame(reader)]) == [7]
            writer.close()

    run(check)
    assert len(decoded_in) == 1
    assert decoded_in != [threading.get_ident()]


def test_ten_large_requests_at_once_take_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undecoded they take what their peers have sent; decoded they would take ten times that, all of them at once."""
    monkeypatch.setattr(connection, "LARGE_MEMORY_BYTES", 1)
    topics = [FetchTopic(topic=str(number)) for number in range(30_000)]
    frame = bytes(encode_request(FetchRequest(topics=topics), 4, 1, "c"))
    peaks = []

    async def fetch(request: RequestHead, body: FetchRequest) -> FetchResponse:
        await asyncio.sleep(0.01)
        return FetchResponse(responses=[])

    async def ask(host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(frame)
        assert correlation_ids([await read_frame(reader)]) == [1]
        writer.close()

    async def check() -> None:
        async with serving({ApiKey.FETCH: fetch}) as (_, host, port):
            await ask(host, port)
            for peers in (1, 10):
                gc.collect()
                tracemalloc.start()
                try:
                    await asyncio.gather(*(ask(host, port) for _ in range(peers)))
                    peaks.append(tracemalloc.get_traced_memory()[1])
                finally:
                    tracemalloc.stop()

    run(check)
    alone, ten = peaks
    assert ten < 2 * alone + 10 * 4 * len(frame), (alone, ten, len(frame))


@staged(run)
async def test_requests_that_wait_for_the_cluster_keep_no_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten CreateTopics that wait for leaders would leave no room to anybody for half a minute each."""
    monkeypatch.setattr(room, "HELD_S_MAX", 3600)
    names = [MetadataRequestTopic(name=f"topic-{number}") for number in range(LARGE_FRAME_BYTES // 10)]
    topics = [CreatableTopic(name=f"topic-{number}") for number in range(LARGE_FRAME_BYTES // 16)]
    creation = CreateTopicsRequest(topics=topics, timeout_ms=3_600_000)
    frame = bytes(encode_request(creation, 4, 1, "c"))
    monkeypatch.setattr(connection, "LARGE_MEMORY_BYTES", 10 * connection.KEPT_PER_BYTE * len(frame))
    waiter, has_leaders = MetadataWaiter(MetadataCache(1)), asyncio.Event()

    async def create(request: RequestHead, body: CreateTopicsRequest) -> CreateTopicsResponse:
        assert await waiter.wait(has_leaders.is_set, body.timeout_ms)
        return CreateTopicsResponse(topics=[])

    handlers = {ApiKey.CREATE_TOPICS: create, ApiKey.METADATA: lambda request, body: MetadataResponse()}
    async with serving(handlers) as (_, host, port):
        peers = [await asyncio.open_connection(host, port) for _ in range(11)]
        for _, writer in peers[:10]:
            writer.write(frame)
        async with asyncio.timeout(30):
            while len(waiter) < 10:
                await asyncio.sleep(0.001)
        peers[10][1].write(bytes(encode_request(MetadataRequest(topics=names), 4, 2, "c")))
        assert correlation_ids([await read_frame(peers[10][0])]) == [2]
        assert len(waiter) == 10
        has_leaders.set()
        waiter._updated()
        assert correlation_ids([await read_frame(reader) for reader, _ in peers[:10]]) == [1] * 10
        for _, writer in peers:
            writer.close()


def test_large_requests_that_wait_for_the_cluster_keep_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest wait ends as if its time were up."""
    topics = [CreatableTopic(name=f"topic-{number}") for number in range(LARGE_FRAME_BYTES // 16)]
    creation = CreateTopicsRequest(topics=topics, timeout_ms=3_600_000)
    frames = [bytes(encode_request(creation, 4, number, "c")) for number in range(4)]
    monkeypatch.setattr(connection, "LARGE_MEMORY_BYTES", 2 * connection.KEPT_PER_BYTE * len(frames[0]))
    waiter = MetadataWaiter(MetadataCache(1))

    async def create(request: RequestHead, body: CreateTopicsRequest) -> CreateTopicsResponse:
        assert not await waiter.wait(lambda: False, body.timeout_ms)
        return CreateTopicsResponse(topics=[])

    async def check() -> None:
        async with serving({ApiKey.CREATE_TOPICS: create}) as (_, host, port):
            peers = [await asyncio.open_connection(host, port) for _ in frames]
            for number, frame in enumerate(frames):
                peers[number][1].write(frame)
                if number >= 2:
                    assert correlation_ids([await read_frame(peers[number - 2][0])]) == [number - 2]
                async with asyncio.timeout(30):
                    while len(waiter) != min(number + 1, 2):
                        await asyncio.sleep(0.001)
            for _, writer in peers:
                writer.close()

    run(check)


@pytest.mark.parametrize("waits", [False, True])
def test_a_large_answer_is_sent_from_where_its_handler_encoded_it(*, waits: bool) -> None:
    """With a copy of it the broker would take its bytes twice."""
    held_bytes = 0
    bodies: list[MetadataRequest] = []

    async def metadata(request: RequestHead, body: MetadataRequest) -> MetadataResponse | Deferred:
        nonlocal held_bytes
        # What the request takes must not make room for a copy.
        bodies.append(body)
        context: Any = request
        topics = answer_list(context, MetadataResponse, "topics")
        for topic in body.topics or ():
            topics.append(MetadataResponseTopic(error_code=3, name=topic.name))
        answer = MetadataResponse(topics=topics)
        held_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        if not waits:
            return answer
        deferred = Deferred()
        asyncio.get_running_loop().call_soon(deferred.complete, answer)
        return deferred

    async def check() -> None:
        async with serving({ApiKey.METADATA: metadata}) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            names = [MetadataRequestTopic(name="x" * 200) for _ in range(20_000)]
            frame = bytes(encode_request(MetadataRequest(topics=names), 12, 3, "c"))
            tracemalloc.start()
            try:
                writer.write(frame)
                size = int.from_bytes(await reader.readexactly(4), "big")
                for _ in range(size // 1000):
                    await reader.readexactly(1000)
                assert size > len(frame)
                # What it reads is in the same process.
                assert tracemalloc.get_traced_memory()[1] - held_bytes < size / 4
            finally:
                tracemalloc.stop()
            writer.close()

    run(check)


def test_of_an_answer_that_cannot_be_encoded_nothing_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    """Its encoder fails behind what the handler had encoded, and again without the long text."""
    first = Deferred()

    async def create_topics(request: RequestHead, body: CreateTopicsRequest) -> CreateTopicsResponse | Deferred:
        if len(body.topics) == 1:
            return first
        context: Any = request
        topics: Any = answer_list(context, CreateTopicsResponse, "topics")
        for topic in body.topics:
            topics.append(CreatableTopicResult(name=topic.name))
        topics.keep(CreatableTopicResult(name="a", error_message="x" * 40_000))
        topics.keep(CreatableTopicResult(name="b", num_partitions=2**40))
        return CreateTopicsResponse(topics=topics)

    async def check() -> None:
        async with serving({ApiKey.CREATE_TOPICS: create_topics}) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            for count in (1, 5000):
                topics = [CreatableTopic(name=f"topic-{number}") for number in range(count)]
                writer.write(bytes(encode_request(CreateTopicsRequest(topics=topics), 5, count, "c")))
            async with asyncio.timeout(30):
                # What says so puts the answer behind the first, in the same step of the event loop.
                while "Cannot encode an answer" not in caplog.text:
                    await asyncio.sleep(0.01)
            first.complete(CreateTopicsResponse())
            assert correlation_ids([await read_frame(reader)]) == [1]
            assert await reader.read() == b""
            writer.close()

    run(check)


@staged(run)
async def test_requests_of_brokers_do_not_wait_for_those_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's CreateTopics waits for leaders, and those for the controller's LeaderAndIsr."""
    monkeypatch.setattr(connection, "LARGE_MEMORY_BYTES", 1)
    names = [MetadataRequestTopic(name=f"topic-{number}") for number in range(LARGE_FRAME_BYTES // 10)]
    topics = [FetchTopic(topic=f"topic-{number}") for number in range(LARGE_FRAME_BYTES // 10)]
    asked, fetched = asyncio.Event(), asyncio.Event()

    async def metadata(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        asked.set()
        await fetched.wait()
        return MetadataResponse()

    async def fetch(request: RequestHead, body: FetchRequest) -> FetchResponse:
        fetched.set()
        return FetchResponse(responses=[])

    requires = {ApiKey.FETCH: ["ClusterAction Cluster"]}
    async with serving({ApiKey.METADATA: metadata, ApiKey.FETCH: fetch}, requires=requires) as (_, host, port):
        client = await asyncio.open_connection(host, port)
        client[1].write(bytes(encode_request(MetadataRequest(topics=names), 4, 1, "c")))
        await asked.wait()
        broker = await asyncio.open_connection(host, port)
        broker[1].write(bytes(encode_request(FetchRequest(topics=topics), 4, 2, "c")))
        assert correlation_ids([await read_frame(reader) for reader, _ in (broker, client)]) == [2, 1]
        client[1].close()
        broker[1].close()


@staged(run)
async def test_requests_that_only_ask_do_not_wait_for_those_that_change_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CreatePartitions reads a znode for each topic: a minute for some hundreds of thousands."""
    monkeypatch.setattr(connection, "LARGE_MEMORY_BYTES", 1)
    names = [MetadataRequestTopic(name=f"topic-{number}") for number in range(LARGE_FRAME_BYTES // 10)]
    topics = [CreatableTopic(name=f"topic-{number}") for number in range(LARGE_FRAME_BYTES // 16)]
    begun, asked = asyncio.Event(), asyncio.Event()

    async def create(request: RequestHead, body: CreateTopicsRequest) -> CreateTopicsResponse:
        begun.set()
        await asked.wait()
        return CreateTopicsResponse(topics=[])

    def metadata(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        asked.set()
        return MetadataResponse()

    requires = {ApiKey.CREATE_TOPICS: ["Create Topic"], ApiKey.METADATA: ["Describe Topic", "Create Topic"]}
    handlers = {ApiKey.CREATE_TOPICS: create, ApiKey.METADATA: metadata}
    async with serving(handlers, requires=requires) as (_, host, port):
        admin = await asyncio.open_connection(host, port)
        admin[1].write(bytes(encode_request(CreateTopicsRequest(topics=topics), 4, 1, "c")))
        async with asyncio.timeout(30):
            await begun.wait()
        client = await asyncio.open_connection(host, port)
        client[1].write(bytes(encode_request(MetadataRequest(topics=names), 4, 2, "c")))
        assert correlation_ids([await read_frame(reader) for reader, _ in (client, admin)]) == [2, 1]
        client[1].close()
        admin[1].close()
