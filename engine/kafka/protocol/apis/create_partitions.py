"""CreatePartitions (37), versions 0–3: add partitions to topics.

Version notes
* 2: flexible   * 3: quota (KIP-599)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT16, INT32, STRING, Array


class CreatePartitionsAssignment(Struct):
    """The brokers of one new partition, the preferred one first."""

    broker_ids: list[int] = field(Array(INT32))


class CreatePartitionsTopic(Struct):
    name: str = field(STRING)
    count: int = field(INT32)
    """The new total."""
    assignments: list[CreatePartitionsAssignment] | None = field(Array(CreatePartitionsAssignment), nullable_since=0)
    """None for an automatic assignment."""


class CreatePartitionsRequest(Request, key=ApiKey.CREATE_PARTITIONS):
    topics: list[CreatePartitionsTopic] = field(Array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOL)
    """Check only; create nothing."""


class CreatePartitionsTopicResult(Struct):
    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable_since=0)


class CreatePartitionsResponse(Response, key=ApiKey.CREATE_PARTITIONS):
    throttle_time_ms: int = field(INT32)
    results: list[CreatePartitionsTopicResult] = field(Array(CreatePartitionsTopicResult))
