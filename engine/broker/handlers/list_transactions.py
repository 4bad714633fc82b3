"""ListTransactions (66): v0–v1.

Behaviour
* The transactional ids that this broker coordinates, filtered by state, producer id and duration (KIP-664). A word that
  is no state comes back in ``unknown_state_filters``.
* While any partition is being loaded, the answer is COORDINATOR_LOAD_IN_PROGRESS.

Version notes
* v1 duration (KIP-994); a transaction that never began counts as longer than any
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import answered
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
def list_transactions(
    context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse | Coroutine[Any, Any, ListTransactionsResponse]:
    """List transactional ids."""
    wanted = request.state_filters
    found = context.broker.transaction_coordinator.list_transactions(
        producer_ids=frozenset(request.producer_id_filters),
        states={_STATES[name] for name in wanted if name in _STATES} if wanted else None,
        duration_ms=request.duration_filter,
    )
    if isinstance(found, ErrorCode):
        return ListTransactionsResponse(error_code=found)
    return answered(
        found,
        lambda transaction: TransactionState(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.kafka_name,
        ),
        lambda states: ListTransactionsResponse(
            unknown_state_filters=[name for name in wanted if name not in _STATES], transaction_states=states
        ),
    )
