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

from collections.abc import Generator, Iterator
from functools import partial

from engine.broker.coordinator.transactions.marker_writer import Marker, MarkerErrors
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import by_topic, in_steps, pieces
from engine.broker.handlers.preconditions import are_transactions_refused
from engine.broker.handlers.registry import handles
from engine.broker.network.request import Deferred
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.turns import at_once
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
@in_steps
def write_txn_markers(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> Generator[None, None, WriteTxnMarkersResponse | Deferred]:
    """Write markers."""
    errors: dict[int, MarkerErrors] = {}
    if are_transactions_refused(context):
        for marker in request.markers:
            for named in _pieces(marker):
                refused = dict.fromkeys(named, ErrorCode.UNSUPPORTED_VERSION)
                errors.setdefault(marker.producer_id, {}).update(refused)
                yield
        return (yield from _response(errors))
    left = 0
    deferred: Deferred | None = None

    def written(producer_id: int, partition: TopicPartition, error: ErrorCode, _: int) -> None:
        nonlocal left
        left -= 1
        errors.setdefault(producer_id, {})[partition] = error
        if left == 0 and deferred is not None:
            deferred.complete(at_once(_response(errors)))

    for marker in request.markers:
        for named in _pieces(marker):
            left += len(named)
            context.broker.transaction_coordinator.marker_writer.write(
                Marker(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result),
                named,
                partial(written, marker.producer_id),
            )
            yield
        yield
    if not left:
        return (yield from _response(errors))
    deferred = Deferred()
    return deferred


def _pieces(marker: WritableTxnMarker) -> Iterator[list[TopicPartition]]:
    """Return the partitions of a marker in pieces, none of which names a partition twice."""
    for topic in pieces(marker.topics, "partition_indexes"):
        yield [TopicPartition(topic.name, index) for index in dict.fromkeys(topic.partition_indexes)]


def _response(errors: dict[int, MarkerErrors]) -> Generator[None, None, WriteTxnMarkersResponse]:
    answer = WriteTxnMarkersResponse()
    for producer_id, found in errors.items():
        topics = [
            WritableTxnMarkerTopicResult(name=topic, partitions=partitions)
            for topic, partitions in (yield from by_topic(found.items(), _result))
        ]
        answer.markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=topics))
    return answer


def _result(index: int, error: ErrorCode) -> WritableTxnMarkerPartitionResult:
    return WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
