"""What our controller commits to ZooKeeper is what Apache Kafka 3.9.1 committed in the same case, write by write.

Both sides are read from ZooKeeper's own transaction log. The state writes of one step are sent together and committed
in any order, so they are compared as a set.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from controller_cluster import SmallCluster, cluster_of, eventually
from event_loop import staged
from network_serving import run
from zk_txn_log import recorded, writes_of

from engine.broker.controller import reassignment, reassignment_requests
from engine.broker.controller.topic_admin import NewTopic
from engine.common.model import TopicPartition
from engine.kafka.zk.admin_nodes import PreferredReplicaElectionZNode, ReassignPartitionsZNode
from engine.local.zookeeper import EmbeddedZooKeeper

SCENES = Path(__file__).parents[3] / "fixtures" / "controller" / "writes"


class Scenes:
    """Plays scenes on a cluster and compares what broker 0 wrote in each."""

    def __init__(self, cluster: SmallCluster, zookeeper: EmbeddedZooKeeper, chroot: str) -> None:
        self.cluster = cluster
        self.admin = cluster.brokers[0].topic_admin
        self._zookeeper = zookeeper
        self._chroot = chroot
        self._seen = 0

    def written(self) -> list[str]:
        """Return what broker 0's session wrote since the last call."""
        session_id = self.cluster.brokers[0].zk.client.session_id
        lines = writes_of(self._zookeeper.data_dir, session_id, self._chroot)
        new, self._seen = lines[self._seen :], len(lines)
        return [line for line in new if line not in ("error NODEEXISTS", "create /")]

    async def compare(self, scene: str) -> None:
        await self.cluster.idle()
        expected = recorded(SCENES / f"{scene}.jsonl")
        assert in_steps(self.written()) == in_steps(expected), scene


def in_steps(lines: list[str]) -> list[list[str]]:
    """Group writes that are committed together: consecutive state writes are one step."""
    steps: list[list[str]] = []
    for line in lines:
        is_state = "/state v" in line
        if is_state and steps and "/state v" in steps[-1][0]:
            steps[-1].append(line)
        else:
            steps.append([line])
    return [sorted(step) for step in steps]


@staged(run)
async def test_scenes(zookeeper: EmbeddedZooKeeper, zk_chroot: str) -> None:
    chroot = "/" + zk_chroot.partition("/")[2]
    async with cluster_of(zk_chroot, 1, racks="a") as cluster:
        await Scenes(cluster, zookeeper, chroot).compare("01-first-broker-starts")


def test_topics(zookeeper: EmbeddedZooKeeper, zk_chroot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Kafka reassigns one partition after the other, as a batch of one does.
    for module in (reassignment, reassignment_requests):
        monkeypatch.setattr(module, "REASSIGNED_AT_ONCE_MAX", 1)

    async def scenes() -> None:
        chroot = "/" + zk_chroot.partition("/")[2]
        async with cluster_of(zk_chroot, 3, racks="abc") as cluster:
            play = Scenes(cluster, zookeeper, chroot)
            play.written()
            cluster.brokers[0].draws = [1, 0]
            created = await play.admin.create_topic(NewTopic("t1", 3, 3))
            assert await play.admin.wait_for_leaders("t1", created.assignment, 10_000)
            await play.compare("03-topic-created")
            assignments = {0: (0, 1), 1: (1, 2), 2: (2, 0)}
            await play.admin.create_topic(
                NewTopic("manual", assignments=assignments, configs={"max.message.bytes": "2000000"})
            )
            assert await play.admin.wait_for_leaders("manual", assignments, 10_000)
            await play.compare("04-topic-created-manual")
            partitions = await play.admin.add_partitions("t1", 5, None)
            assert await play.admin.wait_for_leaders("t1", partitions, 10_000)
            await play.compare("06-partitions-added")
            await reassign_by_hand(play)
            await play.admin.delete_topic("manual")
            assert await play.admin.wait_until_gone("manual", 10_000)
            await eventually(lambda: "manual" not in cluster.controller.controller.core.context.topics, "deletion")
            await play.compare("14-topic-deleted")
            await elect_by_hand(play)

    run(scenes)


async def reassign_by_hand(play: Scenes) -> None:
    """Scene 12, the znode of old tools: the second partition was started first; who caught up first was chance."""
    manual_0, manual_1 = TopicPartition("manual", 0), TopicPartition("manual", 1)
    other = play.cluster.brokers[1].zk.client
    data = ReassignPartitionsZNode.encode({manual_1: (0, 2), manual_0: (1, 2)})
    await other.create(ReassignPartitionsZNode.path, data)
    context = play.cluster.controller.controller.core.context
    await eventually(lambda: len(context.partitions_being_reassigned) == 2, "the start of both")
    await play.cluster.idle()
    grown = {"partitions/0/state": (manual_0, 0, 1, 2), "partitions/1/state": (manual_1, 1, 2, 0)}
    writes = [line for line in recorded(SCENES / "12-legacy-reassignment-znode.jsonl") if line.count("state v2")]
    for line in writes:
        (caught_up,) = [replicas for path, replicas in grown.items() if path in line]
        await play.cluster.catch_up(*caught_up)
        await play.cluster.idle()
    await play.compare("12-legacy-reassignment-znode")


async def elect_by_hand(play: Scenes) -> None:
    """The end of scene 11: t1-1 needs an election, t1-2 is right already, one is unknown."""
    t1_1 = TopicPartition("t1", 1)
    zk = play.cluster.brokers[0].zk
    play.written()
    await play.cluster.catch_up(t1_1, 0, 2, 1)
    await play.cluster.idle()
    play.written()
    partitions = (t1_1, TopicPartition("t1", 2), TopicPartition("nosuch", 0))
    await play.cluster.brokers[1].zk.client.create(
        PreferredReplicaElectionZNode.path, PreferredReplicaElectionZNode.encode(partitions)
    )
    await eventually_gone(zk, PreferredReplicaElectionZNode.path)
    await play.cluster.idle()
    assert play.written()[-1] == "multi{check /controller_epoch v1 | delete /admin/preferred_replica_election}"


async def eventually_gone(zk: object, path: str) -> None:
    while await zk.client.exists(path) is not None:  # type: ignore[attr-defined]
        pass


async def next_term(cluster: SmallCluster) -> None:
    """Delete ``/controller`` by hand and wait for the election that follows."""
    controller = cluster.brokers[0].controller
    before = controller.controller_epoch
    await cluster.brokers[0].zk.client.delete("/controller")
    await eventually(lambda: controller.controller_epoch == before + 1, "the next term")
    await cluster.idle()


@staged(run)
async def test_a_controller_znode_deleted_by_hand(zookeeper: EmbeddedZooKeeper, zk_chroot: str) -> None:
    """Scene 23: resignation and election while all live. Nothing needless is written."""
    expected = recorded(SCENES / "23-controller-znode-deleted.jsonl")
    # The epoch is in the recording: as many terms come before it.
    (epoch,) = re.findall(r"setData /controller_epoch.* v(\d+)", expected[0])
    chroot = "/" + zk_chroot.partition("/")[2]
    async with cluster_of(zk_chroot, 1) as cluster:
        play = Scenes(cluster, zookeeper, chroot)
        await play.admin.create_topic(NewTopic("t1", 2, 1))
        await cluster.idle()
        for _ in range(1, int(epoch)):
            play.written()
            await next_term(cluster)
        assert play.written()[1:] == expected
