"""Group requests byte for byte: every version, every refusal, and what remains after the coordinator is killed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from ended_sessions import kill_for_good
from patience import within
from wire_client import WireClient, create_topic

from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.delete_groups import DeleteGroupsRequest
from engine.kafka.protocol.apis.describe_groups import DescribeGroupsRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.heartbeat import HeartbeatRequest
from engine.kafka.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from engine.kafka.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from engine.kafka.protocol.apis.list_groups import ListGroupsRequest
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
from engine.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from engine.kafka.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from engine.local.cluster import LocalCluster

E = ErrorCode
TOPIC = "read"
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x04read\xff\xff\xff\xff"


@pytest.fixture(scope="module", autouse=True)
def _topics(group_cluster: LocalCluster) -> None:
    """Make topics to read, and wait for a coordinator."""
    with WireClient(group_cluster.bootstrap_servers) as wire:
        create_topic(group_cluster.bootstrap_servers, TOPIC, partitions=2)
        create_topic(group_cluster.bootstrap_servers, "other")
        find_coordinator(wire, "g")


@pytest.fixture
def wire(group_cluster: LocalCluster) -> Iterator[WireClient]:
    with WireClient(group_cluster.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def until_loaded(ask: Any, error_of: Any) -> Any:
    """Repeat a request until there is a coordinator that has loaded."""
    is_in_time = within(30)
    while True:
        answer = ask()
        if error_of(answer) not in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS):
            return answer
        assert is_in_time(), f"no coordinator: {answer}"
        time.sleep(0.02)


def find_coordinator(wire: WireClient, group: str, version: int = 3) -> Any:
    request = FindCoordinatorRequest(key=group, key_type=0)
    until_loaded(lambda: wire.ask(request, version), lambda a: a.error_code)
    describe = DescribeGroupsRequest(groups=[group])
    return until_loaded(lambda: wire.ask(describe, 0), lambda a: a.groups[0].error_code)


def join(wire: WireClient, group: str, version: int, member_id: str = "", **options: Any) -> Any:
    values: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    }
    request = JoinGroupRequest(group_id=group, member_id=member_id, **(values | options))
    return until_loaded(lambda: wire.ask(request, version), lambda a: a.error_code)


def member_of(wire: WireClient, group: str, **options: Any) -> tuple[str, int]:
    """Bring a group of one member to a stable generation; return the member's id and the generation."""
    joined = join(wire, group, 5, **options)
    if joined.error_code == E.MEMBER_ID_REQUIRED:
        joined = join(wire, group, 5, joined.member_id, **options)
    assert joined.error_code == E.NONE
    part = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"part")
    request = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[part]
    )
    assert wire.ask(request, 3).assignment == b"part"
    return joined.member_id, joined.generation_id


def commit(
    wire: WireClient, group: str, version: int, offset: int, *, topic: str = TOPIC, metadata: str = "m", **who: Any
) -> int:
    """Commit an offset of partition 1; return the error."""
    partition = OffsetCommitRequestPartition(
        partition_index=1 if topic == TOPIC else 0, committed_offset=offset, committed_metadata=metadata
    )
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    request = OffsetCommitRequest(group_id=group, topics=topics, **who)
    answer = until_loaded(lambda: wire.ask(request, version), lambda a: a.topics[0].partitions[0].error_code)
    error: int = answer.topics[0].partitions[0].error_code
    return error


def committed(wire: WireClient, group: str, version: int = 7) -> tuple[int, str, int]:
    """Return what is committed for partition 1: offset, metadata, error."""
    if version >= 8:
        named = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[1])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[named])])
        partition = wire.ask(request, version).groups[0].topics[0].partitions[0]
    else:
        topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[1])]
        partition = wire.ask(OffsetFetchRequest(group_id=group, topics=topics), version).topics[0].partitions[0]
    return partition.committed_offset, partition.metadata, partition.error_code


