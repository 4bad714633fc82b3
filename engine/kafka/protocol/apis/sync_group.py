"""SyncGroup (14), versions 0–5: the leader submits the assignment, and every member gets its part.

Version notes
* 3: static members (KIP-345)   * 4: flexible   * 5: protocol type and name (KIP-559)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BYTES, INT16, INT32, STRING, Array


class SyncGroupRequestAssignment(Struct):
    """One member's part."""

    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)
    """Opaque to the broker."""


class SyncGroupRequest(Request, key=ApiKey.SYNC_GROUP):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, ignorable=False)
    protocol_type: str | None = field(STRING, since=5, nullable_since=5)
    protocol_name: str | None = field(STRING, since=5, nullable_since=5)
    assignments: list[SyncGroupRequestAssignment] = field(Array(SyncGroupRequestAssignment))
    """From the leader; empty from the others."""


class SyncGroupResponse(Response, key=ApiKey.SYNC_GROUP):
    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16)
    protocol_type: str | None = field(STRING, since=5, nullable_since=5)
    protocol_name: str | None = field(STRING, since=5, nullable_since=5)
    assignment: bytes = field(BYTES)
