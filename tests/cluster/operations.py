"""What operators do during faults: replicas are removed and added, topics are created and deleted.

They have the shape of ``faults``: begun now, and completed by ``undo`` when everything else works again.
"""

from __future__ import annotations

import random
import time

from confluent_kafka.admin import AdminClient
from fault_cluster import FaultCluster
from faults import NOT_NOW, Fault, Injected
from reassigning import reassign
from wire_client import create_topic

from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition

_AFTER_ALL = 3
"""Rank of undoing: after brokers, lines and ZooKeeper have recovered."""


def take_a_replica_away(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """Reassign a partition to all but one of its replicas, and later to all of them in another order."""
    if not cluster.is_zookeeper_serving or cluster.controller_id() not in cluster.running:
        return None
    topics = [name for name in cluster.zk(lambda zk: zk.topics.get_all_topics()) if not name.startswith("__")]
    assignments = cluster.assignments(topics)
    partition = rng.choice(sorted(assignments))
    replicas = list(assignments[partition].replicas)
    rng.shuffle(replicas)
    taken = replicas[-1]
    if len(replicas) < 2 or not _may_reassign(cluster, partition, replicas[:-1]):
        return None

    def undo() -> None:
        cluster.wait_for("the reassignment is accepted", lambda: _may_reassign(cluster, partition, replicas))

    return Injected(f"replica {taken} of {partition} away and back", _AFTER_ALL, undo)


def make_a_topic_and_delete_it(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """Create a topic on all brokers, and delete it again later."""
    if not cluster.is_zookeeper_serving or cluster.controller_id() not in cluster.running:
        return None
    topic = f"passing-{time.monotonic_ns()}"
    try:
        create_topic(cluster.broker(rng.choice(cluster.running)).address, topic, partitions=4, replication_factor=2)
    except NOT_NOW:
        # Whether it exists now is open. If it does, it goes with the others at the next undo.
        return Injected(f"{topic} perhaps made", _AFTER_ALL, lambda: None)

    def is_gone() -> bool:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        # A controller that loses its session during the request says so. It is asked again.
        admin.delete_topics([topic], operation_timeout=5)[topic].exception(30)
        return topic not in cluster.zk(lambda zk: zk.topics.get_all_topics())

    def undo() -> None:
        cluster.wait_for(f"{topic} is gone", is_gone)

    return Injected(f"{topic} made and deleted", _AFTER_ALL, undo)


ALL: tuple[Fault, ...] = (take_a_replica_away, make_a_topic_and_delete_it)


def _may_reassign(cluster: FaultCluster, partition: TopicPartition, replicas: list[int]) -> bool:
    try:
        return reassign(cluster, {partition: replicas})[partition] is ErrorCode.NONE
    except NOT_NOW:
        return False
