"""LeaveGroup (13), versions 0–5: members leave, or are removed.

Version notes
* 3: several members, static ones by instance id (KIP-345)   * 4: flexible   * 5: reason (KIP-800)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, STRING, Array


class MemberIdentity(Struct):
    """One member to remove."""

    member_id: str = field(STRING, since=3)
    """Empty if only the instance id names it."""
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3)
    reason: str | None = field(STRING, since=5, nullable_since=5)


class LeaveGroupRequest(Request, key=ApiKey.LEAVE_GROUP):
    group_id: str = field(STRING)
    member_id: str = field(STRING, until=2, ignorable=False)
    """Until version 2; then ``members``."""
    members: list[MemberIdentity] = field(Array(MemberIdentity), since=3, ignorable=False)


class MemberResponse(Struct):
    member_id: str = field(STRING, since=3)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3)
    error_code: int = field(INT16, since=3)


class LeaveGroupResponse(Response, key=ApiKey.LEAVE_GROUP):
    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16)
    members: list[MemberResponse] = field(Array(MemberResponse), since=3, ignorable=False)
