"""Brokers, log dirs, offsets, old records and settings of a living cluster of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_rounds import ROUNDS, Operated, Round
from klamm_program import in_process

from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster


@pytest.mark.parametrize("operate", ROUNDS, ids=lambda one: one.__name__)
def test_on_our_brokers(
    operate: Round, live_cluster: LocalCluster, topic_name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    by_wire = ("--bootstrap-server", live_cluster.bootstrap_servers)
    operate(Operated(by_wire, ("--zookeeper", live_cluster.zookeeper_connect), capsys, tmp_path), topic_name)


READERS = {
    "topics list": "answered Metadata",
    "topics describe": "answered DescribeConfigs",
    "brokers list": "answered Metadata",
    "brokers describe": "answered DescribeLogDirs",
    "brokers log-dirs": "answered DescribeLogDirs",
    "offsets": "answered ListOffsets",
    "configs describe --entity-type topics": "answered DescribeConfigs",
    "cluster describe": "answered Metadata",
    "reassign list": "answered ListPartitionReassignments",
}


@pytest.mark.parametrize("words", READERS)
def test_verbose_says_who_was_asked_and_quiet_says_nothing(
    words: str, live_cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--bootstrap-server", live_cluster.bootstrap_servers)
    told = in_process(*words.split(), *where, "--verbose", capture=capsys)
    assert told.code == 0, told.err
    assert told.err.startswith(f"cluster: {live_cluster.bootstrap_servers}")
    assert READERS[words] in told.err
    by_znodes = in_process(*words.split(), "--zookeeper", live_cluster.zookeeper_connect, "-v", capture=capsys)
    assert "connected to ZooKeeper" in by_znodes.err
    quiet = in_process(*words.split(), *where, "--quiet", capture=capsys)
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.out.splitlines() or not told.out


def test_via_forces_a_side(live_cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    both = ("-b", live_cluster.bootstrap_servers, "--zookeeper", live_cluster.zookeeper_connect, "--verbose")
    usual = in_process("brokers", "list", *both, capture=capsys)
    by_wire = in_process("brokers", "list", *both, "--via", "wire", capture=capsys)
    assert ("connected to ZooKeeper" in usual.err, "answered Metadata" in usual.err) == (True, False)
    assert ("connected to ZooKeeper" in by_wire.err, "answered Metadata" in by_wire.err) == (False, True)
    for words, side in (("offsets", "zookeeper"), ("zk tree", "wire")):
        wrong = in_process(*words.split(), *both, "--via", side, capture=capsys)
        assert (wrong.code, wrong.out, f"not --via {side}" in wrong.err) == (2, "", True)


@pytest.mark.parametrize("words", ["topics describe", "configs describe --topic"])
def test_a_zookeeper_that_only_the_brokers_reach_hides_no_settings(
    words: str, live_cluster: LocalCluster, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    by_wire = ("-b", live_cluster.bootstrap_servers)
    created = in_process("topics", "create", topic_name, "--config", "retention.ms=2h", *by_wire, capture=capsys)
    assert created.code == 0, created.err
    # Nobody listens there, as behind a firewall.
    unreachable = f"{own_loopback_address()}:1"
    both = (*by_wire, "--zookeeper", unreachable)
    ran = in_process(*words.split(), topic_name, *both, "-o", "json", capture=capsys)
    assert (ran.code, '"7200000"' in ran.out) == (0, True), (ran.out, ran.err)
    assert ran.err.splitlines() == [f"warning: ZooKeeper cannot be reached: {unreachable}: asking the brokers alone"]
