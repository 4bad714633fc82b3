"""LeaveGroup (13): v0–v5.

Behaviour
* Removes members at once, and the others rebalance. An operator removes a static member by its instance id alone.
* What the same connection has committed before is done first: the next owner of the partitions reads it.

Version notes
* v0–v2 one member, whose error is the answer's   * v3 several members, an error each   * v4 flexible   * v5 reason
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from engine.broker.coordinator.groups.member import MemberIdentity
from engine.broker.handlers.answer_lists import answer_list
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import AT_ONCE_MAX
from engine.broker.handlers.preconditions import unfinished_commits, wait_for_commits
from engine.broker.handlers.registry import handles
from engine.broker.network.request import Deferred
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from engine.runtime.turns import Turns


@handles(ApiKey.LEAVE_GROUP, requires=["Read Group"])
def leave_group(
    context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Coroutine[Any, Any, LeaveGroupResponse]:
    commits = unfinished_commits(context)
    if commits or len(request.members) > AT_ONCE_MAX:
        return _piece_by_piece(context, request, commits)
    return _leave(context, request)


async def _piece_by_piece(
    context: RequestContext, request: LeaveGroupRequest, commits: Iterable[Deferred]
) -> LeaveGroupResponse:
    """Remove members in pieces, once the commits are done; an error of the whole group applies to all."""
    await wait_for_commits(commits)
    if len(request.members) <= AT_ONCE_MAX:
        return _leave(context, request)
    answers = answer_list(context, LeaveGroupResponse, "members")
    for start in range(0, len(request.members), AT_ONCE_MAX):
        members = request.members[start : start + AT_ONCE_MAX]
        response = _leave(context, LeaveGroupRequest(group_id=request.group_id, members=members))
        if response.error_code:
            return response
        for answer in response.members:
            answers.append(answer)
        await Turns.of_loop().wait()
    return LeaveGroupResponse(members=answers)


def _leave(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
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
