"""DescribeTransactions (65): v0.

Behaviour
* State, producer, time-out and partitions of transactional ids that this broker coordinates (KIP-664). While a
  transaction ends, its partitions are those that lack their marker.
* An unknown id is TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST.
"""

from __future__ import annotations

from engine.broker.handlers.answer_lists import answer_list
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, each, in_steps
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


@handles(ApiKey.DESCRIBE_TRANSACTIONS, requires=["Describe TransactionalId", "Describe Topic"])
@in_steps
def describe_transactions(
    context: RequestContext, request: DescribeTransactionsRequest
) -> Steps[DescribeTransactionsResponse]:
    states = yield from each(
        request.transactional_ids,
        lambda name: _describe(context, name),
        answer_list(context, DescribeTransactionsResponse, "transaction_states"),
    )
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(context: RequestContext, transactional_id: str) -> TransactionState:
    transaction = context.broker.transaction_coordinator.describe(transactional_id)
    if isinstance(transaction, ErrorCode):
        return TransactionState(error_code=transaction, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.kafka_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )
