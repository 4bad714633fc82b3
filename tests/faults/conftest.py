"""Clusters that are meant to be killed: short sessions, so that a killed broker's id is soon free again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker_logs import assert_no_fault
from broker_program import OLD_RECORDS_STAY
from guest_cluster import GuestCluster

from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

QUICK_SESSIONS = {"zookeeper.session.timeout.ms": "2000"}


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper) -> Iterator[LocalCluster]:
    """One broker with two log dirs, for the tests of one module."""
    with GuestCluster(zookeeper, 1, config=OLD_RECORDS_STAY | QUICK_SESSIONS, log_dir_count=2) as running:
        yield running
        assert_no_fault(running.broker(0).logs_path)
        assert "Traceback" not in running.broker(0).output_path.read_text()
