"""ListTransactions (66): v0–v1.

Behaviour
* The transactional ids that this broker coordinates, filtered by state, producer id and duration (KIP-664). A word that
  is no state comes back in ``unknown_state_filters``.
* While any partition is being loaded, the answer is COORDINATOR_LOAD_IN_PROGRESS.

Version notes
* v1 duration (KIP-994); a transaction that never began counts as longer than any
"""

from __future__ import annotations

from engine.broker.handlers.answer_lists import answer_list, is_large
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, each, in_steps
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.kafka.formats import transaction_state
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

_STATES = {state.kafka_name: state for state in transaction_state.TransactionState}


@handles(ApiKey.LIST_TRANSACTIONS, requires=["Describe TransactionalId"])
@in_steps
def list_transactions(context: RequestContext, request: ListTransactionsRequest) -> Steps[ListTransactionsResponse]:
    known, unknown = set(), answer_list(context, ListTransactionsResponse, "unknown_state_filters")
    coordinator = context.broker.transaction_coordinator
    for name in request.state_filters:
        if name in _STATES:
            known.add(_STATES[name])
        else:
            unknown.append(name)
        yield
    # Of very many only those that there are. No producer has the id -1.
    present = {transaction.producer_id for transaction in coordinator.transactions} if is_large(context) else None
    producer_ids = frozenset(id_ for id_ in request.producer_id_filters if present is None or id_ in present)
    listed = coordinator.list_transactions(
        producer_ids=producer_ids or [-1] if request.producer_id_filters else (),
        states=known if request.state_filters else None,
        duration_ms=request.duration_filter,
    )
    if isinstance(listed, ErrorCode):
        return ListTransactionsResponse(error_code=listed)
    states = yield from each(
        listed,
        lambda transaction: TransactionState(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.kafka_name,
        ),
    )
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=states)
