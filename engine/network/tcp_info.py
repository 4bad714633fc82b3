"""What the kernel knows of a TCP connection's other end, if it says so (Linux)."""

from __future__ import annotations

import contextlib
import socket
import struct

_CLOSE, _CLOSE_WAIT = 7, 8
_INFO = struct.Struct("=8B13I")
"""The beginning of ``struct tcp_info``; numbers are those of its fields."""
_STATE, _PROBES, _UNACKNOWLEDGED, _SINCE_ACKNOWLEDGED_MS = 0, 3, 12, 20

UNHEARD_MS_MAX = 20_000
"""A live peer acknowledges what it gets within this time, also one that has no room for more."""

KEEP_ALIVE_IDLE_S, KEEP_ALIVE_INTERVAL_S, KEEP_ALIVE_COUNT = 15, 5, 3
"""A peer that has vanished without a word is noticed within half a minute; the system's own default is two hours."""


def is_peer_gone(info: bytes) -> bool:
    """Whether a connection's peer has closed its end or the whole of it, or acknowledges nothing any more.

    Of a connection that is not read at the moment nobody else hears that it was reset, or that the kernel gave it up.
    """
    if len(info) < _INFO.size:
        return False
    fields = _INFO.unpack_from(info)
    if fields[_STATE] in (_CLOSE, _CLOSE_WAIT):
        return True
    return bool(fields[_UNACKNOWLEDGED] or fields[_PROBES]) and fields[_SINCE_ACKNOWLEDGED_MS] >= UNHEARD_MS_MAX


def read_tcp_info(fd: int) -> bytes:
    """Return ``struct tcp_info`` of a socket that somebody else owns; nothing if it is not told."""
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
    """Have the kernel look after the peers of all connections that are accepted here: they inherit it."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEP_ALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEP_ALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEP_ALIVE_COUNT),
    ):
        with contextlib.suppress(AttributeError):
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
