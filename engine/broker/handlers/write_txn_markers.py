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

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from engine.broker.coordinator.transactions.marker_writer import Marker
from engine.broker.handlers.answer_lists import ErrorCodes, answer_lists
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, in_steps, pieces
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

_new: Callable[..., Any] = tuple.__new__


@handles(ApiKey.WRITE_TXN_MARKERS, requires=["Alter Cluster", "ClusterAction Cluster"])
@in_steps
def write_txn_markers(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> Steps[WriteTxnMarkersResponse | Deferred]:
    outcomes: defaultdict[int, ErrorCodes] = defaultdict(ErrorCodes)
    if are_transactions_refused(context):
        for marker in request.markers:
            for named in _pieces(marker):
                for topic, index in named:
                    outcomes[marker.producer_id].add(topic, index, ErrorCode.UNSUPPORTED_VERSION)
                yield
        return (yield from _response(context, outcomes))
    left = 0
    deferred: Deferred | None = None

    def written(producer_id: int, partition: TopicPartition, error: ErrorCode, _: int) -> None:
        nonlocal left
        left -= 1
        outcomes[producer_id].add(partition.topic, partition.partition, error)
        if left == 0 and deferred is not None:
            deferred.complete(at_once(_response(context, outcomes)))

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
        return (yield from _response(context, outcomes))
    deferred = Deferred()
    return deferred


def _pieces(marker: WritableTxnMarker) -> Iterator[list[TopicPartition]]:
    """Return the partitions of a marker in pieces, none of which names a partition twice."""
    for topic in pieces(marker.topics, "partition_indexes"):
        # As TopicPartition(…), without its detour through Python.
        yield [_new(TopicPartition, (topic.name, index)) for index in dict.fromkeys(topic.partition_indexes)]


def _response(context: RequestContext, outcomes: dict[int, ErrorCodes]) -> Steps[WriteTxnMarkersResponse]:
    lists = answer_lists(context, WriteTxnMarkersResponse, "markers.topics.partitions")
    markers: list[WritableTxnMarkerResult] = [] if lists is None else lists.at(0)
    for producer_id, codes in outcomes.items():
        topics = yield from codes.topics(context, lists, _part, _topic)
        markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=topics))
        yield
    return WriteTxnMarkersResponse(markers=markers)


def _part(index: int, code: int) -> WritableTxnMarkerPartitionResult:
    return WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)


def _topic(name: str, parts: list[WritableTxnMarkerPartitionResult]) -> WritableTxnMarkerTopicResult:
    return WritableTxnMarkerTopicResult(name=name, partitions=parts)
