"""DescribeGroups (15): v0–v5.

Behaviour
* State, protocol and members of groups that this broker coordinates; a group that does not exist is Dead, no error.
* It shows subscriptions and assignments while the group is stable.

Version notes
* v3 authorized operations   * v4 static members   * v5 flexible
"""

from __future__ import annotations

from engine.broker.handlers.answer_lists import answer_list
from engine.broker.handlers.authorized_operations import GROUP_OPERATIONS, NOT_REQUESTED
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, each, in_steps
from engine.broker.handlers.registry import handles
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


@handles(ApiKey.DESCRIBE_GROUPS, requires=["Describe Group"])
@in_steps
def describe_groups(context: RequestContext, request: DescribeGroupsRequest) -> Steps[DescribeGroupsResponse]:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_REQUESTED
    groups = yield from each(
        request.groups,
        lambda group_id: _group(context, group_id, operations),
        answer_list(context, DescribeGroupsResponse, "groups"),
    )
    return DescribeGroupsResponse(groups=groups)


def _group(context: RequestContext, group_id: str, operations: int) -> DescribedGroup:
    error, group = context.broker.group_coordinator.describe(group_id)
    return DescribedGroup(
        error_code=error,
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=operations if error is ErrorCode.NONE else NOT_REQUESTED,
    )
