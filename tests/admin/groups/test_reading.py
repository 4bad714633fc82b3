"""Groups and offsets of many brokers, in the newest and in old versions. A failure stays a value."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from event_loop import staged
from scripted_brokers import HANG_UP, scripted_cluster
from scripted_groups import ScriptedGroups

from engine.admin.cluster.client_properties import ClientProperties
from engine.admin.cluster.errors import Unknown
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups.group_reading import committed_offsets, describe_groups, find_coordinators, list_groups
from engine.admin.groups.values import CommittedOffset, GroupDescription, GroupState, GroupType
from engine.admin.offsets.listing import end_offsets, offsets_at, start_offsets
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribed,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.list_offsets import (
    ListOffsetsRequest,
)
from engine.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
)

NEW: dict[ApiKey, int] = {}
KAFKA_2_0 = {
    ApiKey.FIND_COORDINATOR: 2, ApiKey.LIST_GROUPS: 2, ApiKey.DESCRIBE_GROUPS: 2, ApiKey.OFFSET_FETCH: 4,
    ApiKey.LIST_OFFSETS: 3, ApiKey.METADATA: 6,
}  # fmt: skip
KAFKA_0_10_0 = {
    ApiKey.FIND_COORDINATOR: 0, ApiKey.LIST_GROUPS: 0, ApiKey.DESCRIBE_GROUPS: 0, ApiKey.OFFSET_FETCH: 1,
    ApiKey.LIST_OFFSETS: 0, ApiKey.METADATA: 1,
}  # fmt: skip
ERAS = pytest.mark.parametrize("versions", [NEW, KAFKA_2_0, KAFKA_0_10_0], ids=["3.9", "2.0", "0.10.0"])

Scene = Callable[[ScriptedGroups, WireCluster], Awaitable[None]]


def play(scene: Scene, versions: dict[ApiKey, int] = NEW) -> None:
    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(2, version_max=versions) as cluster:
            wire = WireCluster(cluster.bootstrap, properties=ClientProperties(request_timeout_ms=30_000))
            try:
                await scene(ScriptedGroups(cluster, versions), wire)
            finally:
                await wire.close()

    asyncio.run(playing())


@ERAS
def test_a_whole_cluster_in_every_era(versions: dict[ApiKey, int]) -> None:
    async def scene(world: ScriptedGroups, wire: WireCluster) -> None:
        world.offsets = {f"g{n}": {("t", n % 3): n} for n in range(1, 450)}
        listing = await list_groups(wire)
        assert (len(listing.groups), listing.failures) == (449, {})
        assert [g.group for g in listing.groups] == sorted(world.offsets)
        assert {g.state for g in listing.groups} == ({GroupState.STABLE} if versions == NEW else {None})
        assert {g.coordinator == world.home(g.group) for g in listing.groups} == {True}

        described = await describe_groups(wire, [*world.offsets, "g999"])
        description = described["g7"]
        assert isinstance(description, GroupDescription)
        assert (description.coordinator, description.state, description.protocol, description.type) == (
            1,
            GroupState.STABLE,
            "range",
            GroupType.CLASSIC,
        )
        assert [m.assignment for m in description.members] == [(TopicPartition("t", 0), TopicPartition("t", 1)), None]
        gone = described["g999"]
        assert isinstance(gone, GroupDescription)
        assert gone.state is GroupState.DEAD

        committed = await committed_offsets(wire, [*world.offsets, "g999"])
        assert committed["g8"] == {TopicPartition("t", 2): CommittedOffset(8, -1, "m")}
        assert committed["g999"] == {}
        requests = [r for b in world.cluster.brokers for r in b.requests(OffsetFetchRequest)]
        assert len(requests) == (4 if versions == NEW else 450)

    play(scene, versions)


@ERAS
def test_offsets_of_partitions(versions: dict[ApiKey, int]) -> None:
    async def scene(world: ScriptedGroups, wire: WireCluster) -> None:
        partitions = [TopicPartition("t", n) for n in range(4)] + [TopicPartition("gone", 0)]
        ends = await end_offsets(wire, partitions)
        assert [ends[p] for p in partitions[:2]] == [100, 100]
        unknown = [ends[p] for p in partitions[2:]]
        assert all(isinstance(group, Unknown) for group in unknown)
        assert [str(group) for group in unknown] == ["no leader", *["UNKNOWN_TOPIC_OR_PARTITION"] * 2]
        starts = await start_offsets(wire, partitions[:2])
        assert set(starts.values()) == {10}
        assert set((await offsets_at(wire, dict.fromkeys(partitions[:2], 1_600_000_000_000))).values()) == {50}
        asked = [r for b in world.cluster.brokers for r in b.requests(ListOffsetsRequest)]
        assert len(asked) == 6, "one request per leader and question"

    play(scene, versions)


@staged(play)
async def test_a_coordinator_that_has_moved_is_looked_for_again(world: ScriptedGroups, wire: WireCluster, /) -> None:
    world.offsets = {"g1": {}, "g2": {}}
    world.moved = {"g2"}
    described = await describe_groups(wire, ["g1", "g2"], coordinators={"g1": 1, "g2": 1})
    assert [type(group) for group in described.values()] == [GroupDescription, GroupDescription]
    description = described["g2"]
    assert isinstance(description, GroupDescription)
    assert description.coordinator == 0, "the hint was wrong, the cluster was asked"


@staged(play)
async def test_a_group_without_coordinator_is_told_beside_the_others(
    world: ScriptedGroups, wire: WireCluster, /
) -> None:
    world.offsets = {"g1": {("t", 0): 3}, "g2": {}}
    world.errors = {"g2": ErrorCode.COORDINATOR_NOT_AVAILABLE, "g4": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    committed = await committed_offsets(wire, ["g1", "g2", "g4"], patience_s=0.2)
    assert committed["g1"] == {TopicPartition("t", 0): CommittedOffset(3, -1, "m")}
    assert [getattr(committed[g], "code", None) for g in ("g2", "g4")] == list(world.errors.values())


@staged(play)
async def test_a_broker_that_hangs_up_costs_its_groups_only(world: ScriptedGroups, wire: WireCluster, /) -> None:
    world.offsets = {"g1": {}, "g2": {}}
    hangs_up: Callable[[Any], Any] = lambda _: HANG_UP  # noqa: E731
    world.cluster.brokers[1].answers |= {ApiKey.LIST_GROUPS: hangs_up, ApiKey.DESCRIBE_GROUPS: hangs_up}
    listing = await list_groups(wire, patience_s=0.1)
    assert [g.group for g in listing.groups] == ["g2"]
    assert list(listing.failures) == [1]
    described = await describe_groups(wire, ["g1", "g2"], patience_s=0.1)
    assert isinstance(described["g1"], Unknown)
    assert isinstance(described["g2"], GroupDescription)
    await world.cluster.brokers[1].stop()
    ends = await end_offsets(wire, [TopicPartition("t", 0), TopicPartition("t", 1)], patience_s=0.1)
    assert ends[TopicPartition("t", 0)] == 100
    assert isinstance(ends[TopicPartition("t", 1)], Unknown)


@staged(play)
async def test_coordinators_are_asked_for_in_batches(world: ScriptedGroups, wire: WireCluster, /) -> None:
    coordinators = await find_coordinators(wire, [f"g{n}" for n in range(1200)])
    assert coordinators["g5"] == 1
    assert sum(len(b.requests(FindCoordinatorRequest)) for b in world.cluster.brokers) == 3


@staged(play)
async def test_groups_of_the_new_protocols_are_described_as_far_as_they_can_be(
    world: ScriptedGroups, wire: WireCluster, /
) -> None:
    world.offsets = {f"g{n}": {("t", 0): n} for n in range(1, 6)}
    world.types = {"g1": "consumer", "g2": "consumer", "g3": "share", "g4": "streams"}
    for broker in world.cluster.brokers:
        broker.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = world.describe_new
    listing = await list_groups(wire)
    assert [group.type for group in listing.groups] == ["consumer", "consumer", "share", "streams", "classic"]
    described_groups = await describe_groups(wire, [*world.offsets, "g7"])
    new = described_groups["g2"]
    assert isinstance(new, GroupDescription)
    assert (new.type, new.state, new.protocol_type, new.protocol, new.coordinator) == (
        GroupType.CONSUMER, GroupState.RECONCILING, "consumer", "uniform", 0,
    )  # fmt: skip
    (member,) = new.members
    assert (member.member_id, member.group_instance_id, member.client_id, member.host) == ("m", "i", "c", "/h")
    assert member.assignment == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert str(described_groups["g3"]) == "it is a share group: those are listed, not described"
    assert str(described_groups["g4"]) == "it is a streams group: those are listed, not described"
    classic, absent = described_groups["g5"], described_groups["g7"]
    assert isinstance(classic, GroupDescription) and classic.type is GroupType.CLASSIC
    assert isinstance(absent, GroupDescription) and absent.state is GroupState.DEAD
    for broker in world.cluster.brokers:
        asked = broker.requests(ConsumerGroupDescribeRequest)
        assert not any("g5" in request.group_ids for request in asked), "a classic group is known already"


@staged(play)
async def test_a_broker_with_zookeeper_that_lists_the_new_api_only_to_refuse_it(
    world: ScriptedGroups, wire: WireCluster, /
) -> None:
    def refuse(request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        code = ErrorCode.UNSUPPORTED_VERSION
        refused = [ConsumerGroupDescribed(group_id=name, error_code=code) for name in request.group_ids]
        return ConsumerGroupDescribeResponse(groups=refused)

    for broker in world.cluster.brokers:
        broker.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = refuse
    absent = (await describe_groups(wire, ["g1"]))["g1"]
    assert isinstance(absent, GroupDescription) and absent.state is GroupState.DEAD
