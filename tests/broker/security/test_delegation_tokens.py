"""Delegation tokens on a real ZooKeeper: their lives, who may do what with them, and who logs in by them."""

from __future__ import annotations

import base64
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from event_loop import staged, until
from network_serving import run, session
from virtual_time import ManualClock

from engine.broker.security.delegation_tokens import DelegationTokens, may_ask_for_tokens, secret_of_tokens
from engine.broker.security.sasl_mechanisms import LoggedIn, LoginRefused, scram_server
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import SecurityProtocol
from engine.kafka.client.sasl.scram import scram_exchange
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.tokens import DelegationTokenChangeZNode, DelegationTokenInfoZNode

SECRET = "token-Secr3t"
MAX_MS, RENEWAL_MS = 10_000, 4_000
PATIENCE_S = 20.0
ALICE, BOB, ADMIN = "User:alice", "User:bob", "User:admin"


def settings(**changed: str) -> BrokerConfig:
    said = {
        "broker.id": "0",
        "zookeeper.connect": "z:1",
        "delegation.token.secret.key": SECRET,
        "delegation.token.max.lifetime.ms": str(MAX_MS),
        "delegation.token.expiry.time.ms": str(RENEWAL_MS),
    }
    return BrokerConfig(said | {name.replace("_", "."): value for name, value in changed.items()})


@asynccontextmanager
async def tokens(connect: str, clock: ManualClock) -> AsyncIterator[tuple[DelegationTokens, KafkaZkClient]]:
    client = await ZkClient.connect(connect, session_timeout_ms=6_000)
    try:
        zk = KafkaZkClient(client)
        made = DelegationTokens(zk, clock, settings())
        await made.start()
        yield made, zk
        await made.stop()
    finally:
        await client.close()


def log_in(first: DelegationTokens, token_id: str, password: bytes, mechanism: str = "SCRAM-SHA-512") -> LoggedIn:
    client = scram_exchange(mechanism, token_id, base64.b64encode(password).decode(), is_token=True)
    server = scram_server(mechanism, lambda name, is_token: first.candidate(mechanism, name) if is_token else None)
    next(server)
    final = client.send(server.send(next(client)))
    with pytest.raises(StopIteration) as done:
        server.send(final)
    who: LoggedIn = done.value.value
    return who


@staged(run)
async def test_what_one_broker_does_with_a_token_counts_at_every_other(zk_chroot: str) -> None:
    clock = ManualClock()
    async with tokens(zk_chroot, clock) as (first, zk), tokens(zk_chroot, clock) as (other, _):
        made = await first.create(ALICE, ADMIN, [BOB], -1)
        name, start_ms = made.token_id, clock.now_ms()
        assert (made.owner, made.token_requester, made.renewers) == (ALICE, ADMIN, (BOB,))
        assert made.expiry_timestamp_ms == start_ms + RENEWAL_MS
        assert made.max_timestamp_ms == start_ms + MAX_MS
        secret = hmac.digest(SECRET.encode(), name.encode(), "sha512")
        assert first.hmac(name) == secret
        await until(lambda: other.all == {name: made})
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            who = log_in(other, name, secret, mechanism)
            assert (who.name, who.is_by_token, who.expires_at_ms) == ("alice", True, made.expiry_timestamp_ms)
        clock.advance(3_000)
        assert await other.renew(BOB, secret, -1) == start_ms + 3_000 + RENEWAL_MS
        await until(lambda: first.all[name].expiry_timestamp_ms == start_ms + 3_000 + RENEWAL_MS)
        # Nobody renews it beyond its longest life.
        assert await other.renew(ALICE, secret, 2**62) == start_ms + MAX_MS
        assert await first.expire(BOB, secret, 1_000) == start_ms + 4_000
        await until(lambda: other.all[name].expiry_timestamp_ms == start_ms + 4_000)
        assert await first.expire(ALICE, secret, -1) == clock.now_ms()
        await until(lambda: not other.all)
        assert other.candidate("SCRAM-SHA-512", name) is None
        assert await zk.tokens.get(name) is None
        # One that starts later reads what is there.
        kept = await first.create(ALICE, ALICE, [], 5)
        assert kept.expiry_timestamp_ms == kept.max_timestamp_ms == clock.now_ms() + 5
        async with tokens(zk_chroot, clock) as (late, _):
            assert late.all == {kept.token_id: kept}


