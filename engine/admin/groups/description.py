"""Groups described: state, members, and how far each partition has been read. ``describing`` asks for the facts.

Pure. Rows are those of kafka-consumer-groups: every assigned partition, and every other one with a committed offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.admin.cluster.errors import Unknown
from engine.admin.groups.values import (
    CommittedOffset,
    GroupDescription,
    GroupMember,
    GroupOffsets,
    GroupState,
    GroupType,
)
from engine.common.model import Node, TopicPartition, address_text

if TYPE_CHECKING:
    from engine.admin.groups.old_consumers import OldGroup

UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far a group has read one partition. What is not known is None, and ``error`` says why.

    ``lag`` is the end less the current offset; below zero if the log was cut without the group noticing.
    """

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None = None
    group_instance_id: str | None = None
    host: str | None = None
    client_id: str | None = None
    metadata: str | None = None
    error: str | None = None

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class AssignedTopic:
    """Partitions of one topic that a member owns."""

    topic: str
    partitions: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.topic}({','.join(map(str, self.partitions))})"


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """One member. ``assignment`` is None if its protocol is not the consumers'."""

    consumer_id: str
    group_instance_id: str | None
    host: str
    client_id: str
    partition_count: int | None
    assignment: tuple[AssignedTopic, ...] | None


@dataclass(frozen=True, slots=True)
class CoordinatorAddress:
    """The broker that coordinates a group; host and port are None if it is not alive."""

    id: int
    host: str | None
    port: int | None

    def __str__(self) -> str:
        return f"{address_text(self.host, self.port)} ({self.id})" if self.host is not None else f"({self.id})"


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """One group. ``members`` and ``partitions`` are empty if they were not asked for; ``state`` None is unknown."""

    group: str
    type: GroupType
    state: GroupState | None
    protocol_type: str
    assignment_strategy: str
    coordinator: CoordinatorAddress | None
    members: tuple[DescribedMember, ...] = ()
    partitions: tuple[PartitionProgress, ...] = ()
    error: str | None = None


Ends = Mapping[TopicPartition, int | Unknown]


def partitions_of(members: Iterable[GroupMember], offsets: GroupOffsets | Unknown) -> set[TopicPartition]:
    """Return the partitions that a description names."""
    named = set() if isinstance(offsets, Unknown) else set(offsets)
    return named.union(*(member.assignment or () for member in members))


def described_group(
    group: GroupDescription, offsets: GroupOffsets | Unknown | None, ends: Ends, nodes: Mapping[int, Node]
) -> DescribedGroup:
    """Combine what is known about a group at a coordinator; without ``offsets`` nothing about partitions."""
    owners = {partition: member for member in group.members for partition in member.assignment or ()}
    node = nodes.get(group.coordinator)
    return DescribedGroup(
        group.group,
        group.type,
        group.state,
        group.protocol_type,
        group.protocol,
        CoordinatorAddress(group.coordinator, node.host if node else None, node.port if node else None),
        tuple(_member(member) for member in group.members),
        () if offsets is None else _progress(partitions_of(group.members, offsets), owners, offsets, ends),
        f"committed offsets are not known: {offsets}" if isinstance(offsets, Unknown) else None,
    )


def described_old_group(group: OldGroup, ends: Ends | None) -> DescribedGroup:
    """Combine what is known about a group in ZooKeeper; without ``ends`` nothing about partitions."""
    owners = {partition: owner for partition in group.owners if (owner := group.owner(partition)) is not None}
    partitions = set(group.offsets) | set(owners)
    return DescribedGroup(
        group.group,
        GroupType.ZOOKEEPER,
        group.state,
        "",
        "",
        None,
        tuple(_member(member) for member in group.members),
        () if ends is None else _progress(partitions, owners, group.offsets, ends),
    )


def _progress(
    partitions: Iterable[TopicPartition],
    owners: Mapping[TopicPartition, GroupMember],
    offsets: GroupOffsets | Unknown,
    ends: Ends,
) -> tuple[PartitionProgress, ...]:
    known: GroupOffsets = {} if isinstance(offsets, Unknown) else offsets
    return tuple(
        _partition(partition, owners.get(partition), known.get(partition), ends.get(partition))
        for partition in sorted(partitions)
    )


def _partition(
    partition: TopicPartition,
    owner: GroupMember | None,
    committed: CommittedOffset | Unknown | None,
    end: int | Unknown | None,
) -> PartitionProgress:
    current = committed.offset if isinstance(committed, CommittedOffset) else None
    end_offset = end if isinstance(end, int) else None
    return PartitionProgress(
        *partition,
        current,
        end_offset,
        end_offset - current if current is not None and end_offset is not None else None,
        owner.member_id if owner else None,
        owner.group_instance_id if owner else None,
        (owner.host or None) if owner else None,
        (owner.client_id or None) if owner else None,
        (committed.metadata or None) if isinstance(committed, CommittedOffset) else None,
        _why(committed, end),
    )


def _why(committed: CommittedOffset | Unknown | None, end: int | Unknown | None) -> str | None:
    if isinstance(committed, Unknown):
        return str(committed)
    if isinstance(end, Unknown):
        return "the topic or partition does not exist" if str(end) == UNKNOWN_TOPIC else str(end)
    return None


def _member(member: GroupMember) -> DescribedMember:
    if member.assignment is None:
        return DescribedMember(member.member_id, member.group_instance_id, member.host, member.client_id, None, None)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in member.assignment:
        by_topic.setdefault(topic, []).append(partition)
    return DescribedMember(
        member.member_id,
        member.group_instance_id,
        member.host,
        member.client_id,
        len(member.assignment),
        tuple(AssignedTopic(topic, tuple(partitions)) for topic, partitions in sorted(by_topic.items())),
    )
