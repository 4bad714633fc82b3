"""JoinGroup (11): v0–v9.

Behaviour
* Makes the client a member and answers once the group's next generation begins: when all members have rejoined, or
  after the longest rebalance time-out. A new group first waits ``group.initial.rebalance.delay.ms`` for more members.
* What the same connection has committed before is done first: the next owner of the partitions reads it.
* The leader's answer lists all members. A member that rejoins without changes gets the current generation at once.
* A static member that comes back keeps its assignment, without a rebalance (KIP-345). While
  ``inter.broker.protocol.version`` is below 2.3, it gets UNSUPPORTED_VERSION.
* A member with more than 1,000 protocols, where Kafka has no limit, gets INCONSISTENT_GROUP_PROTOCOL.

Version notes
* v0 rebalance time-out = session time-out   * v4 a new member gets its id first: MEMBER_ID_REQUIRED (KIP-394)
* v5 static members   * v6 flexible   * v7 protocol type; no protocol is null   * v8 reason
* v9 a static leader that comes back is told not to assign (KIP-814)
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from engine.broker.coordinator.groups.member import UNKNOWN_MEMBER_ID, Joining, JoinResult
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.preconditions import are_static_members_refused, unfinished_commits, wait_for_commits
from engine.broker.handlers.registry import handles
from engine.broker.network.request import Deferred
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

PROTOCOLS_MAX = 1000
"""Each join of a group compares the protocols of its members, which takes a second for a million of them."""


@handles(ApiKey.JOIN_GROUP, requires=["Read Group"])
def join_group(
    context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Deferred | Coroutine[Any, Any, Deferred]:
    version = context.api_version
    if len(request.protocols) > PROTOCOLS_MAX:
        return _response(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id), version)
    if are_static_members_refused(context, request.group_instance_id):
        return _response(JoinResult(ErrorCode.UNSUPPORTED_VERSION, UNKNOWN_MEMBER_ID), version)
    joining = Joining(
        member_id=request.member_id,
        client_id=context.client_id or "",
        client_host=f"/{context.session.host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        group_instance_id=request.group_instance_id,
        needs_known_member_id=version >= 4 and request.group_instance_id is None,
        can_skip_assignment=version >= 9,
        reason=request.reason,
    )
    commits = unfinished_commits(context)
    if commits:
        return _join_after(commits, context, request.group_id, joining)
    return _join(context, request.group_id, joining)


async def _join_after(
    commits: Iterable[Deferred], context: RequestContext, group_id: str, joining: Joining
) -> Deferred:
    await wait_for_commits(commits)
    return _join(context, group_id, joining)


def _join(context: RequestContext, group_id: str, joining: Joining) -> Deferred:
    deferred, version = Deferred(), context.api_version
    context.broker.group_coordinator.join(
        group_id, joining, lambda result: deferred.complete(_response(result, version))
    )
    return deferred


def _response(result: JoinResult, version: int) -> JoinGroupResponse:
    name = result.protocol_name
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=name if version >= 7 else name or "",
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(member_id=m.member_id, group_instance_id=m.group_instance_id, metadata=m.metadata)
            for m in result.members
        ],
    )
