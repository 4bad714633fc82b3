"""One broker for all tests of real clients. Each test has its own topics."""

from __future__ import annotations

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
    """A running broker with id 0 and its ZooKeeper."""
    with GuestCluster(zookeeper, 1, config=OLD_RECORDS_STAY | {"num.partitions": "2"}) as running:
        yield running
        assert_no_fault(running.broker(0).logs_path)
        assert running.broker(0).is_alive


@pytest.fixture(scope="session")
def group_cluster(zookeeper: EmbeddedZooKeeper) -> Iterator[LocalCluster]:
    """A running broker for tests of groups, which may restart it. Its offsets topic has few partitions."""
    settings = {"offsets.topic.num.partitions": "3", "zookeeper.session.timeout.ms": "3000"}
    with GuestCluster(zookeeper, 1, config=settings) as running:
        yield running
        assert_no_fault(running.broker(0).logs_path)


@pytest.fixture
def topic() -> str:
    """A topic name that nobody else uses. The topic does not exist."""
    return f"t-{uuid.uuid4().hex[:10]}"
