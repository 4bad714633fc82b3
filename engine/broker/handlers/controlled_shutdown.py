"""ControlledShutdown (7): v0–v3.

Behaviour
* A broker that wants to stop asks the controller to move its leaderships. The answer lists what it still leads.
* STALE_CONTROLLER_EPOCH: this is not the controller. STALE_BROKER_EPOCH: the registration is from before a restart.
  BROKER_NOT_AVAILABLE: the controller does not know the broker.

Version notes
* v0 header without client id   * v2 broker epoch   * v3 flexible
"""

from __future__ import annotations

from engine.broker.controller.events import ApiError, ControlledShutdown
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.registry import handles
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


@handles(ApiKey.CONTROLLED_SHUTDOWN, requires=["ClusterAction Cluster"])
async def controlled_shutdown(
    context: RequestContext, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    answer = await context.broker.controller.ask(ControlledShutdown(request.broker_id, request.broker_epoch))
    if isinstance(answer, ApiError):
        return ControlledShutdownResponse(error_code=answer.code)
    return ControlledShutdownResponse(
        remaining_partitions=[RemainingPartition(topic_name=p.topic, partition_index=p.partition) for p in answer]
    )
