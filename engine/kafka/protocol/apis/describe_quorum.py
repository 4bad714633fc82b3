"""DescribeQuorum (55), versions 0–1: the leader of the KRaft controllers' quorum, and all replicas' progress (KIP-595).

Brokers pass it on to the active controller.

Version notes
* 1: when replicas last fetched and last had caught up (KIP-836)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, INT64, STRING, Array


class QuorumPartitionAsked(Struct):
    partition_index: int = field(INT32)


class QuorumTopicAsked(Struct):
    """One topic; only ``__cluster_metadata`` exists."""

    topic_name: str = field(STRING)
    partitions: list[QuorumPartitionAsked] = field(Array(QuorumPartitionAsked))


class DescribeQuorumRequest(Request, key=ApiKey.DESCRIBE_QUORUM):
    topics: list[QuorumTopicAsked] = field(Array(QuorumTopicAsked))


class QuorumReplica(Struct):
    """One voter or observer."""

    replica_id: int = field(INT32)
    log_end_offset: int = field(INT64)
    last_fetch_timestamp: int = field(INT64, since=1, default=-1)
    last_caught_up_timestamp: int = field(INT64, since=1, default=-1)


class QuorumPartition(Struct):
    """One partition, or why it cannot be described."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    high_watermark: int = field(INT64)
    current_voters: list[QuorumReplica] = field(Array(QuorumReplica))
    observers: list[QuorumReplica] = field(Array(QuorumReplica))


class QuorumTopic(Struct):
    topic_name: str = field(STRING)
    partitions: list[QuorumPartition] = field(Array(QuorumPartition))


class DescribeQuorumResponse(Response, key=ApiKey.DESCRIBE_QUORUM):
    error_code: int = field(INT16)
    topics: list[QuorumTopic] = field(Array(QuorumTopic))
