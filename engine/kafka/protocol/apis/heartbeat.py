"""Heartbeat (12), versions 0–4: a member of a group is alive.

Version notes
* 3: static members (KIP-345)   * 4: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, field
from engine.kafka.protocol.types import INT16, INT32, STRING


class HeartbeatRequest(Request, key=ApiKey.HEARTBEAT):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, ignorable=False)
    """Given by static members."""


class HeartbeatResponse(Response, key=ApiKey.HEARTBEAT):
    """Whether the member must join again."""

    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16)
