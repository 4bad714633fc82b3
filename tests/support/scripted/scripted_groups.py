"""Groups on scripted brokers: two coordinators that answer in any version, and fail where a test says so."""

from __future__ import annotations

from scripted_brokers import ScriptedBroker, ScriptedCluster

from engine.common.errors import ErrorCode
from engine.kafka.formats.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.consumer_group_describe import (
    ConsumerGroupAssignment,
    ConsumerGroupDescribed,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    ConsumerGroupTopicPartitions,
)
from engine.kafka.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from engine.kafka.protocol.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from engine.kafka.protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from engine.kafka.protocol.apis.list_groups import ListedGroup, ListGroupsResponse
from engine.kafka.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from engine.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)


class ScriptedGroups:
    """Two brokers. The number in a group's name gives its coordinator: ``g7`` is on broker 1."""

    def __init__(self, cluster: ScriptedCluster, versions: dict[ApiKey, int]) -> None:
        self.cluster = cluster
        self.versions = versions
        cluster.leaders = {"t": [0, 1, -1]}
        self.offsets: dict[str, dict[tuple[str, int], int]] = {}
        self.errors: dict[str, ErrorCode] = {}
        self.moved: set[str] = set()
        """Groups whose coordinator denies once that it is their coordinator."""
        self.state = "Stable"
        """The state of every group; a group that is Empty has no members."""
        self.listed_state: str | None = None
        """The state of every group in a list, where that differs."""
        self.protocols: dict[str, str] = {}
        """Protocol types of groups other than consumers'."""
        self.types: dict[str, str] = {}
        """Types of groups other than classic. DescribeGroups says that these groups do not exist."""
        self.subscribed: list[str] | None = None
        """What every member subscribes to; None: brokers do not say, as while a group rebalances."""
        self.change_answers: list[object] = []
        """The answers to the next changes: error codes, HANG_UP or SILENCE. Afterwards all changes succeed."""
        for broker in cluster.brokers:
            broker.answers |= {
                ApiKey.FIND_COORDINATOR: self._find,
                ApiKey.LIST_GROUPS: lambda _, broker=broker: self._list(broker),
                ApiKey.DESCRIBE_GROUPS: self._describe,
                ApiKey.OFFSET_FETCH: self._fetch,
                ApiKey.LIST_OFFSETS: self._ends,
                ApiKey.OFFSET_COMMIT: self._commit,
                ApiKey.DELETE_GROUPS: self._delete,
            }

    def home(self, group: str) -> int:
        return int("".join(filter(str.isdigit, group)) or 0) % 2

    def _find(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        keys = request.coordinator_keys or [request.key]
        answers = []
        for key in keys:
            code = self.errors.get(key, ErrorCode.NONE)
            broker = self.cluster.brokers[self.home(key)]
            answers.append(Coordinator(key=key, node_id=broker.id, host=broker.host, port=broker.port, error_code=code))
        if request.coordinator_keys:
            return FindCoordinatorResponse(coordinators=answers)
        first = answers[0]
        return FindCoordinatorResponse(
            error_code=first.error_code, node_id=first.node_id, host=first.host, port=first.port
        )

    def _list(self, broker: ScriptedBroker) -> ListGroupsResponse:
        names = [group for group in self.offsets if self.home(group) == broker.id]
        return ListGroupsResponse(
            groups=[
                ListedGroup(
                    group_id=name,
                    protocol_type=self.protocols.get(name, "consumer"),
                    group_state=self.state if self.listed_state is None else self.listed_state,
                    group_type=self.types.get(name, "classic"),
                )
                for name in names
            ]
        )

    def _describe(self, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[self._described(name) for name in request.groups])

    def describe_new(self, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        """Answer as a broker of Kafka 4 does, which knows groups of the type ``consumer``."""
        return ConsumerGroupDescribeResponse(groups=[self._described_new(name) for name in request.group_ids])

    def _described_new(self, name: str) -> ConsumerGroupDescribed:
        if self.types.get(name) != "consumer":
            return ConsumerGroupDescribed(group_id=name, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        has = ConsumerGroupAssignment(
            topic_partitions=[ConsumerGroupTopicPartitions(topic_name="t", partitions=[1, 0])]
        )
        member = ConsumerGroupMember(
            member_id="m", instance_id="i", client_id="c", client_host="/h", assignment=has,
            target_assignment=ConsumerGroupAssignment(), subscribed_topic_names=self.subscribed or [],
            subscribed_topic_regex="t.*" if self.subscribed is None else None,
        )  # fmt: skip
        state = "Reconciling" if self.state == "Stable" else self.state
        members = [] if self.state == "Empty" else [member]
        return ConsumerGroupDescribed(group_id=name, group_state=state, assignor_name="uniform", members=members)

    def _described(self, name: str) -> DescribedGroup:
        if name in self.moved:
            self.moved.discard(name)
            return DescribedGroup(group_id=name, error_code=ErrorCode.NOT_COORDINATOR)
        if name not in self.offsets or name in self.types:
            return DescribedGroup(group_id=name, group_state="Dead")
        assigned = ConsumerProtocolAssignment(
            assigned_partitions=[ConsumerProtocolPartitions(topic="t", partitions=[1, 0])]
        )
        wanted = b""
        if self.subscribed is not None:
            wanted = encode_subscription(ConsumerProtocolSubscription(topics=self.subscribed), 0)
        members = [
            DescribedGroupMember(
                member_id=name, client_id="c", client_host="/h", member_metadata=wanted, member_assignment=assignment
            )
            for name, assignment in (("m", encode_assignment(assigned, 0)), ("x", b"?"))
        ]
        return DescribedGroup(
            group_id=name,
            group_state=self.state,
            protocol_type=self.protocols.get(name, "consumer"),
            protocol_data="range",
            members=[] if self.state == "Empty" else members,
        )

    def _next_answer(self) -> object:
        return self.change_answers.pop(0) if self.change_answers else ErrorCode.NONE

    def _commit(self, request: OffsetCommitRequest) -> object:
        answer = self._next_answer()
        if not isinstance(answer, int):
            return answer
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=answer)
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _delete(self, request: DeleteGroupsRequest) -> object:
        answer = self._next_answer()
        if not isinstance(answer, int):
            return answer
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name, error_code=answer) for name in request.groups_names]
        )

    def _fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        if request.groups:
            return OffsetFetchResponse(
                groups=[
                    OffsetFetchResponseGroup(
                        group_id=group.group_id,
                        topics=[
                            OffsetFetchResponseTopics(
                                name=topic,
                                partitions=[
                                    OffsetFetchResponsePartitions(
                                        partition_index=index, committed_offset=offset, metadata="m", error_code=0
                                    )
                                ],
                            )
                            for (topic, index), offset in self.offsets.get(group.group_id, {}).items()
                        ],
                    )
                    for group in request.groups
                ]
            )
        stored = self.offsets.get(request.group_id, {})
        asked = stored if request.topics is None else [(t.name, p) for t in request.topics for p in t.partition_indexes]
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=topic,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index,
                            committed_offset=stored.get((topic, index), -1),
                            metadata="m",
                            error_code=0,
                        )
                    ],
                )
                for topic, index in asked
            ]
        )

    def _ends(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        is_old = self.versions.get(ApiKey.LIST_OFFSETS) == 0
        value = {-1: 100, -2: 10}.get(request.topics[0].partitions[0].timestamp, 50)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=p.partition_index,
                            error_code=0,
                            offset=-1 if is_old else value,
                            old_style_offsets=[value] if is_old else [],
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
