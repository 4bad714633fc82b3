"""One broker for all tests of a whole server. Each test has its own topics."""

from __future__ import annotations

import resource
import uuid
from collections.abc import Iterator

import pytest
from broker_logs import assert_no_fault
from broker_program import OLD_RECORDS_STAY
from guest_cluster import GuestCluster

from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper


@pytest.fixture(scope="session")
def cluster(zookeeper: EmbeddedZooKeeper) -> Iterator[LocalCluster]:
    """A running broker with id 0. Whatever the tests do to it, no handler may fail and the broker must survive."""
    with GuestCluster(zookeeper, 1, config=OLD_RECORDS_STAY | {"socket.request.max.bytes": "10000000"}) as running:
        yield running
        assert running.broker(0).is_alive
        assert_no_fault(running.broker(0).logs_path)
        assert "Traceback" not in running.broker(0).output_path.read_text()


@pytest.fixture
def address(cluster: LocalCluster) -> str:
    """The address where the broker listens."""
    return cluster.bootstrap_servers


@pytest.fixture
def topic() -> str:
    """A topic name that nobody else uses. The topic does not exist."""
    return f"t-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process may open as many files as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
