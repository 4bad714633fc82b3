"""CreateAcls (30), versions 0–3: add access rules.

Version notes
* 1: prefixed patterns (KIP-290)   * 2: flexible   * 3: user resources
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT8, INT16, INT32, STRING, Array


class AclCreation(Struct):
    """One rule to add. Codes as in DescribeAcls."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    resource_pattern_type: int = field(INT8, since=1, default=3, ignorable=False)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class CreateAclsRequest(Request, key=ApiKey.CREATE_ACLS):
    creations: list[AclCreation] = field(Array(AclCreation))


class AclCreationResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, default="", nullable_since=0)


class CreateAclsResponse(Response, key=ApiKey.CREATE_ACLS):
    """Result per rule, in the order of the request."""

    throttle_time_ms: int = field(INT32)
    results: list[AclCreationResult] = field(Array(AclCreationResult))
