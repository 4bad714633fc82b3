"""OffsetForLeaderEpoch (23), versions 0–4: where a leader epoch ends, so that followers and consumers can truncate.

Version notes
* 1: epoch in the answer (KIP-279)   * 2: fencing (KIP-320)   * 3: replica id   * 4: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, INT64, STRING, Array


class OffsetForLeaderPartition(Struct):
    """The epoch to find in one partition."""

    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=2, default=-1)
    """Epoch the client believes is current; -1 turns the check off."""
    leader_epoch: int = field(INT32)


class OffsetForLeaderTopic(Struct):
    topic: str = field(STRING)
    partitions: list[OffsetForLeaderPartition] = field(Array(OffsetForLeaderPartition))


class OffsetForLeaderEpochRequest(Request, key=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    replica_id: int = field(INT32, since=3, default=-2)
    """The follower's broker id; -1 for a consumer, -2 for a debugging one."""
    topics: list[OffsetForLeaderTopic] = field(Array(OffsetForLeaderTopic))


class EpochEndOffset(Struct):
    """Where the epoch ends in one partition."""

    error_code: int = field(INT16)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32, since=1, default=-1)
    """Largest epoch at or below the requested one; -1 if unknown."""
    end_offset: int = field(INT64, default=-1)
    """First offset of the next epoch, or the log end offset; -1 if unknown."""


class OffsetForLeaderTopicResult(Struct):
    topic: str = field(STRING)
    partitions: list[EpochEndOffset] = field(Array(EpochEndOffset))


class OffsetForLeaderEpochResponse(Response, key=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    throttle_time_ms: int = field(INT32, since=2)
    topics: list[OffsetForLeaderTopicResult] = field(Array(OffsetForLeaderTopicResult))
