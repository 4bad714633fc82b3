"""TxnOffsetCommit (28), versions 0–4: store a group's offsets as part of a transaction.

Version notes
* 2: leader epochs   * 3: flexible, membership (KIP-447)   * 4: TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, INT64, STRING, Array


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    """The next offset to read."""
    committed_leader_epoch: int = field(INT32, since=2, default=-1)
    committed_metadata: str | None = field(STRING, nullable_since=0)


class TxnOffsetCommitRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = field(Array(TxnOffsetCommitRequestPartition))


class TxnOffsetCommitRequest(Request, key=ApiKey.TXN_OFFSET_COMMIT):
    """Store these offsets when the transaction commits."""

    transactional_id: str = field(STRING)
    group_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    generation_id: int = field(INT32, since=3, default=-1, ignorable=False)
    """-1: membership is not checked."""
    member_id: str = field(STRING, since=3, ignorable=False)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, ignorable=False)
    topics: list[TxnOffsetCommitRequestTopic] = field(Array(TxnOffsetCommitRequestTopic))


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class TxnOffsetCommitResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[TxnOffsetCommitResponsePartition] = field(Array(TxnOffsetCommitResponsePartition))


class TxnOffsetCommitResponse(Response, key=ApiKey.TXN_OFFSET_COMMIT):
    throttle_time_ms: int = field(INT32)
    topics: list[TxnOffsetCommitResponseTopic] = field(Array(TxnOffsetCommitResponseTopic))
