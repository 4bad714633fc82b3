"""ExpireDelegationToken (40), versions 0–2: make a token expire sooner.

Version notes
* 2: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, field
from engine.kafka.protocol.types import BYTES, INT16, INT32, INT64


class ExpireDelegationTokenRequest(Request, key=ApiKey.EXPIRE_DELEGATION_TOKEN):
    hmac: bytes = field(BYTES)
    expiry_time_period_ms: int = field(INT64)
    """From now; negative: at once."""


class ExpireDelegationTokenResponse(Response, key=ApiKey.EXPIRE_DELEGATION_TOKEN):
    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32)
