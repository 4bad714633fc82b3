"""EndTxn (26): v0–v4.

Behaviour
* Commits or aborts a transaction, and answers once ``__transaction_state`` has the outcome. The markers follow; until
  every partition has its marker, further requests for the transactional id are CONCURRENT_TRANSACTIONS.
* A repeated request gets the same answer as the first; the opposite outcome, or no transaction, is INVALID_TXN_STATE.

Version notes
* v2 PRODUCER_FENCED   * v3 flexible   * v4 TRANSACTION_ABORTABLE, which does not occur here
"""

from __future__ import annotations

from engine.broker.coordinator.transactions.state_machine import ProducerIdAndEpoch
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.preconditions import are_transactions_refused, understood
from engine.broker.handlers.registry import handles
from engine.broker.network.request import Deferred
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse


@handles(ApiKey.END_TXN, requires=["Write TransactionalId"])
def end_txn(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse | Deferred:
    if are_transactions_refused(context):
        return EndTxnResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    response: EndTxnResponse | None = None
    deferred: Deferred | None = None

    def ended(error: ErrorCode) -> None:
        nonlocal response
        response = EndTxnResponse(error_code=understood(error, context.api_version, fenced_since=2))
        if deferred is not None:
            deferred.complete(response)

    context.broker.transaction_coordinator.end(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        ended,
        is_commit=request.committed,
    )
    if response is not None:
        return response
    deferred = Deferred()
    return deferred
