"""Logging in on a connection: what a peer may send and when, what it is answered, and how long a login holds."""

from __future__ import annotations

import asyncio
import gc
import struct

import pytest
from event_loop import staged
from login_serving import (
    LOGIN,
    MECHANISMS,
    MODULE,
    PATIENCE_S,
    Peer,
    exchange,
    frame,
    listening,
    tell_principal,
)
from network_serving import read_frame, run, serving

from engine.broker.network.connection import ADMIT_WITHIN_MS, Connection
from engine.common.errors import ErrorCode
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import LoginFailed
from engine.kafka.client.sasl.exchange import plain_exchange
from engine.kafka.client.security import security_of
from engine.kafka.formats.scram_credential import ScramCredential
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest
from engine.kafka.protocol.frames import decode_response


@pytest.mark.parametrize("mechanism", MECHANISMS)
@staged(run)
async def test_each_mechanism_logs_in_by_requests_and_by_bare_tokens(mechanism: str) -> None:
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
        requests, _ = listener.totals.received()
        assert listener.server.answers() == {"SAFE": requests}, "bare tokens are requests, and have answers"


@staged(run)
async def test_our_own_client_logs_in_and_is_told_why_not() -> None:
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
@staged(run)
async def test_whoever_has_not_logged_in_reaches_nothing_and_gets_no_answer(sent: bytes) -> None:
    async with listening() as listener:
        peer, good = await listener.connect(), await listener.logged_in()
        peer.send(sent)
        assert await peer.is_hung_up()
        assert await good.principal() == "User:alice"
        assert listener.server.answers() == {"SAFE": 3}, "those of the other one alone"


@staged(run)
async def test_versions_are_told_once_and_before_the_handshake() -> None:
    versions = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    async with listening() as listener:
        peer = await listener.connect()
        # Kafka answers an unknown version in the form of version 0; that does not count.
        peer.send(struct.pack(">ihhi", 11, 18, 99, 1) + b"\xff\xff\0")
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


