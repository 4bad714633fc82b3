"""InitProducerId (22): v0–v5.

Behaviour
* Without a transactional id, the answer is a new producer id with epoch 0, whatever id the producer has. While the
  broker has no block of ids, it is COORDINATOR_LOAD_IN_PROGRESS.
* With a transactional id, its coordinator answers: the id's producer id with the next epoch, which fences the producer
  that had the one before. If that producer's transaction is open, it is aborted first: CONCURRENT_TRANSACTIONS.
* A producer that says which id and epoch it has (KIP-360) is fenced if another has come since. After the last epoch
  comes a new producer id.
* A time-out above ``transaction.max.timeout.ms``, or not above 0, is INVALID_TRANSACTION_TIMEOUT. An empty
  transactional id, or a producer id without an epoch or vice versa, is INVALID_REQUEST.

Version notes
* v2 flexible   * v3 a producer says which id it has   * v4 PRODUCER_FENCED   * v5 TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from engine.broker.coordinator.transactions.state_machine import ProducerIdAndEpoch
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.preconditions import understood
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from engine.kafka.protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


@handles(ApiKey.INIT_PRODUCER_ID, requires=["Write TransactionalId", "IdempotentWrite Cluster", "Write Topic"])
async def init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _failed(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        has_id = request.producer_id != NO_PRODUCER_ID
        initialized = await context.broker.transaction_coordinator.init_producer_id(
            request.transactional_id,
            request.transaction_timeout_ms,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch) if has_id else None,
        )
        return InitProducerIdResponse(
            error_code=understood(initialized.error, context.api_version, fenced_since=4),
            producer_id=initialized.producer_id,
            producer_epoch=initialized.producer_epoch,
        )
    try:
        producer_id = await context.broker.producer_ids.next_producer_id()
    except KafkaError as error:
        return _failed(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
