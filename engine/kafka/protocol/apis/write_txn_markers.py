"""WriteTxnMarkers (27), versions 0–1: the transaction coordinator makes leaders write the markers that end
transactions.

Version notes
* 1: flexible
"""

from __future__ import annotations

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request, Response, Struct, field
from engine.kafka.protocol.types import BOOL, INT16, INT32, INT64, STRING, Array


class WritableTxnMarkerTopic(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(Array(INT32))


class WritableTxnMarker(Struct):
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    transaction_result: bool = field(BOOL)
    """True: commit; false: abort."""
    topics: list[WritableTxnMarkerTopic] = field(Array(WritableTxnMarkerTopic))
    coordinator_epoch: int = field(INT32)
    """Leader epoch of the coordinator's partition of the transaction topic."""


class WriteTxnMarkersRequest(Request, key=ApiKey.WRITE_TXN_MARKERS):
    markers: list[WritableTxnMarker] = field(Array(WritableTxnMarker))


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class WritableTxnMarkerTopicResult(Struct):
    name: str = field(STRING)
    partitions: list[WritableTxnMarkerPartitionResult] = field(Array(WritableTxnMarkerPartitionResult))


class WritableTxnMarkerResult(Struct):
    producer_id: int = field(INT64)
    topics: list[WritableTxnMarkerTopicResult] = field(Array(WritableTxnMarkerTopicResult))


class WriteTxnMarkersResponse(Response, key=ApiKey.WRITE_TXN_MARKERS):
    markers: list[WritableTxnMarkerResult] = field(Array(WritableTxnMarkerResult))
