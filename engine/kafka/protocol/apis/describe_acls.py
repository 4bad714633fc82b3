"""DescribeAcls (29), versions 0–3: list access rules.

Version notes
* 1: prefixed patterns (KIP-290)   * 2: flexible   * 3: user resources
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT8, INT16, INT32, STRING, Array


class DescribeAclsRequest(Request, key=ApiKey.DESCRIBE_ACLS):
    """List the rules that match; None matches any."""

    resource_type_filter: int = field(INT8)
    """1 any, 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user."""
    resource_name_filter: str | None = field(STRING, nullable_since=0)
    pattern_type_filter: int = field(INT8, since=1, default=3, ignorable=False)
    """1 any, 2 whatever covers the name, 3 literal, 4 prefixed."""
    principal_filter: str | None = field(STRING, nullable_since=0)
    host_filter: str | None = field(STRING, nullable_since=0)
    operation: int = field(INT8)
    """Kafka's AclOperation code; 1 any."""
    permission_type: int = field(INT8)
    """1 any, 2 deny, 3 allow."""


class AclDescription(Struct):
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DescribeAclsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, since=1, default=3, ignorable=False)
    acls: list[AclDescription] = field(Array(AclDescription))


class DescribeAclsResponse(Response, key=ApiKey.DESCRIBE_ACLS):
    """The rules, by resource."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, default="", nullable_since=0)
    resources: list[DescribeAclsResource] = field(Array(DescribeAclsResource))
