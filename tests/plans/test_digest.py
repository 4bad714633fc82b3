"""The digest of the input: what must not change between planning and applying, and what may."""

from dataclasses import replace

from engine.common.model import BrokerInfo, ReplicaAssignment
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, ReplicaLog, SnapshotSource, TopicSnapshot
from plans.digest import input_digest

PARTITION = PartitionSnapshot(0, ReplicaAssignment((1, 2)), leader=1, isr=(1, 2))
TOPIC = TopicSnapshot("t", (PARTITION,), topic_id=bytes(16))
CLUSTER = ClusterSnapshot(
    brokers=(BrokerInfo(1, (), "a"), BrokerInfo(2, (), "b")),
    topics=(TOPIC,),
    source=SnapshotSource.WIRE,
    taken_at_ms=1,
    cluster_id="c",
)


def _with_partition(**changes: object) -> ClusterSnapshot:
    return replace(CLUSTER, topics=(replace(TOPIC, partitions=(replace(PARTITION, **changes),)),))


def test_what_may_drift_is_not_in_it() -> None:
    logs = (ReplicaLog(1, "/d", 5),)
    same = [
        _with_partition(leader=2),
        _with_partition(isr=(1,)),
        _with_partition(replica_logs=logs),
        _with_partition(leader_epoch=4),
        replace(CLUSTER, taken_at_ms=2, source=SnapshotSource.ZOOKEEPER, controller_id=1),
        _with_partition(assignment=ReplicaAssignment((1, 2, 3), (1,), (3,))),
    ]
    assert {input_digest(problem) for problem in same} == {input_digest(CLUSTER)}


def test_what_must_not_change_is_in_it() -> None:
    other = [
        CLUSTER,
        replace(CLUSTER, cluster_id="d"),
        replace(CLUSTER, brokers=CLUSTER.brokers[:1]),
        replace(CLUSTER, brokers=(CLUSTER.brokers[0], replace(CLUSTER.brokers[1], rack="a"))),
        replace(CLUSTER, topics=()),
        replace(CLUSTER, topics=(replace(TOPIC, name="u"),)),
        replace(CLUSTER, topics=(replace(TOPIC, topic_id=bytes(15) + b"\x02"),)),
        _with_partition(assignment=ReplicaAssignment((2, 1))),
        _with_partition(partition=1),
    ]
    assert len({input_digest(problem) for problem in other}) == len(other)
