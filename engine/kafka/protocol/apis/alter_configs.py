"""AlterConfigs (33), versions 0–2: replace all overrides of a resource. IncrementalAlterConfigs is better.

Version notes
* 2: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT8, INT16, INT32, STRING, Array


class AlterableConfig(Struct):
    """One override."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable_since=0)


class AlterConfigsResource(Struct):
    """One resource's overrides; those not named are dropped. Codes as in DescribeConfigs."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(Array(AlterableConfig))


class AlterConfigsRequest(Request, key=ApiKey.ALTER_CONFIGS):
    """Set these overrides."""

    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class AlterConfigsResponse(Response, key=ApiKey.ALTER_CONFIGS):
    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse))
