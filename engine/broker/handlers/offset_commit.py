"""OffsetCommit (8): v0–v9.

Behaviour
* Stores a group's offsets in ``__consumer_offsets`` and answers once they are replicated, or after
  ``offsets.commit.timeout.ms``.
* Members commit in their generation. A client that assigns partitions itself has none, and may commit while the group
  has no members. A missing partition is UNKNOWN_TOPIC_OR_PARTITION; an overlong text is OFFSET_METADATA_TOO_LARGE.

Version notes
* v0 keeps offsets in ZooKeeper without their texts, as Kafka 0.8.1 did, for any client that names the group
* v1 commit timestamp   * v2–v4 retention time of this commit
* v6 leader epoch   * v7 static members   * v8 flexible   * v9 the errors of KIP-848, which do not occur here
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator
from functools import lru_cache
from itertools import repeat
from typing import Any

from engine.broker.coordinator.groups.commit_form import CommittedOffset, Committer, Offsets
from engine.broker.coordinator.groups.commit_gathering import CommitErrors
from engine.broker.coordinator.groups.offset_requests import utf16_length
from engine.broker.handlers.answer_lists import answer_lists, repeated_digests
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import each_part, in_turns, pieces
from engine.broker.handlers.preconditions import are_static_members_refused
from engine.broker.handlers.registry import handles, handles_large
from engine.broker.network.request import Deferred
from engine.common.errors import CoordinationError, ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from engine.kafka.zk.consumers import is_group_znode_name
from engine.runtime.offload import beside_loop
from engine.runtime.turns import Breather, carry_out

_NOT_GIVEN = -1
_LATEST_MS = 2**63 - 1
_new: Callable[..., Any] = tuple.__new__


@handles(ApiKey.OFFSET_COMMIT, requires=["Read Group", "Read Topic"])
def offset_commit(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Deferred | Coroutine[Any, Any, object]:
    if are_static_members_refused(context, request.group_instance_id):
        return _response(request, ErrorCode.UNSUPPORTED_VERSION, {})
    offsets, errors = _split(context, request, request.topics)
    if not offsets:
        return _response(request, ErrorCode.NONE, errors)
    if context.api_version == 0:
        return _commit_first(context, request, offsets, errors)
    committer = Committer(request.member_id, request.generation_id_or_member_epoch, request.group_instance_id)
    deferred = Deferred()

    def done(error: ErrorCode, refused: CommitErrors) -> None:
        deferred.complete(_response(request, error, errors | refused if refused else errors))

    context.broker.group_coordinator.offsets.commit(request.group_id, committer, offsets, done)
    context.session.note_commit(deferred)
    # Without followers the answer is ready at once, and need not wait anywhere.
    ready: OffsetCommitResponse | None = deferred.response
    return deferred if ready is None else ready


@handles_large(ApiKey.OFFSET_COMMIT)
async def offset_commit_in_turns(context: RequestContext, request: OffsetCommitRequest) -> object:
    """Store very many offsets of a group, in turns with other requests."""
    if are_static_members_refused(context, request.group_instance_id):
        return await _response_in_turns(context, request, ErrorCode.UNSUPPORTED_VERSION, {}, repeat(False))
    offsets: Offsets = {}
    are_missing = bytearray()
    breather = Breather()
    for topic in pieces(request.topics, "partitions"):
        accepted, missing = _split(context, request, [topic])
        offsets.update(accepted)
        # As errors by partition they would take many times the request's bytes.
        are_missing += bytes(TopicPartition(topic.name, asked.partition_index) in missing for asked in topic.partitions)
        await breather.give_way()
    if not offsets:
        return await _response_in_turns(context, request, ErrorCode.NONE, {}, are_missing)
    if context.api_version == 0:
        refused = await _commit_to_zookeeper(context, request, offsets)
        return await _response_in_turns(context, request, ErrorCode.NONE, refused, are_missing)
    committer = Committer(request.member_id, request.generation_id_or_member_epoch, request.group_instance_id)
    outcome: asyncio.Future[tuple[ErrorCode, CommitErrors]] = asyncio.get_running_loop().create_future()

    def done(error: ErrorCode, refused: CommitErrors) -> None:
        if not outcome.done():
            outcome.set_result((error, refused))

    coordinator = context.broker.group_coordinator.offsets
    prepared = await beside_loop(coordinator.prepare, request.group_id, offsets)
    coordinator.commit(request.group_id, committer, offsets, done, prepared)
    error, refused = await outcome
    return await _response_in_turns(context, request, error, refused, are_missing)


async def _response_in_turns(
    context: RequestContext,
    request: OffsetCommitRequest,
    error: ErrorCode,
    errors: CommitErrors,
    are_missing: Iterable[int],
) -> OffsetCommitResponse:
    """Answer as ``_response`` does, with each topic once.

    Args:
        are_missing: for each partition, in the request's order, whether it does not exist.
    """
    flags = iter(are_missing)

    def answer(name: str, asked: OffsetCommitRequestPartition) -> OffsetCommitResponsePartition:
        index = asked.partition_index
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if next(flags) else None
        return _answer(index, missing or errors.get(TopicPartition(name, index), error))

    if not await carry_out(repeated_digests(_names(request))):
        return OffsetCommitResponse(
            topics=await carry_out(
                each_part(
                    request.topics,
                    lambda topic: topic.partitions,
                    lambda topic, asked: answer(topic.name, asked),
                    lambda topic, partitions: OffsetCommitResponseTopic(name=topic.name, partitions=partitions),
                    answer_lists(context, OffsetCommitResponse, "topics.partitions"),
                )
            )
        )
    answers: dict[str, dict[int, OffsetCommitResponsePartition]] = {}
    breather = Breather()
    for topic in pieces(request.topics, "partitions"):
        name, of = topic.name, answers.setdefault(topic.name, {})
        for asked in topic.partitions:
            of[asked.partition_index] = answer(name, asked)
        await breather.give_way()
    topics = await in_turns(
        answers.items(), lambda topic: OffsetCommitResponseTopic(name=topic[0], partitions=list(topic[1].values()))
    )
    return OffsetCommitResponse(topics=topics)


def _names(request: OffsetCommitRequest) -> Iterator[Hashable]:
    """Yield each topic and each partition of a request."""
    for topic in request.topics:
        yield topic.name
        for asked in topic.partitions:
            yield TopicPartition(topic.name, asked.partition_index)


def _split(
    context: RequestContext, request: OffsetCommitRequest, topics: list[OffsetCommitRequestTopic]
) -> tuple[Offsets, CommitErrors]:
    """Return the offsets of existing partitions, and the errors of the others."""
    cache = context.broker.metadata_cache
    now_ms = context.broker.clock.now_ms()
    retention_ms = request.retention_time_ms
    # The largest retentions mean "forever", and their end is not a 64-bit time.
    expire_ms = None if retention_ms == _NOT_GIVEN else min(now_ms + retention_ms, _LATEST_MS)
    offsets: Offsets = {}
    errors: CommitErrors = {}
    for topic in topics:
        name = topic.name
        existing = cache.partitions(name)
        for asked in topic.partitions:
            index = asked.partition_index
            if index not in existing:
                errors[TopicPartition(name, index)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            timestamp_ms = asked.commit_timestamp
            # Same as CommittedOffset(…) and TopicPartition(…), without their detour through Python.
            offsets[_new(TopicPartition, (name, index))] = _new(
                CommittedOffset,
                (
                    asked.committed_offset,
                    asked.committed_metadata or "",
                    asked.committed_leader_epoch,
                    now_ms if timestamp_ms == _NOT_GIVEN else timestamp_ms,
                    expire_ms,
                ),
            )
    return offsets, errors


async def _commit_first(
    context: RequestContext, request: OffsetCommitRequest, offsets: Offsets, errors: CommitErrors
) -> OffsetCommitResponse:
    refused = await _commit_to_zookeeper(context, request, offsets)
    return _response(request, ErrorCode.NONE, errors | refused)


async def _commit_to_zookeeper(
    context: RequestContext, request: OffsetCommitRequest, offsets: Offsets
) -> dict[TopicPartition, ErrorCode]:
    length_max = context.broker.config.offset_metadata_max_bytes
    fitting = {p: value.offset for p, value in offsets.items() if utf16_length(value.metadata) <= length_max}
    too_large = dict.fromkeys(offsets.keys() - fitting.keys(), ErrorCode.OFFSET_METADATA_TOO_LARGE)
    if not is_group_znode_name(request.group_id):
        return too_large | dict.fromkeys(fitting, ErrorCode.INVALID_GROUP_ID)
    try:
        errors = await context.broker.zk.consumers.set_or_create_consumer_offsets(request.group_id, fitting)
    except CoordinationError:
        return too_large | dict.fromkeys(fitting, ErrorCode.UNKNOWN_SERVER_ERROR)
    failed = (p for p, error in errors.items() if error is not None)
    return too_large | dict.fromkeys(fitting, ErrorCode.NONE) | dict.fromkeys(failed, ErrorCode.UNKNOWN_SERVER_ERROR)


def _response(request: OffsetCommitRequest, error: ErrorCode, errors: CommitErrors) -> OffsetCommitResponse:
    """Answer with ``error`` for every partition that has no error of its own."""
    topics: list[OffsetCommitResponseTopic] = []
    asked = request.topics
    if len(asked) > 1 and len({topic.name for topic in asked}) < len(asked):
        asked = _merged(asked)
    for topic in asked:
        name = topic.name
        if errors:
            partitions = [
                _answer(p.partition_index, errors.get(TopicPartition(name, p.partition_index), error))
                for p in topic.partitions
            ]
        else:
            partitions = [_answer(p.partition_index, error) for p in topic.partitions]
        topics.append(OffsetCommitResponseTopic(name=name, partitions=partitions))
    return OffsetCommitResponse(topics=topics)


def _merged(topics: list[OffsetCommitRequestTopic]) -> list[OffsetCommitRequestTopic]:
    """Return the topics, each once: clients look up an answer's partitions by topic."""
    partitions: dict[str, dict[int, OffsetCommitRequestPartition]] = {}
    for topic in topics:
        partitions.setdefault(topic.name, {}).update({p.partition_index: p for p in topic.partitions})
    return [OffsetCommitRequestTopic(name=name, partitions=list(of.values())) for name, of in partitions.items()]


@lru_cache(maxsize=10_000)
def _answer(index: int, error: ErrorCode) -> OffsetCommitResponsePartition:
    """Return the answer for a partition. Responses share it: they are encoded and never changed."""
    return OffsetCommitResponsePartition(partition_index=index, error_code=error)
