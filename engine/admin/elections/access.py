"""The interface to whoever carries out elections in a cluster, and the only place that chooses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import Side
from engine.admin.elections.values import ElectionType
from engine.common.model import TopicPartition


class Elector(Protocol):
    """Has leaders elected in one cluster."""

    def check(self, election: ElectionType) -> None:
        """Raise BadRequest if this way does not support the election."""

    async def find(self) -> None:
        """Find who carries it out, so that the next request reaches them.

        Raises:
            Unreachable: nobody can be asked. Nothing was sent.
        """

    async def elect(
        self, election: ElectionType, names: Sequence[TopicPartition], deadline: float
    ) -> Mapping[TopicPartition, str | None]:
        """Ask for leaders, and wait until ``deadline`` (monotonic seconds) for the controller to have tried.

        Returns:
            The error of each reported partition, or None.

        Raises:
            AdminError: the cluster as a whole rejects it.
        """


async def elector_of(cluster: Cluster) -> Elector:
    """Return who carries out the elections of this cluster."""
    if cluster.changes_by is Side.ZOOKEEPER:
        from engine.admin.elections.by_znode import ZnodeElector

        return ZnodeElector(cluster)
    from engine.admin.elections.by_wire import WireElector

    return WireElector(cluster)
