"""AddPartitionsToTxn (24): v0–v5.

Behaviour
* Adds partitions to a producer's transaction, which begins with the first of them, and answers once
  ``__transaction_state`` has that. If one partition does not exist, none is added: the others get
  OPERATION_NOT_ATTEMPTED.
* Brokers send v4 and v5 to ask whether partitions belong to transactions (KIP-890): TRANSACTION_ABORTABLE for those
  that do not.
* If the transaction before is still being ended, the answer waits for that; after 50 ms it is CONCURRENT_TRANSACTIONS,
  and clients ask again.

Version notes
* v2 PRODUCER_FENCED   * v3 flexible   * v4 several transactions, from brokers   * v5 TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from engine.broker.coordinator.transactions.state_machine import ProducerIdAndEpoch
from engine.broker.handlers.answer_lists import ByTopic, answer_list, each_once, is_large
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, carried_out, pieces
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

Topics = list[AddPartitionsToTxnTopicResult]

_NONE: Topics = []
"""That of a transaction without partitions, shared by very many."""

_new: Callable[..., Any] = tuple.__new__


@handles(ApiKey.ADD_PARTITIONS_TO_TXN, requires=["Write TransactionalId", "Write Topic", "ClusterAction Cluster"])
def add_partitions_to_txn(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Deferred | Coroutine[Any, Any, Any]:
    usual = None
    if context.api_version < FROM_BROKERS and not is_large(context):
        usual = _add_usual(context, request)
    return carried_out(_add_all(context, request)) if usual is None else usual


def _add_usual(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Deferred | None:
    """Add what a client names; None if the request needs the slow path, because of a partition that does not exist."""
    topics = request.v3_and_below_topics
    partitions: list[TopicPartition] = []
    for topic in topics:
        name, known = topic.name, context.broker.metadata_cache.partitions(topic.name)
        if not topic.partitions or not all(map(known.__contains__, topic.partitions)):
            return None
        # As TopicPartition(…), without its detour through Python.
        partitions += [_new(TopicPartition, (name, index)) for index in topic.partitions]
    if not topics or len({topic.name for topic in topics}) < len(topics) or are_transactions_refused(context):
        return None
    deferred = Deferred()

    def added(error: ErrorCode) -> None:
        shown = understood(error, context.api_version, fenced_since=2)
        results = [
            AddPartitionsToTxnTopicResult(
                name=topic.name, results_by_partition=[_result(index, shown) for index in topic.partitions]
            )
            for topic in topics
        ]
        deferred.complete(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))

    context.broker.transaction_coordinator.add_partitions(
        request.v3_and_below_transactional_id,
        ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        partitions,
        added,
    )
    # Without followers the answer is ready at once, and need not wait anywhere.
    ready: AddPartitionsToTxnResponse | None = deferred.response
    return deferred if ready is None else ready


def _add_all(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> Generator[None, None, AddPartitionsToTxnResponse | Deferred]:
    """Do the same for any request; a step is a partition."""
    transactions = request.transactions if context.api_version >= FROM_BROKERS else [_of_client(request)]
    results: list[Topics] = [_NONE] * len(transactions)
    left = len(transactions)
    deferred: Deferred | None = None

    def take(number: int, topics: Topics) -> None:
        nonlocal left
        if topics:
            results[number] = topics
        left -= 1
        if not left and deferred is not None:
            deferred.complete(at_once(response()))

    def response() -> Generator[None, None, AddPartitionsToTxnResponse]:
        return _response(context, transactions, results)

    if not transactions:
        return AddPartitionsToTxnResponse()
    for number, transaction in enumerate(transactions):
        yield from _add(context, transaction, lambda topics, number=number: take(number, topics))  # type: ignore[misc]
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
    context: RequestContext, asked: AddPartitionsToTxnTransaction, done: Callable[[Topics], None]
) -> Generator[None, None, None]:
    yield
    if are_transactions_refused(context):
        done((yield from _topics(context, asked, ((p, ErrorCode.UNSUPPORTED_VERSION) for p in _named(asked)))))
        return
    partitions: dict[TopicPartition, None] = {}
    while not (yield from _are_there(context, asked, partitions)):
        partitions.clear()
        refused = yield from _refused(context, asked)
        if refused is not None:
            done(refused)
            return
    coordinator = context.broker.transaction_coordinator
    producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
    if asked.verify_only:
        verified = coordinator.verify_partitions(asked.transactional_id, producer, partitions.keys())
        done((yield from _topics(context, asked, verified.items())))
        return

    errors: list[ErrorCode] = []
    is_waiting = False

    def answer(error: ErrorCode) -> Steps[Topics]:
        shown = understood(error, context.api_version, fenced_since=2)
        # A partition that was named twice is answered twice, as by Kafka.
        return _topics(context, asked, ((p, shown) for p in _named(asked)))

    def added(error: ErrorCode) -> None:
        if is_waiting:
            done(at_once(answer(error)))
        else:
            errors.append(error)

    coordinator.add_partitions(asked.transactional_id, producer, partitions.keys(), added)
    is_waiting = not errors
    if errors:
        done((yield from answer(errors[0])))


def _are_there(
    context: RequestContext, asked: AddPartitionsToTxnTransaction, into: dict[TopicPartition, None]
) -> Generator[None, None, bool]:
    """Return whether all partitions exist. They are added to ``into`` until one does not."""
    for topic in pieces(asked.topics, "partitions"):
        name, existing = topic.name, context.broker.metadata_cache.partitions(topic.name)
        if not all(index in existing for index in topic.partitions):
            return False
        # Same as TopicPartition(…), without its detour through Python.
        into.update(dict.fromkeys([_new(TopicPartition, (name, index)) for index in topic.partitions]))
        yield
    return True


def _refused(context: RequestContext, asked: AddPartitionsToTxnTransaction) -> Generator[None, None, Topics | None]:
    """Return the answer if some partitions do not exist; None if all exist by now."""
    is_any_missing = False

    def errors() -> Iterator[tuple[TopicPartition | None, ErrorCode]]:
        nonlocal is_any_missing
        for partition, _ in named:
            is_there = partition is None or partition.partition in partitions_of(partition.topic)
            is_any_missing |= not is_there
            yield partition, ErrorCode.OPERATION_NOT_ATTEMPTED if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    partitions_of = context.broker.metadata_cache.partitions
    named = yield from each_once(context, lambda: ((partition, None) for partition in _named(asked)))
    topics = yield from _topics(context, asked, errors())
    return topics if is_any_missing else None


def _named(asked: AddPartitionsToTxnTransaction) -> Iterator[TopicPartition | None]:
    """Yield the partitions of a transaction, and None for each topic: very many may have no partition."""
    for topic in asked.topics:
        yield None
        for index in topic.partitions:
            yield _new(TopicPartition, (topic.name, index))


def _topics(
    context: RequestContext,
    asked: AddPartitionsToTxnTransaction,
    errors: Iterable[tuple[TopicPartition | None, ErrorCode]],
) -> Generator[None, None, Topics]:
    """Return the answer for partitions; it yields after each of them."""
    if not asked.topics:
        return _NONE
    topics = yield from ByTopic.of(
        context,
        AddPartitionsToTxnResponse,
        "results_by_topic_v3_and_below.results_by_partition",
        "name",
        lambda: (topic.name for topic in asked.topics),
        version=min(context.api_version, FROM_BROKERS - 1),
    )
    # Very many would drive all others out of the cache, and fill it.
    result = _result.__wrapped__ if is_large(context) else _result
    for partition, error in errors:
        if partition is not None:
            topics.add(partition.topic, result(partition.partition, error))
        yield
    return topics.topics()


def _response(
    context: RequestContext, transactions: Sequence[AddPartitionsToTxnTransaction], results: list[Topics]
) -> Generator[None, None, AddPartitionsToTxnResponse]:
    if context.api_version < FROM_BROKERS:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0])
    answered = answer_list(context, AddPartitionsToTxnResponse, "results_by_transaction")
    for asked, topics in zip(transactions, results, strict=True):
        answered.append(AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=topics))
        yield
    return AddPartitionsToTxnResponse(results_by_transaction=answered)


@lru_cache(maxsize=10_000)
def _result(index: int, error: ErrorCode) -> AddPartitionsToTxnPartitionResult:
    """Return the answer for a partition. Responses share it: they are encoded and never changed."""
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
