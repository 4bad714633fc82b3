"""AlterPartitionReassignments (45), version 0: start, change or cancel the reassignment of partitions (KIP-455)."""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, STRING, Array


class ReassignablePartition(Struct):
    partition_index: int = field(INT32)
    replicas: list[int] | None = field(Array(INT32), default=None, nullable_since=0)
    """None: cancel the reassignment under way."""


class ReassignableTopic(Struct):
    name: str = field(STRING)
    partitions: list[ReassignablePartition] = field(Array(ReassignablePartition))


class AlterPartitionReassignmentsRequest(Request, key=ApiKey.ALTER_PARTITION_REASSIGNMENTS):
    timeout_ms: int = field(INT32, default=60000)
    topics: list[ReassignableTopic] = field(Array(ReassignableTopic))


class ReassignablePartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)


class ReassignableTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[ReassignablePartitionResponse] = field(Array(ReassignablePartitionResponse))


class AlterPartitionReassignmentsResponse(Response, key=ApiKey.ALTER_PARTITION_REASSIGNMENTS):
    """Result per partition: whether the reassignment has started, not whether it is done."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, default="", nullable_since=0)
    responses: list[ReassignableTopicResponse] = field(Array(ReassignableTopicResponse))
