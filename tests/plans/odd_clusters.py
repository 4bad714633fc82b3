"""Clusters of unusual shape with options, drawn from a seed: uneven racks, dead brokers, mixed factors."""

from __future__ import annotations

import random
from dataclasses import dataclass

from engine.common.model import BrokerInfo, ReplicaAssignment
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, ReplicaLog, SnapshotSource, TopicSnapshot
from plans.options import Aim, BrokerCapacity, Minimise, PlanOptions, Replacement, Strategy

_AIMS = [(), (Aim.REPLICAS,), (Aim.LEADERS,), (Aim.REPLICAS, Aim.LEADERS), (Aim.BYTES,), tuple(Aim), None]


@dataclass(frozen=True)
class Odd:
    """What a seed gives."""

    snapshot: ClusterSnapshot
    strategy: Strategy
    options: PlanOptions


def odd_case(seed: int, *, brokers_max: int = 12, partitions_max: int = 40) -> Odd:
    """Return a cluster, a strategy and options. Some of them cannot be met."""
    chance = random.Random(seed)
    snapshot = odd_cluster(chance, brokers_max, partitions_max)
    strategy = chance.choice([strategy for strategy in Strategy if strategy is not Strategy.LOG_DIRS])
    return Odd(snapshot, strategy, _options(chance, snapshot, strategy))


def odd_cluster(chance: random.Random, brokers_max: int, partitions_max: int) -> ClusterSnapshot:
    """Return a cluster whose racks, factors, sizes and placement follow no good practice."""
    count = chance.randint(2, brokers_max)
    ids = chance.sample(range(1, 4 * brokers_max), count)
    rack_names = [f"r{number}" for number in range(chance.randint(1, min(5, count)))]
    rack_weights = [chance.expovariate(1) + 0.1 for _ in rack_names]
    has_racks = chance.random() < 0.8
    dead = {broker for broker in ids if chance.random() < 0.08} if chance.random() < 0.4 else set()
    live = [broker for broker in ids if broker not in dead] or ids
    racks = {broker: chance.choices(rack_names, rack_weights)[0] if has_racks else None for broker in live}
    holders = chance.sample(ids, chance.randint(1, count))
    weights = {broker: chance.expovariate(1) + 0.05 for broker in holders}
    topics = []
    left = chance.randint(1, partitions_max)
    has_sizes = chance.random() < 0.8
    is_mixed = chance.random() < 0.3
    factor = chance.randint(1, min(4, len(holders)))
    while left > 0:
        partitions = min(left, max(1, int(chance.lognormvariate(1.2, 0.9))))
        left -= partitions
        if is_mixed:
            factor = chance.randint(1, min(4, len(holders)))
        mean = 0 if chance.random() < 0.1 else chance.lognormvariate(10, 2)
        parts = tuple(
            _partition(chance, number, weights, factor, mean if has_sizes else None, set(live))
            for number in range(partitions)
        )
        topics.append(TopicSnapshot(f"t{len(topics):03d}", parts))
    return ClusterSnapshot(
        brokers=tuple(BrokerInfo(broker, (), rack) for broker, rack in sorted(racks.items())),
        topics=tuple(topics),
        source=SnapshotSource.WIRE,
        taken_at_ms=0,
        cluster_id="odd",
    )


def _partition(
    chance: random.Random, number: int, weights: dict[int, float], factor: int, mean: float | None, live: set[int]
) -> PartitionSnapshot:
    left, chosen = dict(weights), []
    for _ in range(factor):
        chosen.append(chance.choices(list(left), list(left.values()))[0])
        del left[chosen[-1]]
    replicas = tuple(chosen)
    size = None if mean is None else int(mean * chance.lognormvariate(0, 1))
    logs = () if size is None else tuple(ReplicaLog(broker, "/data", size) for broker in replicas)
    isr = tuple(broker for broker in replicas if broker in live)
    return PartitionSnapshot(number, ReplicaAssignment(replicas), isr[0] if isr else -1, isr, replica_logs=logs)


def _options(chance: random.Random, snapshot: ClusterSnapshot, strategy: Strategy) -> PlanOptions:
    live = [broker.id for broker in snapshot.brokers]
    aim = chance.choice(_AIMS)
    has_sizes = all(partition.replica_logs for topic in snapshot.topics for partition in topic.partitions)
    if not has_sizes and aim is not None and Aim.BYTES in aim:
        aim = None
    if strategy is Strategy.LEADERS:
        aim = None
    brokers: tuple[int, ...] = ()
    if strategy in (Strategy.DECOMMISSION, Strategy.EXPAND, Strategy.MOVE):
        brokers = tuple(chance.sample(live, chance.randint(1, max(1, len(live) - 1))))
    old, new = chance.sample(live, 2) if len(live) > 1 else (live[0], live[0])
    partitions = [f"{topic.name}-{partition.partition}" for topic in snapshot.topics for partition in topic.partitions]
    whole = sum(log.size_bytes for t in snapshot.topics for p in t.partitions for log in p.replica_logs)
    return PlanOptions(
        brokers=brokers,
        replacements=(Replacement(old, new),) if strategy is Strategy.REPLACE else (),
        replication_factor=chance.randint(1, 4) if strategy is Strategy.FACTOR else None,
        aim=aim,
        minimise=chance.choice([None, Minimise.MOVES, Minimise.BYTES] if has_sizes else [None, Minimise.MOVES]),
        tolerance_percent=chance.choice([5.0, 20.0, 60.0]),
        exclude_topics=("t000",) if chance.random() < 0.15 else (),
        exclude_brokers=(chance.choice(live),) if chance.random() < 0.15 else (),
        pins=tuple(chance.sample(partitions, 1)) if chance.random() < 0.15 else (),
        max_moves=chance.randint(0, 20) if chance.random() < 0.15 else None,
        max_bytes=chance.randint(0, whole) if has_sizes and chance.random() < 0.1 else None,
        broker_capacities=(BrokerCapacity(chance.choice(live), whole // len(live)),)
        if has_sizes and chance.random() < 0.1
        else (),
        keep_dead=chance.random() < 0.3,
    )
