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

from engine.broker.coordinator.groups.commit_gathering import CommitErrors
from engine.broker.coordinator.groups.values import CommittedOffset, Committer, Offsets
from engine.broker.coordinator.transactions.state_machine import ProducerIdAndEpoch
from engine.broker.coordinator.transactions.verifier import Verified
from engine.broker.coordinator.writer import commit_error
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, by_topic, in_steps, pieces
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
    """Store a group's offsets as part of a transaction."""
    offsets, errors = yield from _split(context, request)
    if are_transactions_refused(context):
        return (yield from _steps(context, errors | dict.fromkeys(offsets, ErrorCode.UNSUPPORTED_VERSION)))
    if not offsets:
        return (yield from _steps(context, errors))
    error = context.broker.group_coordinator.offsets.status(request.group_id)
    if error is not NO_ERROR:
        return (yield from _steps(context, errors | dict.fromkeys(offsets, error)))
    return _store(context, request, offsets, errors)


def _store(
    context: RequestContext, request: TxnOffsetCommitRequest, offsets: Offsets, errors: CommitErrors
) -> TxnOffsetCommitResponse | Deferred | Coroutine[Any, Any, object]:
    groups = context.broker.group_coordinator
    if not context.broker.dynamic_configs.current.transaction_partition_verification_enable:
        return _commit(context, request, offsets, errors, None)
    verifier = context.broker.transaction_verifier
    verified = verifier.begin(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        {groups.partition_for(request.group_id): NO_SEQUENCE},
        knows_abortable=context.api_version >= ABORTABLE_SINCE,
    )
    if verifier.settle_here(verified):
        return _commit(context, request, offsets, errors, verified)
    return _verify_first(context, request, offsets, errors, verified)


async def _verify_first(
    context: RequestContext, request: TxnOffsetCommitRequest, offsets: Offsets, errors: CommitErrors, verified: Verified
) -> object:
    await context.broker.transaction_verifier.settle(verified)
    return _commit(context, request, offsets, errors, verified)


def _commit(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    offsets: Offsets,
    errors: CommitErrors,
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
        return _response(context, errors | dict.fromkeys(offsets, commit_error(refusal)))
    deferred = Deferred()

    def done(error: ErrorCode, refused: CommitErrors) -> None:
        deferred.complete(_response(context, dict.fromkeys(offsets, error) | refused | errors))

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
) -> Generator[None, None, tuple[Offsets, CommitErrors]]:
    """Return the offsets of existing partitions, and the errors of the others."""
    now_ms = context.broker.clock.now_ms()
    offsets: Offsets = {}
    errors: CommitErrors = {}
    for topic in pieces(request.topics, "partitions"):
        yield
        name = topic.name
        existing = context.broker.metadata_cache.partitions(name)
        for asked in topic.partitions:
            index = asked.partition_index
            # Same as TopicPartition(…) and CommittedOffset(…), without their detour through Python.
            partition = _new(TopicPartition, (name, index))
            if index not in existing:
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            offsets[partition] = _new(
                CommittedOffset,
                (asked.committed_offset, asked.committed_metadata or "", asked.committed_leader_epoch, now_ms, None),
            )
    return offsets, errors


def _response(context: RequestContext, errors: CommitErrors) -> TxnOffsetCommitResponse:
    return at_once(_steps(context, errors))


def _steps(context: RequestContext, errors: CommitErrors) -> Generator[None, None, TxnOffsetCommitResponse]:
    if context.api_version < LOADING_SINCE:
        loading, unavailable = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE
        errors = {partition: unavailable if error is loading else error for partition, error in errors.items()}
    topics = yield from by_topic(errors.items(), _answer)
    return TxnOffsetCommitResponse(
        topics=[TxnOffsetCommitResponseTopic(name=topic, partitions=partitions) for topic, partitions in topics]
    )


@lru_cache(maxsize=10_000)
def _answer(index: int, error: ErrorCode) -> TxnOffsetCommitResponsePartition:
    """Return the answer for a partition. Responses share it: they are encoded and never changed."""
    return TxnOffsetCommitResponsePartition(partition_index=index, error_code=error)
