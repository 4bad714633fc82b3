"""RenewDelegationToken (39), versions 0–2: extend a token's lifetime.

Version notes
* 2: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, field
from engine.kafka.protocol.types import BYTES, INT16, INT32, INT64


class RenewDelegationTokenRequest(Request, key=ApiKey.RENEW_DELEGATION_TOKEN):
    hmac: bytes = field(BYTES)
    renew_period_ms: int = field(INT64)
    """-1: the broker's setting."""


class RenewDelegationTokenResponse(Response, key=ApiKey.RENEW_DELEGATION_TOKEN):
    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32)
