"""ListGroups (16): v0–v5.

Behaviour
* The groups that this broker coordinates, with COORDINATOR_LOAD_IN_PROGRESS while some are still loading.

Version notes
* v3 flexible   * v4 filter by state   * v5 filter by type: all groups are classic ones
"""

from __future__ import annotations

from engine.broker.coordinator.groups.coordinator import CLASSIC
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, each, in_steps
from engine.broker.handlers.registry import handles
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


@handles(ApiKey.LIST_GROUPS, requires=["Describe Cluster", "Describe Group"])
@in_steps
def list_groups(context: RequestContext, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    error, groups = yield from context.broker.group_coordinator.list_groups(request.states_filter, request.types_filter)
    listed = yield from each(
        groups,
        lambda group: ListedGroup(
            group_id=group.group_id, protocol_type=group.protocol_type, group_state=group.state, group_type=CLASSIC
        ),
    )
    return ListGroupsResponse(error_code=error, groups=listed)
