"""AddPartitionsToTxn (24): v0–v5.

Behaviour
* Adds partitions to a producer's transaction, which begins with the first of them, and answers once
  ``__transaction_state`` has that. If one partition does not exist, none is added: the others get
  OPERATION_NOT_ATTEMPTED.
* Brokers send v4 and v5 to ask whether partitions belong to transactions (KIP-890): TRANSACTION_ABORTABLE for those
  that do not.
* CONCURRENT_TRANSACTIONS while the transaction before is still being ended; clients ask again.

Version notes
* v2 PRODUCER_FENCED   * v3 flexible   * v4 several transactions, from brokers   * v5 TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import Any

from engine.broker.coordinator.transactions.state_machine import ProducerIdAndEpoch
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import by_topic, each, in_steps, pieces
from engine.broker.handlers.preconditions import are_transactions_refused, understood
from engine.broker.handlers.registry import handles
from engine.broker.network.request import Deferred
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.turns import at_once
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FROM_BROKERS = 4
"""From this version on, brokers ask about several transactions."""

Errors = Sequence[tuple[TopicPartition, ErrorCode]]
"""The answer for each partition. A partition that was named twice is answered twice, as by Kafka."""

_new: Callable[..., Any] = tuple.__new__


@handles(ApiKey.ADD_PARTITIONS_TO_TXN, requires=["Write TransactionalId", "Write Topic", "ClusterAction Cluster"])
@in_steps
def add_partitions_to_txn(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> Generator[None, None, AddPartitionsToTxnResponse | Deferred]:
    """Add partitions to transactions, or say whether they belong to them."""
    transactions = request.transactions if context.api_version >= FROM_BROKERS else [_of_client(request)]
    results: list[Errors | None] = [None] * len(transactions)
    left = len(transactions)
    deferred: Deferred | None = None

    def take(number: int, errors: Errors) -> None:
        nonlocal left
        results[number] = errors
        left -= 1
        if not left and deferred is not None:
            deferred.complete(at_once(response()))

    def response() -> Generator[None, None, AddPartitionsToTxnResponse]:
        return _response(context, transactions, [found or () for found in results])

    if not transactions:
        return AddPartitionsToTxnResponse()
    for number, transaction in enumerate(transactions):
        yield from _add(context, transaction, lambda errors, number=number: take(number, errors))  # type: ignore[misc]
    if not left:
        return (yield from response())
    deferred = Deferred()
    return deferred


def _of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        verify_only=False,
        topics=request.v3_and_below_topics,
    )


def _add(
    context: RequestContext, asked: AddPartitionsToTxnTransaction, done: Callable[[Errors], None]
) -> Generator[None, None, None]:
    yield
    named: list[TopicPartition] = []
    partitions: dict[TopicPartition, None] = {}
    missing: set[TopicPartition] = set()
    cache = context.broker.metadata_cache
    for topic in pieces(asked.topics, "partitions"):
        name = topic.name
        # Same as TopicPartition(…), without its detour through Python.
        own: list[TopicPartition] = [_new(TopicPartition, (name, index)) for index in topic.partitions]
        named += own
        partitions.update(dict.fromkeys(own))
        there = cache.partitions(name)
        missing.update([p for p in own if p.partition not in there])
        yield
    if are_transactions_refused(context):
        done([(p, ErrorCode.UNSUPPORTED_VERSION) for p in named])
        return
    if missing:
        unknown, untouched = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        done((yield from each(partitions, lambda p: (p, unknown if p in missing else untouched))))
        return
    coordinator = context.broker.transaction_coordinator
    producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        done(list(coordinator.verify_partitions(asked.transactional_id, producer, partitions.keys()).items()))
        return

    def added(error: ErrorCode) -> None:
        shown = understood(error, context.api_version, fenced_since=2)
        done([(p, shown) for p in named])

    coordinator.add_partitions(asked.transactional_id, producer, partitions.keys(), added)


def _response(
    context: RequestContext, transactions: list[AddPartitionsToTxnTransaction], results: list[Errors]
) -> Generator[None, None, AddPartitionsToTxnResponse]:
    answer = AddPartitionsToTxnResponse()
    for asked, errors in zip(transactions, results, strict=True):
        grouped = yield from by_topic(errors, _result)
        topics = yield from each(
            grouped, lambda topic: AddPartitionsToTxnTopicResult(name=topic[0], results_by_partition=topic[1])
        )
        yield
        if context.api_version < FROM_BROKERS:
            answer.results_by_topic_v3_and_below = topics
        else:
            result = AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=topics)
            answer.results_by_transaction.append(result)
    return answer


@lru_cache(maxsize=10_000)
def _result(index: int, error: ErrorCode) -> AddPartitionsToTxnPartitionResult:
    """Return the answer for a partition. Responses share it: they are encoded and never changed."""
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
