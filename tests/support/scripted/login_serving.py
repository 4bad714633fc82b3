"""A listener where peers log in, with handlers of the test's own, and clients that send exactly what a test says."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from network_serving import answer_api_versions, read_frame, serving
from virtual_time import ManualClock

from engine.broker.handlers.sasl_login import sasl_authenticate, sasl_handshake
from engine.broker.metrics.requests import NetworkTotals
from engine.broker.network.request import RequestHead
from engine.broker.network.routes import HandlerSpec, RouteTable
from engine.broker.network.server import SocketServer
from engine.broker.security.login_settings import listener_logins
from engine.broker.security.logins import LoginPolicy
from engine.common.errors import ErrorCode
from engine.kafka.client.sasl.exchange import Exchange, plain_exchange
from engine.kafka.client.sasl.oauthbearer import oauthbearer_exchange, unsecured_token
from engine.kafka.client.sasl.scram import scram_exchange
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.formats.scram_credential import ScramCredential
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsResponse
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest
from engine.kafka.protocol.declaration import Request
from engine.kafka.protocol.frames import decode_response, encode_request

MODULE = "org.apache.kafka.common.security"
PATIENCE_S = 30.0


def policy(clock: ManualClock, stored: dict[str, str], **settings: str) -> LoginPolicy:
    """Return the logins of a listener SAFE with all mechanisms, where alice and bob have passwords like their names."""
    users = 'user_alice="alice-pw" user_bob="bob-pw"'
    config = BrokerConfig(
        {
            "broker.id": "0",
            "zookeeper.connect": "z:1",
            "listeners": "SAFE://localhost:9093,PLAINTEXT://localhost:9092",
            "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.safe.plain.sasl.jaas.config": f"{MODULE}.plain.PlainLoginModule required {users};",
            "listener.name.safe.oauthbearer.sasl.jaas.config": (
                f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;"
            ),
            "connection.failed.authentication.delay.ms": "0",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    answers: dict[ApiKey, Any] = {ApiKey.API_VERSIONS: before_login} | LOGIN
    specs = {
        int(key): HandlerSpec(key, API_SPECS[key].min_version, API_SPECS[key].max_version, answer, is_async=False)
        for key, answer in answers.items()
    }
    logins = listener_logins(config, {})["SAFE"]
    return logins.policy(
        RouteTable(specs, unknown_version), lambda user, name: stored.get(f"{user} {name}"), clock.now_ms
    )


def before_login(request: RequestHead, body: Any) -> Any:
    return request.session.login.api_versions(answer_api_versions(request, body))


def unknown_version(request: RequestHead, body: Any) -> Any:
    return request.session.login.api_versions(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))


LOGIN = {ApiKey.SASL_HANDSHAKE: sasl_handshake, ApiKey.SASL_AUTHENTICATE: sasl_authenticate}


def tell_principal(request: RequestHead, body: Any) -> MetadataResponse:
    return MetadataResponse(brokers=[], topics=[], cluster_id=request.session.principal)


class Peer:
    """A client that sends exactly what a test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, request: Request, version: int) -> Any:
        self.send(bytes(encode_request(request, version, 1, "test")))
        return decode_response(await read_frame(self._reader), request.api_key, version)[1]

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def token(self, token: bytes) -> bytes:
        """Exchange a bare token."""
        self.send(struct.pack(">i", len(token)) + token)
        return await read_frame(self._reader)

    async def hello(self, mechanism: str, version: int = 1) -> Any:
        return await self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    async def authenticate(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
        answer: SaslAuthenticateResponse = await self.ask(SaslAuthenticateRequest(auth_bytes=token), version)
        return answer

    async def log_in(self, mechanism: str, exchange: Exchange) -> SaslAuthenticateResponse:
        """Log in by requests; return the last answer."""
        assert (await self.hello(mechanism)).error_code == 0
        token = next(exchange)
        while True:
            answer = await self.authenticate(token)
            if answer.error_code:
                return answer
            try:
                token = exchange.send(bytes(answer.auth_bytes))
            except StopIteration:
                return answer

    async def principal(self) -> str:
        answer = await self.ask(MetadataRequest(topics=[]), 4)
        return str(answer.cluster_id)

    async def is_hung_up(self) -> bool:
        """Whether the server ends the connection without another byte."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self._reader.read() == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self._writer.close()


class Listener:
    """A running listener."""

    def __init__(self, server: SocketServer, host: str, port: int, clock: ManualClock, stored: dict[str, str]) -> None:
        self.server, self.host, self.port, self.clock, self.stored = server, host, port, clock, stored
        self._peers: list[Peer] = []

    @property
    def totals(self) -> NetworkTotals:
        (totals,) = self.server.totals.values()
        return totals

    async def connect(self) -> Peer:
        peer = Peer(*await asyncio.open_connection(self.host, self.port))
        self._peers.append(peer)
        return peer

    def forget(self, peer: Peer) -> None:
        """End a peer of many now, not at the end."""
        self._peers.remove(peer)
        peer.close()

    async def logged_in(self, name: str = "alice") -> Peer:
        peer = await self.connect()
        assert (await peer.log_in("PLAIN", plain_exchange(name, f"{name}-pw"))).error_code == 0
        return peer

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


@asynccontextmanager
async def listening(**settings: str) -> AsyncIterator[Listener]:
    clock, stored = ManualClock(), {}
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        stored[f"alice {mechanism}"] = ScramCredential.of_password(mechanism, "alice-pw", b"salt", 4096).encode()
    logins = policy(clock, stored, **settings)
    async with serving({ApiKey.METADATA: tell_principal, **LOGIN}, clock=clock, logins=logins) as served:
        listener = Listener(*served, clock, stored)
        yield listener
        listener.close()


def exchange(mechanism: str, password: str = "alice-pw", name: str = "alice") -> Exchange:
    if mechanism == "PLAIN":
        return plain_exchange(name, password)
    if mechanism == "OAUTHBEARER":
        options = {"unsecuredLoginStringClaim_sub": "alice"}
        return oauthbearer_exchange(unsecured_token(options, now_s=ManualClock().now_ms() / 1000), {})
    return scram_exchange(mechanism, name, password, is_token=False)


MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


def frame(request: Request, version: int) -> bytes:
    return bytes(encode_request(request, version, 1, "test"))
