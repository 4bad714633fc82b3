"""Members of share and streams groups, made by join requests, because no client here speaks these protocols.

Fields are those of Kafka 4.2's ShareGroupHeartbeat 1 and StreamsGroupHeartbeat 0. Both are flexible messages.
"""

from __future__ import annotations

import base64
import struct
import uuid

from wire_client import WireClient

_SHARE, _SHARE_VERSION = 76, 1
_STREAMS, _STREAMS_VERSION = 88, 0
_NULL, _NO_TAGS, _EMPTY_ARRAY = b"\x00", b"\x00", b"\x01"
_JOINS = struct.pack(">i", 0)


def join_share_group(address: str, group: str, topic: str) -> int:
    """Join through this broker, and return the error code."""
    body = _string(group) + _string(_member_id()) + _JOINS + _NULL + _array(_string(topic)) + _NO_TAGS
    return _ask(address, _SHARE, _SHARE_VERSION, body)


def join_streams_group(address: str, group: str, topic: str) -> int:
    """Join through this broker, with a topology of one source topic, and return the error code."""
    subtopology = _string("0") + _array(_string(topic)) + _EMPTY_ARRAY * 5 + _NO_TAGS
    topology = b"\x01" + struct.pack(">i", 0) + _array(subtopology) + _NO_TAGS
    member = _string(group) + _string(_member_id()) + _JOINS + struct.pack(">i", 0) + _NULL + _NULL
    tasks = _EMPTY_ARRAY * 3
    process = _string("process") + b"\xff" + _EMPTY_ARRAY + _NULL + _NULL + b"\x00"
    body = member + struct.pack(">i", 60_000) + topology + tasks + process + _NO_TAGS
    return _ask(address, _STREAMS, _STREAMS_VERSION, body)


def _ask(address: str, key: int, version: int, body: bytes) -> int:
    header = struct.pack(">hhih", key, version, 1, -1) + _NO_TAGS
    with WireClient(address) as client:
        client.socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        with client.socket.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            answer = stream.read(size)
    _, _, _, code = struct.unpack_from(">ibih", answer)
    return int(code)


def _member_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _string(text: str) -> bytes:
    return bytes([len(text.encode()) + 1]) + text.encode()


def _array(*elements: bytes) -> bytes:
    return bytes([len(elements) + 1]) + b"".join(elements)
