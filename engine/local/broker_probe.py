"""Asks one broker whether it serves, and which others it knows. Blocking; not a client for records or topics."""

from __future__ import annotations

import socket
import struct
from typing import TypeVar

from engine.common.errors import RemoteProtocolError
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from engine.kafka.protocol.declaration import Request, Response
from engine.kafka.protocol.frames import decode_response, encode_request

_CLIENT_ID = "klamm-local"
_ANSWER_BYTES_MAX = 64 * 1024 * 1024

R = TypeVar("R", bound=Response)


def answers_api_versions(host: str, port: int, timeout_s: float = 2.0) -> bool:
    """Whether a Kafka broker answers there; a broker that is starting, or none, does not."""
    try:
        answer = _ask(host, port, ApiVersionsRequest(), 0, ApiVersionsResponse, timeout_s)
    except (OSError, RemoteProtocolError):
        return False
    return answer.error_code == 0


def known_broker_ids(host: str, port: int, timeout_s: float = 2.0) -> set[int]:
    """Return the ids of the brokers that this one reports to clients; none if it does not answer."""
    try:
        answer = _ask(host, port, MetadataRequest(topics=[]), 1, MetadataResponse, timeout_s)
    except (OSError, RemoteProtocolError):
        return set()
    return {broker.node_id for broker in answer.brokers}


def controller_id(host: str, port: int, timeout_s: float = 2.0) -> int | None:
    """Return the id of the controller that this broker reports to clients; None if it knows none or is silent."""
    try:
        answer = _ask(host, port, MetadataRequest(topics=[]), 1, MetadataResponse, timeout_s)
    except (OSError, RemoteProtocolError):
        return None
    return answer.controller_id if answer.controller_id >= 0 else None


def _ask(host: str, port: int, request: Request, version: int, answer_type: type[R], timeout_s: float) -> R:
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
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
