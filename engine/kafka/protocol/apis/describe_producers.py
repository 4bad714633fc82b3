"""DescribeProducers (61), version 0: who writes to a partition (KIP-664)."""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, INT64, STRING, Array


class TopicRequest(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(Array(INT32))


class DescribeProducersRequest(Request, key=ApiKey.DESCRIBE_PRODUCERS):
    topics: list[TopicRequest] = field(Array(TopicRequest))


class ProducerState(Struct):
    """One producer, as the leader knows it."""

    producer_id: int = field(INT64)
    producer_epoch: int = field(INT32)
    last_sequence: int = field(INT32, default=-1)
    """Sequence of its last record; -1 if none."""
    last_timestamp: int = field(INT64, default=-1)
    """Milliseconds, of its last batch; -1 if none."""
    coordinator_epoch: int = field(INT32)
    current_txn_start_offset: int = field(INT64, default=-1)
    """First offset of its open transaction; -1 if none."""


class PartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)
    active_producers: list[ProducerState] = field(Array(ProducerState))


class TopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[PartitionResponse] = field(Array(PartitionResponse))


class DescribeProducersResponse(Response, key=ApiKey.DESCRIBE_PRODUCERS):
    throttle_time_ms: int = field(INT32)
    topics: list[TopicResponse] = field(Array(TopicResponse))
