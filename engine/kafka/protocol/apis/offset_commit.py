"""OffsetCommit (8), versions 0–9: a consumer group stores how far it has read.

Version notes
* 0: kept in ZooKeeper; from 1 on in the offsets topic   * 1: membership
* 2: retention instead of commit timestamp   * 5: retention is the broker's setting only   * 6: leader epochs
* 7: static members (KIP-345)   * 8: flexible   * 9: KIP-848 groups
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, INT64, STRING, Array


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    """The next offset to read."""
    committed_leader_epoch: int = field(INT32, since=6, default=-1)
    """Epoch of the last record read; -1 if unknown."""
    commit_timestamp: int = field(INT64, since=1, until=1, default=-1, ignorable=False)
    """Version 1 only; -1: the broker's time."""
    committed_metadata: str | None = field(STRING, nullable_since=0)
    """Anything the client wants to keep."""


class OffsetCommitRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetCommitRequestPartition] = field(Array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Request, key=ApiKey.OFFSET_COMMIT):
    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, since=1, default=-1)
    """Generation of the group; -1 from clients that assign partitions themselves."""
    member_id: str = field(STRING, since=1)
    group_instance_id: str | None = field(STRING, since=7, nullable_since=7, ignorable=False)
    """Given by static members."""
    retention_time_ms: int = field(INT64, since=2, until=4, default=-1)
    """Versions 2 to 4; -1: the broker's setting."""
    topics: list[OffsetCommitRequestTopic] = field(Array(OffsetCommitRequestTopic))


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class OffsetCommitResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetCommitResponsePartition] = field(Array(OffsetCommitResponsePartition))


class OffsetCommitResponse(Response, key=ApiKey.OFFSET_COMMIT):
    throttle_time_ms: int = field(INT32, since=3)
    topics: list[OffsetCommitResponseTopic] = field(Array(OffsetCommitResponseTopic))
