"""SaslHandshake (17), versions 0–1: choose the SASL mechanism.

Version notes
* 0: bare tokens follow, without Kafka's framing   * 1: SaslAuthenticate follows (KIP-152)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, field
from engine.kafka.protocol.types import INT16, STRING, Array


class SaslHandshakeRequest(Request, key=ApiKey.SASL_HANDSHAKE):
    mechanism: str = field(STRING)


class SaslHandshakeResponse(Response, key=ApiKey.SASL_HANDSHAKE):
    """Whether that mechanism is enabled, and which ones are."""

    error_code: int = field(INT16)
    mechanisms: list[str] = field(Array(STRING))
