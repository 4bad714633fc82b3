"""What belongs to one connection alone: who is there, and what it may send."""

from __future__ import annotations

import asyncio
import struct
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from event_loop import staged
from network_serving import (
    answer_api_versions,
    answer_with_name,
    correlation_ids,
    metadata_request,
    read_frame,
    run,
    serving,
    session,
)
from virtual_time import ManualClock

from engine.broker.handlers.api_versions import api_versions
from engine.broker.handlers.context import RequestContext
from engine.broker.network.request import (
    CLOSE_CONNECTION,
    CLOSE_FOR_FAULT,
    NO_RESPONSE,
    Deferred,
    LargeAnswer,
    RequestHead,
)
from engine.broker.network.routes import (
    SOFTWARE_CHARACTERS_MAX,
    SOFTWARE_MAX,
    AnswerHook,
    HandlerSpec,
    Route,
    RouteTable,
)
from engine.broker.network.server import ListenerSpec, ServerLimits, SocketServer
from engine.broker.network.session import ClientSoftware, ConnectionRules
from engine.common.model import SecurityProtocol
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from engine.kafka.protocol.frames import encode_request


def rules_of(handler: Any, **limits: int) -> ConnectionRules:
    """Return rules under which Metadata is the only API."""
    spec = HandlerSpec(ApiKey.METADATA, 0, 12, handler, is_async=asyncio.iscoroutinefunction(handler))
    table = RouteTable({int(ApiKey.METADATA): spec}, answer_api_versions)
    return replace(ConnectionRules(table, 1_000_000), **limits)


