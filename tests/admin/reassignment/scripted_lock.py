"""A coordinator on scripted brokers that knows one group, the lock of plans, with its members in order of arrival."""

from __future__ import annotations

from scripted_brokers import ScriptedCluster

from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from engine.kafka.protocol.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from engine.kafka.protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from engine.kafka.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from engine.kafka.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from engine.kafka.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from engine.kafka.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse


class ScriptedLock:
    """Members in the order in which they joined. The first one leads."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.members: dict[str, bytes] = {}
        self.refuses_joins = ErrorCode.NONE
        self.has_told_of_the_loss = False
        self.refuses_leaves: list[ErrorCode] = []
        """What the next requests to leave are answered with, before one is carried out."""
        self._host = cluster.brokers[0].host
        self._count = 0
        for broker in cluster.brokers:
            broker.answers |= {
                ApiKey.FIND_COORDINATOR: self._find,
                ApiKey.DESCRIBE_GROUPS: self._describe,
                ApiKey.JOIN_GROUP: self._join,
                ApiKey.SYNC_GROUP: self._sync,
                ApiKey.HEARTBEAT: self._heartbeat,
                ApiKey.LEAVE_GROUP: self._leave,
                ApiKey.DELETE_GROUPS: self._delete,
            }

    def _find(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        coordinators = [Coordinator(key=key, node_id=0, host=self._host, port=9092) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=coordinators)

    def _describe(self, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        members = [
            DescribedGroupMember(member_id=name, client_id="", client_host="/127.0.0.9", member_metadata=metadata)
            for name, metadata in self.members.items()
        ]
        return DescribeGroupsResponse(groups=[DescribedGroup(group_id=request.groups[0], members=members)])

    def _join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        if self.refuses_joins is not ErrorCode.NONE:
            return JoinGroupResponse(error_code=self.refuses_joins)
        if not request.member_id:
            self._count += 1
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=f"m{self._count}")
        self.members[request.member_id] = bytes(request.protocols[0].metadata)
        leader = next(iter(self.members))
        return JoinGroupResponse(generation_id=1, leader=leader, member_id=request.member_id, protocol_name="holder")

    def _sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        return SyncGroupResponse(assignment=b"")

    def _heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        is_known = request.member_id in self.members
        self.has_told_of_the_loss |= not is_known
        return HeartbeatResponse(error_code=ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID)

    def _leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        if self.refuses_leaves:
            return LeaveGroupResponse(error_code=self.refuses_leaves.pop(0))
        for member in request.members:
            self.members.pop(member.member_id, None)
        return LeaveGroupResponse()

    def _delete(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=request.groups_names[0])])