@pytest.mark.parametrize(("commit_version", "fetch_version"), [(v, v) for v in range(1, 10)])
def test_commits_in_every_version(wire: WireClient, group: str, commit_version: int, fetch_version: int) -> None:
    assert committed(wire, group, fetch_version) == (-1, "", 0)
    assert commit(wire, group, commit_version, 40 + commit_version) == E.NONE
    assert committed(wire, group, fetch_version) == (40 + commit_version, "m", 0)


def test_version_0_keeps_offsets_in_zookeeper(wire: WireClient, group: str) -> None:
    assert committed(wire, group, 0) == (-1, "", E.UNKNOWN_TOPIC_OR_PARTITION)
    assert commit(wire, group, 0, 7) == E.NONE
    assert commit(wire, group, 0, 8) == E.NONE
    assert committed(wire, group, 0) == (8, "", E.NONE)
    assert committed(wire, group, 1) == (-1, "", E.NONE), "they are not the offsets of the other versions"
    assert commit(wire, group, 0, 9, metadata="m" * 4097) == E.OFFSET_METADATA_TOO_LARGE
    assert commit(wire, group, 0, 9, topic="nowhere") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(wire, "../brokers", 0, 9) == E.INVALID_GROUP_ID
    assert committed(wire, "../brokers", 0) == (-1, "", E.INVALID_GROUP_ID)


@pytest.mark.parametrize("version", range(10))
def test_joining_in_every_version(wire: WireClient, group: str, version: int) -> None:
    joined = join(wire, group, version)
    if version >= 4:
        assert (joined.error_code, joined.generation_id) == (E.MEMBER_ID_REQUIRED, -1)
        joined = join(wire, group, version, joined.member_id)
    assert (joined.error_code, joined.generation_id, joined.leader) == (E.NONE, 1, joined.member_id)
    assert [(m.member_id, m.metadata) for m in joined.members] == [(joined.member_id, SUBSCRIPTION)]
    assert joined.protocol_name == "range"
    assert joined.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", range(7))
def test_coordinators_in_every_version(wire: WireClient, group: str, version: int) -> None:
    if version >= 4:
        request = FindCoordinatorRequest(coordinator_keys=[group, "h"], key_type=0)
        coordinators = wire.ask(request, version).coordinators
        assert [c.key for c in coordinators] == [group, "h"]
    else:
        coordinators = [wire.ask(FindCoordinatorRequest(key=group), version)]
    assert {(c.error_code, c.node_id) for c in coordinators} == {(E.NONE, 0)}
    assert all(c.port > 0 for c in coordinators)


@pytest.mark.parametrize(("key_type", "error"), [(1, E.COORDINATOR_NOT_AVAILABLE), (2, E.INVALID_REQUEST)])
def test_there_are_coordinators_of_groups_only(wire: WireClient, key_type: int, error: ErrorCode) -> None:
    assert wire.ask(FindCoordinatorRequest(key="k", key_type=key_type), 3).error_code == error


def test_bad_input_of_members(wire: WireClient, group: str) -> None:
    assert join(wire, "", 3).error_code == E.INVALID_GROUP_ID
    assert join(wire, group, 3, session_timeout_ms=1).error_code == E.INVALID_SESSION_TIMEOUT
    assert join(wire, group, 3, "stranger").error_code == E.UNKNOWN_MEMBER_ID
    member_id, generation_id = member_of(wire, group)
    assert join(wire, group, 3, protocol_type="connect").error_code == E.INCONSISTENT_GROUP_PROTOCOL

    def heartbeat(group_id: str, member: str, generation: int) -> int:
        request = HeartbeatRequest(group_id=group_id, member_id=member, generation_id=generation)
        error: int = wire.ask(request, 3).error_code
        return error

    assert heartbeat(group, member_id, generation_id) == E.NONE
    assert heartbeat(group, member_id, generation_id + 1) == E.ILLEGAL_GENERATION
    assert heartbeat(group, "stranger", generation_id) == E.UNKNOWN_MEMBER_ID
    assert heartbeat("nobody", member_id, generation_id) == E.UNKNOWN_MEMBER_ID
    assert heartbeat("", member_id, generation_id) == E.INVALID_GROUP_ID
    request = SyncGroupRequest(group_id=group, generation_id=generation_id, member_id=member_id)
    assert wire.ask(request, 5).error_code == E.INCONSISTENT_GROUP_PROTOCOL, "from version 5 on the protocol is named"


