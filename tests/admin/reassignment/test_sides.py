"""Which interface reassignments use, and what differs through ZooKeeper and on a snapshot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from event_loop import staged
from znode_trees import load_tree

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, NotFound, Refused, Unreachable
from engine.admin.cluster.snapshot_file import save_snapshot
from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.cluster.wire import WireCluster
from engine.admin.reassignment.access import (
    SnapshotReassignments,
    delete_broker_settings,
    list_running,
    reassignment_changer,
    reassignment_reader,
)
from engine.admin.reassignment.by_wire import WireReassignments
from engine.admin.reassignment.by_znode import ReassignmentInProgress, ZnodeReassignments
from engine.admin.reassignment.moves import ReassignmentState, RunningReassignments
from engine.admin.reassignment.prepare import WaitsForDeadBroker, prepare_reassignment
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.reassignment.throttle_settings import FOLLOWER_RATE, LEADER_RATE, Throttle
from engine.admin.reassignment.throttles import clear_throttles
from engine.admin.reassignment.verify import read_statuses, verify_reassignment
from engine.admin.snapshots.taking import read_snapshot
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.kafka.zk.brokers import BrokerIdZNode
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.security import OPEN
from engine.local.addresses import own_loopback_address

T0 = TopicPartition("t1", 0)
NO_THROTTLE = Throttle()
WIRE, ZNODE = WireReassignments, ZnodeReassignments


class Unconnected(Cluster):
    """Opens no connection."""

    async def zookeeper(self) -> ZkClient:
        return Mock(spec=ZkClient, security=OPEN)

    async def wire(self) -> WireCluster:
        return Mock(spec=WireCluster)


@pytest.mark.parametrize(
    ("zookeeper", "bootstrap", "via", "reader", "changer"),
    [
        ("z:1", (), None, ZNODE, ZNODE),
        (None, (("b", 1),), None, WIRE, WIRE),
        ("z:1", (("b", 1),), None, ZNODE, WIRE),
        ("z:1", (("b", 1),), Side.WIRE, WIRE, WIRE),
        ("z:1", (("b", 1),), Side.ZOOKEEPER, ZNODE, ZNODE),
    ],
)
def test_who_is_asked(
    zookeeper: str | None, bootstrap: tuple[tuple[str, int], ...], via: Side | None, reader: type, changer: type
) -> None:
    cluster = Unconnected(ClusterTarget("c", Origin.OPTIONS, zookeeper, bootstrap, via=via))

    async def sides() -> tuple[object, object]:
        return await reassignment_reader(cluster), await reassignment_changer(cluster)

    assert tuple(map(type, asyncio.run(sides()))) == (reader, changer)


Scene = Callable[[Cluster], Awaitable[None]]


def play(
    scene: Scene, *, zk_chroot: str, tree: str = "leaderless", bootstrap: tuple[tuple[str, int], ...] = ()
) -> None:
    """Play a scene on a recorded cluster in which broker 1 is dead and the others are silent."""
    target = ClusterTarget("recorded", Origin.OPTIONS, zk_chroot, bootstrap)

    async def playing() -> None:
        await load_tree(zk_chroot, tree)
        async with asyncio.timeout(60), Cluster(target, timeout_s=10) as cluster:
            await scene(cluster)

    asyncio.run(playing())


def test_what_moves_stands_before_what_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = ReplicaAssignment((0, 1, 2), adding_replicas=(2,))
    listed = RunningReassignments({TopicPartition("z", 1): moving, TopicPartition("b", 0): moving}, {T0: (0,)})

    async def running(self: WireReassignments) -> RunningReassignments:
        return listed

    monkeypatch.setattr(WireReassignments, "running", running)
    cluster = Unconnected(ClusterTarget("x", Origin.OPTIONS, None, (("b", 1),)))
    assert [move.topic for move in asyncio.run(list_running(cluster))] == ["b", "z", "t1"]


@staged(play)
async def test_through_the_znode_one_batch_goes_after_the_other(cluster: Cluster, /) -> None:
    plan = [PartitionMove(T0, (0, 2))]
    prepared = await prepare_reassignment(cluster, plan, NO_THROTTLE)
    assert [str(move) for move in prepared.planned] == ["t1-0: 2,0,1 → 0,2"]
    changer = await reassignment_changer(cluster)
    assert await changer.alter({T0: (0, 2)}) == []
    # Nobody is there to carry it out: the content of the znode counts as under way.
    assert [(move.topic, move.replicas) for move in await list_running(cluster)] == [("t1", (0, 2))]
    assert [status.state for status in await read_statuses(cluster, plan)] == [ReassignmentState.IN_PROGRESS]
    with pytest.raises(ReassignmentInProgress):
        await changer.alter({T0: (0, 2)})
    for is_additional in (False, True):
        with pytest.raises(Refused) as refused:
            await prepare_reassignment(cluster, plan, NO_THROTTLE, is_additional=is_additional)
        assert "reassignments run one after the other" in str(refused.value.hint)


@staged(play)
async def test_through_the_znode_a_dead_broker_gets_nothing_and_nothing_is_cancelled(cluster: Cluster, /) -> None:
    with pytest.raises(NotFound, match="unknown broker id 3"):
        await prepare_reassignment(cluster, [PartitionMove(T0, (3, 0, 2))], NO_THROTTLE)
    with pytest.raises(BadRequest, match="cannot be cancelled through ZooKeeper"):
        await (await reassignment_changer(cluster)).check({T0: None})


@pytest.mark.parametrize(
    ("replicas", "version", "waits"), [((0, 2, 1), 5, False), ((0, 2, 1), 4, True), ((0, 1), 5, True)]
)
@staged(play)
async def test_through_the_znode_nothing_is_started_that_waits_for_a_dead_broker(
    cluster: Cluster, /, replicas: tuple[int, ...], version: int, waits: bool
) -> None:
    """Controllers since 2.4 change the order at once.

    Older ones may wait for the dead broker, and cannot be stopped.
    """
    zk = await cluster.zookeeper()
    for broker in (0, 2):
        path = BrokerIdZNode.path(broker)
        await zk.set(path, json.dumps(json.loads((await zk.get(path))[0]) | {"version": version}).encode())
    plan = [PartitionMove(T0, replicas)]
    if waits:
        with pytest.raises(WaitsForDeadBroker, match="broker 1 is dead"):
            await prepare_reassignment(cluster, plan, NO_THROTTLE)
    else:
        prepared = await prepare_reassignment(cluster, plan, NO_THROTTLE)
        assert prepared.warnings == ("t1-0 keeps replicas on dead brokers: 1",)


def test_settings_of_a_dead_broker_are_deleted_in_zookeeper_whoever_changes_the_others(zk_chroot: str) -> None:
    async def scene(cluster: Cluster) -> None:
        kafka = KafkaZkClient(await cluster.zookeeper())
        assert await (await reassignment_reader(cluster)).configured_brokers() == {0, 1, 2}
        for broker in (0, 1):
            settings = {LEADER_RATE: "5000", FOLLOWER_RATE: "5000"}
            await kafka.configs.change_entity_configs(f"brokers/{broker}", settings, check_controller=False)
        with pytest.raises(Unreachable):
            await delete_broker_settings(cluster, 0, [LEADER_RATE], is_alive=True)
        await delete_broker_settings(cluster, 1, [LEADER_RATE], is_alive=False)
        assert await kafka.configs.get_entity_configs("brokers/0") == settings
        assert await kafka.configs.get_entity_configs("brokers/1") == {FOLLOWER_RATE: "5000"}

    play(scene, zk_chroot=zk_chroot, bootstrap=((own_loopback_address(), 9),))


@staged(play)
async def test_the_rate_of_a_dead_broker_comes_off_too(cluster: Cluster, /) -> None:
    kafka = KafkaZkClient(await cluster.zookeeper())
    await kafka.configs.change_entity_configs("brokers/1", {LEADER_RATE: "5000"}, check_controller=False)
    cleared = await clear_throttles(cluster, frozenset(), None, Throttle(5_000).broker_settings)
    assert (cleared.brokers, cleared.left) == ((1,), ())
    assert await kafka.configs.get_entity_configs("brokers/1") == {}


def test_a_snapshot_tells_what_was_under_way_and_takes_a_dry_run(tmp_path: Path, zk_chroot: str) -> None:
    file = tmp_path / "snapshot.json"

    async def taken(cluster: Cluster) -> None:
        save_snapshot(await read_snapshot(cluster), file)

    play(taken, zk_chroot=zk_chroot, tree="reassignment-under-way")
    # Only the broker can say whether it has such a log dir.
    manual = PartitionMove(TopicPartition("manual", 0), (1, 2), ("any", "/somewhere"))

    async def scene() -> None:
        async with Cluster(ClusterTarget("snapshot", Origin.SNAPSHOT, snapshot=file)) as cluster:
            assert isinstance(await reassignment_reader(cluster), SnapshotReassignments)
            running = [(move.topic, move.partition, move.adding) for move in await list_running(cluster)]
            assert running == [("move", 0, (2,)), ("move", 1, (0,))]
            prepared = await prepare_reassignment(cluster, [manual], Throttle(50_000), is_additional=True)
            assert [str(move) for move in prepared.planned] == ["manual-0: 0,1 → 1,2, broker 2: into /somewhere"]
            assert prepared.throttle is not None
            verified = await verify_reassignment(cluster, [manual])
            assert [status.state for status in verified.statuses] == [ReassignmentState.FAILED]
            with pytest.raises(BadRequest, match="a snapshot cannot be changed"):
                await (await reassignment_changer(cluster)).alter({manual.name: manual.replicas})

    asyncio.run(scene())
