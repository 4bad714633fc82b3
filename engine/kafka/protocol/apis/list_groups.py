"""ListGroups (16), versions 0–5: the groups a broker coordinates.

Version notes
* 3: flexible   * 4: states (KIP-518)   * 5: types (KIP-848)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, STRING, Array


class ListGroupsRequest(Request, key=ApiKey.LIST_GROUPS):
    states_filter: list[str] = field(Array(STRING), since=4, ignorable=False)
    """Empty: all."""
    types_filter: list[str] = field(Array(STRING), since=5, ignorable=False)
    """Empty: all."""


class ListedGroup(Struct):
    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, since=4)
    group_type: str = field(STRING, since=5)


class ListGroupsResponse(Response, key=ApiKey.LIST_GROUPS):
    """The groups of this broker only."""

    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16)
    groups: list[ListedGroup] = field(Array(ListedGroup))
