"""SaslHandshake (17): v0–v1. SaslAuthenticate (36): v0–v2.

Behaviour
* SaslHandshake begins a login with one of the mechanisms of the listener; the answer names all of them. A mechanism
  that is not enabled is UNSUPPORTED_SASL_MECHANISM, and ends the connection. On a listener without SASL, and after the
  login unless it ends some day, it is ILLEGAL_SASL_STATE.
* SaslAuthenticate carries the tokens of a login. A refusal is SASL_AUTHENTICATION_FAILED with Kafka's text, comes after
  ``connection.failed.authentication.delay.ms``, and ends the connection. Before a handshake it ends the connection;
  after the login, and on a listener without SASL, it is ILLEGAL_SASL_STATE.

Version notes
* SaslHandshake v0: bare tokens follow, and a refusal has no answer; v1: SaslAuthenticate follows (KIP-152).
* SaslAuthenticate v1 tells for how long the login holds (KIP-368).
"""

from __future__ import annotations

from typing import Any

from engine.broker.handlers.api_versions import answer_unknown_version, api_versions
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(ApiKey.SASL_HANDSHAKE, requires=[])
def sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> Any:
    """Begin a login, or renew one."""
    login = context.session.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    return login.handshake(request.mechanism, context.api_version)


@handles(ApiKey.SASL_AUTHENTICATE, requires=[])
def sasl_authenticate(context: RequestContext, request: SaslAuthenticateRequest) -> Any:
    """Take the client's next token."""
    login = context.session.login
    if login is None or login.is_complete:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    return login.authenticate(bytes(request.auth_bytes), context.api_version)


def api_versions_before_login(context: RequestContext, request: ApiVersionsRequest) -> Any:
    """Tell the versions to a peer that has not logged in: once, and before its handshake."""
    return _before_login(context, api_versions(context, request))


def unknown_version_before_login(context: RequestContext, request: None) -> Any:
    """Answer an ApiVersions request of an unknown version from a peer that has not logged in."""
    return _before_login(context, answer_unknown_version(context, request))


def _before_login(context: RequestContext, answer: ApiVersionsResponse) -> Any:
    login = context.session.login
    # None: the connection has ended while a large request was decoded.
    return answer if login is None else login.api_versions(answer)
