"""SaslAuthenticate (36): v0–v2.

Behaviour
* Carries the tokens of a login. A refusal is SASL_AUTHENTICATION_FAILED with Kafka's text, comes after
  ``connection.failed.authentication.delay.ms``, and ends the connection.
* Before a handshake it ends the connection; after the login, and on a listener without SASL, it is ILLEGAL_SASL_STATE.

Version notes
* v1 tells for how long the login holds (KIP-368).
"""

from __future__ import annotations

from typing import Any

from engine.broker.handlers.api_versions import answer_unknown_version, api_versions
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@handles(ApiKey.SASL_AUTHENTICATE, requires=[])
def sasl_authenticate(context: RequestContext, request: SaslAuthenticateRequest) -> Any:
    """Take the client's next token."""
    login = context.session.login
    if login is None or login.is_complete:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    return login.authenticate(bytes(request.auth_bytes))


def api_versions_before_login(context: RequestContext, request: ApiVersionsRequest) -> Any:
    """Tell the versions to a peer that has not logged in: once, and before its handshake."""
    return context.session.login.api_versions(api_versions(context, request))


def unknown_version_before_login(context: RequestContext, request: None) -> Any:
    """Answer an ApiVersions request of an unknown version from a peer that has not logged in."""
    return context.session.login.api_versions(answer_unknown_version(context, request))
