"""OffsetForLeaderEpoch (23): v0–v4.

Behaviour
* The leader returns the largest epoch up to the requested one, and where it ends; -1 and -1 if it is unknown.
* It checks the leader epoch that the client believes is current: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.

Version notes
* v0 no epoch in the answer   * v2 the asker's leader epoch   * v3 replica id, which changes nothing here
"""

from __future__ import annotations

from engine.broker.handlers.answer_lists import answer_lists
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, each_part, in_steps
from engine.broker.handlers.registry import handles
from engine.broker.replication.offset_lookup import end_offset_for_epoch
from engine.common.errors import KafkaError
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH, requires=["ClusterAction Cluster", "Describe Topic"])
@in_steps
def offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Steps[OffsetForLeaderEpochResponse]:
    topics = yield from each_part(
        request.topics,
        lambda topic: topic.partitions,
        lambda topic, wanted: _end_of(context, topic.topic, wanted),
        lambda topic, answers: OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers),
        answer_lists(context, OffsetForLeaderEpochResponse, "topics.partitions"),
    )
    return OffsetForLeaderEpochResponse(topics=topics)


def _end_of(context: RequestContext, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = context.broker.replica_manager.partition(topic, wanted.partition)
        epoch, end_offset = end_offset_for_epoch(
            partition, wanted.leader_epoch, current_leader_epoch=wanted.current_leader_epoch
        )
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
