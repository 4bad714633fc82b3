"""OffsetDelete (47), version 0: forget a group's offsets of topics it no longer reads (KIP-496)."""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, STRING, Array


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(INT32)


class OffsetDeleteRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetDeleteRequestPartition] = field(Array(OffsetDeleteRequestPartition))


class OffsetDeleteRequest(Request, key=ApiKey.OFFSET_DELETE):
    group_id: str = field(STRING)
    topics: list[OffsetDeleteRequestTopic] = field(Array(OffsetDeleteRequestTopic))


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class OffsetDeleteResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetDeleteResponsePartition] = field(Array(OffsetDeleteResponsePartition))


class OffsetDeleteResponse(Response, key=ApiKey.OFFSET_DELETE):
    error_code: int = field(INT16)
    throttle_time_ms: int = field(INT32)
    topics: list[OffsetDeleteResponseTopic] = field(Array(OffsetDeleteResponseTopic))
