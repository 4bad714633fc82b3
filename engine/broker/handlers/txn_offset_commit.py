"""TxnOffsetCommit (28): v0–v4.

Behaviour
* Stores a group's offsets in ``__consumer_offsets`` as part of a transaction. They count once the transaction is
  committed; until then OffsetFetch with ``require_stable`` is UNSTABLE_OFFSET_COMMIT.
* The transaction's coordinator must know of the group's partition (AddOffsetsToTxn), as for Produce.
* From v3 on, a member commits in its generation (KIP-447); before, membership is not checked.

Version notes
* v0–v1 COORDINATOR_NOT_AVAILABLE instead of COORDINATOR_LOAD_IN_PROGRESS, which old clients do not survive
* v2 leader epochs   * v3 flexible, membership   * v4 TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import lru_cache
from typing import Any

from engine.broker.coordinator.groups.commit_form import CommittedOffset, Committer, Offsets
from engine.broker.coordinator.groups.commit_gathering import CommitErrors
from engine.broker.coordinator.transactions.state_machine import ProducerIdAndEpoch
from engine.broker.coordinator.transactions.verifier import Verified
from engine.broker.coordinator.writer import commit_error
from engine.broker.handlers.answer_lists import ErrorCodes, answer_lists
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import PER_STEP, Steps, by_topic, in_steps, pieces
from engine.broker.handlers.preconditions import are_transactions_refused
from engine.broker.handlers.registry import handles
from engine.broker.network.request import Deferred
from engine.common.errors import NO_ERROR, ErrorCode
from engine.common.model import TopicPartition
from engine.common.turns import at_once
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from engine.kafka.protocol.records.layout import NO_SEQUENCE

LOADING_SINCE = 2
"""The first version whose clients understand COORDINATOR_LOAD_IN_PROGRESS."""

ABORTABLE_SINCE = 4
"""The first version whose clients understand TRANSACTION_ABORTABLE."""

_new: Callable[..., Any] = tuple.__new__


@handles(ApiKey.TXN_OFFSET_COMMIT, requires=["Write TransactionalId", "Read Group", "Read Topic"])
@in_steps
def txn_offset_commit(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> Steps[TxnOffsetCommitResponse | Deferred | Coroutine[Any, Any, object]]:
    offsets, missing = yield from _split(context, request)
    if are_transactions_refused(context):
        return (yield from _steps(context, dict.fromkeys(offsets, ErrorCode.UNSUPPORTED_VERSION), missing))
    if not offsets:
        return (yield from _steps(context, {}, missing))
    error = context.broker.group_coordinator.offsets.status(request.group_id)
    if error is not NO_ERROR:
        return (yield from _steps(context, dict.fromkeys(offsets, error), missing))
    return _store(context, request, offsets, missing)


def _store(
    context: RequestContext, request: TxnOffsetCommitRequest, offsets: Offsets, missing: ErrorCodes | None
) -> TxnOffsetCommitResponse | Deferred | Coroutine[Any, Any, object]:
    groups = context.broker.group_coordinator
    if not context.broker.dynamic_configs.current.transaction_partition_verification_enable:
        return _commit(context, request, offsets, missing, None)
    verifier = context.broker.transaction_verifier
    verified = verifier.begin(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        {groups.partition_for(request.group_id): NO_SEQUENCE},
        knows_abortable=context.api_version >= ABORTABLE_SINCE,
    )
    if verifier.settle_here(verified):
        return _commit(context, request, offsets, missing, verified)
    return _verify_first(context, request, offsets, missing, verified)


async def _verify_first(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    offsets: Offsets,
    missing: ErrorCodes | None,
    verified: Verified,
) -> object:
    await context.broker.transaction_verifier.settle(verified)
    return _commit(context, request, offsets, missing, verified)


def _commit(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    offsets: Offsets,
    missing: ErrorCodes | None,
    verified: Verified | None,
) -> TxnOffsetCommitResponse | Deferred:
    refusal = verification = None
    if verified is not None:
        # The group's partition is the only one that the coordinator was asked about.
        refusal = next(iter(verified.errors.values()), None)
        verification = next(iter(verified.verifications.values()), None)
    if refusal is not None:
        if refusal is ErrorCode.NETWORK_EXCEPTION:
            # Older clients would not try again for it. For this one they do, and need not look for the coordinator.
            refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return _response(context, dict.fromkeys(offsets, commit_error(refusal)), missing)
    deferred = Deferred()

    def done(error: ErrorCode, refused: CommitErrors) -> None:
        deferred.complete(_response(context, dict.fromkeys(offsets, error) | refused, missing))

    context.broker.group_coordinator.offsets.commit_in_transaction(
        request.group_id,
        Committer(request.member_id, request.generation_id, request.group_instance_id),
        offsets,
        done,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        verification=verification,
    )
    # Without followers the answer is ready at once, and need not wait anywhere.
    ready: TxnOffsetCommitResponse | None = deferred.response
    return deferred if ready is None else ready


def _split(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> Generator[None, None, tuple[Offsets, ErrorCodes | None]]:
    """Return the offsets of existing partitions, and the errors of the others, if any."""
    now_ms = context.broker.clock.now_ms()
    offsets: Offsets = {}
    missing: ErrorCodes | None = None
    for topic in pieces(request.topics, "partitions"):
        yield
        name = topic.name
        existing = context.broker.metadata_cache.partitions(name)
        for asked in topic.partitions:
            index = asked.partition_index
            if index not in existing:
                missing = missing or ErrorCodes()
                missing.add(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            # Same as TopicPartition(…) and CommittedOffset(…), without their detour through Python.
            offsets[_new(TopicPartition, (name, index))] = _new(
                CommittedOffset,
                (asked.committed_offset, asked.committed_metadata or "", asked.committed_leader_epoch, now_ms, None),
            )
    return offsets, missing


def _response(context: RequestContext, errors: CommitErrors, missing: ErrorCodes | None) -> TxnOffsetCommitResponse:
    return at_once(_steps(context, errors, missing))


def _steps(
    context: RequestContext, errors: CommitErrors, missing: ErrorCodes | None
) -> Generator[None, None, TxnOffsetCommitResponse]:
    if context.api_version < LOADING_SINCE:
        loading, unavailable = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE
        errors = {partition: unavailable if error is loading else error for partition, error in errors.items()}
    if missing is None:
        topics = yield from by_topic(errors.items(), _answer)
        return TxnOffsetCommitResponse(
            topics=[TxnOffsetCommitResponseTopic(name=topic, partitions=partitions) for topic, partitions in topics]
        )
    for number, ((topic, index), error) in enumerate(errors.items()):
        missing.add(topic, index, error)
        if number % PER_STEP == 0:
            yield
    lists = answer_lists(context, TxnOffsetCommitResponse, "topics.partitions")
    return TxnOffsetCommitResponse(topics=(yield from missing.topics(context, lists, _answer.__wrapped__, _topic)))


@lru_cache(maxsize=10_000)
def _answer(index: int, error: ErrorCode) -> TxnOffsetCommitResponsePartition:
    """Return the answer for a partition. Responses share it: they are encoded and never changed."""
    return TxnOffsetCommitResponsePartition(partition_index=index, error_code=error)


def _topic(name: str, partitions: list[TxnOffsetCommitResponsePartition]) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(name=name, partitions=partitions)
