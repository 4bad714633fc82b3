"""DeleteGroups (42), versions 0–2: delete groups without members.

Version notes
* 2: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, STRING, Array


class DeleteGroupsRequest(Request, key=ApiKey.DELETE_GROUPS):
    groups_names: list[str] = field(Array(STRING))


class DeletableGroupResult(Struct):
    group_id: str = field(STRING)
    error_code: int = field(INT16)


class DeleteGroupsResponse(Response, key=ApiKey.DELETE_GROUPS):
    throttle_time_ms: int = field(INT32)
    results: list[DeletableGroupResult] = field(Array(DeletableGroupResult))
