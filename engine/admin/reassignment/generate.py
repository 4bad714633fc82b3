"""The plan of ``kafka-reassign-partitions --generate``: each topic is assigned from scratch to a list of brokers.

It spreads evenly and ignores the present assignment: nearly everything moves. ``klamm plan`` moves as little as it can.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, no_live_broker
from engine.admin.cluster.members import read_members
from engine.admin.cluster.remedies import Parameter
from engine.admin.reassignment.access import read_topics
from engine.admin.topics.access import topic_reader
from engine.admin.topics.selection import TopicSelection, topic_not_found
from engine.common.assignment import Draw, RackAwareMode, assign_replicas, usable_racks
from engine.common.collection import collector_paused
from engine.common.errors import KafkaError
from engine.common.model import BrokerInfo, TopicPartition
from engine.common.snapshot import TopicSnapshot
from engine.common.topic_names import INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class GeneratedPlan:
    """The topics' replicas as they are and as they would be, in the cluster with this id."""

    current: Mapping[TopicPartition, tuple[int, ...]]
    proposed: Mapping[TopicPartition, tuple[int, ...]]
    cluster_id: str | None = None


async def generate_reassignment(
    cluster: Cluster,
    topics: Sequence[str],
    broker_list: Sequence[int],
    *,
    is_rack_aware: bool = True,
    draw: Draw = random.randrange,
) -> GeneratedPlan:
    """Propose new replicas for topics of a cluster. Changes nothing.

    Raises:
        NotFound: a topic does not exist, or a broker of the list is not alive.
        BadRequest: there are too few brokers, or only some of them have a rack.
    """
    described = await read_topics(cluster, topics)
    members = await read_members(cluster)
    missing = [name for name in topics if name not in described]
    if missing:
        raise topic_not_found(missing)
    plan = generate_plan(list(described.values()), members.brokers, broker_list, is_rack_aware=is_rack_aware, draw=draw)
    return replace(plan, cluster_id=members.cluster_id)


async def topics_named(cluster: Cluster, selection: TopicSelection) -> list[str]:
    """Return the topics that a selection chooses. A pattern never chooses an internal topic.

    Raises:
        NotFound: a name or pattern matches no topic.
    """
    if not selection.wants_list:
        return list(dict.fromkeys(selection.names))
    known = await (await topic_reader(cluster)).names()
    existing = [topic.topic for topic in known]
    if missing := selection.unmatched(existing):
        raise topic_not_found(missing)
    return [name for name in selection.choose(existing) if name in selection.names or name not in INTERNAL_TOPICS]


def generate_plan(
    topics: Sequence[TopicSnapshot],
    brokers: Sequence[BrokerInfo],
    broker_list: Sequence[int],
    *,
    is_rack_aware: bool = True,
    draw: Draw = random.randrange,
    fixed_start_index: int | None = None,
) -> GeneratedPlan:
    """Spread topics over the brokers of ``broker_list``. Pure.

    Topics are taken by name, so that the same draws give the same plan. A topic's factor is that of its first
    partition. ``fixed_start_index`` replaces both draws of every topic.

    Raises:
        NotFound: a broker of the list is not alive. (Kafka's tool leaves it out without a word.)
        BadRequest: there are too few brokers, or only some of them have a rack.
    """
    racks = {broker.id: broker.rack for broker in brokers}
    dead = sorted(set(broker_list) - set(racks))
    if dead:
        raise no_live_broker(dead[0], racks, Parameter.BROKER_LIST)
    with collector_paused():
        proposed = _proposed(
            topics, {broker: racks[broker] for broker in broker_list}, is_rack_aware, draw, fixed_start_index
        )
        current = {TopicPartition(topic.name, p.partition): p.replicas for topic in topics for p in topic.partitions}
        return GeneratedPlan(dict(sorted(current.items())), dict(sorted(proposed.items())))


def _proposed(
    topics: Sequence[TopicSnapshot],
    racks: Mapping[int, str | None],
    is_rack_aware: bool,
    draw: Draw,
    fixed_start_index: int | None,
) -> dict[TopicPartition, tuple[int, ...]]:
    mode = RackAwareMode.ENFORCED if is_rack_aware else RackAwareMode.DISABLED
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    try:
        usable = usable_racks(racks, mode)
        for topic in sorted(topics, key=lambda topic: topic.name):
            factor = topic.replication_factor
            chosen = assign_replicas(
                usable, len(topic.partitions), factor, fixed_start_index=fixed_start_index, draw=draw
            )
            for partition, replicas in chosen.items():
                proposed[TopicPartition(topic.name, partition)] = replicas
    except KafkaError as error:
        raise BadRequest((error.message or error.code.name).rstrip("."), where=Parameter.BROKER_LIST) from error
    return proposed
