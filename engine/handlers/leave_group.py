"""LeaveGroup (13): v0–v5.

Behaviour
* Removes members at once; the others rebalance. An operator removes a static member by its instance id alone.

Version notes
* v0–v2 one member, whose error is the answer's   * v3 several members, an error each   * v4 flexible   * v5 reason
"""

from __future__ import annotations

from engine.common.errors import ErrorCode
from engine.coordinator.group.values import MemberIdentity
from engine.handlers.context import RequestContext
from engine.handlers.registry import handles
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse


@handles(ApiKey.LEAVE_GROUP)
def leave_group(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove members from their group."""
    if context.api_version >= 3:
        members = [MemberIdentity(m.member_id, m.group_instance_id, m.reason) for m in request.members]
    else:
        members = [MemberIdentity(request.member_id)]
    error, errors = context.broker.group_coordinator.leave(request.group_id, members)
    if context.api_version < 3:
        return LeaveGroupResponse(error_code=errors[0] if error is ErrorCode.NONE else error)
    return LeaveGroupResponse(
        error_code=error,
        members=[
            MemberResponse(member_id=m.member_id, group_instance_id=m.group_instance_id, error_code=code)
            for m, code in zip(members, errors, strict=False)
        ],
    )
