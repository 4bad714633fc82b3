"""Asks a ZooKeeper server or a broker whether it serves, by raw sockets. Blocking.

It is not a client: ``engine.kafka.zk`` and ``engine.kafka.client`` are.
"""

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

_CONNECT_REQUEST = struct.Struct(">iiqiqi16sB")
_CLOSE_REQUEST = struct.Struct(">iii")
_SESSION_TIMEOUT_MS = 4_000

_CLIENT_ID = "klamm-local"
_ANSWER_LIMIT_S = 2.0
_ANSWER_BYTES_MAX = 64 * 1024 * 1024

R = TypeVar("R", bound=Response)


def four_letter_word(host: str, port: int, word: str, timeout_s: float = 2.0) -> str:
    """Return what the server says to ``srvr``, ``ruok``, ``mntr`` …; raises OSError when it cannot be asked."""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(word.encode("ascii"))
        answer = bytearray()
        while chunk := connection.recv(65_536):
            answer += chunk
    return answer.decode("utf-8", "replace")


def opens_session(host: str, port: int, timeout_s: float = 2.0) -> bool:
    """Open a session and close it again; False when the server refuses or hangs up (as a starting one does)."""
    body_size = _CONNECT_REQUEST.size - 4
    request = _CONNECT_REQUEST.pack(body_size, 0, 0, _SESSION_TIMEOUT_MS, 0, 16, bytes(16), 0)
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(request)
            answer = _receive_frame(connection)
            connection.sendall(_CLOSE_REQUEST.pack(8, 1, -11))
            _receive_frame(connection)
    except (OSError, KlammError):
        return False
    _, granted_timeout_ms = struct.unpack_from(">ii", answer)
    return bool(granted_timeout_ms > 0)


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
    _, answer = decode_response(_receive_frame(connection), type(request).api_key, version)
    if not isinstance(answer, answer_type):
        raise RemoteProtocolError("an answer of another kind")
    return answer


def _receive_frame(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _receive(connection, 4))
    if not 0 <= size <= _ANSWER_BYTES_MAX:
        raise RemoteProtocolError(f"an answer of {size} bytes: no server of this kind speaks there")
    return _receive(connection, size)


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    received = bytearray()
    while len(received) < size_bytes:
        chunk = connection.recv(size_bytes - len(received))
        if not chunk:
            raise ConnectionResetError("the server hung up")
        received += chunk
    return bytes(received)
