"""Clusters in the ZooKeeper that all tests of a process share: they start no JVM, and need not wait for one.

For tests that leave ZooKeeper alone. A test that stops or freezes it takes a ``LocalCluster``.
"""

from __future__ import annotations

from typing import Any, NoReturn
from uuid import uuid4

from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper


class _Shared(EmbeddedZooKeeper):
    """A running server that other clusters use, too: a cluster neither starts nor ends it."""

    def __init__(self, server: EmbeddedZooKeeper) -> None:
        super().__init__(host=server.host, port=server.port)
        self._server = server

    @property
    def is_running(self) -> bool:
        return self._server.is_running

    def launch(self) -> None:
        """Do nothing: it runs."""

    def wait_until_serving(self) -> None:
        """Do nothing: it serves."""

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Do nothing: others use it."""
        return True

    def kill(self) -> None:
        """Do nothing: others use it."""

    def start(self) -> NoReturn:
        raise AssertionError("other tests use this ZooKeeper: take a LocalCluster, which has its own")

    pause = resume = start


class GuestCluster(LocalCluster):
    """A ``LocalCluster`` below a chroot of its own in a ZooKeeper that runs already. Takes the same arguments."""

    def __init__(self, zookeeper: EmbeddedZooKeeper, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, chroot=f"/cluster-{uuid4().hex[:12]}", **options)
        self._server = zookeeper

    def _make_zookeeper(self) -> EmbeddedZooKeeper:
        return _Shared(self._server)
