"""ListOffsets (2), versions 0–9: find the offset of a point in time.

Version notes
* 0: a list of segment offsets; from 1 on one offset and its timestamp   * 2: isolation level
* 4: leader epoch fencing   * 6: flexible   * 7: -3, the largest timestamp (KIP-734)
* 8: -4, the local log's start (KIP-405)   * 9: -5, the last tiered offset
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT8, INT16, INT32, INT64, STRING, Array


class ListOffsetsPartition(Struct):
    """What to find in one partition."""

    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=4, default=-1)
    """Epoch the client believes is current; -1 turns the check off."""
    timestamp: int = field(INT64)
    """Milliseconds; or -1 latest, -2 earliest, -3 largest timestamp, -4 earliest local, -5 latest tiered."""
    max_num_offsets: int = field(INT32, until=0, default=1, ignorable=False)
    """Maximum segment offsets to return, version 0 only."""


class ListOffsetsTopic(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(Array(ListOffsetsPartition))


class ListOffsetsRequest(Request, key=ApiKey.LIST_OFFSETS):
    replica_id: int = field(INT32)
    """The follower's broker id; -1 for a consumer, -2 for a debugging one."""
    isolation_level: int = field(INT8, since=2, ignorable=False)
    """1: the latest offset is the last stable offset."""
    topics: list[ListOffsetsTopic] = field(Array(ListOffsetsTopic))


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    old_style_offsets: list[int] = field(Array(INT64), until=0, ignorable=False)
    """Segment base offsets, newest first; version 0 only."""
    timestamp: int = field(INT64, since=1, default=-1, ignorable=False)
    """The record's timestamp; -1 if the search was not by time."""
    offset: int = field(INT64, since=1, default=-1, ignorable=False)
    """-1 if nothing was found."""
    leader_epoch: int = field(INT32, since=4, default=-1, ignorable=False)


class ListOffsetsTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(Array(ListOffsetsPartitionResponse))


class ListOffsetsResponse(Response, key=ApiKey.LIST_OFFSETS):
    throttle_time_ms: int = field(INT32, since=2)
    topics: list[ListOffsetsTopicResponse] = field(Array(ListOffsetsTopicResponse))
