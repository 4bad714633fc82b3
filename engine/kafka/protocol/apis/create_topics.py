"""CreateTopics (19), versions 0–7: create topics, with automatic or given assignment.

Version notes
* 1: validate_only, messages   * 4: default partition count and factor by -1 (KIP-464)
* 5: flexible, settings in the answer (KIP-525)   * 6: quota (KIP-599)   * 7: topic id
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT8, INT16, INT32, STRING, UUID, Array


class CreatableReplicaAssignment(Struct):
    """The brokers of one partition, the preferred one first."""

    partition_index: int = field(INT32)
    broker_ids: list[int] = field(Array(INT32))


class CreatableTopicConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable_since=0)


class CreatableTopic(Struct):
    name: str = field(STRING)
    num_partitions: int = field(INT32)
    """-1: the broker's default, or as many as are assigned."""
    replication_factor: int = field(INT16)
    """-1: the broker's default, or as assigned."""
    assignments: list[CreatableReplicaAssignment] = field(Array(CreatableReplicaAssignment))
    """Empty for an automatic assignment."""
    configs: list[CreatableTopicConfig] = field(Array(CreatableTopicConfig))


class CreateTopicsRequest(Request, key=ApiKey.CREATE_TOPICS):
    topics: list[CreatableTopic] = field(Array(CreatableTopic))
    timeout_ms: int = field(INT32, default=60000)
    """How long to wait until the topics exist."""
    validate_only: bool = field(BOOL, since=1, ignorable=False)
    """Check only; create nothing."""


class CreatableTopicConfigs(Struct):
    """One effective setting of a new topic."""

    name: str = field(STRING, since=5)
    value: str | None = field(STRING, since=5, nullable_since=5)
    read_only: bool = field(BOOL, since=5)
    config_source: int = field(INT8, since=5, default=-1)
    """1 topic, 2 broker, 3 cluster default, 4 static, 5 default, 6 logger, 7 client metrics."""
    is_sensitive: bool = field(BOOL, since=5)


class CreatableTopicResult(Struct):
    name: str = field(STRING)
    topic_id: bytes = field(UUID, since=7)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, since=1, nullable_since=1)
    topic_config_error_code: int = field(INT16, since=5, tag=0)
    """Why ``configs`` is None, if it is."""
    num_partitions: int = field(INT32, since=5, default=-1)
    replication_factor: int = field(INT16, since=5, default=-1)
    configs: list[CreatableTopicConfigs] | None = field(Array(CreatableTopicConfigs), since=5, nullable_since=5)


class CreateTopicsResponse(Response, key=ApiKey.CREATE_TOPICS):
    throttle_time_ms: int = field(INT32, since=2)
    topics: list[CreatableTopicResult] = field(Array(CreatableTopicResult))
