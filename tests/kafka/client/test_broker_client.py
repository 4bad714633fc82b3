"""The client's side of a connection: opening, versions, borrowed answers, and its errors."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from event_loop import in_event_loop, staged, until
from login_serving import LOGIN, policy
from network_serving import answer_with_name, run, serving
from virtual_time import ManualClock

import engine.kafka.client.broker_client as client_module
import engine.kafka.client.sasl.login as login_module
from engine.broker.network.request import Deferred, RequestHead
from engine.kafka.client.broker_client import BrokerClient, ConnectFailed, SetupTimeouts
from engine.kafka.client.errors import ConnectionLost, NoCommonVersion, RequestTimedOut
from engine.kafka.client.security import security_of
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic

AS_ALICE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required username=alice "
    "password=alice-pw;",
}


@in_event_loop
async def test_a_connection_that_opens_after_the_close_is_not_kept() -> None:
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
    with pytest.raises(ConnectFailed, match="gave up this connection"):
        await connecting
    assert not client.is_connected
    await asyncio.wait_for(ended.wait(), 10)
    await client.connect()
    assert client.is_connected, "it may be opened again"
    await client.close()
    server.close()
    await server.wait_closed()


@in_event_loop
async def test_a_connection_may_take_longer_to_open_after_each_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ClusterConnectionStates of Kafka 3.9.1, for an address whose packets get lost."""
    loop = asyncio.get_running_loop()

    async def lost(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    async def refused(*_: Any, **__: Any) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    client = BrokerClient("127.0.0.1", 1, client_id="c", setup_timeouts=SetupTimeouts(2, 7), connect_timeout_ms=60_000)
    monkeypatch.setattr(loop, "create_connection", lost)
    for way, reason in (
        (lost, "no connection within 2 ms"),
        (refused, "refused"),
        (lost, "no connection within 7 ms"),
        (lost, "no connection within 7 ms"),
    ):
        monkeypatch.setattr(loop, "create_connection", way)
        with pytest.raises(ConnectFailed, match=reason):
            await client.connect()
    monkeypatch.undo()
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    client.port = server.sockets[0].getsockname()[1]
    await client.connect()
    await client.close()
    server.close()
    monkeypatch.setattr(loop, "create_connection", lost)
    with pytest.raises(ConnectFailed, match="within 2 ms"):
        await client.connect()
    assert SetupTimeouts(20, 7).after(0) == SetupTimeouts(20, 7).steady.after(5) == 7


@staged(run)
async def test_lent_answers_are_whole_until_the_next_request_is_sent() -> None:
    sizes = [10, 70_000, 65_400, 65_536, 0, 300_000, 1, 2_000_000, 131_072 - 60, 40]

    def handler(request: RequestHead, body: FetchRequest) -> FetchResponse:
        data = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=content(body.max_wait_ms))
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

    def content(size: int) -> bytes:
        return (b"%07d" % size * (size // 7 + 1))[:size]

    def records(answer: Any) -> bytes:
        return bytes(answer.responses[0].partitions[0].records)

    async with serving({ApiKey.FETCH: handler}) as (_, host, port):
        client = BrokerClient(host, port, client_id="follower", lends_answers=True)
        for size in sizes:
            answer = await client.send(FetchRequest(topics=[], max_wait_ms=size), 11)
            await asyncio.sleep(0)
            assert records(answer) == content(size)
        answers = [client.post(FetchRequest(topics=[], max_wait_ms=size), 11) for size in sizes]
        assert [records(answer) for answer in await asyncio.gather(*answers)] == list(map(content, sizes))
        await client.close()


@staged(run)
async def test_a_large_request_is_encoded_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are posted meanwhile may go first. Each gets its own answer."""
    loops_thread = threading.get_ident()
    may_encode = threading.Event()
    encoded: list[tuple[str, bool]] = []
    decoded: list[tuple[str, bool]] = []
    encode, decode = client_module.encode_request, client_module.decode_response

    def noted_answer(*arguments: Any) -> Any:
        head, answer = decode(*arguments)
        decoded.append((name_of(answer), threading.get_ident() == loops_thread))
        return head, answer

    def noted(request: Any, *rest: Any) -> Any:
        name = request.topics[0].name
        encoded.append((name, threading.get_ident() == loops_thread))
        if name == "large":
            assert may_encode.wait(30)
        return encode(request, *rest)

    async with serving({ApiKey.METADATA: answer_with_name}) as (_, host, port):
        client = BrokerClient(host, port, client_id="test")
        await client.connect()
        monkeypatch.setattr(client_module, "encode_request", noted)
        monkeypatch.setattr(client_module, "decode_response", noted_answer)
        large = asyncio.create_task(client.send(asking("large"), 4, is_large=True))
        async with asyncio.timeout(30):
            while not encoded:
                await asyncio.sleep(0.001)
        assert name_of(await client.send(asking("small"), 4)) == "small"
        assert not large.done()
        may_encode.set()
        assert name_of(await large) == "large"
        assert encoded == [("large", False), ("small", True)]
        assert decoded == [("small", True), ("large", False)]
        await client.close()


def asking(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])


def name_of(answer: Any) -> str:
    return str(answer.cluster_id)


@staged(run)
async def test_the_client_says_what_went_wrong() -> None:
    deferred = Deferred()
    async with serving({ApiKey.METADATA: lambda request, body: deferred}) as (server, host, port):
        client = BrokerClient(host, port, client_id="c")
        with pytest.raises(RequestTimedOut, match=r"no answer to Metadata within 0\.05 s"):
            await client.send(MetadataRequest(topics=[]), 4, timeout_ms=50)
        await client.connect()
        waiting = asyncio.ensure_future(client.send(MetadataRequest(topics=[]), 4))
        await asyncio.sleep(0)
        await server.stop()
        with pytest.raises(ConnectionLost):
            await waiting
        await client.close()


def silent_once() -> Callable[[RequestHead, MetadataRequest], Any]:
    """Return a handler that never answers its first request."""
    silent = [Deferred()]

    def handler(request: RequestHead, body: MetadataRequest) -> Any:
        return silent.pop() if silent else answer_with_name(request, body)

    return handler


@staged(run)
async def test_a_request_without_an_answer_ends_the_connection() -> None:
    """The peer may be gone without a word: only a new connection reaches whoever has taken its place."""
    async with serving({ApiKey.METADATA: silent_once()}) as (_, host, port):
        client = BrokerClient(host, port, client_id="c")
        await client.connect()
        first = asyncio.create_task(client.send(asking("first"), 4, timeout_ms=50))
        behind = asyncio.create_task(client.send(asking("behind"), 4))
        with pytest.raises(RequestTimedOut):
            await first
        with pytest.raises(ConnectionLost, match=r"no answer to Metadata within 0\.05 s"):
            await behind
        assert not client.is_connected
        assert name_of(await client.send(asking("again"), 4)) == "again"
        assert (client.totals.created, client.totals.closed) == (2, 1)
        await client.close()


@staged(run)
async def test_a_broker_that_is_silent_after_the_login_has_not_hung_up() -> None:
    """That a token may have expired was said of each connection that klamm ended before the first answer."""
    logins = policy(ManualClock(), {})
    async with serving({ApiKey.METADATA: lambda *_: Deferred()} | LOGIN, logins=logins) as (_, host, port):
        client = BrokerClient(host, port, client_id="c", security=security_of(AS_ALICE))
        await client.connect()
        impatient, other = (
            asyncio.create_task(client.send(asking("t"), 4, timeout_ms=timeout_ms)) for timeout_ms in (50, 30_000)
        )
        with pytest.raises(RequestTimedOut):
            await impatient
        with pytest.raises(ConnectionLost, match="no answer to Metadata") as lost:
            await other
        assert lost.value.hint is None
        await client.close()


@staged(run)
async def test_a_renewal_ends_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a token took long to come, the handshake went out amid the next connection, which the broker refused."""
    logins = policy(ManualClock(), {}, connections_max_reauth_ms="20")
    tokens, asked, exchange_for = threading.Event(), [], login_module.exchange_for

    def slow_at_second(*about: Any) -> Any:
        asked.append(about)
        assert len(asked) != 2 or tokens.wait(30)
        return exchange_for(*about)

    monkeypatch.setattr(login_module, "exchange_for", slow_at_second)
    async with asyncio.timeout(30), serving({ApiKey.METADATA: answer_with_name} | LOGIN, logins=logins) as served:
        _, host, port = served
        client = BrokerClient(host, port, client_id="c", security=security_of(AS_ALICE))
        await client.connect()
        await until(lambda: len(asked) == 2)
        renewing = client._renewing
        assert renewing is not None
        late = asyncio.create_task(client.send(asking("late"), 4))
        await asyncio.sleep(0)
        client.broken("the broker hung up")
        with pytest.raises(ConnectionLost):
            await late
        await client.connect()
        if client._renewal is not None:
            client._renewal.cancel()
        responses = client.totals.responses
        tokens.set()
        await asyncio.wait([renewing])
        assert (client.is_connected, client.totals.responses) == (True, responses)
        assert name_of(await client.send(asking("again"), 4)) == "again"
        await client.close()


@staged(run)
async def test_a_request_that_nobody_waits_for_any_more_is_still_due() -> None:
    """Else a connection whose users are less patient than it is would stay silent for as long as they ask."""
    async with serving({ApiKey.METADATA: silent_once()}) as (_, host, port):
        client = BrokerClient(host, port, client_id="c", request_timeout_ms=50)
        await client.connect()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.send(asking("first"), 4)
        async with asyncio.timeout(30):
            while client.is_connected:
                await asyncio.sleep(0.01)
        assert name_of(await client.send(asking("again"), 4, timeout_ms=30_000)) == "again"
        await client.close()


@staged(run)
async def test_an_answer_whose_wait_a_signal_ends_while_it_is_decoded_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decode, told = client_module.decode_response, list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    async with serving({ApiKey.METADATA: answer_with_name}) as (_, host, port):
        client = BrokerClient(host, port, client_id="c")
        await client.connect()
        asked = asyncio.create_task(client.send(asking("first"), 4))

        def decoded(*args: Any) -> Any:
            asked.cancel()
            return decode(*args)

        with monkeypatch.context() as patch:
            patch.setattr(client_module, "decode_response", decoded)
            with pytest.raises(asyncio.CancelledError):
                await asked
        assert name_of(await client.send(asking("again"), 4)) == "again"
        assert (told, client.totals.created) == ([], 1)
        await client.close()


@staged(run)
async def test_a_request_that_waits_behind_a_longer_one_does_not_end_the_connection() -> None:
    """Answers come in order: that this one is missing says nothing about the peer before the first one's time is up."""
    may_answer = asyncio.Event()

    async def handler(request: RequestHead, body: MetadataRequest) -> Any:
        await may_answer.wait()
        return answer_with_name(request, body)

    async with serving({ApiKey.METADATA: handler}) as (_, host, port):
        client = BrokerClient(host, port, client_id="c")
        await client.connect()
        long = asyncio.create_task(client.send(asking("long"), 4))
        await asyncio.sleep(0)
        with pytest.raises(RequestTimedOut):
            await client.send(asking("short"), 4, timeout_ms=50)
        may_answer.set()
        assert name_of(await long) == "long"
        assert name_of(await client.send(asking("after"), 4)) == "after"
        assert client.totals.created == 1
        await client.close()


@staged(run)
async def test_requests_that_come_at_once_share_one_connection() -> None:
    async with serving({ApiKey.METADATA: answer_with_name}) as (_, host, port):
        client = BrokerClient(host, port, client_id="c")
        answers = await asyncio.gather(*(client.send(asking(name), 4) for name in "ab"))
        assert [name_of(answer) for answer in answers] == ["a", "b"]
        assert client.totals.created == 1
        await client.close()


@staged(run)
async def test_versions_are_negotiated() -> None:
    async with serving({ApiKey.METADATA: answer_with_name}) as (_, host, port):
        client = BrokerClient(host, port, client_id="c")
        assert await client.version_for(ApiKey.METADATA) == 12
        assert await client.version_for(ApiKey.METADATA, version_max=4) == 4
        with pytest.raises(NoCommonVersion, match="LIST_OFFSETS"):
            await client.version_for(ApiKey.LIST_OFFSETS)
        await client.close()


@pytest.mark.parametrize(("partitions", "is_paused"), [(2, False), (3_000, True)])
def test_the_many_values_of_a_large_answer_are_made_without_the_collector(
    partitions: int, is_paused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the thousands that live for a moment would make it scan everything in the process."""
    decode, enabled = client_module.decode_response, []

    def decoded(*args: Any) -> Any:
        enabled.append(gc.isenabled())
        return decode(*args)

    async def check() -> None:
        def handler(request: RequestHead, body: FetchRequest) -> FetchResponse:
            data = [PartitionData(partition_index=index, error_code=0, high_watermark=0) for index in range(partitions)]
            return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=data)])

        async with serving({ApiKey.FETCH: handler}) as (_, host, port):
            client = BrokerClient(host, port, client_id="test")
            await client.connect()
            enabled.clear()
            monkeypatch.setattr(client_module, "decode_response", decoded)
            answer = await client.send(FetchRequest(topics=[]), 11)
            assert len(answer.responses[0].partitions) == partitions
            await client.close()

    run(check)
    assert enabled == [not is_paused]
    assert gc.isenabled()
