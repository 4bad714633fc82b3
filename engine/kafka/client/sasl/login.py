"""Logging in over an open connection: the SASL handshake and its exchange of tokens (KIP-43, 152, 368)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from engine.common.errors import ErrorCode
from engine.kafka.client.errors import LoginFailed
from engine.kafka.client.sasl.exchange import Exchange, SaslError
from engine.kafka.client.sasl.settings import TOKEN_URL, SaslSettings, exchange_for, forget_token
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from engine.kafka.protocol.declaration import Request

Ask = Callable[[Request, int], Awaitable[Any]]
"""Sends a request in a version, and returns the answer."""

_AUTHENTICATE_MAX = 2


async def log_in(ask: Ask, sasl: SaslSettings, versions: Mapping[int, tuple[int, int]], address: str) -> int:
    """Log in, for the first time or again, and return for how many milliseconds it holds; 0 is forever.

    Raises:
        LoginFailed: the broker refuses, or no token can be obtained.
        NetworkError: the connection broke.
    """
    try:
        exchange = await asyncio.to_thread(exchange_for, sasl, address.rpartition(":")[0].strip("[]"))
    except SaslError as error:
        hint = f"does {TOKEN_URL} name the right place?" if sasl.token_url else None
        raise LoginFailed(str(error), address=address, hint=hint) from error
    await _shake_hands(ask, sasl, versions, address)
    version = min(versions.get(int(ApiKey.SASL_AUTHENTICATE), (0, 0))[1], _AUTHENTICATE_MAX)
    try:
        return await _exchange(ask, sasl, exchange, version, address)
    except LoginFailed:
        forget_token(sasl)
        raise
    except SaslError as error:
        forget_token(sasl)
        raise LoginFailed(f"{error} ({sasl.identity})", address=address) from error


async def _shake_hands(ask: Ask, sasl: SaslSettings, versions: Mapping[int, tuple[int, int]], address: str) -> None:
    offered = versions.get(int(ApiKey.SASL_HANDSHAKE))
    if offered is None:
        raise LoginFailed("this listener asks for no login", address=address, hint=_OTHER_LISTENER)
    if offered[1] < 1:
        raise LoginFailed("the broker is older than Kafka 1.0, whose login klamm does not speak", address=address)
    answer: SaslHandshakeResponse = await ask(SaslHandshakeRequest(mechanism=sasl.mechanism_asked_for), 1)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        enabled = ", ".join(answer.mechanisms) or "none"
        raise LoginFailed(
            f"{sasl.mechanism_asked_for} is not enabled there",
            address=address,
            hint=f"this listener has {enabled}: set sasl.mechanism, or use another listener",
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise LoginFailed("this listener asks for no login", address=address, hint=_OTHER_LISTENER)
    if answer.error_code != ErrorCode.NONE:
        raise LoginFailed(f"the SASL handshake ended with error {answer.error_code}", address=address)


_OTHER_LISTENER = "set security.protocol to that of the listener (PLAINTEXT or SSL), or name another listener's port"


async def _exchange(ask: Ask, sasl: SaslSettings, exchange: Exchange, version: int, address: str) -> int:
    """Carry the exchange's tokens to the broker and back."""
    token, lifetime_ms = next(exchange), 0
    while True:
        answer: SaslAuthenticateResponse = await ask(SaslAuthenticateRequest(auth_bytes=token), version)
        if answer.error_code != ErrorCode.NONE:
            raise _refused(sasl, answer, address)
        lifetime_ms = answer.session_lifetime_ms
        # SCRAM's thousands of rounds would hold up the loop.
        following = await asyncio.to_thread(_step, exchange, bytes(answer.auth_bytes))
        if following is None:
            return lifetime_ms
        token = following


def _refused(sasl: SaslSettings, answer: SaslAuthenticateResponse, address: str) -> LoginFailed:
    if sasl.mechanism == "GSSAPI":
        hint = "the ticket was refused: does the broker know this realm, and are the clocks alike?"
    elif sasl.mechanism_asked_for == "OAUTHBEARER":
        hint = (
            "the token may have expired, or come from an issuer that the broker does not accept; check the clocks too"
        )
    else:
        hint = "check username and password in sasl.jaas.config"
    reason = (answer.error_message or f"error {answer.error_code}").rstrip(".")
    return LoginFailed(f"the broker refuses {sasl.identity}: {reason}", address=address, hint=hint)


def _step(exchange: Exchange, answer: bytes) -> bytes | None:
    """Return the next token; None at the end, as ``StopIteration`` cannot leave a thread."""
    try:
        return exchange.send(answer)
    except StopIteration:
        return None
