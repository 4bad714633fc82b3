"""The interfaces to read and to change a cluster's reassignments, and the only place that chooses the side for each.

Only the side that is used is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.target import Side, Source
from engine.admin.configs.access import alter_entity
from engine.admin.configs.values import Entity, EntityType
from engine.admin.reassignment.moves import Refusal, RunningReassignments, Targets
from engine.common.model import TopicPartition
from engine.common.snapshot import ClusterSnapshot

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
        """Return the brokers that have settings of their own, dead ones too, if they can be listed."""


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
    """Return the reader of reassignments for this cluster."""
    return await _by(cluster, cluster.reads_from)


async def reassignment_changer(cluster: Cluster) -> ReassignmentChanger:
    """Return the changer of reassignments for this cluster."""
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
