"""Envelope (58), version 0: a broker forwards a client's request to the controller (KIP-590)."""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, field
from engine.kafka.protocol.types import BYTES, INT16


class EnvelopeRequest(Request, key=ApiKey.ENVELOPE):
    """The request to carry out on behalf of the client."""

    request_data: bytes = field(BYTES)
    """Header and body of the client's request."""
    request_principal: bytes | None = field(BYTES, nullable_since=0)
    """The client's principal, serialized; None if it cannot be."""
    client_host_address: bytes = field(BYTES)
    """4 or 16 bytes."""


class EnvelopeResponse(Response, key=ApiKey.ENVELOPE):
    """The controller's answer."""

    response_data: bytes | None = field(BYTES, nullable_since=0)
    """Header and body of the answer; None with an error."""
    error_code: int = field(INT16)
