"""The length in front of every frame, and how long a frame may be.

Not here: receiving. Who owns a buffer decides when to ask.
"""

from __future__ import annotations

import struct

from engine.common.errors import RemoteProtocolError

LENGTH_BYTES = 4
"""Bytes of a frame's length, which does not count itself."""

REQUEST_BYTES_MAX = 104_857_600
"""Kafka's default of socket.request.max.bytes."""

REQUEST_BYTES_MIN = 8
"""Key, version and correlation id: fewer bytes are no request."""

LENGTH = struct.Struct(">i")


def check_frame_length(length: int, *, max_bytes: int = REQUEST_BYTES_MAX) -> int:
    """Return ``length``, a frame's length without the four bytes that told it.

    Raises:
        RemoteProtocolError: it is negative or more than ``max_bytes``. Often the peer speaks TLS or HTTP.
    """
    if 0 <= length <= max_bytes:
        return length
    if length < 0:
        raise RemoteProtocolError(f"a frame announced the negative length {length}")
    raise RemoteProtocolError(f"a frame announced {length} bytes, the limit is {max_bytes}")


def read_frame_length(
    buffer: bytes | bytearray | memoryview, offset: int, *, max_bytes: int = REQUEST_BYTES_MAX
) -> int:
    """Return the length of the frame at ``offset``, or -1 if fewer than four bytes are there.

    Raises:
        RemoteProtocolError: as ``check_frame_length``.
    """
    if len(buffer) - offset < LENGTH_BYTES:
        return -1
    return check_frame_length(LENGTH.unpack_from(buffer, offset)[0], max_bytes=max_bytes)
