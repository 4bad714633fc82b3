"""OffsetDelete (47): v0.

Behaviour
* Removes a group's committed offsets of topics that no member reads; others are GROUP_SUBSCRIBED_TO_TOPIC (KIP-496).
* A group that does not use the consumer protocol must be empty: NON_EMPTY_GROUP.
"""

from __future__ import annotations

from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, in_steps, parts_in_lists
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

_Answers = dict[str, dict[int, OffsetDeleteResponsePartition]]
"""The answers by topic and partition: a topic or partition that is named twice has one answer."""


@handles(ApiKey.OFFSET_DELETE, requires=["Delete Group", "Read Topic"])
@in_steps
def offset_delete(context: RequestContext, request: OffsetDeleteRequest) -> Steps[OffsetDeleteResponse]:
    answers: _Answers = {}
    cache, offsets = context.broker.metadata_cache, context.broker.group_coordinator.offsets
    named = parts_in_lists(
        request.topics, lambda topic: (TopicPartition(topic.name, part.partition_index) for part in topic.partitions)
    )
    for number, asked in enumerate(named):
        known = [partition for partition in asked if cache.contains(partition)]
        error, errors = offsets.delete(request.group_id, known)
        if error is ErrorCode.GROUP_ID_NOT_FOUND and number > 0:
            # An empty group ends with its last offset: nothing is left for the partitions named after it.
            error, errors = ErrorCode.NONE, dict.fromkeys(known, ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            return OffsetDeleteResponse(error_code=error, topics=[])
        for partition in asked:
            code = errors.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            answer = OffsetDeleteResponsePartition(partition_index=partition.partition, error_code=code)
            answers.setdefault(partition.topic, {})[partition.partition] = answer
        yield
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(name=topic, partitions=list(partitions.values()))
            for topic, partitions in answers.items()
        ]
    )
