"""ListOffsets (2): v0–v9.

Behaviour
* The leader looks up each partition; a debugging replica id (-2) may ask any replica. It looks them up one by one,
  and searches records outside the event loop.
* Consumers get offsets that they may read: latest is the high watermark, or the last stable offset with
  read_committed. Followers get the log's end.
* After an election, while the high watermark is behind the epoch's start, the answer is OFFSET_NOT_AVAILABLE (before
  v5 LEADER_NOT_AVAILABLE). A repeated partition is INVALID_REQUEST, except in v0. A reserved timestamp that the
  version does not have is UNSUPPORTED_VERSION.

Version notes
* v0 a list of segment base offsets   * v1 one offset with its timestamp   * v2 isolation level   * v4 leader epochs
* v7 -3, the record with the largest timestamp   * v8 -4, the earliest local offset   * v9 -5, the latest tiered offset
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from engine.broker.handlers.answer_lists import answer_lists, repeated
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.registry import handles
from engine.broker.replication.offset_lookup import offset_at_time, segment_offsets_before
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID, IsolationLevel, TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from engine.runtime.turns import Breather, carry_out

logger = logging.getLogger("kafka.server.KafkaApis")

_SINCE_VERSION = {-1: 0, -2: 0, -3: 7, -4: 8, -5: 9}
"""Reserved timestamps, and the first version that has each."""

LEADER_EPOCH_SINCE = 4
OFFSET_NOT_AVAILABLE_SINCE = 5


@handles(ApiKey.LIST_OFFSETS, requires=["Describe Topic"])
async def list_offsets(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    breather = Breather()
    lists = answer_lists(context, ListOffsetsResponse, "topics.partitions")
    twice: set[TopicPartition] = set()
    if context.api_version:
        twice = _repeated(request) if lists is None else await carry_out(repeated(lambda: _named(request)))
    topics = [] if lists is None else lists.of_topics()
    for topic in request.topics:
        await breather.give_way()
        partitions = [] if lists is None else lists.of_parts()
        for wanted in topic.partitions:
            await breather.give_way()
            if twice and TopicPartition(topic.name, wanted.partition_index) in twice:
                partitions.append(_refused(wanted.partition_index, ErrorCode.INVALID_REQUEST))
            else:
                partitions.append(await _look_up(context, request, topic.name, wanted))
        if lists is not None:
            partitions = lists.settled(partitions)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _repeated(request: ListOffsetsRequest) -> set[TopicPartition]:
    """Return the partitions that the request names more than once."""
    if len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
        # Most requests do.
        return set()
    seen: set[TopicPartition] = set()
    twice: set[TopicPartition] = set()
    for topic in request.topics:
        for wanted in topic.partitions:
            partition = TopicPartition(topic.name, wanted.partition_index)
            (twice if partition in seen else seen).add(partition)
    return twice


def _named(request: ListOffsetsRequest) -> Iterator[TopicPartition | None]:
    """Yield the partitions of a request, and None for each topic: very many may have no partition."""
    for topic in request.topics:
        yield None
        for wanted in topic.partitions:
            yield TopicPartition(topic.name, wanted.partition_index)


async def _look_up(
    context: RequestContext, request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    version = context.api_version
    if wanted.timestamp < 0 and version < _SINCE_VERSION.get(wanted.timestamp, version + 1):
        return _refused(wanted.partition_index, ErrorCode.UNSUPPORTED_VERSION)
    try:
        if version:
            return await _found(context, request, topic, wanted)
        return _found_by_segment(context, request, topic, wanted)
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_SINCE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        logger.debug(
            "[KafkaApi-%d] Offset request with correlation id %d from client %s on partition %s-%d failed due to %s",
            context.broker.broker_id,
            context.correlation_id,
            context.client_id,
            topic,
            wanted.partition_index,
            error,
        )
        return _refused(wanted.partition_index, code)


async def _found(
    context: RequestContext, request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    is_consumer = request.replica_id == CONSUMER_REPLICA_ID
    if is_consumer and request.isolation_level not in tuple(IsolationLevel):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    offset = await offset_at_time(
        context.broker.offset_search,
        context.broker.replica_manager.partition(topic, wanted.partition_index),
        wanted.timestamp,
        isolation=IsolationLevel(request.isolation_level) if is_consumer else None,
        current_leader_epoch=wanted.current_leader_epoch,
        leader_only=request.replica_id != DEBUGGING_REPLICA_ID,
    )
    response = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
    if offset is not None:
        response.timestamp = offset.timestamp_ms
        response.offset = offset.offset
        if offset.leader_epoch is not None and context.api_version >= LEADER_EPOCH_SINCE:
            response.leader_epoch = offset.leader_epoch
    return response


def _found_by_segment(
    context: RequestContext, request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    offsets = segment_offsets_before(
        context.broker.replica_manager.partition(topic, wanted.partition_index),
        wanted.timestamp,
        wanted.max_num_offsets,
        now_ms=context.broker.replica_manager.clock.now_ms(),
        is_consumer=request.replica_id == CONSUMER_REPLICA_ID,
        leader_only=request.replica_id != DEBUGGING_REPLICA_ID,
    )
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, old_style_offsets=offsets)


def _refused(partition_index: int, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition_index, error_code=error)
