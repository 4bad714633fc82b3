"""Running clusters, for what the dashboard sees of them and does to them: three open brokers, and a secured one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from operated_cluster import by_wire, three_brokers

from engine.local.cluster import LocalCluster

__all__ = ["by_wire", "three_brokers"]


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster whose users log in with a password, and may do only what ACLs allow."""
    folder = tmp_path_factory.mktemp("secured")
    with LocalCluster(1, directory=folder, secure=True, sasl="PLAIN", acls=True) as cluster:
        yield cluster
