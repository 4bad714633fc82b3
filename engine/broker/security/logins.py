"""A login on a connection: the SASL handshake, its tokens, and how long it holds (KIP-43, 152, 368). No socket.

Kafka's states and texts; a refused peer hears of it after ``connection.failed.authentication.delay.ms``.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.broker.network.request import CLOSE_UNAUTHENTICATED, Deferred
from engine.broker.network.routes import RouteTable
from engine.broker.network.session import ConnectionRules, Session
from engine.broker.security.sasl_mechanisms import LoggedIn, LoginRefused, ServerExchange
from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.api_versions import ApiVersionsResponse
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateResponse
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeResponse
from engine.kafka.protocol.codec import Outgoing

logger = logging.getLogger(__name__)

RENEW_INTERVAL_MIN_MS = 1000
"""A login cannot be renewed sooner after the last time; Kafka's limit."""

_SIZE = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism that a listener offers."""

    begin: Callable[[], ServerExchange]
    """Returns the exchange of one login."""
    max_reauth_ms: int
    """``connections.max.reauth.ms``; 0: a login holds forever."""


@dataclass(slots=True)
class LoginPolicy:
    """How peers log in on one listener."""

    mechanisms: Mapping[str, Mechanism]
    delay_ms: int
    """``connection.failed.authentication.delay.ms``"""
    token_bytes_max: int
    """``sasl.server.max.receive.size``"""
    now_ms: Callable[[], int]
    """Time of day, for what expires."""
    routes: RouteTable
    """What a peer may send before it has logged in."""

    def rules(self) -> ConnectionRules:
        """Return what a connection accepts until its peer has logged in: one small request at a time."""
        return ConnectionRules(self.routes, self.token_bytes_max, frame_bytes_min=0, in_flight_max=1)

    def begin(self, session: Session, rules: ConnectionRules, admitted: Callable[[], None]) -> Login:
        """Return the login of a new connection; ``rules`` are those of a peer that has logged in."""
        return Login(self, session, rules, admitted)


class Login:
    """The login of one connection, from its first request to its last renewal."""

    __slots__ = (
        "_admitted",
        "_began_ms",
        "_exchange",
        "_expires_at_ms",
        "_is_versions_told",
        "_logged_in_by",
        "_mechanism",
        "_policy",
        "_rules",
        "_session",
        "is_over",
        "knows_renewal",
        "takes_tokens",
    )  # fmt: skip

    def __init__(
        self, policy: LoginPolicy, session: Session, rules: ConnectionRules, admitted: Callable[[], None]
    ) -> None:
        self._policy, self._session, self._rules, self._admitted = policy, session, rules, admitted
        self._exchange: ServerExchange | None = None
        self._mechanism = ""
        self._logged_in_by: str | None = None
        """The mechanism of the login that holds; None: there is none yet."""
        self._is_versions_told = False
        self._expires_at_ms: int | None = None
        self._began_ms: int | None = None
        self.knows_renewal = False
        """Whether the peer knows that a login may end (SaslAuthenticate 1 and later)."""
        self.takes_tokens = False
        """Bare tokens come instead of requests (SaslHandshake 0)."""
        self.is_over = False
        """The peer was refused; nothing but the answer about it is sent any more."""

    @property
    def has_expired(self) -> bool:
        """Whether the login no longer holds: only another one may follow."""
        return self._expires_at_ms is not None and self._policy.now_ms() >= self._expires_at_ms

    @property
    def was_complete(self) -> bool:
        """Whether the peer has logged in at some time."""
        return self._logged_in_by is not None

    @property
    def took_ms(self) -> int:
        """How long a renewal has taken until now."""
        return 0 if self._began_ms is None else self._policy.now_ms() - self._began_ms

    @property
    def is_complete(self) -> bool:
        """Whether the peer has logged in, and is not about to renew that."""
        return self._logged_in_by is not None and self._exchange is None

    def api_versions(self, answer: ApiVersionsResponse) -> Any:
        """Return what a peer gets that asks for versions before it has logged in; ``answer`` is the usual one."""
        if self._exchange is not None:
            return self._refused(ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
        if answer.error_code == ErrorCode.NONE:
            if self._is_versions_told:
                return self._refused(CLOSE_UNAUTHENTICATED)
            self._is_versions_told = True
        return answer

    def handshake(self, mechanism: str, api_version: int) -> Any:
        """Begin a login, or its renewal."""
        policy, enabled = self._policy, list(self._policy.mechanisms)
        if self._logged_in_by is not None and not self._may_renew():
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
        if self._logged_in_by is None and self._exchange is not None:
            return self._refused(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=enabled))
        if mechanism not in policy.mechanisms:
            logger.info("SASL mechanism '%.200s' requested by client is not supported %s", mechanism, self._who)
            answer = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=enabled)
            # As in Kafka, a renewal then ends without a word.
            return self._refused(CLOSE_UNAUTHENTICATED if self._logged_in_by is not None else answer)
        self._mechanism = mechanism
        self._exchange = policy.mechanisms[mechanism].begin()
        next(self._exchange)
        self.takes_tokens = api_version == 0
        self._session.rules = policy.rules()
        return SaslHandshakeResponse(mechanisms=enabled)

    def authenticate(self, token: bytes, api_version: int) -> Any:
        """Take one token in a request."""
        self.knows_renewal = api_version >= 1
        if self._exchange is None:
            # No handshake came before.
            return self._refused(CLOSE_UNAUTHENTICATED)
        try:
            token, lifetime_ms = self._step(token)
        except LoginRefused as refused:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            answer = SaslAuthenticateResponse(error_code=code, error_message=self._refusal_text(refused))
            return self._refused(CLOSE_UNAUTHENTICATED if self._has_other_mechanism else answer)
        return SaslAuthenticateResponse(error_message="", auth_bytes=token, session_lifetime_ms=lifetime_ms)

    def take_token(self, token: bytes) -> Any:
        """Take one bare token; a refusal has no answer."""
        try:
            answer, _ = self._step(token)
        except LoginRefused:
            return self._refused(CLOSE_UNAUTHENTICATED)
        return Outgoing(_SIZE.pack(len(answer)) + answer)

    @property
    def _has_other_mechanism(self) -> bool:
        """Whether a renewal is not by the mechanism of the login. As in Kafka, it then ends without a word."""
        return self._logged_in_by not in (None, self._mechanism)

    def _may_renew(self) -> bool:
        """Whether another login may replace the current one: only if that expires, and not too soon after the last."""
        now_ms = self._policy.now_ms()
        if self._expires_at_ms is None:
            return False
        if self._began_ms is not None and now_ms - self._began_ms < RENEW_INTERVAL_MIN_MS:
            return False
        self._began_ms = now_ms
        return True

    def _step(self, token: bytes) -> tuple[bytes, int]:
        """Return the answer to a token, and for how many milliseconds the login holds, if it is complete.

        Raises:
            LoginRefused.
        """
        assert self._exchange is not None, "tokens follow a handshake"
        if self._has_other_mechanism:
            raise LoginRefused(
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._logged_in_by}'"
            )
        try:
            return self._exchange.send(token), 0
        except StopIteration as done:
            return done.value.answer, self._admit(done.value)

    def _admit(self, who: LoggedIn) -> int:
        """Let the peer in; return for how many milliseconds, 0 forever."""
        principal = f"User:{who.name}"
        if self._logged_in_by is not None and principal != self._session.principal:
            raise LoginRefused(
                "Cannot change principals during re-authentication from "
                f"{self._session.principal.replace(':', '.', 1)}: {principal.replace(':', '.', 1)}",
                told=True,
            )
        now_ms, setting_ms = self._policy.now_ms(), self._policy.mechanisms[self._mechanism].max_reauth_ms
        limits = [setting_ms] if setting_ms > 0 else []
        if who.expires_at_ms is not None:
            limits.append(max(0, who.expires_at_ms - now_ms))
        self._expires_at_ms = now_ms + min(limits) if limits else None
        self._exchange, self.takes_tokens, self._logged_in_by = None, False, self._mechanism
        self._session.principal, self._session.is_by_token = principal, who.is_by_token
        self._session.rules = self._rules
        self._admitted()
        return min(limits, default=0)

    def _refusal_text(self, refused: LoginRefused) -> str:
        logger.info("Failed authentication with %s (%.400s)", self._who, refused)
        if refused.told is not None:
            return refused.told
        again = "re-authentication" if self._logged_in_by is not None else "authentication"
        return f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._mechanism}"

    def _refused(self, answer: Any) -> Deferred:
        """Answer later, and then end the connection: that slows guessing down."""
        self.is_over = True
        deferred = Deferred()

        def tell() -> None:
            deferred.complete(answer)

        timer = asyncio.get_running_loop().call_later(self._policy.delay_ms / 1000, tell)
        deferred.abandon = timer.cancel
        return deferred

    @property
    def _who(self) -> str:
        session = self._session
        return f"{session.host}:{session.port} listener={session.listener_name}"
