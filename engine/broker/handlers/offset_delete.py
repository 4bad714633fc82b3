"""OffsetDelete (47): v0.

Behaviour
* Removes a group's committed offsets of topics that no member reads; others are GROUP_SUBSCRIBED_TO_TOPIC (KIP-496).
* A group that does not use the consumer protocol must be empty: NON_EMPTY_GROUP.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import pieces
from engine.broker.handlers.registry import handles, handles_large
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from engine.runtime.turns import Breather

_Answers = dict[str, dict[int, OffsetDeleteResponsePartition]]
"""The answers by topic and partition: a topic or partition that is named twice has one answer."""


@handles(ApiKey.OFFSET_DELETE, requires=["Delete Group", "Read Topic"])
def offset_delete(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Remove a group's offsets."""
    answers: _Answers = {}
    error = _delete(context, request.group_id, request.topics, answers)
    return _response(error, answers)


@handles_large(ApiKey.OFFSET_DELETE)
async def offset_delete_in_turns(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Remove very many offsets of a group, in turns with other requests."""
    answers: _Answers = {}
    breather = Breather()
    for number, topic in enumerate(pieces(request.topics, "partitions")):
        error = _delete(context, request.group_id, [topic], answers, has_begun=number > 0)
        if error is not ErrorCode.NONE:
            return _response(error, {})
        await breather.give_way()
    return _response(ErrorCode.NONE, answers) if answers else offset_delete(context, request)


def _delete(
    context: RequestContext,
    group_id: str,
    topics: Iterable[OffsetDeleteRequestTopic],
    answers: _Answers,
    *,
    has_begun: bool = False,
) -> ErrorCode:
    """Remove the offsets of some topics and note each partition's answer; return the error of the whole request."""
    cache = context.broker.metadata_cache
    asked = [TopicPartition(t.name, p.partition_index) for t in topics for p in t.partitions]
    known = [partition for partition in asked if cache.contains(partition)]
    error, errors = context.broker.group_coordinator.offsets.delete(group_id, known)
    if error is ErrorCode.GROUP_ID_NOT_FOUND and has_begun:
        # An empty group ends with its last offset: nothing is left for the partitions named after it.
        error, errors = ErrorCode.NONE, dict.fromkeys(known, ErrorCode.NONE)
    if error is ErrorCode.NONE:
        for partition in asked:
            code = errors.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            answer = OffsetDeleteResponsePartition(partition_index=partition.partition, error_code=code)
            answers.setdefault(partition.topic, {})[partition.partition] = answer
    return error


def _response(error: ErrorCode, answers: _Answers) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        error_code=error,
        topics=[
            OffsetDeleteResponseTopic(name=topic, partitions=list(partitions.values()))
            for topic, partitions in answers.items()
        ],
    )
