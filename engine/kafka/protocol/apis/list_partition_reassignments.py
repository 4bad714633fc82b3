"""ListPartitionReassignments (46), version 0: the reassignments under way (KIP-455)."""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, STRING, Array


class ListPartitionReassignmentsTopics(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(Array(INT32))


class ListPartitionReassignmentsRequest(Request, key=ApiKey.LIST_PARTITION_REASSIGNMENTS):
    timeout_ms: int = field(INT32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        Array(ListPartitionReassignmentsTopics), default=None, nullable_since=0
    )
    """None: all."""


class OngoingPartitionReassignment(Struct):
    partition_index: int = field(INT32)
    replicas: list[int] = field(Array(INT32))
    """All replicas, including the adding and removing ones."""
    adding_replicas: list[int] = field(Array(INT32))
    removing_replicas: list[int] = field(Array(INT32))


class OngoingTopicReassignment(Struct):
    name: str = field(STRING)
    partitions: list[OngoingPartitionReassignment] = field(Array(OngoingPartitionReassignment))


class ListPartitionReassignmentsResponse(Response, key=ApiKey.LIST_PARTITION_REASSIGNMENTS):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, default="", nullable_since=0)
    topics: list[OngoingTopicReassignment] = field(Array(OngoingTopicReassignment))
