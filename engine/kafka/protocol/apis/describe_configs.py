"""DescribeConfigs (32), versions 0–4: settings of topics, brokers and loggers.

Version notes
* 1: source and synonyms (KIP-226)   * 3: type and documentation (KIP-569)   * 4: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT8, INT16, INT32, STRING, Array


class DescribeConfigsResource(Struct):
    resource_type: int = field(INT8)
    """2 topic, 4 broker, 8 broker's loggers, 16 client metrics."""
    resource_name: str = field(STRING)
    """A topic, or a broker id; empty: the default of all brokers."""
    configuration_keys: list[str] | None = field(Array(STRING), nullable_since=0)
    """None: all keys."""


class DescribeConfigsRequest(Request, key=ApiKey.DESCRIBE_CONFIGS):
    resources: list[DescribeConfigsResource] = field(Array(DescribeConfigsResource))
    include_synonyms: bool = field(BOOL, since=1, ignorable=False)
    include_documentation: bool = field(BOOL, since=3, ignorable=False)


class DescribeConfigsSynonym(Struct):
    """One place a setting may come from, in order of precedence."""

    name: str = field(STRING, since=1)
    value: str | None = field(STRING, since=1, nullable_since=1)
    source: int = field(INT8, since=1)


class DescribeConfigsResourceResult(Struct):
    """One setting."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable_since=0)
    """None if sensitive, or not set."""
    read_only: bool = field(BOOL)
    is_default: bool = field(BOOL, until=0, ignorable=False)
    """Version 0 only; then ``config_source``."""
    config_source: int = field(INT8, since=1, default=-1)
    """1 topic, 2 broker, 3 cluster default, 4 static, 5 default, 6 logger, 7 client metrics."""
    is_sensitive: bool = field(BOOL)
    synonyms: list[DescribeConfigsSynonym] = field(Array(DescribeConfigsSynonym), since=1)
    config_type: int = field(INT8, since=3)
    """1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password."""
    documentation: str | None = field(STRING, since=3, nullable_since=3)


class DescribeConfigsResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(Array(DescribeConfigsResourceResult))


class DescribeConfigsResponse(Response, key=ApiKey.DESCRIBE_CONFIGS):
    throttle_time_ms: int = field(INT32)
    results: list[DescribeConfigsResult] = field(Array(DescribeConfigsResult))
