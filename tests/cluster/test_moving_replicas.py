"""Replicas are added, moved and removed while clients write. Topics grow and go while brokers are dead."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from cluster_checks import assert_quiet_and_whole
from confluent_kafka.admin import AdminClient, NewPartitions
from cut_proxy import Cut
from ended_sessions import kill_for_good
from fault_cluster import FaultCluster
from reassigning import reassign, start_reassignment, wait_reassigned
from sequence_writers import LibrdkafkaSender, Writer
from wire_client import create_topic

from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.local.zookeeper import EmbeddedZooKeeper

BROKERS = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultCluster]:
    with FaultCluster(tmp_path_factory.mktemp("moving"), len(BROKERS), zookeeper=zookeeper) as running:
        yield running


class Written:
    """A topic that a writer fills during the whole test."""

    def __init__(self, cluster: FaultCluster, topic: str, assignment: dict[int, list[int]]) -> None:
        create_topic(cluster.broker(0).address, topic, assignment=assignment)
        self.cluster = cluster
        self.topic = topic
        self.writer = Writer(topic, LibrdkafkaSender(cluster.bootstrap))
        self.writer.start(topic, len(assignment))

    def partition(self, index: int) -> TopicPartition:
        return TopicPartition(self.topic, index)

    def wait_for_progress(self, records: int = 500) -> None:
        wanted = self.writer.acknowledged_total + records
        self.cluster.wait_for("records are acknowledged", lambda: self.writer.acknowledged_total >= wanted)

    def stop_and_check(self) -> None:
        self.writer.stop()
        assert assert_quiet_and_whole(self.cluster, self.topic, [self.writer]) > 0

    def folders(self, partition: int = 0) -> set[int]:
        """Return the brokers that have a folder of the partition."""
        brokers = self.cluster.local.brokers.values()
        return {b.id for b in brokers if any((d / f"{self.topic}-{partition}").is_dir() for d in b.spec.log_dirs)}


@pytest.fixture
def written(cluster: FaultCluster) -> Iterator[Written]:
    filled = Written(cluster, f"t{time.monotonic_ns()}", {0: [0, 1, 2], 1: [1, 2, 3], 2: [2, 3, 0]})
    try:
        filled.wait_for_progress()
        yield filled
        filled.wait_for_progress()
        filled.stop_and_check()
    finally:
        filled.writer.close()


def test_move_to_other_brokers(cluster: FaultCluster, written: Written) -> None:
    targets = {written.partition(0): [3, 2, 1], written.partition(1): [0, 2, 3], written.partition(2): [3, 1, 0]}
    start_reassignment(cluster, targets)
    wait_reassigned(cluster, targets)
    cluster.wait_for("the replica that was left behind is deleted", lambda: written.folders(0) == {1, 2, 3})
    leaders = {p: state.leader_and_isr.leader for p, state in cluster.states([written.topic]).items()}
    assert leaders[written.partition(0)] == 3, "broker 0 led and is gone: the first of the target leads"
    assert leaders[written.partition(1)] == 0
    assert leaders[written.partition(2)] in (0, 3), "broker 2 led and is gone"


def test_change_of_replication_factor(cluster: FaultCluster, written: Written) -> None:
    more = {written.partition(0): [0, 1, 2, 3]}
    start_reassignment(cluster, more)
    wait_reassigned(cluster, more)
    written.wait_for_progress()
    fewer = {written.partition(0): [1, 3]}
    start_reassignment(cluster, fewer)
    wait_reassigned(cluster, fewer)
    cluster.wait_for("removed replicas are deleted", lambda: written.folders(0) == {1, 3})


def test_order_alone(cluster: FaultCluster, written: Written) -> None:
    targets = {written.partition(0): [2, 1, 0]}
    before = cluster.states([written.topic])[written.partition(0)].leader_and_isr
    start_reassignment(cluster, targets)
    wait_reassigned(cluster, targets)
    after = cluster.states([written.topic])[written.partition(0)].leader_and_isr
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch + 1)


def isolate(cluster: FaultCluster, broker_id: int) -> None:
    for other in BROKERS:
        if other != broker_id:
            cluster.proxies.cut(broker_id, other, Cut.SILENT)


def test_cancelled_while_the_new_replica_cannot_catch_up(cluster: FaultCluster, written: Written) -> None:
    isolate(cluster, 3)
    try:
        partition = written.partition(0)
        start_reassignment(cluster, {partition: [3, 1, 2]})
        assert cluster.assignments([written.topic])[partition].adding_replicas == (3,)
        written.wait_for_progress()
        assert reassign(cluster, {partition: None}) == {partition: ErrorCode.NONE}
        # During the move the list was 3, 1, 2 and the replica to be removed. As in Kafka, the old order does not come
        # back.
        wait_reassigned(cluster, {partition: [1, 2, 0]})
        assert reassign(cluster, {partition: None}) == {partition: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    finally:
        cluster.proxies.mend_all()
    cluster.wait_for("the replica that was added is deleted", lambda: written.folders(0) == {0, 1, 2})


def test_replaced_by_another_while_under_way(cluster: FaultCluster, written: Written) -> None:
    isolate(cluster, 3)
    try:
        partition = written.partition(0)
        start_reassignment(cluster, {partition: [3, 1, 2]})
        start_reassignment(cluster, {partition: [1, 2, 0]})
        wait_reassigned(cluster, {partition: [1, 2, 0]})
    finally:
        cluster.proxies.mend_all()
    cluster.wait_for("the replica that was added is deleted", lambda: written.folders(0) == {0, 1, 2})


def test_the_next_controller_finishes(cluster: FaultCluster, written: Written) -> None:
    controller = cluster.wait_for("there is a controller", lambda: [cluster.controller_id()])[0]
    assert controller is not None
    target = next(b for b in (3, 0) if b != controller)
    index = {3: 0, 0: 1}[target]
    wanted = {written.partition(index): [target, 1, 2]}
    isolate(cluster, target)
    try:
        start_reassignment(cluster, wanted)
        assert cluster.assignments([written.topic])[written.partition(index)].is_being_reassigned
        kill_for_good(cluster.local, controller)
        cluster.wait_led([written.topic], without=controller)
    finally:
        cluster.proxies.mend_all()
    cluster.local.start_broker(controller)
    wait_reassigned(cluster, wanted)
    cluster.wait_in_sync([written.topic])


def test_by_the_znode_of_old_tools(cluster: FaultCluster, written: Written) -> None:
    targets = {written.partition(0): (1, 2, 3), written.partition(1): (0, 1, 2)}
    cluster.zk(lambda zk: zk.admin.create_reassignments(targets))
    wait_reassigned(cluster, targets)
    cluster.wait_for("the znode is gone", lambda: "/admin/reassign_partitions" not in cluster.leftovers())


def test_nonsense_in_the_znode_is_removed_and_the_rest_is_done(cluster: FaultCluster, written: Written) -> None:
    entries = [
        {"topic": "no-such-topic", "partition": 0, "replicas": [0]},
        {"topic": written.topic, "partition": 99, "replicas": [0]},
        {"topic": written.topic, "partition": 1, "replicas": [0, 0]},
        {"topic": written.topic, "partition": 2, "replicas": [77]},
        {"topic": written.topic, "partition": 0, "replicas": [3, 2, 1]},
    ]
    text = json.dumps({"version": 1, "partitions": entries}).encode()
    cluster.zk(lambda zk: zk.client.create("/admin/reassign_partitions", text))
    wait_reassigned(cluster, {written.partition(0): [3, 2, 1]})
    cluster.wait_for("the znode is gone", lambda: "/admin/reassign_partitions" not in cluster.leftovers())
    cluster.zk(lambda zk: zk.client.create("/admin/reassign_partitions", b"{not json"))
    cluster.wait_for("the znode is gone", lambda: "/admin/reassign_partitions" not in cluster.leftovers())


def test_partitions_are_added(cluster: FaultCluster, written: Written) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(written.topic, 7)])[written.topic].result()
    cluster.wait_in_sync([written.topic])
    assert len(cluster.assignments([written.topic])) == 7
    later = Writer("later", LibrdkafkaSender(cluster.bootstrap))
    try:
        later.start(written.topic, 7)
        cluster.wait_for("records are acknowledged", lambda: len(later.acknowledged) == 7)
        later.stop()
        written.writer.stop()
        assert assert_quiet_and_whole(cluster, written.topic, [written.writer, later]) > 0
    finally:
        later.close()
    written.writer.start(written.topic, 3)


def test_deletion_waits_for_a_dead_broker(cluster: FaultCluster, written: Written) -> None:
    doomed = Written(cluster, f"doomed{time.monotonic_ns()}", {0: [0, 1, 2], 1: [1, 2, 3]})
    try:
        doomed.wait_for_progress()
        doomed.writer.stop()
    finally:
        doomed.writer.close()
    victim = next(b for b in (1, 2) if b != cluster.controller_id())
    kill_for_good(cluster.local, victim)
    cluster.wait_led([doomed.topic, written.topic], without=victim)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.delete_topics([doomed.topic], operation_timeout=1)[doomed.topic].exception(timeout=20)
    cluster.wait_for(
        "only the dead broker has a folder left", lambda: doomed.folders(0) | doomed.folders(1) == {victim}
    )
    assert f"/admin/delete_topics/{doomed.topic}" in cluster.leftovers()
    cluster.local.start_broker(victim)
    cluster.wait_for("the topic is gone", lambda: doomed.topic not in cluster.zk(lambda zk: zk.topics.get_all_topics()))
    cluster.wait_for("its folders are gone", lambda: not doomed.folders(0) | doomed.folders(1))
    cluster.wait_in_sync([written.topic])


def test_a_topic_being_reassigned_is_deleted(cluster: FaultCluster, written: Written) -> None:
    doomed = Written(cluster, f"doomed{time.monotonic_ns()}", {0: [0, 1, 2]})
    doomed.writer.stop()
    doomed.writer.close()
    isolate(cluster, 3)
    try:
        start_reassignment(cluster, {doomed.partition(0): [3, 1, 2]})
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.delete_topics([doomed.topic], operation_timeout=1)[doomed.topic].exception(timeout=20)
    finally:
        cluster.proxies.mend_all()
    cluster.wait_for("the topic is gone", lambda: doomed.topic not in cluster.zk(lambda zk: zk.topics.get_all_topics()))
    cluster.wait_for("its folders are gone", lambda: not doomed.folders(0))
