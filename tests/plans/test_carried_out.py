"""Plans of odd clusters as they are applied: every prefix of their waves is safe, and the rollback leads back."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from odd_clusters import odd_case
from small_clusters import applied

from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.reassignment.waves import Wave, WaveCaps, WaveMove, waves_of
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.snapshot import ClusterSnapshot
from plans.errors import PlanError
from plans.options import Strategy
from plans.plan_file import PlanFile
from plans.planning import make_plan

SEEDS = 60
BATCH = 15
LIMIT_S = 0.3
"""Runs are cut short. What holds for every plan holds for those too."""

MAY_SHARE_MORE = (Strategy.DECOMMISSION, Strategy.REPLACE, Strategy.FACTOR, Strategy.MOVE)
"""Strategies that may have to put two replicas of a partition into one rack."""

Lists = Mapping[TopicPartition, tuple[int, ...]]


def with_moves_under_way(snapshot: ClusterSnapshot, seed: int) -> ClusterSnapshot:
    """Return the cluster with a few partitions that somebody is moving."""
    chance, live = random.Random(seed), sorted(snapshot.live_broker_ids)
    topics = []
    for topic in snapshot.topics:
        parts = []
        for partition in topic.partitions:
            free = [broker for broker in live if broker not in partition.replicas]
            if free and chance.random() < 0.1:
                adding, removing = (chance.choice(free),), partition.replicas[-1:]
                partition = replace(
                    partition, assignment=ReplicaAssignment((*adding, *partition.replicas), adding, removing)
                )
            parts.append(partition)
        topics.append(replace(topic, partitions=tuple(parts)))
    return replace(snapshot, topics=tuple(topics))


def lists_of(snapshot: ClusterSnapshot) -> dict[TopicPartition, tuple[int, ...]]:
    return {
        TopicPartition(topic.name, partition.partition): partition.assignment.target_replicas
        for topic in snapshot.topics
        for partition in topic.partitions
    }


def shared(replicas: Sequence[int], racks: Mapping[int, str | None]) -> int:
    """Return how many replicas share a rack with another one. A broker without a known rack has its own."""
    return len(replicas) - len({racks.get(broker) or broker for broker in replicas})


def waves(plan: PlanFile, before: Lists) -> tuple[Wave, ...]:
    moves = [
        WaveMove(PartitionMove(partition.name, partition.replicas, partition.log_dirs), before[partition.name])
        for partition in plan.partitions
    ]
    return waves_of(moves, WaveCaps(replicas=2))


def prefixes(before: Lists, plan: PlanFile) -> Iterator[Lists]:
    """Yield the cluster before the first wave and after each of them."""
    present = dict(before)
    yield dict(present)
    for wave in waves(plan, before):
        present.update({move.name: move.target for move in wave})
        yield dict(present)


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_every_prefix_of_waves_is_safe_and_the_rollback_leads_back(first: int) -> None:
    moved = 0
    for seed in range(first, first + BATCH):
        odd, case = odd_case(seed), f"seed {seed}"
        snapshot = with_moves_under_way(odd.snapshot, seed)
        try:
            plan = make_plan(snapshot, odd.strategy, replace(odd.options, time_limit_s=LIMIT_S)).plan
        except PlanError:
            continue
        before, target = lists_of(snapshot), {partition.name: partition.replicas for partition in plan.partitions}
        under_way = {
            TopicPartition(topic.name, partition.partition)
            for topic in snapshot.topics
            for partition in topic.partitions
            if partition.assignment.is_being_reassigned
        }
        assert not under_way & target.keys(), case
        racks = {broker.id: broker.rack for broker in snapshot.brokers}
        if None in racks.values():
            racks = {}
        steps = list(prefixes(before, plan))
        moved += len(steps) - 1
        for present in steps:
            for name, replicas in present.items():
                assert replicas in (before[name], target.get(name)), (case, name)
                most = shared(before[name], racks)
                if odd.strategy in MAY_SHARE_MORE:
                    most = max(most, shared(target.get(name, replicas), racks))
                assert shared(replicas, racks) <= most, (case, name)
                wanted = odd.options.replication_factor if odd.strategy is Strategy.FACTOR else None
                assert len(replicas) in (len(before[name]), wanted), (case, name)
        assert steps[-1] == before | target, case
        check_rollback(snapshot, before, plan, case)
    assert moved > BATCH


def check_rollback(snapshot: ClusterSnapshot, before: Lists, plan: PlanFile, told: str) -> None:
    there = applied(snapshot, plan.partitions)
    assert lists_of(there) == before | {partition.name: partition.replicas for partition in plan.partitions}, told
    assert lists_of(applied(there, plan.klamm.rollback)) == before, told
    assert {row.name for row in plan.klamm.rollback} == {partition.name for partition in plan.partitions}, told
