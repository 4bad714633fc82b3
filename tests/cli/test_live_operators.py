"""Brokers, log dirs, offsets, old records and settings of a living cluster of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from operator_rounds import ROUNDS, Operated, Round

from engine.local.cluster import LocalCluster


@pytest.mark.parametrize("operate", ROUNDS, ids=lambda one: one.__name__)
def test_on_our_brokers(
    operate: Round, live_cluster: LocalCluster, topic_name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    by_wire = ("--bootstrap-server", live_cluster.bootstrap_servers)
    operate(Operated(by_wire, ("--zookeeper", live_cluster.zookeeper_connect), capsys, tmp_path), topic_name)
