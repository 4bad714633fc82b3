"""A cluster for reading beside a session with ZooKeeper that somebody else keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.target import ClusterTarget

if TYPE_CHECKING:
    from engine.admin.cluster.wire import WireCluster
    from engine.zk.client import ZkClient

BROKERS_NOT_ASKED = "only brokers tell it, and they are not to be asked"


class SharedCluster(Cluster):
    """A cluster whose ZooKeeper is reached by somebody else's session: it is neither opened nor closed here."""

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
            Unreachable: they are not to be asked, or nobody names any.
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
