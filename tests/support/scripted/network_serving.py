"""A socket server with handlers of the test's own, for tests of the network alone."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import uvloop
from patience import slowness

from engine.broker.network.request import RequestHead
from engine.broker.network.routes import AnswerHook, HandlerSpec, RouteTable
from engine.broker.network.server import ListenerSpec, Logins, ServerLimits, SocketServer
from engine.broker.network.session import ConnectionRules, Session
from engine.broker.network.tls import TlsPolicy
from engine.common.acl import Requirement
from engine.common.clock import Clock, SystemClock
from engine.common.model import SecurityProtocol
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from engine.kafka.protocol.frames import encode_request
from engine.local.addresses import own_loopback_address


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run an asynchronous test on the loop that brokers use."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())  # type: ignore[arg-type]


def answer_api_versions(request: RequestHead, body: Any) -> ApiVersionsResponse:
    """Offer the APIs that the tests use."""
    keys = [ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FETCH, ApiKey.PRODUCE]
    keys += [] if request.session.login is None else [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
    specs = [API_SPECS[key] for key in keys]
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=int(s.key), min_version=s.min_version, max_version=s.max_version) for s in specs]
    )


def session(host: str = "127.0.0.1") -> Session:
    """Return the session of a connection that nobody has opened, for a handler called without a network."""
    return Session(host, 1, "PLAINTEXT", 0, ConnectionRules(RouteTable({}, answer_api_versions), 100))


@asynccontextmanager
async def serving(
    handlers: Mapping[ApiKey, Callable[..., Any]],
    limits: ServerLimits | None = None,
    clock: Clock | None = None,
    large_handlers: Mapping[ApiKey, Callable[..., Any]] | None = None,
    requires: Mapping[ApiKey, list[str]] | None = None,
    before_encoding: AnswerHook | None = None,
    tls: TlsPolicy | None = None,
    logins: Logins | None = None,
    plain_handlers: Mapping[ApiKey, Callable[..., Any]] | None = None,
) -> AsyncIterator[tuple[SocketServer, str, int]]:
    """Serve ``handlers`` on a free loopback port; yields the server, its host and its port."""
    table = {ApiKey.API_VERSIONS: answer_api_versions, **handlers}
    specs = {
        int(key): HandlerSpec(
            key,
            API_SPECS[key].min_version,
            API_SPECS[key].max_version,
            handler,
            asyncio.iscoroutinefunction(handler),
            (large_handlers or {}).get(key),
            tuple(map(Requirement.of, (requires or {}).get(key, ()))),
            (plain_handlers or {}).get(key),
        )
        for key, handler in table.items()
    }
    server = SocketServer(
        RouteTable(specs, answer_api_versions, before_encoding),
        RequestHead,
        limits or ServerLimits(),
        clock or SystemClock(),
        {} if tls is None else {"SAFE": tls},
        {} if logins is None else {"SAFE": logins},
    )
    protocol = SecurityProtocol[f"{'SASL_' if logins else ''}{'SSL' if tls else 'PLAINTEXT'}"]
    host, port = await server.listen(ListenerSpec("SAFE", own_loopback_address(), 0, protocol))
    try:
        yield server, host, port
    finally:
        await server.stop()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Read one frame, without its length prefix."""
    async with asyncio.timeout(30 * slowness()):
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)


def metadata_request(name: str, correlation_id: int) -> bytes:
    """Return the frame of a request that asks for one topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    return bytes(encode_request(request, 4, correlation_id, "test"))


def correlation_ids(frames: list[bytes]) -> list[int]:
    """Return the correlation ids of these answers."""
    return [struct.unpack_from(">i", frame)[0] for frame in frames]


def answer_with_name(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
    """Answer with the requested topic's name as the cluster's name."""
    assert body.topics is not None
    return MetadataResponse(brokers=[], topics=[], cluster_id=body.topics[0].name)