@staged(run)
async def test_other_requests_during_a_login_end_it() -> None:
    async with listening() as listener:
        peer = await listener.connect()
        await peer.hello("SCRAM-SHA-256")
        assert (await peer.hello("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await peer.is_hung_up()
        peer = await listener.connect()
        await peer.hello("SCRAM-SHA-256")
        peer.send(frame(MetadataRequest(topics=[]), 4))
        assert await peer.is_hung_up()


@staged(run)
async def test_requests_behind_an_unfinished_login_are_not_handled() -> None:
    """All in one packet: the wrong password, and what needs a right one."""
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


@staged(run)
async def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are() -> None:
    async with listening(sasl_enabled_mechanisms="PLAIN") as listener:
        for version in (0, 1):
            peer = await listener.connect()
            answer = await peer.hello("SCRAM-SHA-512", version)
            assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
            assert await peer.is_hung_up()


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
@staged(run)
async def test_a_refusal_is_said_in_kafkas_words_and_by_bare_tokens_not_at_all(mechanism: str, said: str) -> None:
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


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@staged(run)
async def test_an_unknown_user_and_a_wrong_password_are_refused_alike(mechanism: str) -> None:
    """In the same words, and not before the delay."""
    async with listening(connection_failed_authentication_delay_ms="200") as listener:
        answers, loop = [], asyncio.get_running_loop()
        for name, password in (("alice", "wrong"), ("nobody", "alice-pw")):
            peer = await listener.connect()
            begin = loop.time()
            answer = await peer.log_in(mechanism, exchange(mechanism, password, name))
            assert loop.time() - begin > 0.19
            answers.append((answer.error_code, answer.error_message, bytes(answer.auth_bytes)))
            assert await peer.is_hung_up()
        assert answers[0] == answers[1]
        assert answers[0][0] == ErrorCode.SASL_AUTHENTICATION_FAILED


@staged(run)
async def test_a_refusal_waits_and_others_are_served_meanwhile() -> None:
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


@staged(run)
async def test_whoever_does_not_log_in_loses_the_connection() -> None:
    async with listening() as listener:
        good, peer = await listener.logged_in(), await listener.connect()
        await peer.hello("SCRAM-SHA-256")
        listener.clock.advance(ADMIT_WITHIN_MS + 1)
        listener.server._close_unknown()
        assert await peer.is_hung_up()
        assert await good.principal() == "User:alice"


@staged(run)
async def test_who_waits_for_room_cannot_log_in_and_has_not_failed_to() -> None:
    async with listening() as listener:
        good, server = await listener.logged_in(), listener.server
        server.change_limits(max_connections=1)
        late = await listener.connect()
        while not server.rates.waiting:
            await asyncio.sleep(0.001)
        listener.clock.advance(ADMIT_WITHIN_MS - 1)
        server.change_limits(max_connections=2)
        listener.clock.advance(ADMIT_WITHIN_MS - 1)
        server._close_unknown()
        assert (await late.log_in("PLAIN", plain_exchange("alice", "alice-pw"))).error_code == 0
        too_late = await listener.connect()
        while not server.rates.waiting:
            await asyncio.sleep(0.001)
        listener.clock.advance(ADMIT_WITHIN_MS + 1)
        server._close_unknown()
        assert await too_late.is_hung_up()
        assert await good.principal() == "User:alice"
        assert listener.totals.failed_logins == 0


@staged(run)
async def test_a_changed_and_a_deleted_credential_count_at_the_next_login() -> None:
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


@staged(run)
async def test_a_login_ends_and_is_renewed() -> None:
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


@staged(run)
async def test_a_renewal_changes_neither_who_it_is_nor_the_mechanism() -> None:
    async with listening(connections_max_reauth_ms="60000") as listener:
        peer = await listener.logged_in()
        answer = await peer.log_in("PLAIN", plain_exchange("bob", "bob-pw"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
        assert await peer.is_hung_up()
        peer = await listener.logged_in()
        # Of another mechanism it hears nothing, as from Kafka 3.9.1.
        assert (await peer.hello("SCRAM-SHA-256")).error_code == 0
        peer.send(frame(SaslAuthenticateRequest(auth_bytes=next(exchange("SCRAM-SHA-256"))), 2))
        assert await peer.is_hung_up()
        peer = await listener.logged_in()
        peer.send(frame(SaslHandshakeRequest(mechanism="NONE"), 1))
        assert await peer.is_hung_up()
        peer = await listener.logged_in()
        answer = await peer.log_in("PLAIN", plain_exchange("alice", "wrong"))
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert await peer.is_hung_up()
        totals = listener.totals
        assert (totals.logins, totals.failed_logins, totals.failed_renewals) == (4, 0, 4)


@staged(run)
async def test_during_a_renewal_nothing_else_is_handled() -> None:
    async with listening(connections_max_reauth_ms="60000") as listener:
        peer = await listener.logged_in()
        await peer.hello("PLAIN")
        peer.send(frame(MetadataRequest(topics=[]), 4))
        assert await peer.is_hung_up()


@staged(run)
async def test_a_login_without_an_end_cannot_be_renewed() -> None:
    async with listening() as listener:
        peer = await listener.logged_in()
        assert (await peer.hello("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = await peer.authenticate(b"\0alice\0alice-pw")
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await peer.principal() == "User:alice"


@pytest.mark.parametrize(("setting", "lifetime_ms"), [("0", 3_600_000), ("60000", 60_000), ("7200000", 3_600_000)])
@staged(run)
async def test_a_token_ends_the_login_with_it(setting: str, lifetime_ms: int) -> None:
    async with listening(connections_max_reauth_ms=setting) as listener:
        peer = await listener.connect()
        answer = await peer.log_in("OAUTHBEARER", exchange("OAUTHBEARER"))
        assert answer.session_lifetime_ms == lifetime_ms
        listener.clock.advance(lifetime_ms)
        peer.send(frame(MetadataRequest(topics=[]), 4))
        assert await peer.is_hung_up()


@staged(run)
async def test_without_sasl_a_login_is_an_illegal_state() -> None:
    async with serving({ApiKey.METADATA: tell_principal, **LOGIN}) as (_, host, port):
        peer = Peer(*await asyncio.open_connection(host, port))
        assert (await peer.hello("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await peer.authenticate(b"x")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await peer.principal() == "User:ANONYMOUS"
        peer.close()


@staged(run)
async def test_a_listener_has_its_own_mechanisms_users_and_lifetimes() -> None:
    own = {
        "listener_name_safe_sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener_name_safe_scram-sha-256_connections_max_reauth_ms": "5000",
        "connections_max_reauth_ms": "9000",
    }
    async with listening(**own) as listener:
        peer = await listener.connect()
        assert (await peer.hello("PLAIN")).mechanisms == ["PLAIN", "SCRAM-SHA-256"]
        lifetimes = []
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            peer = await listener.connect()
            lifetimes.append((await peer.log_in(mechanism, exchange(mechanism))).session_lifetime_ms)
        assert lifetimes == [9000, 5000]


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
