"""DeleteAcls (31), versions 0–3: remove access rules.

Version notes
* 1: prefixed patterns (KIP-290)   * 2: flexible   * 3: user resources
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT8, INT16, INT32, STRING, Array


class DeleteAclsFilter(Struct):
    """Which rules to remove; None matches any. Codes as in DescribeAcls."""

    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable_since=0)
    pattern_type_filter: int = field(INT8, since=1, default=3, ignorable=False)
    principal_filter: str | None = field(STRING, nullable_since=0)
    host_filter: str | None = field(STRING, nullable_since=0)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DeleteAclsRequest(Request, key=ApiKey.DELETE_ACLS):
    filters: list[DeleteAclsFilter] = field(Array(DeleteAclsFilter))


class DeleteAclsMatchingAcl(Struct):
    """A rule that was removed, or why it was not."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, since=1, default=3, ignorable=False)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DeleteAclsFilterResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)
    matching_acls: list[DeleteAclsMatchingAcl] = field(Array(DeleteAclsMatchingAcl))


class DeleteAclsResponse(Response, key=ApiKey.DELETE_ACLS):
    """Result per filter, in the order of the request."""

    throttle_time_ms: int = field(INT32)
    filter_results: list[DeleteAclsFilterResult] = field(Array(DeleteAclsFilterResult))
