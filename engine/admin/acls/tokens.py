"""Delegation tokens (KIP-48): creates, renews, expires and lists them. Only brokers do that, and only after a login.

A token's HMAC is a password, so nothing here puts it into a message.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.admin.acls.values import parse_principal
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.cluster.wire_failures import refuse
from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from engine.kafka.protocol.apis.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from engine.kafka.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest
from engine.kafka.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest

BROKERS_SETTING = -1
"""A period that the brokers' settings decide."""
AT_ONCE = -1
"""A token's time to expire."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token. Times are in milliseconds since 1970; ``hmac`` is the base64 text that a client logs in with."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    hmac: str | None = field(default=None, repr=False)

    def without_hmac(self) -> Token:
        return replace(self, hmac=None)


async def create_token(
    cluster: Cluster, *, owner: str | None = None, renewers: Sequence[str] = (), max_lifetime_ms: int = BROKERS_SETTING
) -> Token:
    """Create a token for a principal, or for the user who logged in.

    Raises:
        Refused: the brokers have no tokens, or this login gets none.
    """
    cluster.check_may_change()
    kind, name = _split(owner) if owner is not None else (None, None)
    request = CreateDelegationTokenRequest(
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(_split, renewers)],
        max_lifetime_ms=max_lifetime_ms,
    )
    answer = await (await cluster.wire()).call_any(request)
    refuse(answer.error_code, None, "delegation token")
    owned = f"{answer.principal_type}:{answer.principal_name}"
    asked = f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}"
    return Token(
        answer.token_id,
        owned,
        # Brokers before 3.3 do not say who asked: there it is always the owner.
        owned if asked == ":" else asked,
        tuple(renewers),
        answer.issue_timestamp_ms,
        answer.expiry_timestamp_ms,
        answer.max_timestamp_ms,
        base64.b64encode(answer.hmac).decode(),
    )


async def list_tokens(cluster: Cluster, owners: Sequence[str] = ()) -> list[Token]:
    """Return the tokens that this principal may see: those that it owns or may renew, or is allowed to describe."""
    wanted = [
        DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in map(_split, owners)
    ]
    answer = await (await cluster.wire()).call_any(DescribeDelegationTokenRequest(owners=wanted or None))
    refuse(answer.error_code, None, "delegation tokens")
    cluster.may_lack_unseen = cluster.is_somebody
    return sorted(map(_token, answer.tokens), key=lambda token: (token.owner, token.issue_timestamp_ms, token.token_id))


def _token(described: Any) -> Token:
    owner = f"{described.principal_type}:{described.principal_name}"
    asked = f"{described.token_requester_principal_type}:{described.token_requester_principal_name}"
    return Token(
        described.token_id,
        owner,
        owner if asked == ":" else asked,
        tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in described.renewers),
        described.issue_timestamp,
        described.expiry_timestamp,
        described.max_timestamp,
        base64.b64encode(described.hmac).decode(),
    )


async def hmac_of(cluster: Cluster, token_id: str) -> str:
    """Return the HMAC of a token that this principal may see.

    Raises:
        NotFound: it sees no such token.
    """
    for token in await list_tokens(cluster):
        if token.token_id == token_id and token.hmac is not None:
            return token.hmac
    hint = Phrase("those that you may see: ", Operation.LIST_TOKENS)
    raise NotFound("no such token, or you may not see it", where=f"delegation token {token_id}", hint=hint)


async def renew_token(cluster: Cluster, hmac: str, period_ms: int = BROKERS_SETTING) -> int:
    """Extend the life of a token, from now; return when it expires. Its owner and its renewers may do that."""
    return await _alter(cluster, RenewDelegationTokenRequest(hmac=_bytes(hmac), renew_period_ms=period_ms))


async def expire_token(cluster: Cluster, hmac: str, period_ms: int = AT_ONCE) -> int:
    """Expire a token, at once or after a time; return when. Connections that logged in with it stay open."""
    return await _alter(cluster, ExpireDelegationTokenRequest(hmac=_bytes(hmac), expiry_time_period_ms=period_ms))


async def _alter(cluster: Cluster, request: RenewDelegationTokenRequest | ExpireDelegationTokenRequest) -> int:
    cluster.check_may_change()
    answer = await (await cluster.wire()).call_any(request)
    if answer.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND:
        hint = Phrase("it may have expired; those that you may see: ", Operation.LIST_TOKENS)
        raise NotFound("no such token", where="delegation token", hint=hint)
    refuse(answer.error_code, None, "delegation token")
    return int(answer.expiry_timestamp_ms)


def _bytes(hmac: str) -> bytes:
    try:
        return base64.b64decode(hmac, validate=True)
    except binascii.Error:
        raise BadRequest("an HMAC is base64 text, and this is not") from None


def _split(principal: str) -> tuple[str, str]:
    kind, _, name = parse_principal(principal).partition(":")
    return kind, name
