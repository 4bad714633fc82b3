"""Connections whose peers have to log in first: what they may send until then, and once the login has expired."""

from __future__ import annotations

import struct
from typing import Any, Protocol, cast

from engine.broker.network.connection import ADMIT_WITHIN_MS, CloseReason, Connection, ConnectionContext
from engine.broker.network.request import CLOSE_UNAUTHENTICATED
from engine.broker.network.routes import Route
from engine.broker.network.session import ConnectionRules, Session
from engine.broker.network.tls import TlsConnection, TlsPolicy
from engine.common.errors import RemoteProtocolError
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.codec import Outgoing

_API_KEY = struct.Struct(">h")
_NO_ROUTE = cast("Route", None)
"""Of bare tokens: what answers them is bytes already."""
_OF_LOGINS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


class Logins(Protocol):
    """How peers log in on a listener (``security.logins.LoginPolicy``)."""

    def rules(self) -> ConnectionRules: ...
    def begin(self, session: Session, rules: ConnectionRules, admitted: Any) -> Any: ...


class LoginConnection(Connection):
    """A connection whose peer has to log in."""

    def __init__(self, context: ConnectionContext, logins: Logins) -> None:
        self._logins = logins
        super().__init__(context)
        self.admit_until_ms = context.now_ms() + ADMIT_WITHIN_MS

    def _new_session(self, host: str, port: int) -> Session:
        session = super()._new_session(host, port)
        session.login = self._logins.begin(session, session.rules, self._admitted)
        session.rules = self._logins.rules()
        return session

    def _admitted(self) -> None:
        self.admit_until_ms = None

    def _handle_frame(self, frame: memoryview, out: Outgoing) -> None:
        login = self.session.login
        if login.takes_tokens:
            self._place(_NO_ROUTE, 0, login.take_token(bytes(frame)), out)
            return
        if len(frame) < self.session.rules.frame_bytes_min or len(frame) < 8:
            raise RemoteProtocolError(f"a request of {len(frame)} bytes")
        if login.has_expired and _API_KEY.unpack_from(frame)[0] not in _OF_LOGINS:
            self.closed_because = CloseReason.LOGIN_EXPIRED
            return
        super()._handle_frame(frame, out)

    def _encode(self, route: Route, correlation_id: int, response: Any, out: Outgoing) -> None:
        if response is not CLOSE_UNAUTHENTICATED:
            super()._encode(route, correlation_id, response, out)
        if self.session.login.is_over:
            self.closed_because = self.closed_because or CloseReason.NOT_AUTHENTICATED


class LoginTlsConnection(LoginConnection, TlsConnection):
    """The same over TLS."""

    def __init__(self, context: ConnectionContext, policy: TlsPolicy, logins: Logins) -> None:
        self._logins = logins
        TlsConnection.__init__(self, context, policy)
