"""OffsetFetch (9): v0–v9.

Behaviour
* Reads a group's committed offsets; -1 if there is none, which is no error.

Version notes
* v0 reads offsets from ZooKeeper; if there is none: UNKNOWN_TOPIC_OR_PARTITION
* v1 an error of the group stands at each partition
* v2 null topics: all that the group has stored; the group's error stands once   * v5 leader epoch   * v6 flexible
* v7 ``require_stable``: UNSTABLE_OFFSET_COMMIT while a newer offset is under way (KIP-447)   * v8 several groups
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.coordinator.group.offset_requests import FetchedOffset
from engine.coordinator.group.values import CommittedOffset
from engine.handlers.context import RequestContext
from engine.handlers.registry import handles
from engine.handlers.zookeeper_offsets import read_offsets
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_NONE = CommittedOffset(offset=-1)

_Topics = Iterable[OffsetFetchRequestTopic] | Iterable[OffsetFetchRequestTopics]


@handles(ApiKey.OFFSET_FETCH)
def offset_fetch(
    context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Coroutine[Any, Any, object]:
    """Read committed offsets."""
    if context.api_version >= 8:
        return OffsetFetchResponse(groups=[_group(context, request, group) for group in request.groups])
    partitions = None if request.topics is None else _partitions(request.topics)
    if context.api_version == 0:
        return _fetch_from_zookeeper(context, request.group_id, partitions or [])
    error, found = context.broker.group_coordinator.offsets.fetch(
        request.group_id, partitions, require_stable=request.require_stable
    )
    if error is not ErrorCode.NONE and context.api_version < 2:
        # There is no place for it but at the partitions.
        found = dict.fromkeys(partitions or (), error)
    return _response(error, found)


async def _fetch_from_zookeeper(
    context: RequestContext, group_id: str, partitions: list[TopicPartition]
) -> OffsetFetchResponse:
    cache = context.broker.metadata_cache
    known = [partition for partition in partitions if cache.contains(partition)]
    read = await read_offsets(context.broker.zk, group_id, known)
    found: dict[TopicPartition, FetchedOffset] = dict.fromkeys(partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for partition, value in read.items():
        found[partition] = value if isinstance(value, ErrorCode) else CommittedOffset(value)
    return _response(ErrorCode.NONE, found)


def _response(error: ErrorCode, found: Mapping[TopicPartition, FetchedOffset]) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=error,
        topics=[
            OffsetFetchResponseTopic(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=value.offset,
                        committed_leader_epoch=value.leader_epoch,
                        metadata=value.metadata,
                        error_code=code,
                    )
                    for index, (value, code) in answers.items()
                ],
            )
            for topic, answers in _by_topic(found).items()
        ],
    )


def _group(
    context: RequestContext, request: OffsetFetchRequest, group: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    partitions = None if group.topics is None else _partitions(group.topics)
    error, found = context.broker.group_coordinator.offsets.fetch(
        group.group_id, partitions, require_stable=request.require_stable
    )
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        error_code=error,
        topics=[
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=value.offset,
                        committed_leader_epoch=value.leader_epoch,
                        metadata=value.metadata,
                        error_code=code,
                    )
                    for index, (value, code) in answers.items()
                ],
            )
            for topic, answers in _by_topic(found).items()
        ],
    )


def _partitions(topics: _Topics) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes]


def _by_topic(
    found: Mapping[TopicPartition, FetchedOffset],
) -> dict[str, dict[int, tuple[CommittedOffset, ErrorCode]]]:
    by_topic: dict[str, dict[int, tuple[CommittedOffset, ErrorCode]]] = {}
    for (topic, index), value in found.items():
        answer = (_NONE, value) if isinstance(value, ErrorCode) else (value or _NONE, ErrorCode.NONE)
        by_topic.setdefault(topic, {})[index] = answer
    return by_topic
