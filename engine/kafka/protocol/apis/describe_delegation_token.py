"""DescribeDelegationToken (41), versions 0–3: list tokens.

Version notes
* 2: flexible   * 3: who asked for the token (KIP-373)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BYTES, INT16, INT32, INT64, STRING, Array


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class DescribeDelegationTokenRequest(Request, key=ApiKey.DESCRIBE_DELEGATION_TOKEN):
    owners: list[DescribeDelegationTokenOwner] | None = field(Array(DescribeDelegationTokenOwner), nullable_since=0)
    """None: all that the requester may see."""


class DescribedDelegationTokenRenewer(Struct):
    """Somebody who may renew the token."""

    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class DescribedDelegationToken(Struct):
    """One token. Times are in milliseconds."""

    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, since=3, ignorable=False)
    token_requester_principal_name: str = field(STRING, since=3, ignorable=False)
    issue_timestamp: int = field(INT64)
    expiry_timestamp: int = field(INT64)
    max_timestamp: int = field(INT64)
    token_id: str = field(STRING)
    hmac: bytes = field(BYTES)
    renewers: list[DescribedDelegationTokenRenewer] = field(Array(DescribedDelegationTokenRenewer))


class DescribeDelegationTokenResponse(Response, key=ApiKey.DESCRIBE_DELEGATION_TOKEN):
    error_code: int = field(INT16)
    tokens: list[DescribedDelegationToken] = field(Array(DescribedDelegationToken))
    throttle_time_ms: int = field(INT32)
