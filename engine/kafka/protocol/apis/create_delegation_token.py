"""CreateDelegationToken (38), versions 0–3: create a token that stands for a principal (KIP-48).

Version notes
* 2: flexible   * 3: for another owner (KIP-373)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BYTES, INT16, INT32, INT64, STRING, Array


class CreatableRenewers(Struct):
    """Somebody who may renew the token."""

    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class CreateDelegationTokenRequest(Request, key=ApiKey.CREATE_DELEGATION_TOKEN):
    owner_principal_type: str | None = field(STRING, since=3, nullable_since=3, ignorable=False)
    """None, with the name: the requester."""
    owner_principal_name: str | None = field(STRING, since=3, nullable_since=3, ignorable=False)
    renewers: list[CreatableRenewers] = field(Array(CreatableRenewers))
    max_lifetime_ms: int = field(INT64)
    """-1: the broker's setting."""


class CreateDelegationTokenResponse(Response, key=ApiKey.CREATE_DELEGATION_TOKEN):
    error_code: int = field(INT16)
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, since=3, ignorable=False)
    token_requester_principal_name: str = field(STRING, since=3, ignorable=False)
    issue_timestamp_ms: int = field(INT64)
    expiry_timestamp_ms: int = field(INT64)
    max_timestamp_ms: int = field(INT64)
    token_id: str = field(STRING)
    hmac: bytes = field(BYTES)
    throttle_time_ms: int = field(INT32)
