"""Heartbeat (12): v0–v4.

Behaviour
* Keeps a member for another session time-out. REBALANCE_IN_PROGRESS tells it to rejoin.
* UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID: the member is not, or no longer, what it thinks it is.
* A static member gets UNSUPPORTED_VERSION while ``inter.broker.protocol.version`` is below 2.3.

Version notes
* v3 static members   * v4 flexible
"""

from __future__ import annotations

from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.preconditions import are_static_members_refused
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse


@handles(ApiKey.HEARTBEAT, requires=["Read Group"])
def heartbeat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    if are_static_members_refused(context, request.group_instance_id):
        return HeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    error = context.broker.group_coordinator.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=error)
