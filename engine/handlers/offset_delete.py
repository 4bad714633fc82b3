"""OffsetDelete (47): v0.

Behaviour
* Removes committed offsets of topics that no member of the group reads; others are GROUP_SUBSCRIBED_TO_TOPIC (KIP-496).
* A group of another protocol than the consumers' must be empty: NON_EMPTY_GROUP.
"""

from __future__ import annotations

from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.handlers.context import RequestContext
from engine.handlers.registry import handles
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@handles(ApiKey.OFFSET_DELETE)
def offset_delete(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Remove a group's offsets."""
    cache = context.broker.metadata_cache
    asked = [TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions]
    known = [partition for partition in asked if cache.contains(partition)]
    error, errors = context.broker.group_coordinator.offsets.delete(request.group_id, known)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error, topics=[])
    # A topic or partition that is named twice is answered once.
    answers: dict[str, dict[int, ErrorCode]] = {}
    for partition in asked:
        error = errors.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        answers.setdefault(partition.topic, {})[partition.partition] = error
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index, code in of.items()
                ],
            )
            for topic, of in answers.items()
        ],
    )
