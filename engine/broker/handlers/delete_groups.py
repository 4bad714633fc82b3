"""DeleteGroups (42): v0–v2.

Behaviour
* Removes groups without members, and their offsets. Otherwise NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND.

Version notes
* v2 flexible
"""

from __future__ import annotations

from engine.broker.handlers.answer_lists import answer_list, repeated
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, in_steps
from engine.broker.handlers.registry import handles
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@handles(ApiKey.DELETE_GROUPS, requires=["Delete Group"])
@in_steps
def delete_groups(context: RequestContext, request: DeleteGroupsRequest) -> Steps[DeleteGroupsResponse]:
    results = answer_list(context, DeleteGroupsResponse, "results")
    twice = yield from repeated(lambda: request.groups_names)
    done: set[str] = set()
    for group_id in request.groups_names:
        # A group that is named twice is deleted once, with one answer.
        if group_id not in done:
            if group_id in twice:
                done.add(group_id)
            error = yield from context.broker.group_coordinator.delete_group(group_id)
            results.append(DeletableGroupResult(group_id=group_id, error_code=error))
        yield
    return DeleteGroupsResponse(results=results)
