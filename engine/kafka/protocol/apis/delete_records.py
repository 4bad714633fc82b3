"""DeleteRecords (21), versions 0–2: raise the log start offset of partitions.

Version notes
* 2: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import INT16, INT32, INT64, STRING, Array


class DeleteRecordsPartition(Struct):
    """Delete the records before an offset in one partition."""

    partition_index: int = field(INT32)
    offset: int = field(INT64)
    """The new log start offset; -1: the high watermark."""


class DeleteRecordsTopic(Struct):
    name: str = field(STRING)
    partitions: list[DeleteRecordsPartition] = field(Array(DeleteRecordsPartition))


class DeleteRecordsRequest(Request, key=ApiKey.DELETE_RECORDS):
    topics: list[DeleteRecordsTopic] = field(Array(DeleteRecordsTopic))
    timeout_ms: int = field(INT32)
    """How long to wait until all replicas have done so."""


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = field(INT32)
    low_watermark: int = field(INT64)
    """Lowest log start offset of the live replicas; -1 with an error."""
    error_code: int = field(INT16)


class DeleteRecordsTopicResult(Struct):
    name: str = field(STRING)
    partitions: list[DeleteRecordsPartitionResult] = field(Array(DeleteRecordsPartitionResult))


class DeleteRecordsResponse(Response, key=ApiKey.DELETE_RECORDS):
    throttle_time_ms: int = field(INT32)
    topics: list[DeleteRecordsTopicResult] = field(Array(DeleteRecordsTopicResult))
