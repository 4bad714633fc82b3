"""CreateDelegationToken (38): v0–v3. RenewDelegationToken (39), ExpireDelegationToken (40): v0–v2.
DescribeDelegationToken (41): v0–v3.

Behaviour
* Make, renew, end and list tokens that stand for a principal (KIP-48). Any broker does it, and notifies the others.
* Over PLAINTEXT, anonymous TLS, or a token's own login: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. Without
  ``delegation.token.secret.key``: DELEGATION_TOKEN_AUTH_DISABLED.
* The owner and the renewers may renew and end a token, others get DELEGATION_TOKEN_OWNER_MISMATCH. An unknown or ended
  one is DELEGATION_TOKEN_NOT_FOUND, and one that has expired but is still there DELEGATION_TOKEN_EXPIRED.
* Owner, requester and renewers see a token; others need Describe on it, or DescribeTokens on its owner.
* An ended token admits no new login; sessions that began with it go on until they must log in again.

Version notes
* v2 flexible   * v3 of 38 and 41: a token for another owner (KIP-373), which needs CreateTokens on that user
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, in_steps, in_turns
from engine.broker.handlers.registry import handles
from engine.broker.security.delegation_tokens import DelegationTokens, may_ask_for_tokens
from engine.common.errors import CoordinationError, ErrorCode, KafkaError
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
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
from engine.kafka.zk.tokens import DelegationToken

_NO_TIME: Final = -1
_USER: Final = "User"


def owner_of(context: RequestContext, request: CreateDelegationTokenRequest) -> str:
    """Return for whom a token is asked: an owner without a name is the client itself."""
    if not request.owner_principal_name:
        return context.session.principal
    return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"


def creation_refused(
    context: RequestContext, request: CreateDelegationTokenRequest, code: ErrorCode
) -> CreateDelegationTokenResponse:
    """Return the answer of a request that makes no token."""
    return _created(context, owner_of(context, request), CreateDelegationTokenResponse(
        error_code=code, issue_timestamp_ms=_NO_TIME, expiry_timestamp_ms=_NO_TIME, max_timestamp_ms=_NO_TIME,
        token_id="", hmac=b"",
    ))  # fmt: skip


@handles(ApiKey.CREATE_DELEGATION_TOKEN, requires=["CreateTokens User"])
async def create_delegation_token(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Make a token for the client, or for another owner."""
    try:
        _check_channel(context)
        named = await in_turns(request.renewers, lambda renewer: (renewer.principal_type, renewer.principal_name))
        if any(kind != _USER for kind, _ in named):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        if request.owner_principal_name and request.owner_principal_type is None:
            # As in Kafka, which fails at it.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        tokens = _tokens(context)
        owner, requester = owner_of(context, request), context.session.principal
        renewers = [f"{kind}:{name}" for kind, name in named]
        token = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except KafkaError as error:
        return creation_refused(context, request, error.code)
    except CoordinationError:
        return creation_refused(context, request, ErrorCode.REQUEST_TIMED_OUT)
    return _created(context, owner, CreateDelegationTokenResponse(
        issue_timestamp_ms=token.issue_timestamp_ms, expiry_timestamp_ms=token.expiry_timestamp_ms,
        max_timestamp_ms=token.max_timestamp_ms, token_id=token.token_id, hmac=tokens.hmac(token.token_id),
    ))  # fmt: skip


@handles(ApiKey.RENEW_DELEGATION_TOKEN, requires=[])
async def renew_delegation_token(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    code, expiry_ms = await _changed(
        context, lambda tokens, who: tokens.renew(who, bytes(request.hmac), request.renew_period_ms)
    )
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms)


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN, requires=[])
async def expire_delegation_token(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    code, expiry_ms = await _changed(
        context, lambda tokens, who: tokens.expire(who, bytes(request.hmac), request.expiry_time_period_ms)
    )
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms)


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN, requires=["Describe DelegationToken", "DescribeTokens User"])
@in_steps
def describe_delegation_token(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> Steps[DescribeDelegationTokenResponse]:
    """List the tokens that one of the named principals owns, asked for, or may renew. The guard leaves out the
    others."""
    try:
        _check_channel(context)
        tokens = _tokens(context)
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=error.code, tokens=[])
    wanted = None
    if request.owners is not None:
        wanted = set()
        for owner in request.owners:
            wanted.add(f"{owner.principal_type}:{owner.principal_name}")
            yield
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, tokens.hmac(token.token_id), context.api_version)
            for token in tokens.all.values()
            if wanted is None or not wanted.isdisjoint((token.owner, token.token_requester, *token.renewers))
        ]
    )


def _check_channel(context: RequestContext) -> None:
    if not may_ask_for_tokens(context.session):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _tokens(context: RequestContext) -> DelegationTokens:
    if context.broker.tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return context.broker.tokens


async def _changed(
    context: RequestContext, change: Callable[[DelegationTokens, str], Awaitable[int]]
) -> tuple[ErrorCode, int]:
    """Return how a change of a token went, and when the token then expires."""
    try:
        _check_channel(context)
        return ErrorCode.NONE, await change(_tokens(context), context.session.principal)
    except KafkaError as error:
        return error.code, _NO_TIME
    except CoordinationError:
        return ErrorCode.REQUEST_TIMED_OUT, _NO_TIME


def _created(
    context: RequestContext, owner: str, answer: CreateDelegationTokenResponse
) -> CreateDelegationTokenResponse:
    answer.principal_type, _, answer.principal_name = owner.partition(":")
    if context.api_version >= 3:
        kind, _, name = context.session.principal.partition(":")
        answer.token_requester_principal_type, answer.token_requester_principal_name = kind, name
    return answer


def _described(token: DelegationToken, hmac: bytes, version: int) -> DescribedDelegationToken:
    kind, _, name = token.owner.partition(":")
    requester_kind, _, requester = token.token_requester.partition(":") if version >= 3 else ("", "", "")
    return DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiry_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(
                principal_type=each.partition(":")[0], principal_name=each.partition(":")[2]
            )
            for each in token.renewers
        ],
    )
