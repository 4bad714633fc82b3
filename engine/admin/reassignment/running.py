"""Reassignments of a live cluster: what is under way, and starting and cancelling it; by the wire or through the znode.

The znode ``/admin/reassign_partitions`` is what tools used before Kafka 2.4 (KIP-455) and what every controller up to
3.9 still carries out. It can only start reassignments, one batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.members import read_members
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.cluster.snapshot_file import load_snapshot
from engine.admin.cluster.target import Side
from engine.admin.topics.access import topic_reader
from engine.admin.topics.describing import topic_not_found
from engine.common.errors import ErrorCode
from engine.common.model import BrokerInfo, ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot

Targets = Mapping[TopicPartition, tuple[int, ...] | None]
"""Wanted replicas by partition; None cancels."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the cluster does not start or cancel one partition's reassignment."""

    name: TopicPartition
    code: ErrorCode
    message: str | None

    def __str__(self) -> str:
        return f"{self.name}: {self.message or self.code.name}"


@dataclass(frozen=True, slots=True)
class RunningReassignments:
    """What is under way. ``listed`` are those that still stand in the znode, moving or not."""

    assignments: Mapping[TopicPartition, ReplicaAssignment]
    listed: Mapping[TopicPartition, tuple[int, ...]]

    @property
    def names(self) -> frozenset[TopicPartition]:
        return frozenset(self.assignments) | frozenset(self.listed)


@dataclass(frozen=True, slots=True)
class RunningReassignment:
    """One row of ``klamm reassign list``."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def read_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicSnapshot]:
    """Return those of the topics that exist, by name; without their settings where nobody tells these soon."""
    reader = await topic_reader(cluster, on_unknown_settings=cluster.observe)
    return {topic.name: topic for topic in await reader.topics(sorted(set(names)))}


async def read_topics_and_brokers(
    cluster: Cluster, names: Sequence[str]
) -> tuple[dict[str, TopicSnapshot], Sequence[BrokerInfo]]:
    """Return the topics with these names and the live brokers.

    Raises:
        NotFound: a topic does not exist.
    """
    if cluster.target.snapshot is not None:
        snapshot, wanted = load_snapshot(cluster.target.snapshot), frozenset(names)
        topics = {topic.name: topic for topic in snapshot.topics if topic.name in wanted}
        brokers = snapshot.brokers
    else:
        topics = await read_topics(cluster, names)
        brokers = (await read_members(cluster)).brokers
    missing = [name for name in names if name not in topics]
    if missing:
        raise topic_not_found(missing)
    return topics, brokers


def partitions_of(topics: Mapping[str, TopicSnapshot]) -> dict[TopicPartition, PartitionSnapshot]:
    """Return the partitions of topics under their full names."""
    return {TopicPartition(topic.name, p.partition): p for topic in topics.values() for p in topic.partitions}


async def read_running(cluster: Cluster) -> RunningReassignments:
    """Return all reassignments that are under way in the cluster."""
    if cluster.target.snapshot is None and cluster.reads_from is Side.ZOOKEEPER:
        from engine.admin.reassignment.by_znode import read_running_zk

        return await read_running_zk(await cluster.zookeeper())
    if cluster.target.snapshot is None:
        from engine.admin.topics.by_wire import read_reassignments

        return RunningReassignments(await read_reassignments(await cluster.wire()), {})
    reader = await topic_reader(cluster)
    topics = await reader.topics([entry.topic for entry in await reader.names()])
    found = partitions_of({topic.name: topic for topic in topics})
    return RunningReassignments({n: p.assignment for n, p in found.items() if p.assignment.is_being_reassigned}, {})


async def list_running(cluster: Cluster) -> list[RunningReassignment]:
    """Return the reassignments under way, by name."""
    running = await read_running(cluster)
    rows = []
    for name in sorted(running.names):
        found = running.assignments.get(name) or ReplicaAssignment(running.listed[name])
        rows.append(RunningReassignment(*name, found.replicas, found.adding_replicas, found.removing_replicas))
    return rows


async def check_can_alter(cluster: Cluster, targets: Targets) -> None:
    """Raise where the cluster cannot start or cancel reassignments this way; asks nothing to be changed.

    Raises:
        BadRequest: ZooKeeper alone cannot cancel, or not take so many.
        Refused: the cluster is older than the wire's reassignments.
    """
    if cluster.changes_by is Side.ZOOKEEPER:
        from engine.admin.reassignment.by_znode import check_znode

        check_znode(targets)
        return
    from engine.admin.reassignment.by_wire import check_wire

    await check_wire(await cluster.wire())


async def alter_reassignments(cluster: Cluster, targets: Targets) -> list[Refusal]:
    """Start and cancel reassignments; return what was refused. All others were accepted.

    Raises:
        Refused: nothing was accepted.
    """
    if cluster.changes_by is Side.ZOOKEEPER:
        from engine.admin.reassignment.by_znode import start_by_znode

        await start_by_znode(await cluster.zookeeper(), targets)
        return []
    from engine.admin.reassignment.by_wire import alter_by_wire

    return await alter_by_wire(await cluster.wire(), targets, timeout_ms=int(cluster.timeout_s * 800))


def require_partitions(names: Sequence[TopicPartition], found: Mapping[TopicPartition, object]) -> None:
    """Raise BadRequest where a partition that was named does not exist."""
    missing = [name for name in names if name not in found]
    if missing:
        listed = ", ".join(map(str, missing[:5])) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        plural = "" if len(missing) == 1 else "s"
        hint = Phrase("see what there is with: ", Operation.DESCRIBE_TOPICS)
        raise BadRequest(f"unable to find partition{plural}: {listed}", hint=hint)
