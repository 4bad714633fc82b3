"""Brokers, log dirs, offsets, old records and settings of a running cluster of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_rounds import ROUNDS, Operated, Round
from klamm_program import in_process

from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster


@pytest.mark.parametrize("operate", ROUNDS, ids=lambda played: played.__name__)
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
    words: str, live_cluster: LocalCluster, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = _with_a_setting(topic_name, live_cluster, capsys)
    ran = in_process(*words.split(), *where, "--verbose", capture=capsys)
    assert ran.code == 0, ran.err
    assert ran.err.startswith(f"cluster: {live_cluster.bootstrap_servers}")
    assert READERS[words] in ran.err
    by_znodes = in_process(*words.split(), "--zookeeper", live_cluster.zookeeper_connect, "-v", capture=capsys)
    assert "connected to ZooKeeper" in by_znodes.err
    quiet = in_process(*words.split(), *where, "--quiet", capture=capsys)
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.out.splitlines() or not ran.out


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
    by_wire = _with_a_setting(topic_name, live_cluster, capsys)
    # No route leads there, which says nothing about whether it lives.
    unreachable = "255.255.255.255:2181"
    ran = in_process(*words.split(), topic_name, *by_wire, "--zookeeper", unreachable, "-o", "json", capture=capsys)
    assert (ran.code, '"7200000"' in ran.out) == (0, True), (ran.out, ran.err)
    assert ran.err.splitlines() == [f"warning: ZooKeeper cannot be reached: {unreachable}: asking the brokers alone"]


@pytest.mark.parametrize("words", ["topics describe", "configs describe --topic"])
def test_a_zookeeper_that_refuses_counts_as_dead_unless_brokers_alone_are_wanted(
    words: str, live_cluster: LocalCluster, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    by_wire = _with_a_setting(topic_name, live_cluster, capsys)
    refusing = f"{own_loopback_address()}:1"
    both = (*words.split(), topic_name, *by_wire, "--zookeeper", refusing, "-o", "yaml")
    ran = in_process(*both, capture=capsys)
    assert (ran.code, "7200000" in ran.out) == (0 if words == "topics describe" else 3, False), (ran.out, ran.err)
    first, second, *hint = ran.err.splitlines()
    assert first == (
        f"warning: ZooKeeper refuses connections: {refusing}: asking the brokers alone, "
        "and not for settings, which they read from ZooKeeper (--via wire does)"
    )
    reason = "brokers were not asked, for they read this from ZooKeeper, which seems to be dead"
    if words == "topics describe":
        assert second == f"warning: settings of 1 topic are not known: {reason}"
    else:
        assert second == f"error: {reason}"
        assert hint[0].startswith("hint: --via wire asks the brokers all the same")
    forced = in_process(*both, "--via", "wire", capture=capsys)
    assert (forced.code, "7200000" in forced.out, forced.err) == (0, True, "")


@pytest.mark.parametrize(
    "words",
    [
        "topics create new --dry-run",
        "topics alter {topic} --partitions 7 --dry-run",
        "configs alter --topic {topic} --add-config retention.ms=7 --dry-run",
        "records delete --topic {topic} --partition 0 --before-offset 0 --dry-run",
    ],
)
def test_a_dry_run_asks_no_broker_for_what_a_dead_zookeeper_keeps(
    words: str, live_cluster: LocalCluster, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    by_wire = _with_a_setting(topic_name, live_cluster, capsys)
    asked = (*words.format(topic=topic_name).split(), *by_wire, "--zookeeper", f"{own_loopback_address()}:1")
    ran = in_process(*asked, "--verbose", capture=capsys)
    for question in ("DescribeConfigs", "IncrementalAlterConfigs", "CreateTopics", "CreatePartitions"):
        assert f"answered {question}" not in ran.err
    assert "which seems to be dead" in ran.err
    assert ran.code == (0 if words.startswith("records") else 3), ran.err
    assert in_process(*asked, "--via", "wire", capture=capsys).code == 0


def _with_a_setting(topic: str, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> tuple[str, ...]:
    """Make a topic whose records are kept for two hours; return how its brokers are named."""
    by_wire = ("-b", cluster.bootstrap_servers)
    created = in_process("topics", "create", topic, "--config", "retention.ms=2h", *by_wire, capture=capsys)
    assert created.code == 0, created.err
    return by_wire
