"""OffsetFetch (9): v0–v9.

Behaviour
* Reads a group's committed offsets; -1 if there is none, which is not an error. What the same connection has committed
  before counts: the answer waits for that.

Version notes
* v0 reads offsets from ZooKeeper; a missing one is UNKNOWN_TOPIC_OR_PARTITION
* v1 each partition carries the group's error
* v2 null topics: all that the group has stored; the group's error stands once   * v5 leader epoch   * v6 flexible
* v7 ``require_stable``: UNSTABLE_OFFSET_COMMIT while a newer offset is under way (KIP-447)   * v8 several groups
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine.broker.coordinator.groups.commit_form import CommittedOffset
from engine.broker.coordinator.groups.offset_requests import FetchedOffset
from engine.broker.handlers.answer_lists import answer_list
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, carried_out, in_lists, parts_in_lists
from engine.broker.handlers.preconditions import unfinished_commits, wait_for_commits
from engine.broker.handlers.registry import handles
from engine.broker.network.request import Deferred
from engine.common.errors import CoordinationError, ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from engine.kafka.zk.consumers import is_group_znode_name
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.runtime.turns import Breather, carry_out

_NONE = CommittedOffset(offset=-1)

_Topics = Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics]
_Answers = dict[str, dict[int, Any]]
"""The answers for partitions, by topic."""


@handles(ApiKey.OFFSET_FETCH, requires=["Describe Group", "Describe Topic"])
def offset_fetch(
    context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Coroutine[Any, Any, object]:
    if context.api_version == 0:
        return _fetch_from_zookeeper(context, request)
    commits = unfinished_commits(context)
    return _read_after(commits, context, request) if commits else carried_out(_read(context, request))


async def _read_after(commits: Iterable[Deferred], context: RequestContext, request: OffsetFetchRequest) -> object:
    await wait_for_commits(commits)
    return await carry_out(_read(context, request))


def _read(context: RequestContext, request: OffsetFetchRequest) -> Steps[OffsetFetchResponse]:
    if context.api_version < 8:
        error, answers = yield from _fetch(
            context, request, request.group_id, request.topics, OffsetFetchResponsePartition
        )
        return _response(error, answers)
    groups = answer_list(context, OffsetFetchResponse, "groups")
    for group in request.groups:
        error, answers = yield from _fetch(
            context, request, group.group_id, group.topics, OffsetFetchResponsePartitions
        )
        topics = [OffsetFetchResponseTopics(name=topic, partitions=[*of.values()]) for topic, of in answers.items()]
        groups.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=error, topics=topics))
        yield
    return OffsetFetchResponse(groups=groups)


def _fetch(
    context: RequestContext, request: OffsetFetchRequest, group_id: str, topics: _Topics | None, answer: Any
) -> Steps[tuple[ErrorCode, _Answers]]:
    """Return the group's error and each partition's answer."""
    offsets = context.broker.group_coordinator.offsets
    answers: _Answers = {}
    for partitions in in_lists(offsets.partitions(group_id)) if topics is None else _named(topics):
        error, offsets_by_partition = offsets.fetch(group_id, partitions, require_stable=request.require_stable)
        if error is not ErrorCode.NONE and context.api_version >= 2:
            return error, {}
        # In version 1 only the partitions have a field for the group's error.
        _note(answers, offsets_by_partition if error is ErrorCode.NONE else dict.fromkeys(partitions, error), answer)
        yield
    return error, answers


def _named(topics: _Topics | None) -> Iterator[list[TopicPartition]]:
    asked: Any = topics or ()
    return parts_in_lists(asked, lambda topic: (TopicPartition(topic.name, index) for index in topic.partition_indexes))


async def _fetch_from_zookeeper(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    cache, breather = context.broker.metadata_cache, Breather()
    answers: _Answers = {}
    for partitions in _named(request.topics):
        known = [partition for partition in partitions if cache.contains(partition)]
        fetched: dict[TopicPartition, FetchedOffset] = dict.fromkeys(partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        fetched |= await _read_from_zookeeper(context.broker.zk, request.group_id, known)
        _note(answers, fetched, OffsetFetchResponsePartition)
        await breather.give_way()
    return _response(ErrorCode.NONE, answers)


async def _read_from_zookeeper(
    zk: KafkaZkClient, group_id: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, FetchedOffset]:
    if not is_group_znode_name(group_id):
        return dict.fromkeys(partitions, ErrorCode.INVALID_GROUP_ID)
    try:
        reads = await zk.consumers.get_consumer_offsets([(group_id, partition) for partition in partitions])
    except CoordinationError:
        return dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
    return {partition: _in_zookeeper(read) for (_, partition), read in reads.items()}


def _in_zookeeper(read: int | CoordinationError | None) -> FetchedOffset:
    if isinstance(read, CoordinationError):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if read is None else CommittedOffset(read)


def _response(error: ErrorCode, answers: _Answers) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=error,
        topics=[OffsetFetchResponseTopic(name=topic, partitions=list(of.values())) for topic, of in answers.items()],
    )


def _note(answers: _Answers, offsets: Mapping[TopicPartition, FetchedOffset], answer: Any) -> None:
    """Add the offsets found to the answers, in the class for the request's version."""
    for (topic, index), read in offsets.items():
        value, code = (_NONE, read) if isinstance(read, ErrorCode) else (read or _NONE, ErrorCode.NONE)
        answers.setdefault(topic, {})[index] = answer(
            partition_index=index,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            error_code=code,
        )
