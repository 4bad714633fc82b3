"""WriteTxnMarkers (27): v0–v1.

Behaviour
* The transaction coordinator, or ``kafka-transactions --abort``, makes this broker write the markers that end
  transactions into partitions that it leads. The answer comes once the in-sync replicas have them, or after
  ``request.timeout.ms`` with REQUEST_TIMED_OUT.
* A marker in ``__consumer_offsets`` makes the transaction's offsets visible, or drops them, before the answer.

Version notes
* v1 flexible
"""

from __future__ import annotations

from functools import partial

from engine.broker.coordinator.transactions.marker_writer import Marker, MarkerErrors
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.registry import handles
from engine.broker.handlers.transactional_ids import are_transactions_refused, by_topic
from engine.broker.network.request import Deferred
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


@handles(ApiKey.WRITE_TXN_MARKERS, requires=["Alter Cluster", "ClusterAction Cluster"])
def write_txn_markers(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse | Deferred:
    """Write markers."""
    errors: dict[int, MarkerErrors] = {}
    if are_transactions_refused(context):
        for marker in request.markers:
            refused = dict.fromkeys(_partitions(marker), ErrorCode.UNSUPPORTED_VERSION)
            errors.setdefault(marker.producer_id, {}).update(refused)
        return _response(errors)
    wanted = [(marker, dict.fromkeys(_partitions(marker))) for marker in request.markers]
    left = sum(len(partitions) for _, partitions in wanted)
    if not left:
        return _response(errors)
    deferred = Deferred()

    def written(producer_id: int, partition: TopicPartition, error: ErrorCode) -> None:
        nonlocal left
        left -= 1
        errors.setdefault(producer_id, {})[partition] = error
        if left == 0:
            deferred.complete(_response(errors))

    for marker, partitions in wanted:
        context.broker.transaction_coordinator.marker_writer.write(
            Marker(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result),
            partitions,
            partial(written, marker.producer_id),
        )
    return deferred


def _partitions(marker: WritableTxnMarker) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


def _response(errors: dict[int, MarkerErrors]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                            for index, error in partitions
                        ],
                    )
                    for topic, partitions in by_topic(found.items())
                ],
            )
            for producer_id, found in errors.items()
        ]
    )
