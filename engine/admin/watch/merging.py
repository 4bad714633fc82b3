"""Merges new answers into what is known, and keeps unchanged objects, so that frames share them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import is_
from types import MappingProxyType

from engine.common.collection import shared
from engine.common.model import NO_LEADER, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.protocol.apis.metadata import MetadataResponsePartition, MetadataResponseTopic

Assignments = Mapping[int, ReplicaAssignment]
"""By partition number."""


def topic_of_metadata(
    known: TopicSnapshot | None,
    answer: MetadataResponseTopic,
    moving: Assignments,
    watched: Assignments = MappingProxyType({}),
) -> TopicSnapshot:
    """Return a topic from a Metadata answer; what Metadata lacks (settings, marks) stays as known.

    Args:
        moving: assignments with adding and removing replicas, as far as brokers have listed them.
        watched: assignments that ZooKeeper has reported; a broker learns of a change after it.
    """
    topic_id = None if answer.topic_id == ZERO_TOPIC_ID else answer.topic_id
    if known is not None and known.topic_id and topic_id and known.topic_id != topic_id:
        known = None
    old = {} if known is None else {partition.partition: partition for partition in known.partitions}
    partitions = []
    for partition in answer.partitions:
        index = partition.partition_index
        before = old.get(index)
        assignment = watched.get(index) or _assignment_of_metadata(before, partition, moving.get(index))
        partitions.append(_partition_of_metadata(before, partition, assignment))
    partitions.sort(key=_number)
    if known is None:
        return TopicSnapshot(answer.name or "", tuple(partitions), topic_id, None)
    return with_partitions(known, partitions, topic_id)


def with_partitions(
    known: TopicSnapshot, partitions: list[PartitionSnapshot], topic_id: bytes | None = None
) -> TopicSnapshot:
    """Return the topic with these partitions, and with this id if there is one; the same object if nothing is new."""
    topic_id = topic_id or known.topic_id
    is_same = len(partitions) == len(known.partitions) and topic_id == known.topic_id
    if is_same and all(map(is_, partitions, known.partitions)):
        return known
    return replace(known, partitions=tuple(partitions), topic_id=topic_id)


def topic_of_znode(
    known: TopicSnapshot | None, name: str, topic_id: bytes | None, assignment: Assignments
) -> TopicSnapshot:
    """Return a topic from its znode; the partition states stay as known."""
    if known is not None and known.topic_id and topic_id and known.topic_id != topic_id:
        known = None
    old = {} if known is None else {partition.partition: partition for partition in known.partitions}
    partitions = [
        _moved(old[number], assigned) if number in old else PartitionSnapshot(number, assigned)
        for number, assigned in sorted(assignment.items())
    ]
    if known is None:
        return TopicSnapshot(name, tuple(partitions), topic_id, None)
    return with_partitions(known, partitions, topic_id)


def with_assignment(known: PartitionSnapshot, assignment: ReplicaAssignment) -> PartitionSnapshot:
    """Return the partition with this assignment; the same object if it has it."""
    return known if known.assignment == assignment else replace(known, assignment=assignment)


def _moved(known: PartitionSnapshot, assignment: ReplicaAssignment) -> PartitionSnapshot:
    """Return the partition with an assignment that is newer than its ISR.

    Kafka ends no move before all its targets are in sync, so at its end they are, whatever was read before.
    """
    before = known.assignment
    fresh = with_assignment(known, assignment)
    if before.is_being_reassigned and assignment.replicas == before.target_replicas and known.isr:
        arrived = tuple(
            replica for replica in before.adding_replicas if replica in assignment.replicas and replica not in known.isr
        )
        if arrived and not assignment.is_being_reassigned:
            return replace(fresh, isr=shared((*known.isr, *arrived)))
    return fresh


def with_state(known: PartitionSnapshot, state: LeaderIsrAndControllerEpoch | None) -> PartitionSnapshot:
    """Return the partition with its znode's state (None: there is no such znode); the same object if it has it.

    A state with a lower version than the known one is an old answer, and is ignored.
    """
    if state is None:
        return known if known.leader == NO_LEADER and not known.isr else replace(known, leader=NO_LEADER, isr=())
    answered = state.leader_and_isr
    is_old = answered.leader_epoch < (known.leader_epoch or 0)
    if known.zk_version is not None:
        is_old = answered.partition_epoch <= known.zk_version
    if is_old:
        return known
    return replace(
        known,
        leader=answered.leader,
        isr=shared(answered.isr),
        leader_epoch=answered.leader_epoch,
        controller_epoch=state.controller_epoch,
        zk_version=answered.partition_epoch,
        leader_recovery_state=answered.leader_recovery_state,
    )


def with_reassignments(
    topics: Mapping[str, TopicSnapshot], running: Mapping[TopicPartition, ReplicaAssignment]
) -> dict[str, TopicSnapshot]:
    """Return the topics that change with what is being reassigned.

    A listing that names other replicas than the topic has is older or newer than what is known about the topic, and one
    without a move that was known may be newer than the ISR: the next Metadata answer says what became of it.
    """
    changed: dict[str, TopicSnapshot] = {}
    by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
    for name, assignment in running.items():
        by_topic.setdefault(name.topic, {})[name.partition] = assignment
    for topic in topics.values():
        moving = by_topic.get(topic.name, {})
        if not moving:
            continue
        partitions = [
            with_assignment(p, assignment_of(p.replicas, moving[p.partition])) if p.partition in moving else p
            for p in topic.partitions
        ]
        merged = with_partitions(topic, partitions)
        if merged is not topic:
            changed[topic.name] = merged
    return changed


def assignment_of(replicas: Iterable[int], moving: ReplicaAssignment | None) -> ReplicaAssignment:
    """Return a partition's assignment: ``moving`` if that has the same replicas, else these replicas alone."""
    plain = shared(tuple(replicas))
    return shared(ReplicaAssignment(plain)) if moving is None or set(moving.replicas) != set(plain) else moving