@staged(run)
async def test_a_handler_changes_the_rules_of_its_connection_from_the_next_frame_on() -> None:
    def after(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(brokers=[], topics=[], cluster_id=request.session.principal)

    def before(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        request.session.principal = "User:alice"
        request.session.rules = rules_of(after)
        return MetadataResponse(brokers=[], topics=[], cluster_id="not yet")

    async with serving({ApiKey.METADATA: before}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(metadata_request("t", 1) + metadata_request("t", 2))
        assert b"not yet" in await read_frame(reader)
        assert b"User:alice" in await read_frame(reader)
        other_reader, other_writer = await asyncio.open_connection(host, port)
        other_writer.write(metadata_request("t", 1))
        assert b"not yet" in await read_frame(other_reader)
        # Under the new rules there is no ApiVersions.
        writer.write(bytes(encode_request(ApiVersionsRequest(), 0, 3, "test")))
        assert await reader.read() == b""
        writer.close()
        other_writer.close()


@pytest.mark.parametrize("limits", [{"frame_bytes_max": 20}, {"frame_bytes_min": 100}])
@staged(run)
async def test_frames_have_the_sizes_of_the_connections_rules(limits: dict[str, int]) -> None:
    def before(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        request.session.rules = rules_of(answer_with_name, **limits)
        return answer_with_name(request, body)

    async with serving({ApiKey.METADATA: before}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        frames = metadata_request("t", 1) + metadata_request("t", 2)
        assert 20 < len(frames) // 2 - 4 < 100
        writer.write(frames)
        assert correlation_ids([await read_frame(reader)]) == [1]
        assert await reader.read() == b""
        writer.close()


@staged(run)
async def test_requests_in_flight_are_bounded_by_the_connections_rules() -> None:
    handled: list[int] = []
    answers: list[Deferred] = []

    def waiting(request: RequestHead, body: MetadataRequest) -> Deferred:
        handled.append(request.correlation_id)
        answers.append(Deferred())
        return answers[-1]

    def before(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        request.session.rules = rules_of(waiting, in_flight_max=2)
        return answer_with_name(request, body)

    async with serving({ApiKey.METADATA: before}) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"".join(metadata_request("t", number) for number in range(6)))
        await read_frame(reader)
        assert handled == [1, 2]
        answers[0].complete(MetadataResponse(brokers=[], topics=[]))
        await read_frame(reader)
        assert handled == [1, 2, 3]
        writer.close()


def test_clients_name_their_software() -> None:
    context = RequestContext(
        SimpleNamespace(features_epoch=-1),  # type: ignore[arg-type]
        ApiKey.API_VERSIONS, 3, 1, "c", session(),
    )  # fmt: skip
    wrong = api_versions(context, ApiVersionsRequest(client_software_name="-", client_software_version="1"))
    assert wrong.error_code == 42
    assert (context.session.client_software_name, context.session.client_software_version) == ("unknown", "unknown")
    assert (
        api_versions(
            context, ApiVersionsRequest(client_software_name="rdkafka", client_software_version="2.4.0")
        ).error_code
        == 0
    )
    assert (context.session.client_software_name, context.session.client_software_version) == ("rdkafka", "2.4.0")


def test_senders_of_deprecated_requests_take_a_bounded_memory() -> None:
    """A client that calls itself anything, each time anew, would fill the memory: a name may have 32,767 letters."""
    route = Route(HandlerSpec(ApiKey.DESCRIBE_CONFIGS, 0, 4, answer_with_name, is_async=False), 0)
    assert route.deprecated is not None
    longest = ClientSoftware("a" * (SOFTWARE_CHARACTERS_MAX - 1), "1")
    route.count_deprecated(longest._replace(version="12"))
    for number in range(SOFTWARE_MAX + 10):
        route.count_deprecated(ClientSoftware(str(number), "1"))
        route.count_deprecated(longest)
    assert route.deprecated.total() == 1 + 2 * (SOFTWARE_MAX + 10)
    assert len(route.deprecated) == SOFTWARE_MAX
    assert (route.deprecated[longest], route.deprecated[ClientSoftware()]) == (SOFTWARE_MAX + 10, 13)


@staged(run)
async def test_no_listener_serves_without_the_protection_that_it_promises() -> None:
    server = SocketServer(RouteTable({}, answer_api_versions), RequestHead, ServerLimits(), ManualClock())
    for protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL):
        with pytest.raises(ValueError, match="SECRET"):
            await server.listen(ListenerSpec("SECRET", "127.0.0.1", 0, protocol))
    await server.stop()


def note_throttle(request: RequestHead, answer: Any) -> None:
    """A hook: tells the peer to wait for as many ms as its correlation id."""
    assert request.use is not None
    if answer is not NO_RESPONSE:
        answer.throttle_time_ms = request.correlation_id


def route_of(handler: Any, hook: AnswerHook | None) -> Route:
    spec = HandlerSpec(ApiKey.METADATA, 0, 12, handler, is_async=False)
    route = RouteTable({int(ApiKey.METADATA): spec}, answer_api_versions, hook)[ApiKey.METADATA << 16 | 12]
    assert route is not None
    return route


REQUEST = RequestHead(ApiKey.METADATA, 12, 77, "c", session())


@staged(run)
async def test_a_hook_sees_every_answer_before_it_is_encoded() -> None:
    def fresh() -> MetadataResponse:
        return MetadataResponse(brokers=[], topics=[])

    async def later(request: RequestHead, body: Any) -> MetadataResponse:
        await asyncio.sleep(0)
        return fresh()

    async def large(request: RequestHead, body: Any) -> LargeAnswer:
        return LargeAnswer(fresh())

    at_once = route_of(lambda request, body: fresh(), note_throttle)
    assert at_once.handler(REQUEST, None).throttle_time_ms == 77
    assert at_once.large_handler(REQUEST, None).throttle_time_ms == 77
    assert (await route_of(later, note_throttle).handler(REQUEST, None)).throttle_time_ms == 77
    assert (await route_of(large, note_throttle).handler(REQUEST, None)).response.throttle_time_ms == 77
    assert route_of(lambda request, body: NO_RESPONSE, note_throttle).handler(REQUEST, None) is NO_RESPONSE


def test_what_closes_a_connection_is_no_answer() -> None:
    def hook(request: RequestHead, answer: Any) -> None:
        raise AssertionError

    for closing in (CLOSE_CONNECTION, CLOSE_FOR_FAULT):
        assert route_of(lambda request, body, closing=closing: closing, hook).handler(REQUEST, None) is closing


def test_a_table_begins_and_ceases_to_show_answers_while_it_is_used() -> None:
    def handler(request: RequestHead, body: Any) -> MetadataResponse:
        return MetadataResponse(brokers=[], topics=[])

    table = RouteTable({int(ApiKey.METADATA): HandlerSpec(ApiKey.METADATA, 0, 12, handler, False)}, answer_api_versions)
    before = table[ApiKey.METADATA << 16 | 12]
    assert before is not None
    table.show_answers(note_throttle)
    after = table[ApiKey.METADATA << 16 | 11]
    assert after is not None
    assert before.handler(REQUEST, None).throttle_time_ms == after.large_handler(REQUEST, None).throttle_time_ms == 77
    table.show_answers(None)
    assert before.handler is handler and after.large_handler is handler


@staged(run)
async def test_a_request_counts_the_steps_of_its_coroutine_and_not_the_time_between_them() -> None:
    uses: list[int] = []

    async def handler(request: RequestHead, body: Any) -> MetadataResponse:
        deadline = time.perf_counter() + 0.02
        while time.perf_counter() < deadline:
            pass
        await asyncio.sleep(0.2)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(failing(), 1)
        return MetadataResponse(brokers=[], topics=[])

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    def hook(request: RequestHead, answer: Any) -> None:
        assert request.use is not None
        uses.append(request.use.held_ns)

    await route_of(handler, hook).handler(REQUEST, None)
    assert 20_000_000 <= uses[0] < 150_000_000


def test_a_hook_sees_an_answer_that_comes_later_and_abandons_one_that_nobody_waits_for() -> None:
    given_up: list[str] = []
    first, second = Deferred(), Deferred(lambda: given_up.append("second"))
    answers = iter([first, second])
    route = route_of(lambda request, body: next(answers), note_throttle)
    early, late = route.handler(REQUEST, None), route.handler(REQUEST, None)
    assert not early.is_complete
    first.complete(MetadataResponse(brokers=[], topics=[]))
    assert early.response.throttle_time_ms == 77
    late.give_up()
    assert given_up == ["second"]


def test_without_a_hook_the_handler_itself_is_called() -> None:
    def handler(request: RequestHead, body: Any) -> None:
        raise AssertionError

    route = route_of(handler, None)
    assert route.handler is handler
    assert route.large_handler is handler


@staged(run)
async def test_a_throttle_time_reaches_the_peer() -> None:
    async with serving({ApiKey.METADATA: answer_with_name}, before_encoding=note_throttle) as (_, host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(metadata_request("t", 5))
        frame = await read_frame(reader)
        assert struct.unpack_from(">ii", frame) == (5, 5)
        writer.close()
