"""Produce (0), versions 0–11: append record batches to partitions.

The broker answers unless ``acks`` is 0.

Version notes
* 3: record batches of format 2 only, transactional id; before: message sets of format 0 and 1   * 7: zstd
* 8: errors of single records (KIP-467)   * 9: flexible   * 10: current leader (KIP-951)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, INT64, RECORDS, STRING, Array, Records


class PartitionProduceData(Struct):
    index: int = field(INT32)
    records: Records = field(RECORDS, nullable_since=0)


class TopicProduceData(Struct):
    name: str = field(STRING)
    partition_data: list[PartitionProduceData] = field(Array(PartitionProduceData))


class ProduceRequest(Request, key=ApiKey.PRODUCE):
    transactional_id: str | None = field(STRING, since=3, nullable_since=3, ignorable=False)
    """None unless the batches are part of a transaction."""
    acks: int = field(INT16)
    """0: no answer; 1: the leader has appended; -1: all in-sync replicas have."""
    timeout_ms: int = field(INT32)
    """How long the leader may wait for the other replicas."""
    topic_data: list[TopicProduceData] = field(Array(TopicProduceData))


class BatchIndexAndErrorMessage(Struct):
    """Why one record made its batch fail."""

    batch_index: int = field(INT32, since=8)
    """The record's place within the batch."""
    batch_index_error_message: str | None = field(STRING, since=8, nullable_since=8)


class LeaderIdAndEpoch(Struct):
    """The partition's current leader, given with NOT_LEADER_OR_FOLLOWER."""

    leader_id: int = field(INT32, since=10, default=-1)
    leader_epoch: int = field(INT32, since=10, default=-1)


class PartitionProduceResponse(Struct):
    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    """Offset given to the first record; -1 with an error."""
    log_append_time_ms: int = field(INT64, since=2, default=-1)
    """Set only if the topic's timestamp type is LogAppendTime."""
    log_start_offset: int = field(INT64, since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(Array(BatchIndexAndErrorMessage), since=8)
    error_message: str | None = field(STRING, since=8, nullable_since=8)
    """The summary of the record errors."""
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, since=10, tag=0, ignorable=False)


class TopicProduceResponse(Struct):
    name: str = field(STRING)
    partition_responses: list[PartitionProduceResponse] = field(Array(PartitionProduceResponse))


class NodeEndpoint(Struct):
    """Address of a broker named as a current leader."""

    node_id: int = field(INT32, since=10)
    host: str = field(STRING, since=10)
    port: int = field(INT32, since=10)
    rack: str | None = field(STRING, since=10, nullable_since=10)


class ProduceResponse(Response, key=ApiKey.PRODUCE):
    responses: list[TopicProduceResponse] = field(Array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32, since=1)
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), since=10, tag=0, ignorable=False)
    """Addresses of the leaders named in ``current_leader``."""
