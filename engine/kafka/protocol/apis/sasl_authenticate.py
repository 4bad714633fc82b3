"""SaslAuthenticate (36), versions 0–2: one step of the SASL exchange.

Version notes
* 1: session lifetime (KIP-368)   * 2: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, field
from engine.kafka.protocol.types import BYTES, INT16, INT64, STRING


class SaslAuthenticateRequest(Request, key=ApiKey.SASL_AUTHENTICATE):
    auth_bytes: bytes = field(BYTES)


class SaslAuthenticateResponse(Response, key=ApiKey.SASL_AUTHENTICATE):
    """The server's token, or why it refused."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, since=1)
    """Reauthenticate before it ends; 0: never."""
