"""DeleteGroups (42): v0–v2.

Behaviour
* Removes groups without members, and their offsets. Otherwise NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND.

Version notes
* v2 flexible
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from engine.broker.coordinator.groups.coordinator import GroupCoordinator
from engine.broker.coordinator.groups.offset_requests import REMOVED_AT_ONCE
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import AT_ONCE_MAX
from engine.broker.handlers.registry import handles
from engine.broker.replication.state_changes import Breather
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@handles(ApiKey.DELETE_GROUPS, requires=["Delete Group"])
def delete_groups(
    context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Coroutine[Any, Any, DeleteGroupsResponse]:
    """Remove groups."""

    # A group that is named twice is deleted once, with one answer.
    named = list(dict.fromkeys(request.groups_names))
    coordinator = context.broker.group_coordinator
    if len(named) > AT_ONCE_MAX or any(coordinator.offsets.count(g) > REMOVED_AT_ONCE for g in named):
        return _in_turns(coordinator, named)
    errors = [coordinator.delete_group(group_id) for group_id in named]
    return DeleteGroupsResponse(results=list(map(_result, named, errors)))


async def _in_turns(coordinator: GroupCoordinator, named: list[str]) -> DeleteGroupsResponse:
    breather, results = Breather(), []
    for group_id in named:
        results.append(_result(group_id, await coordinator.delete_group_in_turns(group_id)))
        await breather.give_way()
    return DeleteGroupsResponse(results=results)


def _result(group_id: str, error: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error)
