"""Asks one broker whether it serves, and which others it knows. Blocking; not a client for records or topics."""

from __future__ import annotations

import socket
import struct
from typing import TypeVar

from engine.common.errors import ErrorCode, KlammError, RemoteProtocolError
from engine.kafka.client.security import PLAINTEXT, Security
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from engine.kafka.protocol.declaration import Request, Response
from engine.kafka.protocol.frames import decode_response, encode_request

_CLIENT_ID = "klamm-local"
_ANSWER_LIMIT_S = 2.0
_ANSWER_BYTES_MAX = 64 * 1024 * 1024

R = TypeVar("R", bound=Response)


def answers_api_versions(host: str, port: int, security: Security = PLAINTEXT) -> bool:
    """Whether a Kafka broker answers there; a broker that is starting, or none, does not."""
    try:
        answer = _ask(host, port, ApiVersionsRequest(), 0, ApiVersionsResponse, security)
    except (OSError, KlammError):
        return False
    return answer.error_code == 0


def known_broker_ids(host: str, port: int, security: Security = PLAINTEXT) -> set[int]:
    """Return the ids of the brokers that this one reports to clients; none if it does not answer."""
    try:
        answer = _ask(host, port, MetadataRequest(topics=[]), 1, MetadataResponse, security)
    except (OSError, KlammError):
        return set()
    return {broker.node_id for broker in answer.brokers}


def controller_id(host: str, port: int, security: Security = PLAINTEXT) -> int | None:
    """Return the id of the controller that this broker reports to clients; None if it knows none or is silent."""
    try:
        answer = _ask(host, port, MetadataRequest(topics=[]), 1, MetadataResponse, security)
    except (OSError, KlammError):
        return None
    return answer.controller_id if answer.controller_id >= 0 else None


def _ask(host: str, port: int, request: Request, version: int, answer_type: type[R], security: Security) -> R:
    with socket.create_connection((host, port), timeout=_ANSWER_LIMIT_S) as plain:
        if security.tls is None:
            _log_in(plain, host, security)
            return _call(plain, request, version, answer_type)
        # Plain brokers are asked more often, and need none of this.
        from engine.kafka.client.tls.context import client_context

        with client_context(security.tls).wrap_socket(plain, server_hostname=host) as connection:
            _log_in(connection, host, security)
            return _call(connection, request, version, answer_type)


def _log_in(connection: socket.socket, host: str, security: Security) -> None:
    if security.sasl is None:
        return
    from engine.kafka.client.sasl.settings import exchange_for

    exchange = exchange_for(security.sasl, host)
    shaken = _call(connection, SaslHandshakeRequest(mechanism=security.sasl.mechanism), 1, SaslHandshakeResponse)
    _check_login(shaken.error_code)
    token: bytes | None = next(exchange)
    while token is not None:
        answer = _call(connection, SaslAuthenticateRequest(auth_bytes=token), 1, SaslAuthenticateResponse)
        _check_login(answer.error_code)
        try:
            token = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            token = None


def _check_login(error_code: int) -> None:
    if error_code != ErrorCode.NONE:
        raise RemoteProtocolError(f"the broker refuses the login with error {error_code}")


def _call(connection: socket.socket, request: Request, version: int, answer_type: type[R]) -> R:
    connection.sendall(encode_request(request, version, 1, _CLIENT_ID))
    (size,) = struct.unpack(">i", _receive(connection, 4))
    if not 0 <= size <= _ANSWER_BYTES_MAX:
        raise RemoteProtocolError(f"an answer of {size} bytes: no Kafka broker speaks there")
    _, answer = decode_response(_receive(connection, size), type(request).api_key, version)
    if not isinstance(answer, answer_type):
        raise RemoteProtocolError("an answer of another kind")
    return answer


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    received = bytearray()
    while len(received) < size_bytes:
        chunk = connection.recv(size_bytes - len(received))
        if not chunk:
            raise ConnectionResetError("the broker hung up")
        received += chunk
    return bytes(received)
