"""ZooKeeper stands still, the brokers do not: what the brokers know themselves is told by them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from klamm_program import in_process, klamm

from engine.local.cluster import LocalCluster

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return where a broker listens that has the topic ``kept``, and a ZooKeeper that answers nothing."""
    folder: Path = tmp_path_factory.mktemp("frozen-zookeeper")
    settings = {"zookeeper.session.timeout.ms": "60000", "auto.leader.rebalance.enable": "false"}
    with LocalCluster(1, directory=folder, config=settings) as cluster:
        created = klamm("topics", "create", "kept", "--partitions", "2", "-b", cluster.bootstrap_servers, folder=folder)
        assert created.code == 0, created.err
        cluster.zookeeper.pause()
        try:
            yield cluster.bootstrap_servers
        finally:
            cluster.zookeeper.resume()


def test_topics_are_described_without_their_settings(servers: str, capsys: Capture) -> None:
    ran = in_process("topics", "describe", "kept", "-b", servers, "--timeout", "10", "-o", "json", capture=capsys)
    (topic,) = ran.json
    assert (ran.code, topic["configs"], [p["leader"] for p in topic["partitions"]]) == (0, None, [0, 0])
    assert ran.err.startswith("warning: settings of 1 topic are not known: no answer within 2 s")
    shown = in_process("topics", "describe", "-b", servers, "--timeout", "10", "-o", "table", capture=capsys)
    assert "settings unknown" in shown.out


def test_health_says_so_and_judges_the_rest(servers: str, capsys: Capture) -> None:
    ran = in_process("cluster", "health", "-b", servers, "--timeout", "10", "-o", "json", capture=capsys)
    (reason,) = ran.json["reasons"]
    assert (ran.code, reason["check"], reason["severity"]) == (1, "unknown_settings", "critical")
    assert reason["examples"] == ["topic kept"]


def test_a_dry_run_of_an_election_needs_no_settings(servers: str, capsys: Capture) -> None:
    words = ("elect", "preferred", "--all-topic-partitions", "--dry-run", "--timeout", "10")
    ran = in_process(*words, "-b", servers, capture=capsys)
    assert ran.code == 0
    assert [row[:4] for row in ran.rows[:2]] == [["kept", "0", "0", "0"], ["kept", "1", "0", "0"]]


def test_reassignments_are_planned_and_followed(servers: str, capsys: Capture, tmp_path: Path) -> None:
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "kept"}]}')
    words = ("--topics-to-move-json-file", f"{topics}", "--broker-list", "0", "--proposed", f"{plan}")
    ran = in_process("reassign", "generate", *words, "-b", servers, "--timeout", "10", capture=capsys)
    assert ran.code == 0, ran.err
    words = ("--reassignment-json-file", f"{plan}", "-o", "json", "--timeout", "10")
    ran = in_process("reassign", "verify", *words, "-b", servers, capture=capsys)
    assert (ran.code, [one["state"] for one in ran.json]) == (0, ["complete", "complete"])
    assert ran.err.splitlines()[-1] == (
        "whether a throttle is left cannot be told now: the settings of topic kept are not known"
    )


def test_replicas_are_compared_by_their_records_alone(servers: str, capsys: Capture) -> None:
    words = ("replicas", "verify", "--topic", "kept", "-o", "json", "--timeout", "10")
    ran = in_process(*words, "-b", servers, capture=capsys)
    assert (ran.code, [one["replicas"][0]["agrees"] for one in ran.json]) == (0, [True, True]), ran.err
    assert ran.err.startswith("warning: cleanup.policy of 1 topic is not known: compared as if compacted")
