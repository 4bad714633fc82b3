"""Asks a ZooKeeper server whether it serves, by raw sockets. Not a client: that is ``engine.kafka.zk``."""

from __future__ import annotations

import socket
import struct

_CONNECT_REQUEST = struct.Struct(">iiqiqi16sB")
_CLOSE_REQUEST = struct.Struct(">iii")
_SESSION_TIMEOUT_MS = 4_000


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
    except OSError:
        return False
    _, granted_timeout_ms = struct.unpack_from(">ii", answer)
    return bool(granted_timeout_ms > 0)


def _receive_frame(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _receive(connection, 4))
    return _receive(connection, size)


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    received = bytearray()
    while len(received) < size_bytes:
        chunk = connection.recv(size_bytes - len(received))
        if not chunk:
            raise ConnectionResetError("the server hung up")
        received += chunk
    return bytes(received)
