"""Groups that DescribeGroups does not know: those of the new consumer protocol (KIP-848), of shares and of streams.

This describes the first completely. A broker's list tells only the type of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.admin.cluster.unknown import Unknown
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups.values import GroupDescription, GroupMember, GroupType, state_of, type_of
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.formats.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribed,
    ConsumerGroupDescribeRequest,
    ConsumerGroupMember,
)
from engine.kafka.protocol.apis.list_groups import ListGroupsRequest

_NO_SUCH_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""Brokers with ZooKeeper list the API from 3.7 on, and answer the second for each group."""


async def describe_new_groups(
    wire: WireCluster, broker_id: int, names: Sequence[str]
) -> dict[str, GroupDescription | Unknown]:
    """Ask a coordinator about groups that are not classic ones; those that do not exist are left out."""
    client = await wire.client_of(broker_id)
    # Asked for once per connection; a broken connection becomes an error of this layer.
    await wire.version(client, ApiKey.API_VERSIONS)
    if not names or ApiKey.CONSUMER_GROUP_DESCRIBE not in await client.api_versions():
        return {}
    response = await wire.call_broker(broker_id, ConsumerGroupDescribeRequest(group_ids=list(names)))
    known = [group for group in response.groups if group.error_code not in _NO_SUCH_GROUP]
    found = {group.group_id: _description(group, broker_id) for group in known}
    return found | await _of_other_types(wire, broker_id, [name for name in names if name not in found])


async def _of_other_types(wire: WireCluster, broker_id: int, names: Sequence[str]) -> dict[str, Unknown]:
    """Return the types of groups that neither protocol's API knows."""
    if not names:
        return {}
    response = await wire.call_broker(broker_id, ListGroupsRequest())
    types = {group.group_id: type_of(group.group_type) for group in response.groups}
    return {
        name: Unknown(f"it is a {types[name]} group: those are listed, not described", ErrorCode.INVALID_REQUEST)
        for name in names
        if types.get(name) in (GroupType.SHARE, GroupType.STREAMS)
    }


def _description(group: ConsumerGroupDescribed, broker_id: int) -> GroupDescription | Unknown:
    if group.error_code != ErrorCode.NONE:
        return Unknown.of_code(group.error_code, group.error_message)
    state = state_of(group.group_state)
    if state is None:
        return Unknown(f"the broker reports an unknown state: {group.group_state!r}")
    members = tuple(map(_member, group.members))
    return GroupDescription(
        group.group_id, GroupType.CONSUMER, state, CONSUMER_PROTOCOL_TYPE, group.assignor_name, broker_id, members
    )


def _member(member: ConsumerGroupMember) -> GroupMember:
    assigned = member.assignment.topic_partitions
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        tuple(sorted(TopicPartition(topic.topic_name, index) for topic in assigned for index in topic.partitions)),
    )
