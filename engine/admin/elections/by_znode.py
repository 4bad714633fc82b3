"""Preferred elections through ``/admin/preferred_replica_election``, which the controller of every version watches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest, FailureKind, Unreachable
from engine.admin.cluster.remedies import FIND_BROKERS, Do, Operation, Phrase
from engine.admin.elections.scope_and_result import ElectionType
from engine.common.model import TopicPartition
from engine.kafka.zk.admin_nodes import PreferredReplicaElectionZNode
from engine.kafka.zk.errors import NodeExists
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.reads import wait_until_gone

ZNODE_BYTES_MAX = 900_000
"""How much goes into the znode at a time: ZooKeeper accepts requests of 1 MB at most, everything included."""


class ElectionInProgress(AdminError):
    """The controller is still carrying out an earlier request through the znode."""

    kind = FailureKind.REFUSED


class ZnodeElector:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def check(self, election: ElectionType) -> None:
        if election is ElectionType.UNCLEAN:
            raise BadRequest("unclean elections are not possible through ZooKeeper", hint=FIND_BROKERS)

    async def find(self) -> None:
        await self._cluster.zookeeper()

    async def elect(
        self, election: ElectionType, names: Sequence[TopicPartition], deadline: float
    ) -> Mapping[TopicPartition, str | None]:
        """The controller removes the znode when it is done, even if it could not elect, and never reports an error."""
        await elect_by_znode(self._cluster, names, deadline)
        return {}


async def elect_by_znode(cluster: Cluster, names: Sequence[TopicPartition], deadline: float) -> None:
    """Ask for preferred leaders and wait, until ``deadline`` (monotonic seconds), for the controller to act.

    The controller removes the znode when it is done, whether or not it could elect.

    Raises:
        Unreachable: there is no controller.
        ElectionInProgress: an earlier request is still there.
    """
    zk = await cluster.zookeeper()
    kafka = KafkaZkClient(zk)
    if await kafka.controller.get_controller_id() is None:
        raise Unreachable(
            "there is no controller to hold an election", hint=Phrase("see who is alive: ", Operation.LIST_BROKERS)
        )
    for part in _parts(names):
        try:
            await kafka.admin.create_preferred_election(part)
        except NodeExists as error:
            look = Do(Operation.READ_ZNODE, PreferredReplicaElectionZNode.path)
            hint = Phrase("try again in a moment; see its partitions with: ", look)
            raise ElectionInProgress("another preferred replica election is under way", hint=hint) from error
        cluster.observe(f"wrote {PreferredReplicaElectionZNode.path}")
        await wait_until_gone(zk, PreferredReplicaElectionZNode.path, max(0.0, deadline - time.monotonic()))


def _parts(names: Sequence[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """Cut partitions into lists whose znodes are small enough; names have up to 249 characters."""
    part: list[TopicPartition] = []
    size = empty = len(PreferredReplicaElectionZNode.encode(()))
    for name in names:
        added = len(PreferredReplicaElectionZNode.encode((name,))) - empty + 1
        if part and size + added > ZNODE_BYTES_MAX:
            yield part
            part, size = [], empty
        part.append(name)
        size += added
    if part:
        yield part
