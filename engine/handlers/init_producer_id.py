"""InitProducerId (22): v0–v5.

Behaviour
* Without transactional id: a producer id that nobody got before, epoch 0; the id a producer has is not looked at. While
  the broker has no block of ids the answer is COORDINATOR_LOAD_IN_PROGRESS.
* With transactional id: COORDINATOR_NOT_AVAILABLE, for there is no transaction coordinator yet. An empty one, or one of
  producer id and epoch without the other, is INVALID_REQUEST.

Version notes
* v2 flexible   * v3 a producer says which id it has   * v4 PRODUCER_FENCED   * v5 TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from engine.common.errors import ErrorCode, KafkaError
from engine.handlers.context import RequestContext
from engine.handlers.registry import handles
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from engine.protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


@handles(ApiKey.INIT_PRODUCER_ID)
async def init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Give a producer its id."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _failed(ErrorCode.INVALID_REQUEST)
    if request.transactional_id == "":
        return _failed(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        producer_id = await context.broker.producer_ids.next_producer_id()
    except KafkaError as error:
        return _failed(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
