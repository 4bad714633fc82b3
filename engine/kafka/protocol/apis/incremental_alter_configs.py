"""IncrementalAlterConfigs (44), versions 0–1: set, delete, append to, subtract from settings (KIP-339).

Version notes
* 1: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT8, INT16, INT32, STRING, Array


class AlterableConfig(Struct):
    name: str = field(STRING)
    config_operation: int = field(INT8)
    """0 set, 1 delete, 2 append, 3 subtract."""
    value: str | None = field(STRING, nullable_since=0)


class AlterConfigsResource(Struct):
    """One resource's changes. Codes as in DescribeConfigs."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(Array(AlterableConfig))


class IncrementalAlterConfigsRequest(Request, key=ApiKey.INCREMENTAL_ALTER_CONFIGS):
    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class IncrementalAlterConfigsResponse(Response, key=ApiKey.INCREMENTAL_ALTER_CONFIGS):
    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse))
