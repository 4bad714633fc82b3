"""DescribeGroups (15), versions 0–5: state and members of groups.

Version notes
* 3: authorized operations   * 4: static members   * 5: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, BYTES, INT16, INT32, STRING, Array


class DescribeGroupsRequest(Request, key=ApiKey.DESCRIBE_GROUPS):
    groups: list[str] = field(Array(STRING))
    include_authorized_operations: bool = field(BOOL, since=3, ignorable=False)


class DescribedGroupMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=4, nullable_since=4)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    """Its subscription; empty unless the group is stable."""
    member_assignment: bytes = field(BYTES)
    """Its part; empty unless the group is stable."""


class DescribedGroup(Struct):
    """One group, or why it cannot be described."""

    error_code: int = field(INT16)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    """Kafka's word, for example Stable; Dead if the group does not exist."""
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    """The strategy chosen, while stable."""
    members: list[DescribedGroupMember] = field(Array(DescribedGroupMember))
    authorized_operations: int = field(INT32, since=3, default=-(2**31), ignorable=False)
    """Bits of the operations allowed; the minimum int32 if not requested."""


class DescribeGroupsResponse(Response, key=ApiKey.DESCRIBE_GROUPS):
    throttle_time_ms: int = field(INT32, since=1)
    groups: list[DescribedGroup] = field(Array(DescribedGroup))