def test_bad_input_of_commits(wire: WireClient, group: str) -> None:
    assert commit(wire, group, 6, 1, topic="nowhere") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(wire, group, 6, 1, metadata="m" * 4096) == E.NONE
    assert commit(wire, group, 6, 2, metadata="m" * 4097) == E.OFFSET_METADATA_TOO_LARGE
    assert committed(wire, group)[0] == 1
    assert commit(wire, group, 6, 2, generation_id_or_member_epoch=1, member_id="x") == E.UNKNOWN_MEMBER_ID
    assert commit(wire, "new", 6, 2, generation_id_or_member_epoch=1, member_id="x") == E.ILLEGAL_GENERATION
    member_id, generation_id = member_of(wire, group)
    member = {"member_id": member_id, "generation_id_or_member_epoch": generation_id}
    assert commit(wire, group, 6, 3, **member) == E.NONE
    assert commit(wire, group, 6, 4) == E.UNKNOWN_MEMBER_ID, "a group with members takes nobody else's"
    assert committed(wire, group)[0] == 3


def test_static_members_are_fenced(wire: WireClient, group: str) -> None:
    old, generation_id = member_of(wire, group, group_instance_id="i")
    back = join(wire, group, 9, group_instance_id="i")
    assert (back.error_code, back.generation_id, back.skip_assignment) == (E.NONE, generation_id, True)
    request = HeartbeatRequest(group_id=group, member_id=old, generation_id=generation_id, group_instance_id="i")
    assert wire.ask(request, 3).error_code == E.FENCED_INSTANCE_ID
    who = {"member_id": old, "generation_id_or_member_epoch": generation_id, "group_instance_id": "i"}
    assert commit(wire, group, 7, 1, **who) == E.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", range(6))
def test_leaving_in_every_version(wire: WireClient, group: str, version: int) -> None:
    member_id, _ = member_of(wire, group)
    if version >= 3:
        members = [MemberIdentity(member_id=m) for m in (member_id, "stranger")]
        answer = wire.ask(LeaveGroupRequest(group_id=group, members=members), version)
        assert [m.error_code for m in answer.members] == [E.NONE, E.UNKNOWN_MEMBER_ID]
    else:
        assert wire.ask(LeaveGroupRequest(group_id=group, member_id=member_id), version).error_code == E.NONE
        request = LeaveGroupRequest(group_id=group, member_id=member_id)
        assert wire.ask(request, version).error_code == E.UNKNOWN_MEMBER_ID


