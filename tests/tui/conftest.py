"""A secured cluster, for what the dashboard sees of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from guest_cluster import GuestCluster

from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper


@pytest.fixture(scope="session")
def secured(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster whose users log in with a password, and may do only what ACLs allow."""
    folder = tmp_path_factory.mktemp("secured")
    with GuestCluster(zookeeper, 1, directory=folder, secure=True, sasl="PLAIN", acls=True) as cluster:
        yield cluster
