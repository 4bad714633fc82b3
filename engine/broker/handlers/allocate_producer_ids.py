"""AllocateProducerIds (67): v0.

Behaviour
* Brokers send it to the controller only (IBP 3.0 and later). Each answer is a block of 1,000 ids that no other broker
  gets.
* Refusals are NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED and STALE_BROKER_EPOCH.
"""

from __future__ import annotations

from engine.broker.controller.events import AllocateProducerIds
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from engine.kafka.zk.cluster import ProducerIdBlock


@handles(ApiKey.ALLOCATE_PRODUCER_IDS, requires=["ClusterAction Cluster"])
async def allocate_producer_ids(
    context: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    answer = await context.broker.controller.ask(AllocateProducerIds(request.broker_id, request.broker_epoch))
    if isinstance(answer, ProducerIdBlock):
        return AllocateProducerIdsResponse(producer_id_start=answer.first_producer_id, producer_id_len=answer.size)
    return AllocateProducerIdsResponse(
        error_code=answer if isinstance(answer, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
    )