def _assignment_of_metadata(
    known: PartitionSnapshot | None, answer: MetadataResponsePartition, moving: ReplicaAssignment | None
) -> ReplicaAssignment:
    if known is not None and moving is None and list(known.replicas) == answer.replica_nodes:
        before = known.assignment
        return assignment_of(before.replicas, None) if before.is_being_reassigned else before
    if known is not None and moving is None:
        # More replicas than before: a move has begun, and brokers have not listed it yet.
        added = tuple(replica for replica in answer.replica_nodes if replica not in known.replicas)
        if added and len(added) + len(known.replicas) == len(answer.replica_nodes):
            return ReplicaAssignment(tuple(answer.replica_nodes), added)
    return assignment_of(answer.replica_nodes, moving)


def _partition_of_metadata(
    known: PartitionSnapshot | None, answer: MetadataResponsePartition, assignment: ReplicaAssignment
) -> PartitionSnapshot:
    leader_epoch = None if answer.leader_epoch < 0 else answer.leader_epoch
    if known is not None and leader_epoch is not None and leader_epoch < (known.leader_epoch or 0):
        # The broker does not know the latest election yet.
        return known
    if known is None:
        return PartitionSnapshot(
            answer.partition_index, assignment, answer.leader_id, shared(tuple(answer.isr_nodes)), leader_epoch
        )
    known = with_assignment(known, assignment)
    if _is_same(known, answer, leader_epoch):
        return known
    # What only ZooKeeper reports belongs to an earlier state.
    return replace(
        known,
        leader=answer.leader_id,
        isr=shared(tuple(answer.isr_nodes)),
        leader_epoch=leader_epoch,
        controller_epoch=None,
        zk_version=None,
    )


def _is_same(known: PartitionSnapshot, answer: MetadataResponsePartition, leader_epoch: int | None) -> bool:
    return (
        known.leader == answer.leader_id and known.leader_epoch == leader_epoch and list(known.isr) == answer.isr_nodes
    )


def _number(partition: PartitionSnapshot) -> int:
    return partition.partition