def test_a_token_is_changed_by_its_owner_and_its_renewers_while_it_lasts(zk_chroot: str) -> None:
    async def refused(change: object, code: ErrorCode) -> None:
        with pytest.raises(KafkaError) as caught:
            await change  # type: ignore[misc]
        assert caught.value.code is code

    async def check() -> None:
        clock = ManualClock()
        async with tokens(zk_chroot, clock) as (first, zk):
            made = await first.create(ALICE, ADMIN, [BOB], -1)
            secret = first.hmac(made.token_id)
            for change in (first.renew, first.expire):
                # Who asked for it may see it, no more.
                await refused(change(ADMIN, secret, 1), ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
                await refused(change(ALICE, b"unknown", 1), ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
            clock.advance(RENEWAL_MS + 1)
            for change in (first.renew, first.expire):
                await refused(change(ALICE, secret, 1), ErrorCode.DELEGATION_TOKEN_EXPIRED)
            assert made.token_id in first.all
            await first.remove_expired()
            assert not first.all and await zk.tokens.get(made.token_id) is None
            await refused(first.renew(ALICE, secret, -1), ErrorCode.DELEGATION_TOKEN_NOT_FOUND)

    run(check)


@staged(run)
async def test_a_token_that_another_broker_ended_does_not_come_back(zk_chroot: str) -> None:
    async with tokens(zk_chroot, ManualClock()) as (first, zk):
        made = await first.create(ALICE, ALICE, [], -1)
        await zk.client.delete(DelegationTokenInfoZNode.path(made.token_id))
        with pytest.raises(KafkaError, match="NOT_FOUND"):
            await first.renew(ALICE, first.hmac(made.token_id), -1)
        assert await zk.tokens.get(made.token_id) is None and not first.all


@staged(run)
async def test_a_damaged_token_lets_nobody_in_and_hinders_no_other(zk_chroot: str) -> None:
    clock = ManualClock()
    async with tokens(zk_chroot, clock) as (first, zk):
        good, bad = await first.create(ALICE, ALICE, [], -1), await first.create(BOB, BOB, [], -1)
        await zk.client.set(DelegationTokenInfoZNode.path(bad.token_id), b"damaged")
        data = DelegationTokenChangeZNode.encode(bad.token_id)
        await zk.client.create(DelegationTokenChangeZNode.create_path, data, sequential=True)
        await until(lambda: bad.token_id not in first.all)
        assert first.candidate("SCRAM-SHA-256", bad.token_id) is None
        async with tokens(zk_chroot, clock) as (late, _):
            assert late.all == {good.token_id: good}


@staged(run)
async def test_a_token_is_no_users_password_and_a_users_is_no_tokens(zk_chroot: str) -> None:
    async with tokens(zk_chroot, ManualClock()) as (first, _):
        made = await first.create(ALICE, ALICE, [], -1)
        assert log_in(first, made.token_id, first.hmac(made.token_id)).name == "alice"
        for name, is_token in ((made.token_id, False), ("alice", True), ("unknown", True)):
            client = scram_exchange("SCRAM-SHA-512", name, "password", is_token=is_token)
            server = scram_server(
                "SCRAM-SHA-512", lambda name, by: first.candidate("SCRAM-SHA-512", name) if by else None
            )
            next(server)
            with pytest.raises(LoginRefused) as caught:
                server.send(next(client))
            assert caught.value.told is None


@pytest.mark.parametrize(
    ("protocol", "principal", "is_by_token", "expected"),
    [
        (SecurityProtocol.PLAINTEXT, "User:ANONYMOUS", False, False),
        (SecurityProtocol.SSL, "User:ANONYMOUS", False, False),
        (SecurityProtocol.SSL, "User:CN=alice", False, True),
        (SecurityProtocol.SASL_PLAINTEXT, ALICE, False, True),
        (SecurityProtocol.SASL_SSL, ALICE, False, True),
        (SecurityProtocol.SASL_SSL, ALICE, True, False),
    ],
)
def test_requests_about_tokens_need_a_safe_channel_and_no_token(
    protocol: SecurityProtocol, principal: str, is_by_token: bool, expected: bool
) -> None:
    asking = session()
    asking.security_protocol, asking.principal, asking.is_by_token = protocol, principal, is_by_token
    assert may_ask_for_tokens(asking) is expected


def test_the_secret_has_an_old_name_too() -> None:
    assert secret_of_tokens(settings()) == SECRET
    assert secret_of_tokens(settings(delegation_token_master_key="old")) == SECRET
    without = BrokerConfig({"broker.id": "0", "zookeeper.connect": "z:1"})
    assert secret_of_tokens(without) == ""
    old = BrokerConfig({"broker.id": "0", "zookeeper.connect": "z:1", "delegation.token.master.key": "old"})
    assert secret_of_tokens(old) == "old"
