"""What brokers hold, in a cluster and in a plan."""

from __future__ import annotations

import runpy
from hashlib import blake2b
from pathlib import Path

from engine.admin.brokers.load import (
    BrokerLoad,
    PlannedLoad,
    bytes_to_copy,
    load_of_brokers,
    load_of_plan,
    sizes_of_brokers,
    sizes_of_partitions,
)
from engine.common.model import BrokerInfo, ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot, ReplicaLog, TopicSnapshot
from engine.common.snapshot_json import snapshot_from_json, snapshot_to_json

SCRIPT = Path(__file__).parents[3] / "fixtures" / "snapshots" / "large_cluster.py"
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def partition(index: int, leader: int, *replicas: int, size: int) -> PartitionSnapshot:
    logs = tuple(ReplicaLog(broker, "/d", size - broker) for broker in replicas)
    return PartitionSnapshot(index, ReplicaAssignment(replicas), leader, replicas, replica_logs=logs)


TOPIC = TopicSnapshot("t", (partition(0, 1, 0, 1, size=100), partition(1, 1, 1, 7, size=50)))


def test_of_a_cluster() -> None:
    brokers = (BrokerInfo(0, (), "a"), BrokerInfo(1, (), "b"), BrokerInfo(2, (), None))
    loads = load_of_brokers(brokers, [TOPIC], {0: 100, 1: 148})
    assert loads == [
        BrokerLoad(0, "a", True, 1, 0, 1, 100),
        BrokerLoad(1, "b", True, 2, 2, 1, 148),
        BrokerLoad(2, None, True, 0, 0, 0, None),
        BrokerLoad(7, None, False, 1, 0, 0, None),
    ]
    assert sizes_of_brokers([TOPIC]) == {0: 100, 1: 99 + 49, 7: 43}
    assert sizes_of_partitions([TOPIC]) == {FIRST: 100, SECOND: 49}


def test_of_a_plan() -> None:
    before, after = {FIRST: (0, 1), SECOND: (1, 7)}, {FIRST: (2, 1), SECOND: (1, 2)}
    sizes = {FIRST: 100, SECOND: 49}
    assert load_of_plan(before, after, sizes, brokers=(9,)) == [
        PlannedLoad(0, 1, 0, 1, 0, 100, 0),
        PlannedLoad(1, 2, 2, 1, 1, 149, 149),
        PlannedLoad(2, 0, 2, 0, 1, 0, 149),
        PlannedLoad(7, 1, 0, 0, 0, 49, 0),
        PlannedLoad(9, 0, 0, 0, 0, 0, 0),
    ]
    assert bytes_to_copy(before, after, sizes) == 149
    assert bytes_to_copy(before, before, sizes) == 0
    assert {load.bytes_after for load in load_of_plan(before, after, {})} == {None}


def test_the_large_cluster_is_always_the_same_and_survives_its_file() -> None:
    make = runpy.run_path(str(SCRIPT))["large_cluster"]
    cluster = make(topics=60, partitions=300, brokers=21)
    text = snapshot_to_json(cluster)
    assert text == snapshot_to_json(make(topics=60, partitions=300, brokers=21))
    assert blake2b(text.encode(), digest_size=8).hexdigest() == "be446a1e5e84b514"
    assert snapshot_from_json(text) == cluster
    assert (len(cluster.topics), sum(len(topic.partitions) for topic in cluster.topics)) == (60, 300)
