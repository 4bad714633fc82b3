"""AlterPartition (56), versions 0–3: a leader asks the controller to change ISRs (KIP-497).

Struct names have Request or Response before Kafka's name, because Kafka uses the same names for both.

Version notes
* 1: leader recovery state (KIP-704)   * 2: topic ids instead of names (KIP-841)
* 3: broker epochs of the ISR (KIP-903)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT8, INT16, INT32, INT64, STRING, UUID, Array


class BrokerState(Struct):
    """One broker of the new ISR."""

    broker_id: int = field(INT32, since=3)
    broker_epoch: int = field(INT64, since=3, default=-1)
    """czxid of its registration as the leader knows it; -1: not checked."""


class RequestPartitionData(Struct):
    """One partition's new ISR."""

    partition_index: int = field(INT32)
    leader_epoch: int = field(INT32)
    new_isr: list[int] = field(Array(INT32), until=2, ignorable=False)
    """Until version 2; then ``new_isr_with_epochs``."""
    new_isr_with_epochs: list[BrokerState] = field(Array(BrokerState), since=3, ignorable=False)
    leader_recovery_state: int = field(INT8, since=1, ignorable=False)
    """1 while recovering from an unclean election, else 0."""
    partition_epoch: int = field(INT32)
    """The version expected of the state znode (zkVersion)."""


class RequestTopicData(Struct):
    topic_name: str = field(STRING, until=1)
    """In versions 0 and 1; then ``topic_id``."""
    topic_id: bytes = field(UUID, since=2)
    partitions: list[RequestPartitionData] = field(Array(RequestPartitionData))


class AlterPartitionRequest(Request, key=ApiKey.ALTER_PARTITION):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    """czxid of the sender's registration."""
    topics: list[RequestTopicData] = field(Array(RequestTopicData))


class ResponsePartitionData(Struct):
    """One partition's current state."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(Array(INT32))
    leader_recovery_state: int = field(INT8, since=1)
    partition_epoch: int = field(INT32)
    """Version of the state znode (zkVersion)."""


class ResponseTopicData(Struct):
    topic_name: str = field(STRING, until=1)
    """In versions 0 and 1; then ``topic_id``."""
    topic_id: bytes = field(UUID, since=2)
    partitions: list[ResponsePartitionData] = field(Array(ResponsePartitionData))


class AlterPartitionResponse(Response, key=ApiKey.ALTER_PARTITION):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    topics: list[ResponseTopicData] = field(Array(ResponseTopicData))
