"""AddOffsetsToTxn (25): v0–v4.

Behaviour
* Adds a group's partition of ``__consumer_offsets`` to a transaction, which is about to commit offsets of the group.
  The rest is as for AddPartitionsToTxn.

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
from engine.kafka.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


@handles(ApiKey.ADD_OFFSETS_TO_TXN, requires=["Write TransactionalId", "Read Group"])
def add_offsets_to_txn(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse | Deferred:
    if are_transactions_refused(context):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    deferred = Deferred()

    def added(error: ErrorCode) -> None:
        deferred.complete(AddOffsetsToTxnResponse(error_code=understood(error, context.api_version, fenced_since=2)))

    context.broker.transaction_coordinator.add_partitions(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        [context.broker.group_coordinator.partition_for(request.group_id)],
        added,
    )
    # Without followers the answer is ready at once, and need not wait anywhere.
    ready: AddOffsetsToTxnResponse | None = deferred.response
    return deferred if ready is None else ready
