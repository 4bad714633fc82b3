"""Logging in on a connection: what a peer may send and when, what it is answered, and how long a login holds."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from network_serving import answer_api_versions, read_frame, run, serving

from engine.broker.handlers.sasl_login import sasl_authenticate, sasl_handshake
from engine.broker.metrics.requests import NetworkTotals
from engine.broker.network.connection import ADMIT_WITHIN_MS, Connection
from engine.broker.network.request import RequestHead
from engine.broker.network.routes import HandlerSpec, RouteTable
from engine.broker.network.server import SocketServer
from engine.broker.security.login_settings import listener_logins
from engine.broker.security.logins import LoginPolicy
from engine.common.clock import ManualClock
from engine.common.errors import ErrorCode
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import LoginFailed
from engine.kafka.client.sasl.exchange import Exchange, plain_exchange
from engine.kafka.client.sasl.oauthbearer import oauthbearer_exchange, unsecured_token
from engine.kafka.client.sasl.scram import scram_exchange
from engine.kafka.client.security import security_of
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.formats.scram_credential import ScramCredential
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
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
    found = listener_logins(config, {})["SAFE"]
    return found.policy(
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


def exchange(mechanism: str, password: str = "alice-pw") -> Exchange:
    if mechanism == "PLAIN":
        return plain_exchange("alice", password)
    if mechanism == "OAUTHBEARER":
        options = {"unsecuredLoginStringClaim_sub": "alice"}
        return oauthbearer_exchange(unsecured_token(options, now_s=ManualClock().now_ms() / 1000), {})
    return scram_exchange(mechanism, "alice", password, is_token=False)


MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_logs_in_by_requests_and_by_bare_tokens(mechanism: str) -> None:
    async def check() -> None:
        async with listening() as listener:
            peer = await listener.connect()
            assert (await peer.log_in(mechanism, exchange(mechanism))).error_code == 0
            assert await peer.principal() == "User:alice"
            peer = await listener.connect()
            assert sorted((await peer.hello(mechanism, 0)).mechanisms) == sorted(MECHANISMS)
            client = exchange(mechanism)
            token = next(client)
            with pytest.raises(StopIteration):
                while True:
                    token = client.send(await peer.token(token))
            assert await peer.principal() == "User:alice"
            # Bare tokens come from clients that know of no renewal.
            assert (listener.totals.logins, listener.totals.logins_without_renewal) == (2, 1)

    run(check)


def test_our_own_client_logs_in_and_is_told_why_not() -> None:
    async def check() -> None:
        async with listening() as listener:
            for password in ("alice-pw", "wrong"):
                jaas = f'{MODULE}.scram.ScramLoginModule required username="alice" password="{password}";'
                properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
                client = BrokerClient(listener.host, listener.port, client_id="t",
                                      security=security_of(properties | {"sasl.jaas.config": jaas}))  # fmt: skip
                if password == "wrong":
                    with pytest.raises(LoginFailed, match="invalid credentials with SASL mechanism SCRAM-SHA-512"):
                        await client.call(MetadataRequest(topics=[]))
                else:
                    assert (await client.send(MetadataRequest(topics=[]), 4)).cluster_id == "User:alice"
                await client.close()

    run(check)


def frame(request: Request, version: int) -> bytes:
    return bytes(encode_request(request, version, 1, "test"))


@pytest.mark.parametrize(
    "sent",
    [
        frame(MetadataRequest(topics=[]), 4),
        frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-pw"), 2),
        struct.pack(">i", 524_289) + bytes(100),
        struct.pack(">i", 104_857_600) + bytes(100),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", -5),
        struct.pack(">ihhi", 10, 17, 99, 1) + b"\xff\xff",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0alice\0alice-pw",
    ],
)
def test_whoever_has_not_logged_in_reaches_nothing_and_gets_no_answer(sent: bytes) -> None:
    async def check() -> None:
        async with listening() as listener:
            peer, good = await listener.connect(), await listener.logged_in()
            peer.send(sent)
            assert await peer.is_hung_up()
            assert await good.principal() == "User:alice"

    run(check)


def test_versions_are_told_once_and_before_the_handshake() -> None:
    versions = ApiVersionsRequest(client_software_name="t", client_software_version="1")

    async def check() -> None:
        async with listening() as listener:
            peer = await listener.connect()
            # Kafka answers an unknown version in the form of version 0; that does not count.
            peer.send(struct.pack(">ihhi", 10, 18, 99, 1) + b"\xff\xff")
            await read_frame(peer._reader)
            assert (await peer.ask(versions, 3)).api_keys
            peer.send(frame(versions, 3))
            assert await peer.is_hung_up()
            peer = await listener.connect()
            assert (await peer.hello("PLAIN")).error_code == 0
            assert (await peer.ask(versions, 3)).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await peer.is_hung_up()
            peer = await listener.logged_in()
            assert (await peer.ask(versions, 3)).api_keys and (await peer.ask(versions, 3)).api_keys

    run(check)


def test_other_requests_during_a_login_end_it() -> None:
    async def check() -> None:
        async with listening() as listener:
            peer = await listener.connect()
            await peer.hello("SCRAM-SHA-256")
            assert (await peer.hello("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await peer.is_hung_up()
            peer = await listener.connect()
            await peer.hello("SCRAM-SHA-256")
            peer.send(frame(MetadataRequest(topics=[]), 4))
            assert await peer.is_hung_up()

    run(check)


def test_requests_behind_an_unfinished_login_are_not_handled() -> None:
    """All in one packet: the wrong password, and what needs a right one."""

    async def check() -> None:
        async with listening() as listener:
            peer = await listener.connect()
            wrong = frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
            peer.send(frame(SaslHandshakeRequest(mechanism="PLAIN"), 1) + wrong + frame(MetadataRequest(topics=[]), 4))
            await read_frame(peer._reader)
            _, refused = decode_response(await read_frame(peer._reader), ApiKey.SASL_AUTHENTICATE, 2)
            assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await peer.is_hung_up()
            peer = await listener.connect()
            right = frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-pw"), 2)
            peer.send(frame(SaslHandshakeRequest(mechanism="PLAIN"), 1) + right + frame(MetadataRequest(topics=[]), 4))
            for _ in range(2):
                await read_frame(peer._reader)
            assert b"User:alice" in await read_frame(peer._reader)

    run(check)


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are() -> None:
    async def check() -> None:
        async with listening(sasl_enabled_mechanisms="PLAIN") as listener:
            for version in (0, 1):
                peer = await listener.connect()
                answer = await peer.hello("SCRAM-SHA-512", version)
                assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
                assert await peer.is_hung_up()

    run(check)


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        ("PLAIN", "Authentication failed: Invalid username or password"),
        (
            "SCRAM-SHA-512",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512",
        ),
    ],
)
def test_a_refusal_is_said_in_kafkas_words_and_by_bare_tokens_not_at_all(mechanism: str, said: str) -> None:
    async def check() -> None:
        async with listening() as listener:
            peer = await listener.connect()
            answer = await peer.log_in(mechanism, exchange(mechanism, "wrong"))
            assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, said)
            assert await peer.is_hung_up()
            peer = await listener.connect()
            await peer.hello(mechanism, 0)
            client = exchange(mechanism, "wrong")
            token = next(client)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                while True:
                    token = client.send(await peer.token(token))
            assert (listener.totals.logins, listener.totals.failed_logins) == (0, 2)

    run(check)


def test_a_refusal_waits_and_others_are_served_meanwhile() -> None:
    async def check() -> None:
        async with listening(connection_failed_authentication_delay_ms="300") as listener:
            good, peer, loop = await listener.logged_in(), await listener.connect(), asyncio.get_running_loop()
            begin = loop.time()
            refused = asyncio.create_task(peer.log_in("PLAIN", plain_exchange("alice", "wrong")))
            while not refused.done():
                assert await good.principal() == "User:alice"
            assert (await refused).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert loop.time() - begin > 0.29
            assert await peer.is_hung_up()
            # One that hangs up meanwhile leaves nothing behind.
            other = await listener.connect()
            await other.hello("PLAIN")
            other.send(frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2))
            other.close()

    run(check)


def test_whoever_does_not_log_in_loses_the_connection() -> None:
    async def check() -> None:
        async with listening() as listener:
            good, peer = await listener.logged_in(), await listener.connect()
            await peer.hello("SCRAM-SHA-256")
            listener.clock.advance(ADMIT_WITHIN_MS + 1)
            listener.server._close_unknown()
            assert await peer.is_hung_up()
            assert await good.principal() == "User:alice"

    run(check)


def test_a_changed_and_a_deleted_credential_count_at_the_next_login() -> None:
    async def check() -> None:
        async with listening() as listener:
            inside = await listener.connect()
            assert (await inside.log_in("SCRAM-SHA-256", exchange("SCRAM-SHA-256"))).error_code == 0
            stored, key = listener.stored, "alice SCRAM-SHA-256"
            stored[key] = ScramCredential.of_password("SCRAM-SHA-256", "new", b"pepper", 4096).encode()
            for password, code in (("alice-pw", ErrorCode.SASL_AUTHENTICATION_FAILED), ("new", ErrorCode.NONE)):
                peer = await listener.connect()
                assert (await peer.log_in("SCRAM-SHA-256", exchange("SCRAM-SHA-256", password))).error_code == code
            for gone in ("malformed", None):
                if gone is None:
                    del stored[key]
                else:
                    stored[key] = gone
                peer = await listener.connect()
                answer = await peer.log_in("SCRAM-SHA-256", exchange("SCRAM-SHA-256", "new"))
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await inside.principal() == "User:alice"

    run(check)


def test_a_login_ends_and_is_renewed() -> None:
    async def check() -> None:
        async with listening(connections_max_reauth_ms="60000") as listener:
            peer = await listener.connect()
            answer = await peer.log_in("PLAIN", plain_exchange("alice", "alice-pw"))
            assert answer.session_lifetime_ms == 60_000
            listener.clock.advance(59_999)
            assert await peer.principal() == "User:alice"
            answer = await peer.log_in("PLAIN", plain_exchange("alice", "alice-pw"))
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000)
            # Sooner than a second after the last renewal.
            assert (await peer.hello("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await peer.principal() == "User:alice"
            # A renewal may come late, if nothing else comes before.
            listener.clock.advance(70_000)
            assert (await peer.log_in("PLAIN", plain_exchange("alice", "alice-pw"))).error_code == 0
            assert await peer.principal() == "User:alice"
            assert (listener.totals.logins, listener.totals.logins_without_renewal) == (1, 0)
            assert (listener.totals.renewals, len(listener.totals.renewal_times_ms)) == (2, 2)
            listener.clock.advance(60_000)
            peer.send(frame(MetadataRequest(topics=[]), 4))
            assert await peer.is_hung_up()

    run(check)


def test_a_renewal_changes_neither_who_it_is_nor_the_mechanism() -> None:
    async def check() -> None:
        async with listening(connections_max_reauth_ms="60000") as listener:
            peer = await listener.logged_in()
            answer = await peer.log_in("PLAIN", plain_exchange("bob", "bob-pw"))
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
            assert await peer.is_hung_up()
            peer = await listener.logged_in()
            answer = await peer.log_in("SCRAM-SHA-256", exchange("SCRAM-SHA-256"))
            assert answer.error_message == (
                "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of "
                "mechanism 'PLAIN'"
            )
            assert await peer.is_hung_up()
            peer = await listener.logged_in()
            answer = await peer.log_in("PLAIN", plain_exchange("alice", "wrong"))
            assert answer.error_message == "Authentication failed: Invalid username or password"
            assert await peer.is_hung_up()
            totals = listener.totals
            assert (totals.logins, totals.failed_logins, totals.failed_renewals) == (3, 0, 3)

    run(check)


def test_during_a_renewal_nothing_else_is_handled() -> None:
    async def check() -> None:
        async with listening(connections_max_reauth_ms="60000") as listener:
            peer = await listener.logged_in()
            await peer.hello("PLAIN")
            peer.send(frame(MetadataRequest(topics=[]), 4))
            assert await peer.is_hung_up()

    run(check)


def test_a_login_without_an_end_cannot_be_renewed() -> None:
    async def check() -> None:
        async with listening() as listener:
            peer = await listener.logged_in()
            assert (await peer.hello("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
            answer = await peer.authenticate(b"\0alice\0alice-pw")
            assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await peer.principal() == "User:alice"

    run(check)


@pytest.mark.parametrize(("setting", "lifetime_ms"), [("0", 3_600_000), ("60000", 60_000), ("7200000", 3_600_000)])
def test_a_token_ends_the_login_with_it(setting: str, lifetime_ms: int) -> None:
    async def check() -> None:
        async with listening(connections_max_reauth_ms=setting) as listener:
            peer = await listener.connect()
            answer = await peer.log_in("OAUTHBEARER", exchange("OAUTHBEARER"))
            assert answer.session_lifetime_ms == lifetime_ms
            listener.clock.advance(lifetime_ms)
            peer.send(frame(MetadataRequest(topics=[]), 4))
            assert await peer.is_hung_up()

    run(check)


def test_without_sasl_a_login_is_an_illegal_state() -> None:
    async def check() -> None:
        async with serving({ApiKey.METADATA: tell_principal, **LOGIN}) as (_, host, port):
            peer = Peer(*await asyncio.open_connection(host, port))
            assert (await peer.hello("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert (await peer.authenticate(b"x")).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await peer.principal() == "User:ANONYMOUS"
            peer.close()

    run(check)


def test_a_listener_has_its_own_mechanisms_users_and_lifetimes() -> None:
    own = {
        "listener_name_safe_sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener_name_safe_scram-sha-256_connections_max_reauth_ms": "5000",
        "connections_max_reauth_ms": "9000",
    }

    async def check() -> None:
        async with listening(**own) as listener:
            peer = await listener.connect()
            assert (await peer.hello("PLAIN")).mechanisms == ["PLAIN", "SCRAM-SHA-256"]
            lifetimes = []
            for mechanism in ("PLAIN", "SCRAM-SHA-256"):
                peer = await listener.connect()
                lifetimes.append((await peer.log_in(mechanism, exchange(mechanism))).session_lifetime_ms)
            assert lifetimes == [9000, 5000]

    run(check)


def test_a_connection_that_has_ended_leaves_nothing_behind() -> None:
    """The collector comes after millions of objects, and a TLS object alone holds tens of kilobytes."""

    async def check() -> None:
        async with listening() as listener:
            gc.collect()
            gc.disable()

            def count() -> int:
                # Not isinstance: it asks a weak proxy for the class of what it stood for, which may be gone.
                return sum(issubclass(type(each), Connection) for each in gc.get_objects())

            before = count()
            for exchanged in range(3):
                peer = await listener.connect()
                if exchanged:
                    await peer.hello("SCRAM-SHA-256")
                if exchanged == 2:
                    assert (await peer.authenticate(b"n,,n=nobody,r=abc")).error_code == 58
                    assert await peer.is_hung_up()
                peer.close()
            async with asyncio.timeout(PATIENCE_S):
                while count() > before:
                    await asyncio.sleep(0.05)

    try:
        run(check)
    finally:
        gc.enable()
