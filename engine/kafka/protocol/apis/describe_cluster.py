"""DescribeCluster (60), versions 0–1: brokers and controller (KIP-700).

Version notes
* 1: brokers or controllers (KIP-919)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT8, INT16, INT32, STRING, Array


class DescribeClusterRequest(Request, key=ApiKey.DESCRIBE_CLUSTER):
    include_cluster_authorized_operations: bool = field(BOOL)
    endpoint_type: int = field(INT8, since=1, default=1, ignorable=False)
    """1 brokers, 2 controllers."""


class DescribeClusterBroker(Struct):
    """One live broker, with its address on the request's listener."""

    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable_since=0)


class DescribeClusterResponse(Response, key=ApiKey.DESCRIBE_CLUSTER):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)
    endpoint_type: int = field(INT8, since=1, default=1, ignorable=False)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    """-1 if unknown."""
    brokers: list[DescribeClusterBroker] = field(Array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=-(2**31))
    """Bits of the operations allowed; the minimum int32 if not requested."""
