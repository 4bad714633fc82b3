"""DeleteGroups (42): v0–v2.

Behaviour
* Removes groups without members, with their offsets. NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND otherwise.

Version notes
* v2 flexible
"""

from __future__ import annotations

from engine.handlers.context import RequestContext
from engine.handlers.registry import handles
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@handles(ApiKey.DELETE_GROUPS)
def delete_groups(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Remove groups."""
    errors = context.broker.group_coordinator.delete_groups(request.groups_names)
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=error) for group_id, error in errors.items()]
    )
