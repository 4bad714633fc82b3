"""One broker for all tests of real clients; each test has topics of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from engine.local.cluster import LocalCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """A running broker with id 0 and its ZooKeeper."""
    with LocalCluster(1, config={"num.partitions": "2"}) as running:
        yield running
        log = (running.broker(0).logs_path / "server.log").read_text()
        assert "could not be handled" not in log
        assert "Traceback" not in log
        assert running.broker(0).is_alive


@pytest.fixture
def topic() -> str:
    """A topic name that nobody else uses; the topic does not exist."""
    return f"t-{uuid.uuid4().hex[:10]}"
