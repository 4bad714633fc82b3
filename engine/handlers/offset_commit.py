"""OffsetCommit (8): v0–v9.

Behaviour
* Stores a group's offsets in ``__consumer_offsets`` and answers once they are replicated, at the latest after
  ``offsets.commit.timeout.ms``.
* Members commit in their generation; a client that assigns partitions itself has none, and may as long as the group has
  no members. A partition that does not exist: UNKNOWN_TOPIC_OR_PARTITION; too long a text: OFFSET_METADATA_TOO_LARGE.

Version notes
* v0 keeps offsets in ZooKeeper, for whoever names the group
* v1 commit timestamp   * v2–v4 retention time of this commit
* v6 leader epoch   * v7 static members   * v8 flexible   * v9 the errors of KIP-848, which do not occur here
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.coordinator.group.values import CommittedOffset, Committer, Offsets
from engine.handlers.context import RequestContext
from engine.handlers.registry import handles
from engine.handlers.zookeeper_offsets import write_offsets
from engine.network.request import Deferred
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_NOT_GIVEN = -1


@handles(ApiKey.OFFSET_COMMIT)
def offset_commit(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Deferred | Coroutine[Any, Any, object]:
    """Store a group's offsets."""
    cache = context.broker.metadata_cache
    now_ms = context.broker.clock.now_ms()
    offsets = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            partition = TopicPartition(topic.name, asked.partition_index)
            if cache.contains(partition):
                offsets[partition] = _offset(asked, now_ms, request.retention_time_ms)
            else:
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not offsets:
        return _response(request, errors)
    if context.api_version == 0:
        return _commit_to_zookeeper(context, request, offsets, errors)
    committer = Committer(request.member_id, request.generation_id_or_member_epoch, request.group_instance_id)
    deferred = Deferred()
    context.broker.group_coordinator.offsets.commit(
        request.group_id, committer, offsets, lambda done: deferred.complete(_response(request, errors | done))
    )
    return deferred


async def _commit_to_zookeeper(
    context: RequestContext, request: OffsetCommitRequest, offsets: Offsets, errors: dict[TopicPartition, ErrorCode]
) -> OffsetCommitResponse:
    length_max = context.broker.config.get_int("offset.metadata.max.bytes")
    fitting = {p: value.offset for p, value in offsets.items() if len(value.metadata) <= length_max}
    too_large = dict.fromkeys(offsets.keys() - fitting.keys(), ErrorCode.OFFSET_METADATA_TOO_LARGE)
    written = await write_offsets(context.broker.zk.client, request.group_id, fitting)
    return _response(request, errors | too_large | written)


def _offset(asked: OffsetCommitRequestPartition, now_ms: int, retention_time_ms: int) -> CommittedOffset:
    has_timestamp = asked.commit_timestamp != _NOT_GIVEN
    return CommittedOffset(
        offset=asked.committed_offset,
        metadata=asked.committed_metadata or "",
        leader_epoch=asked.committed_leader_epoch,
        commit_timestamp_ms=asked.commit_timestamp if has_timestamp else now_ms,
        expire_timestamp_ms=None if retention_time_ms == _NOT_GIVEN else now_ms + retention_time_ms,
    )


def _response(request: OffsetCommitRequest, errors: dict[TopicPartition, ErrorCode]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=p.partition_index,
                        error_code=errors[TopicPartition(topic.name, p.partition_index)],
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
