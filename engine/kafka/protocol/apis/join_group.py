"""JoinGroup (11), versions 0–9: become or stay a member of a group; starts a rebalance.

Version notes
* 1: rebalance timeout   * 4: a new member gets its id first and joins again (KIP-394)
* 5: static members (KIP-345)   * 6: flexible   * 7: protocol type (KIP-559)   * 8: reason (KIP-800)
* 9: skip_assignment (KIP-814)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, BYTES, INT16, INT32, STRING, Array


class JoinGroupRequestProtocol(Struct):
    """An assignment strategy that the member supports, with its subscription."""

    name: str = field(STRING)
    metadata: bytes = field(BYTES)
    """Opaque to the broker."""


class JoinGroupRequest(Request, key=ApiKey.JOIN_GROUP):
    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    """After this long without a heartbeat, the member is dead."""
    rebalance_timeout_ms: int = field(INT32, since=1, default=-1)
    """How long members have to rejoin; -1 (version 0): the session timeout."""
    member_id: str = field(STRING)
    """Empty the first time."""
    group_instance_id: str | None = field(STRING, since=5, nullable_since=5, ignorable=False)
    """Given by static members."""
    protocol_type: str = field(STRING)
    """"consumer" for consumers."""
    protocols: list[JoinGroupRequestProtocol] = field(Array(JoinGroupRequestProtocol))
    reason: str | None = field(STRING, since=8, nullable_since=8)


class JoinGroupResponseMember(Struct):
    """One member, as the leader sees it."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=5, nullable_since=5)
    metadata: bytes = field(BYTES)


class JoinGroupResponse(Response, key=ApiKey.JOIN_GROUP):
    throttle_time_ms: int = field(INT32, since=2)
    error_code: int = field(INT16)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(STRING, since=7, nullable_since=7)
    protocol_name: str | None = field(STRING, nullable_since=7)
    """The strategy chosen; None with an error, from version 7 on."""
    leader: str = field(STRING)
    """Member id of the leader, which makes the assignment."""
    skip_assignment: bool = field(BOOL, since=9, ignorable=False)
    """The leader need not make an assignment: a static member came back."""
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(Array(JoinGroupResponseMember))
    """For the leader; empty for the others."""
