"""After each change by klamm ZooKeeper holds what Kafka's own tool leaves there, over the wire and by znode."""

from __future__ import annotations

from pathlib import Path

import pytest
from tool_effects import Capture, Operator, change_broker_settings, change_topics_and_leaders, move_with_throttles

from engine.local.cluster import LocalCluster


@pytest.mark.parametrize("side", ["wire", "znodes"])
def test_settings_topics_elections_and_reassignments_leave_what_kafkas_tools_leave(
    three_brokers: LocalCluster, capsys: Capture, tmp_path: Path, side: str
) -> None:
    addresses = three_brokers.zookeeper_connect, three_brokers.bootstrap_servers
    operator = Operator(*addresses, side, capsys, tmp_path)
    change_broker_settings(operator)
    operator.forget_changes()
    change_topics_and_leaders(operator)


def test_throttled_moves_leave_what_kafkas_tool_leaves(
    three_brokers: LocalCluster, capsys: Capture, tmp_path: Path
) -> None:
    addresses = three_brokers.zookeeper_connect, three_brokers.bootstrap_servers
    move_with_throttles(Operator(*addresses, "wire", capsys, tmp_path))
