"""OffsetFetch (9): v0–v9.

Behaviour
* Reads a group's committed offsets; -1 if there is none, which is not an error.

Version notes
* v0 reads offsets from ZooKeeper; a missing one is UNKNOWN_TOPIC_OR_PARTITION
* v1 each partition carries the group's error
* v2 null topics: all that the group has stored; the group's error stands once   * v5 leader epoch   * v6 flexible
* v7 ``require_stable``: UNSTABLE_OFFSET_COMMIT while a newer offset is under way (KIP-447)   * v8 several groups
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine.broker.coordinator.groups.offset_requests import FetchedOffset
from engine.broker.coordinator.groups.values import CommittedOffset
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import AT_ONCE_MAX, pieces
from engine.broker.handlers.registry import handles, handles_large
from engine.broker.handlers.zookeeper_offsets import read_offsets
from engine.broker.network.request import LargeAnswer
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.offset_fetch import (
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
from engine.runtime.turns import Breather

_NONE = CommittedOffset(offset=-1)

_Topic = OffsetFetchRequestTopic | OffsetFetchRequestTopics
_Topics = Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics]
_Answers = dict[str, dict[int, Any]]
"""The answers for partitions, by topic."""


@handles(ApiKey.OFFSET_FETCH, requires=["Describe Group", "Describe Topic"])
def offset_fetch(
    context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Coroutine[Any, Any, object]:
    """Read committed offsets."""
    if _asks_for_all_of_very_many(context, request):
        return offset_fetch_in_turns(context, request)
    if context.api_version >= 8:
        return OffsetFetchResponse(groups=[_group(context, request, group) for group in request.groups])
    partitions = None if request.topics is None else _partitions(request.topics)
    if context.api_version == 0:
        return _fetch_from_zookeeper(context, request.group_id, partitions or [])
    error, found = context.broker.group_coordinator.offsets.fetch(
        request.group_id, partitions, require_stable=request.require_stable
    )
    if error is not ErrorCode.NONE and context.api_version < 2:
        # Only the partitions have a field for it.
        found = dict.fromkeys(partitions or (), error)
    answers: _Answers = {}
    _note(answers, found, OffsetFetchResponsePartition)
    return _response(error, answers)


@handles_large(ApiKey.OFFSET_FETCH)
async def offset_fetch_in_turns(context: RequestContext, request: OffsetFetchRequest) -> LargeAnswer:
    """Read very many committed offsets, in turns with other requests."""
    if context.api_version >= 8:
        breather, groups = Breather(), []
        for group in request.groups:
            error, answers = await _fetch_in_turns(
                context, request, group.group_id, group.topics, OffsetFetchResponsePartitions
            )
            groups.append(_group_response(group.group_id, error, answers))
            await breather.give_way()
        return LargeAnswer(OffsetFetchResponse(groups=groups))
    if context.api_version == 0:
        partitions = [p for piece in _pieces(request.topics or []) for p in _partitions([piece])]
        return LargeAnswer(await _fetch_from_zookeeper(context, request.group_id, partitions))
    error, answers = await _fetch_in_turns(
        context, request, request.group_id, request.topics, OffsetFetchResponsePartition
    )
    return LargeAnswer(_response(error, answers))


def _asks_for_all_of_very_many(context: RequestContext, request: OffsetFetchRequest) -> bool:
    """Return whether a small request wants all offsets of a group that has very many."""
    if context.api_version >= 8:
        group_ids = [group.group_id for group in request.groups if group.topics is None]
    else:
        group_ids = [request.group_id] if request.topics is None and context.api_version > 0 else []
    count = context.broker.group_coordinator.offsets.count
    return any(count(group_id) > AT_ONCE_MAX for group_id in group_ids)


async def _fetch_in_turns(
    context: RequestContext, request: OffsetFetchRequest, group_id: str, topics: _Topics | None, answer: Any
) -> tuple[ErrorCode, _Answers]:
    """Return the group's error and each partition's answer."""
    offsets = context.broker.group_coordinator.offsets
    breather = Breather()
    answers: _Answers = {}
    parts = offsets.partitions_in_pieces(group_id, AT_ONCE_MAX) if topics is None else map(_one, _pieces(topics))
    error, _ = offsets.fetch(group_id, (), require_stable=request.require_stable)
    for partitions in parts:
        error, found = offsets.fetch(group_id, partitions, require_stable=request.require_stable)
        if error is not ErrorCode.NONE and context.api_version >= 2:
            return error, {}
        # In version 1 only the partitions have a field for the group's error.
        _note(answers, found if error is ErrorCode.NONE else dict.fromkeys(partitions, error), answer)
        await breather.give_way()
    return error, answers


async def _fetch_from_zookeeper(
    context: RequestContext, group_id: str, partitions: list[TopicPartition]
) -> OffsetFetchResponse:
    cache = context.broker.metadata_cache
    known = [partition for partition in partitions if cache.contains(partition)]
    read = await read_offsets(context.broker.zk, group_id, known)
    found: dict[TopicPartition, FetchedOffset] = dict.fromkeys(partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for partition, value in read.items():
        found[partition] = value if isinstance(value, ErrorCode) else CommittedOffset(value)
    answers: _Answers = {}
    _note(answers, found, OffsetFetchResponsePartition)
    return _response(ErrorCode.NONE, answers)


def _response(error: ErrorCode, answers: _Answers) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=error,
        topics=[OffsetFetchResponseTopic(name=topic, partitions=list(of.values())) for topic, of in answers.items()],
    )


def _group(
    context: RequestContext, request: OffsetFetchRequest, group: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    partitions = None if group.topics is None else _partitions(group.topics)
    error, found = context.broker.group_coordinator.offsets.fetch(
        group.group_id, partitions, require_stable=request.require_stable
    )
    answers: _Answers = {}
    _note(answers, found, OffsetFetchResponsePartitions)
    return _group_response(group.group_id, error, answers)


def _group_response(group_id: str, error: ErrorCode, answers: _Answers) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group_id=group_id,
        error_code=error,
        topics=[OffsetFetchResponseTopics(name=topic, partitions=list(of.values())) for topic, of in answers.items()],
    )


def _partitions(topics: Iterable[_Topic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes]


def _one(topic: _Topic) -> list[TopicPartition]:
    return _partitions([topic])


def _pieces(topics: _Topics) -> Iterator[_Topic]:
    return pieces(topics, "partition_indexes")


def _note(answers: _Answers, found: Mapping[TopicPartition, FetchedOffset], answer: Any) -> None:
    """Add the offsets found to the answers, in the class for the request's version."""
    for (topic, index), read in found.items():
        value, code = (_NONE, read) if isinstance(read, ErrorCode) else (read or _NONE, ErrorCode.NONE)
        answers.setdefault(topic, {})[index] = answer(
            partition_index=index,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            error_code=code,
        )
