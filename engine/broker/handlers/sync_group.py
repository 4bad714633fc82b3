"""SyncGroup (14): v0–v5.

Behaviour
* The leader sends the assignment, and the others ask for it. Each gets its part once the assignment is replicated in
  ``__consumer_offsets``, or at once in a stable group.
* While the group prepares another rebalance, or is loading, the answer is REBALANCE_IN_PROGRESS.

Version notes
* v3 static members   * v4 flexible   * v5 protocol type and name, checked against the group's (KIP-559)
"""

from __future__ import annotations

from engine.broker.coordinator.groups.member import Syncing, SyncResult
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, in_lists, in_steps
from engine.broker.handlers.preconditions import are_static_members_refused
from engine.broker.handlers.registry import handles
from engine.broker.network.request import Deferred
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse


@handles(ApiKey.SYNC_GROUP, requires=["Read Group"])
@in_steps
def sync_group(context: RequestContext, request: SyncGroupRequest) -> Steps[SyncGroupResponse | Deferred]:
    if are_static_members_refused(context, request.group_instance_id):
        return SyncGroupResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, assignment=b"")
    if context.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    assignments: dict[str, bytes] = {}
    for batch in in_lists(request.assignments):
        assignments.update((member.member_id, bytes(member.assignment)) for member in batch)
        yield
    syncing = Syncing(
        member_id=request.member_id,
        generation_id=request.generation_id,
        assignments=assignments,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
    )
    deferred = Deferred()
    context.broker.group_coordinator.sync(
        request.group_id, syncing, lambda result: deferred.complete(_response(result))
    )
    return deferred


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