def test_an_operator_sees_and_deletes(wire: WireClient, group: str) -> None:
    member_id, generation_id = member_of(wire, group)
    member = {"member_id": member_id, "generation_id_or_member_epoch": generation_id}
    assert commit(wire, group, 6, 3, **member) == E.NONE
    assert commit(wire, group, 6, 4, topic="other", **member) == E.NONE
    described = wire.ask(DescribeGroupsRequest(groups=[group, "none"]), 4).groups
    assert [(g.group_state, g.error_code) for g in described] == [("Stable", 0), ("Dead", 0)]
    shown = described[0].members[0]
    assert (shown.client_id, shown.member_assignment, shown.member_metadata) == ("wire", b"part", SUBSCRIPTION)
    assert shown.client_host.startswith("/127.")

    def listed(**filters: list[str]) -> set[tuple[str, str, str]]:
        answer = wire.ask(ListGroupsRequest(**filters), 5)
        return {(g.group_id, g.group_state, g.group_type) for g in answer.groups if g.group_id == group}

    assert listed() == listed(states_filter=["stable"]) == listed(types_filter=["Classic"])
    assert listed() == {(group, "Stable", "classic")}
    assert listed(states_filter=["Empty"]) == listed(types_filter=["consumer"]) == set()

    def delete_offsets() -> dict[str, int]:
        index = OffsetDeleteRequestPartition(partition_index=0)
        topics = [
            OffsetDeleteRequestTopic(name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=1)]),
            OffsetDeleteRequestTopic(name="other", partitions=[index]),
            OffsetDeleteRequestTopic(name="nowhere", partitions=[index]),
        ]
        answer = wire.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
        assert answer.error_code == E.NONE
        return {t.name: t.partitions[0].error_code for t in answer.topics}

    unknown = {"nowhere": E.UNKNOWN_TOPIC_OR_PARTITION}
    assert delete_offsets() == {TOPIC: E.GROUP_SUBSCRIBED_TO_TOPIC, "other": E.NONE} | unknown
    assert committed(wire, group)[0] == 3

    def delete_groups(*names: str) -> list[int]:
        return [r.error_code for r in wire.ask(DeleteGroupsRequest(groups_names=list(names)), 2).results]

    assert delete_groups(group, "none") == [E.NON_EMPTY_GROUP, E.GROUP_ID_NOT_FOUND]
    wire.ask(LeaveGroupRequest(group_id=group, member_id=member_id), 2)
    assert delete_groups(group) == [E.NONE]
    assert committed(wire, group)[0] == -1
    assert delete_groups(group) == [E.GROUP_ID_NOT_FOUND]


def test_a_killed_coordinator_comes_back_with_members_and_offsets(group_cluster: LocalCluster) -> None:
    with WireClient(group_cluster.bootstrap_servers) as wire:
        member_id, generation_id = member_of(wire, "kept")
        member = {"member_id": member_id, "generation_id_or_member_epoch": generation_id}
        assert commit(wire, "kept", 6, 7, **member) == E.NONE
        assert commit(wire, "gone", 6, 1) == E.NONE
        assert wire.ask(DeleteGroupsRequest(groups_names=["gone"]), 1).results[0].error_code == E.NONE
    kill_for_good(group_cluster, 0)
    group_cluster.start_broker(0)
    with WireClient(group_cluster.bootstrap_servers) as wire:
        for group in ("kept", "gone"):
            find_coordinator(wire, group)
        assert committed(wire, "kept")[0] == 7
        assert committed(wire, "gone")[0] == -1
        assert commit(wire, "kept", 6, 8, **member) == E.NONE, "the member is a member still"
        described = wire.ask(DescribeGroupsRequest(groups=["kept"]), 4).groups[0]
        assert (described.group_state, described.members[0].member_assignment) == ("Stable", b"part")


def test_a_coordinator_that_stops_answers_who_waits(group_cluster: LocalCluster) -> None:
    servers = group_cluster.bootstrap_servers
    with WireClient(servers) as first, WireClient(servers) as second, WireClient(servers) as third:
        member_of(first, "join-waits")
        protocols = [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
        values = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer"}
        second.send(JoinGroupRequest(group_id="join-waits", member_id="", protocols=protocols, **values), 3)
        leader = join(third, "sync-waits", 3)
        third.send(JoinGroupRequest(group_id="sync-waits", member_id="", protocols=protocols, **values), 3)
        again = join(first, "sync-waits", 3, leader.member_id, rebalance_timeout_ms=60_000)
        follower = third.answer(ApiKey.JOIN_GROUP, 3)
        assert (again.leader, follower.error_code) == (leader.member_id, E.NONE)
        generation = again.generation_id
        request = SyncGroupRequest(group_id="sync-waits", generation_id=generation, member_id=follower.member_id)
        third.send(request, 3)
        described = first.ask(DescribeGroupsRequest(groups=["join-waits", "sync-waits"]), 4).groups
        assert [g.group_state for g in described] == ["PreparingRebalance", "CompletingRebalance"]
        assert group_cluster.stop_broker(0)
        assert second.answer(ApiKey.JOIN_GROUP, 3).error_code == E.NOT_COORDINATOR
        assert third.answer(ApiKey.SYNC_GROUP, 3).error_code == E.NOT_COORDINATOR
    group_cluster.start_broker(0)
