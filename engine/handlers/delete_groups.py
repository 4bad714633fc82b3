"""DeleteGroups (42): v0–v2.

Behaviour
* Removes groups without members, and their offsets. Otherwise NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND.

Version notes
* v2 flexible
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from engine.handlers.context import RequestContext
from engine.handlers.in_turns import answered
from engine.handlers.registry import handles
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@handles(ApiKey.DELETE_GROUPS)
def delete_groups(
    context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Coroutine[Any, Any, DeleteGroupsResponse]:
    """Remove groups."""

    def delete(group_id: str) -> DeletableGroupResult:
        error = context.broker.group_coordinator.delete_group(group_id)
        return DeletableGroupResult(group_id=group_id, error_code=error)

    # A group that is named twice is deleted once, with one answer.
    answers: dict[str, DeletableGroupResult] = {}

    def delete_once(group_id: str) -> None:
        if group_id not in answers:
            answers[group_id] = delete(group_id)

    return answered(request.groups_names, delete_once, lambda _: DeleteGroupsResponse(results=list(answers.values())))
