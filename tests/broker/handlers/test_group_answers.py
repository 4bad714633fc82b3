"""What the group handlers answer without the coordinator, before or after calling it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from network_serving import session

from engine.broker.coordinator.groups.group import GroupDescription
from engine.broker.handlers import new_group_protocol
from engine.broker.handlers.authorized_operations import GROUP_OPERATIONS, NOT_REQUESTED
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.describe_groups import describe_groups
from engine.broker.handlers.find_coordinator import find_coordinator
from engine.broker.handlers.heartbeat import heartbeat
from engine.broker.handlers.join_group import PROTOCOLS_MAX, join_group
from engine.broker.handlers.offset_commit import offset_commit
from engine.broker.handlers.offset_delete import offset_delete
from engine.broker.handlers.sync_group import sync_group
from engine.common.errors import ErrorCode
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from engine.kafka.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from engine.kafka.protocol.apis.describe_groups import DescribeGroupsRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.heartbeat import HeartbeatRequest
from engine.kafka.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from engine.kafka.protocol.apis.sync_group import SyncGroupRequest


def asked(key: ApiKey, version: int, **parts: Any) -> RequestContext:
    broker: Any = SimpleNamespace(**parts)
    return RequestContext(broker, key, version, 1, "c", session("h"))


@pytest.mark.parametrize("ibp", [MetadataVersion.IBP_2_2_IV1, MetadataVersion.IBP_2_3_IV0])
def test_static_members_need_an_inter_broker_protocol_of_2_3(ibp: MetadataVersion) -> None:
    heard = []

    def coordinator(*_: Any) -> ErrorCode:
        heard.append(True)
        return ErrorCode.NONE

    group = SimpleNamespace(heartbeat=coordinator, sync=coordinator, join=coordinator)
    parts = {"config": SimpleNamespace(inter_broker_protocol_version=ibp), "group_coordinator": group}
    who: dict[str, Any] = {"group_id": "g", "group_instance_id": "i"}
    answers: list[Any] = [
        heartbeat(asked(ApiKey.HEARTBEAT, 4, **parts), HeartbeatRequest(**who)),
        join_group(asked(ApiKey.JOIN_GROUP, 5, **parts), JoinGroupRequest(**who)),
        sync_group(asked(ApiKey.SYNC_GROUP, 3, **parts), SyncGroupRequest(**who)),
    ]
    if ibp >= MetadataVersion.IBP_2_3_IV0:
        assert len(heard) == 3
    else:
        assert [answer.error_code for answer in answers] == [ErrorCode.UNSUPPORTED_VERSION] * 3
        assert answers[1].protocol_name == "", "no name is null from version 7 on only"
        topic = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])
        request = OffsetCommitRequest(**who, topics=[topic])
        commit: Any = offset_commit(asked(ApiKey.OFFSET_COMMIT, 7, **parts), request)
        assert commit.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION
        assert heard == []


@pytest.mark.parametrize("count", [PROTOCOLS_MAX, PROTOCOLS_MAX + 1])
def test_a_member_has_no_more_protocols_than_a_group_can_compare(count: int) -> None:
    """A million of them held the event loop for a second, in each join of the group."""
    heard = []
    protocols = [JoinGroupRequestProtocol(name=str(number)) for number in range(count)]
    parts = {"group_coordinator": SimpleNamespace(join=lambda *_: heard.append(True))}
    request = JoinGroupRequest(group_id="g", member_id="m", protocols=protocols)
    answer: Any = join_group(asked(ApiKey.JOIN_GROUP, 9, **parts), request)
    if count > PROTOCOLS_MAX:
        assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "m")
    assert len(heard) == (count <= PROTOCOLS_MAX)


@pytest.mark.parametrize(
    ("error", "operations"), [(ErrorCode.NONE, GROUP_OPERATIONS), (ErrorCode.NOT_COORDINATOR, NOT_REQUESTED)]
)
def test_operations_are_told_of_groups_that_are_described(error: ErrorCode, operations: int) -> None:
    """Kafka 3.9.1 does the same."""
    group = SimpleNamespace(describe=lambda group_id: (error, GroupDescription(group_id, "")))
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    answer = describe_groups(asked(ApiKey.DESCRIBE_GROUPS, 5, group_coordinator=group), request)
    assert [(g.error_code, g.authorized_operations) for g in answer.groups] == [(error, operations)]


def test_offsets_to_delete_that_are_named_twice_are_answered_once() -> None:
    cache = SimpleNamespace(contains=lambda partition: partition.topic == "t")
    offsets = SimpleNamespace(delete=lambda _, known: (ErrorCode.NONE, dict.fromkeys(known, ErrorCode.NONE)))
    topics = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
        for name, index in (("t", 0), ("gone", 0), ("t", 1), ("t", 0))
    ]
    context = asked(ApiKey.OFFSET_DELETE, 0, metadata_cache=cache, group_coordinator=SimpleNamespace(offsets=offsets))
    answer = offset_delete(context, OffsetDeleteRequest(group_id="g", topics=topics))
    results = [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.topics]
    assert results == [("t", [(0, 0), (1, 0)]), ("gone", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])]


@pytest.mark.parametrize(
    ("version", "key_type", "error"),
    [
        (6, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (5, 2, ErrorCode.INVALID_REQUEST),
        (6, 3, ErrorCode.INVALID_REQUEST),
        (6, -1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_share_groups_have_no_coordinator_yet(version: int, key_type: int, error: ErrorCode) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"])
    answer: Any = find_coordinator(asked(ApiKey.FIND_COORDINATOR, version), request)
    assert [coordinator.error_code for coordinator in answer.coordinators] == [error]


def test_the_new_protocol_of_groups_is_refused() -> None:
    """As Kafka 3.9.1 with ZooKeeper does: for each group, and without a text."""
    where: Any = SimpleNamespace(size_bytes=0)
    answer = new_group_protocol.heartbeat(where, ConsumerGroupHeartbeatRequest(group_id="g"))
    assert answer == ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    described: Any = new_group_protocol.describe(where, ConsumerGroupDescribeRequest(group_ids=["g", "", "g"]))
    groups = [(group.group_id, group.error_code, group.error_message) for group in described.groups]
    assert groups == [(group, ErrorCode.UNSUPPORTED_VERSION, None) for group in ("g", "", "g")]
