"""Two of our brokers and a ZooKeeper, for all tests of a pytest process that need records and leaders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from broker_program import OLD_RECORDS_STAY
from guest_cluster import GuestCluster

from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper


@pytest.fixture(scope="session")
def live_cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A running cluster of two brokers in racks a and b, which creates no topic by itself."""
    settings = OLD_RECORDS_STAY | {
        "auto.create.topics.enable": "false",
        "default.replication.factor": "2",
        "num.partitions": "2",
        "auto.leader.rebalance.enable": "false",
        # Every command about all partitions meets those of internal topics.
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        # The last broker of a cluster cannot hand its partitions to anybody, and would try three times.
        "controlled.shutdown.retry.backoff.ms": "100",
        # A test of compacted topics waits for the cleaner.
        "log.cleaner.backoff.ms": "200",
    }
    folder: Path = tmp_path_factory.mktemp("live-cluster")
    with GuestCluster(zookeeper, 2, directory=folder, racks=["a", "b"], config=settings) as cluster:
        yield cluster


@pytest.fixture
def topic_name() -> str:
    """A topic name that nobody else uses."""
    return f"t-{uuid4().hex[:10]}"
