"""Delegation tokens as the brokers tell of them: the right one is renewed or ended, and no text shows its HMAC."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from event_loop import staged
from scripted_brokers import ScriptedCluster, scripted_cluster

from engine.admin.acls.tokens import Token, expire_token, hmac_of, list_tokens, renew_token
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from engine.kafka.protocol.apis.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from engine.kafka.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


def told(token_id: str, owner: str, hmac: bytes, asked: str = "") -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type="User",
        principal_name=owner,
        token_requester_principal_type="User" if asked else "",
        token_requester_principal_name=asked,
        issue_timestamp=1,
        expiry_timestamp=2,
        max_timestamp=3,
        token_id=token_id,
        hmac=hmac,
        renewers=[DescribedDelegationTokenRenewer(principal_type="User", principal_name="carol")],
    )


TOKENS = [told("second", "bob", b"two", "alice"), told("first", "alice", b"one")]


def play(scene: Callable[[ScriptedCluster, Cluster], Awaitable[None]], code: int = 0, **more: Any) -> None:
    """Play a scene with brokers that know two tokens, and answer changes with this code."""

    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(1) as scripted:
            scripted.brokers[0].answers |= {
                ApiKey.DESCRIBE_DELEGATION_TOKEN: lambda _: DescribeDelegationTokenResponse(tokens=TOKENS),
                ApiKey.RENEW_DELEGATION_TOKEN: lambda _: RenewDelegationTokenResponse(
                    error_code=code, expiry_timestamp_ms=77
                ),
                ApiKey.EXPIRE_DELEGATION_TOKEN: lambda _: ExpireDelegationTokenResponse(
                    error_code=code, expiry_timestamp_ms=88
                ),
            }
            target = ClusterTarget("c", Origin.OPTIONS, bootstrap=tuple(scripted.bootstrap), **more)
            async with Cluster(target, timeout_s=20) as cluster:
                await scene(scripted, cluster)

    asyncio.run(playing())


@staged(play)
async def test_the_tokens_by_owner(scripted: ScriptedCluster, cluster: Cluster, /) -> None:
    tokens = await list_tokens(cluster, ["User:alice", "User:bob"])
    renewers = ("User:carol",)
    assert tokens == [
        Token("first", "User:alice", "User:alice", renewers, 1, 2, 3, base64.b64encode(b"one").decode()),
        Token("second", "User:bob", "User:alice", renewers, 1, 2, 3, base64.b64encode(b"two").decode()),
    ]
    assert "b25l" not in repr(tokens), "an HMAC is a password"
    await list_tokens(cluster)
    named, everybody = scripted.brokers[0].requests(DescribeDelegationTokenRequest)
    assert [(owner.principal_type, owner.principal_name) for owner in named.owners] == [
        ("User", "alice"),
        ("User", "bob"),
    ]
    assert everybody.owners is None, "an empty list means nobody's"


@staged(play)
async def test_the_named_token_is_renewed_and_ended(scripted: ScriptedCluster, cluster: Cluster, /) -> None:
    assert await renew_token(cluster, await hmac_of(cluster, "second"), 60_000) == 77
    assert await expire_token(cluster, await hmac_of(cluster, "first")) == 88
    (renewed,) = scripted.brokers[0].requests(RenewDelegationTokenRequest)
    (ended,) = scripted.brokers[0].requests(ExpireDelegationTokenRequest)
    assert (renewed.hmac, renewed.renew_period_ms) == (b"two", 60_000)
    assert (ended.hmac, ended.expiry_time_period_ms) == (b"one", -1), "at once"
    with pytest.raises(NotFound, match="no such token, or you may not see it"):
        await hmac_of(cluster, "third")


@pytest.mark.parametrize("change", [renew_token, expire_token])
def test_what_changes_no_token(change: Callable[[Cluster, str], Awaitable[int]]) -> None:
    async def unknown(_: ScriptedCluster, cluster: Cluster) -> None:
        with pytest.raises(NotFound, match="no such token") as refused:
            await change(cluster, "b25l")
        assert "b25l" not in f"{refused.value} {refused.value.hint}"

    async def malformed(scripted: ScriptedCluster, cluster: Cluster) -> None:
        with pytest.raises(BadRequest, match="an HMAC is base64 text") as refused:
            await change(cluster, "s3cret?")
        assert "s3cret" not in str(refused.value)
        assert not scripted.brokers[0].received

    async def read_only(scripted: ScriptedCluster, cluster: Cluster) -> None:
        with pytest.raises(BadRequest, match="read-only"):
            await change(cluster, "b25l")
        assert not scripted.brokers[0].received

    play(unknown, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    play(malformed)
    play(read_only, is_read_only=True)
