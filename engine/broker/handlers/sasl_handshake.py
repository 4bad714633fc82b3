"""SaslHandshake (17): v0–v1.

Behaviour
* Begins a login with one of the mechanisms of the listener; the answer names all of them.
* A mechanism that is not enabled is UNSUPPORTED_SASL_MECHANISM, and ends the connection.
* On a listener without SASL, and after the login unless it ends some day, it is ILLEGAL_SASL_STATE.

Version notes
* v0: bare tokens follow, and a refusal has no answer; v1: SaslAuthenticate follows (KIP-152).
"""

from __future__ import annotations

from typing import Any

from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(ApiKey.SASL_HANDSHAKE, requires=[])
def sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> Any:
    """Begin a login, or renew one."""
    login = context.session.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    return login.handshake(request.mechanism, context.api_version)
