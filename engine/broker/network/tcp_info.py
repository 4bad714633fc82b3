"""What the kernel knows about the other end of a TCP connection, if it says so (Linux)."""

from __future__ import annotations

import contextlib
import socket
import struct

_CLOSE, _CLOSE_WAIT = 7, 8
_INFO = struct.Struct("=8B13I")
"""The beginning of ``struct tcp_info``; the numbers are its field numbers."""
_STATE, _PROBES, _UNACKNOWLEDGED, _SINCE_ACKNOWLEDGED_MS = 0, 3, 12, 20

UNHEARD_MS_MAX = 20_000
"""A live peer acknowledges data within this time, even if it has no room for more."""

KEEP_ALIVE_IDLE_S, KEEP_ALIVE_INTERVAL_S, KEEP_ALIVE_COUNT = 15, 5, 3
"""These notice within half a minute that a peer has silently vanished; the system's default is two hours."""


def is_peer_gone(info: bytes) -> bool:
    """Return whether a connection's peer has closed its end or the whole connection, or acknowledges nothing any more.

    Nothing else notices a reset, or that the kernel gave up, on a connection that is not being read.
    """
    if len(info) < _INFO.size:
        return False
    fields = _INFO.unpack_from(info)
    if fields[_STATE] in (_CLOSE, _CLOSE_WAIT):
        return True
    return bool(fields[_UNACKNOWLEDGED] or fields[_PROBES]) and fields[_SINCE_ACKNOWLEDGED_MS] >= UNHEARD_MS_MAX


def read_tcp_info(fd: int) -> bytes:
    """Return ``struct tcp_info`` of a socket that another object owns; empty if the kernel does not give it."""
    if not hasattr(socket, "TCP_INFO"):
        return b""
    lent = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=fd)
    try:
        return lent.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    except OSError:
        return b""
    finally:
        lent.detach()


def keep_alive(listening: socket.socket) -> None:
    """Make the kernel probe the peers of all connections accepted here: they inherit the setting."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEP_ALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEP_ALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEP_ALIVE_COUNT),
    ):
        with contextlib.suppress(AttributeError):
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
