"""A cluster for reading through a ZooKeeper session that another object keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.target import ClusterTarget

if TYPE_CHECKING:
    from engine.admin.cluster.wire import WireCluster
    from engine.kafka.zk.client import ZkClient

BROKERS_NOT_ASKED = "only brokers know it, and they must not be asked"


class SharedCluster(Cluster):
    """A cluster that uses an open ZooKeeper session, and neither opens nor closes one."""

    def __init__(self, target: ClusterTarget, client: Callable[[], ZkClient | None], *, timeout_s: float) -> None:
        super().__init__(target, timeout_s=timeout_s)
        self._client = client

    @property
    def has_zookeeper(self) -> bool:
        """Whether ZooKeeper can be asked now."""
        return self._client() is not None

    async def wire(self) -> WireCluster:
        """Return the brokers.

        Raises:
            Unreachable: they must not be asked, or none is named.
        """
        if not self.target.may_ask_brokers:
            raise Unreachable(BROKERS_NOT_ASKED)
        return await super().wire()

    async def zookeeper(self) -> ZkClient:
        """Return the session's client.

        Raises:
            Unreachable: there is no session now.
        """
        client = self._client()
        if client is None:
            raise Unreachable("there is no session with ZooKeeper")
        return client
