"""The reassignments under way in a cluster, and the only place that chooses how to read and change them.

It loads only the modules that it uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.members import read_members
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.cluster.target import Side, Source
from engine.admin.configs.access import alter_entity
from engine.admin.configs.values import Entity, EntityType
from engine.admin.reassignment.moves import Refusal, RunningReassignment, RunningReassignments, Targets
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.topics.access import topic_reader
from engine.admin.topics.values import partitions_of
from engine.common.listing import first_few
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.quantities import plural
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, TopicSnapshot

if TYPE_CHECKING:
    from engine.admin.reassignment.by_wire import WireReassignments
    from engine.admin.reassignment.by_znode import ZnodeReassignments


class ReassignmentReader(Protocol):
    """Reads what is under way in one cluster."""

    @property
    def may_be_late(self) -> bool:
        """Whether the answer may miss a change that was made a moment ago."""

    async def running(self) -> RunningReassignments:
        """Return all reassignments that are under way."""

    async def configured_brokers(self) -> set[int]:
        """Return the brokers that have their own settings, dead ones too, if they can be listed."""


class ReassignmentChanger(Protocol):
    """Starts and cancels reassignments of one cluster."""

    @property
    def is_live(self) -> bool:
        """Whether there are brokers to ask; a snapshot has none, and only a dry run gets that far."""

    @property
    def is_znode(self) -> bool:
        """Whether it goes through the znode: the controller checks nothing there, and batches run one after another."""

    async def orders_wait(self) -> bool:
        """Whether a mere change of order may wait for replicas that are not in sync, as any move does."""

    async def check(self, targets: Targets) -> None:
        """Raise if the cluster cannot start or cancel reassignments this way; changes nothing.

        Raises:
            BadRequest: ZooKeeper alone cannot cancel, or cannot take this many.
            Refused: the cluster is older than the wire's reassignments.
        """

    async def alter(self, targets: Targets) -> list[Refusal]:
        """Start and cancel reassignments; return what was refused. All others were accepted.

        Raises:
            AdminError: nothing was accepted.
        """


async def reassignment_reader(cluster: Cluster) -> ReassignmentReader:
    return await _by(cluster, cluster.reads_from)


async def reassignment_changer(cluster: Cluster) -> ReassignmentChanger:
    return await _by(cluster, cluster.changes_by)


async def delete_broker_settings(cluster: Cluster, broker: int, keys: Sequence[str], *, is_alive: bool) -> None:
    """Delete settings of a broker. Over the wire only it can; those of a dead one go through ZooKeeper, if that is
    known.

    Raises:
        AdminError: neither side accepts it.
    """
    entity = Entity(EntityType.BROKER, str(broker))
    if is_alive or cluster.target.zookeeper is None:
        await alter_entity(cluster, entity, {}, keys)
        return
    from engine.admin.configs.by_znode import alter_configs_zk
    from engine.kafka.zk.kafka_client import KafkaZkClient

    await alter_configs_zk(KafkaZkClient(await cluster.zookeeper()), entity, {}, keys)


async def _by(cluster: Cluster, side: Side) -> WireReassignments | ZnodeReassignments | SnapshotReassignments:
    if cluster.source is Source.SNAPSHOT:
        return SnapshotReassignments(cluster.snapshot())
    if side is Side.ZOOKEEPER:
        from engine.admin.reassignment.by_znode import ZnodeReassignments

        return ZnodeReassignments(await cluster.zookeeper())
    from engine.admin.reassignment.by_wire import WireReassignments

    # Give the controller less time than the operation, so that its answer comes before the operation gives up.
    return WireReassignments(await cluster.wire(), timeout_ms=int(cluster.timeout_s * 800))


class SnapshotReassignments:
    """Those that were under way when the snapshot was taken."""

    may_be_late = False
    is_live = False
    is_znode = False

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot

    async def running(self) -> RunningReassignments:
        running = {
            TopicPartition(topic.name, p.partition): p.assignment
            for topic in self._snapshot.topics
            for p in topic.partitions
            if p.assignment.is_being_reassigned
        }
        return RunningReassignments(running, {})

    async def configured_brokers(self) -> set[int]:
        return set()

    async def orders_wait(self) -> bool:
        return False

    async def check(self, targets: Targets) -> None:
        """A snapshot cannot tell whether a live cluster could do it."""

    async def alter(self, targets: Targets) -> list[Refusal]:
        raise BadRequest("a snapshot cannot be changed")


async def read_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicSnapshot]:
    """Return the topics that exist, by name; without their settings if no broker returns these soon."""
    reader = await topic_reader(cluster, on_unknown_settings=cluster.observe)
    return {topic.name: topic for topic in await reader.topics(sorted(set(names)))}


async def read_partitions(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, PartitionSnapshot]:
    """Return the partitions of the topics that exist."""
    return partitions_of((await read_topics(cluster, topics)).values())


async def list_running(cluster: Cluster) -> list[RunningReassignment]:
    """Return the reassignments under way by name: those that move first, then those that wait for their turn."""
    running = await (await reassignment_reader(cluster)).running()
    rows = []
    for name in sorted(running.names, key=lambda name: (name not in running.assignments, name)):
        assignment = running.assignments.get(name) or ReplicaAssignment(running.listed[name])
        rows.append(
            RunningReassignment(*name, assignment.replicas, assignment.adding_replicas, assignment.removing_replicas)
        )
    return rows


async def running_moves(cluster: Cluster) -> list[PartitionMove]:
    """Return what is under way in the cluster by name, in the form of a file's moves."""
    return [
        PartitionMove(TopicPartition(row.topic, row.partition), target)
        for row in await list_running(cluster)
        if (target := tuple(replica for replica in row.replicas if replica not in row.removing))
    ]


async def check_planned_for(cluster: Cluster, cluster_id: str | None, where: str) -> None:
    """Raise BadRequest if a file was written for another cluster; one that names no cluster fits all."""
    if cluster_id is None:
        return
    own = (await read_members(cluster)).cluster_id
    if own is not None and own != cluster_id:
        message = f"the file is for cluster {cluster_id}, and this is cluster {own}"
        raise BadRequest(message, where=where, hint="name the cluster that it was written for")


def require_partitions(names: Sequence[TopicPartition], partitions: Mapping[TopicPartition, object]) -> None:
    """Raise BadRequest if a named partition does not exist."""
    missing = [name for name in names if name not in partitions]
    if missing:
        hint = Phrase("list what exists with: ", Operation.DESCRIBE_TOPICS)
        raise BadRequest(f"unable to find {plural('partition', len(missing))}: {first_few(missing)}", hint=hint)
