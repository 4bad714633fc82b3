"""DeleteGroups (42): v0–v2.

Behaviour
* Removes groups without members, and their offsets. Otherwise NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND.

Version notes
* v2 flexible
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from engine.common.errors import ErrorCode
from engine.coordinator.group.coordinator import GroupCoordinator
from engine.coordinator.group.offset_requests import REMOVED_AT_ONCE
from engine.handlers.context import RequestContext
from engine.handlers.in_turns import AT_ONCE_MAX
from engine.handlers.registry import handles
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from engine.replication.state_changes import Breather


@handles(ApiKey.DELETE_GROUPS)
def delete_groups(
    context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Coroutine[Any, Any, DeleteGroupsResponse]:
    """Remove groups."""

    # A group that is named twice is deleted once, with one answer.
    named = list(dict.fromkeys(request.groups_names))
    coordinator = context.broker.group_coordinator
    if len(named) > AT_ONCE_MAX or any(coordinator.offsets.count(g) > REMOVED_AT_ONCE for g in named):
        return _in_turns(coordinator, named)
    return _response({group_id: coordinator.delete_group(group_id) for group_id in named})


async def _in_turns(coordinator: GroupCoordinator, named: list[str]) -> DeleteGroupsResponse:
    breather, errors = Breather(), {}
    for group_id in named:
        errors[group_id] = await coordinator.delete_group_in_turns(group_id)
        await breather.give_way()
    return _response(errors)


def _response(errors: dict[str, ErrorCode]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=g, error_code=e) for g, e in errors.items()])
