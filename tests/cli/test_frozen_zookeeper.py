"""ZooKeeper is frozen, the brokers are not: commands show what the brokers know themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from klamm_program import in_process, klamm

from engine.admin.cluster import zookeeper as zookeeper_side
from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A broker that has the topic ``kept``, and a ZooKeeper that answers nothing."""
    folder: Path = tmp_path_factory.mktemp("frozen-zookeeper")
    settings = {"zookeeper.session.timeout.ms": "60000", "auto.leader.rebalance.enable": "false"}
    with LocalCluster(1, directory=folder, config=settings) as cluster:
        created = klamm("topics", "create", "kept", "--partitions", "2", "-b", cluster.bootstrap_servers, folder=folder)
        assert created.code == 0, created.err
        cluster.zookeeper.pause()
        try:
            yield cluster
        finally:
            cluster.zookeeper.resume()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """It never answers, so a short wait gives the same result."""
    monkeypatch.setattr(zookeeper_side, "CONNECT_TIMEOUT_BESIDE_BROKERS_S", 0.5)


@pytest.fixture
def servers(frozen: LocalCluster) -> str:
    return frozen.bootstrap_servers


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("topics list", "kept"),
        ("groups list", ""),
        ("cluster describe", ""),
    ],
)
def test_brokers_are_asked_where_both_are_named(
    frozen: LocalCluster, capsys: Capture, words: str, expected: str
) -> None:
    where = ("-b", frozen.bootstrap_servers, "--zookeeper", frozen.zookeeper_connect, "--timeout", "8")
    ran = in_process(*words.split(), *where, capture=capsys)
    assert (ran.code, expected in ran.out) == (0, True), ran.err
    warning = f"warning: ZooKeeper does not answer: {frozen.zookeeper_connect}: asking the brokers alone, and not for"
    assert ran.err.splitlines()[0].startswith(warning)


def test_health_counts_a_silent_zookeeper(frozen: LocalCluster, capsys: Capture) -> None:
    where = ("-b", frozen.bootstrap_servers, "--zookeeper", frozen.zookeeper_connect, "--timeout", "8")
    ran = in_process("cluster", "health", *where, "-o", "json", capture=capsys)
    reasons = {reason["check"]: reason for reason in ran.json["reasons"]}
    assert (ran.code, set(reasons)) == (1, {"unknown_settings", "zookeeper_unreachable"})
    assert reasons["zookeeper_unreachable"]["severity"] == "critical"
    gone = f"{own_loopback_address()}:1"
    where = ("-b", frozen.bootstrap_servers, "--zookeeper", f"{frozen.zookeeper_connect},{gone}", "--timeout", "8")
    ran = in_process("cluster", "health", *where, "-o", "json", capture=capsys)
    (down,) = [reason["examples"] for reason in ran.json["reasons"] if reason["check"] == "zookeeper_servers_down"]
    assert down == [
        f"{frozen.zookeeper_connect} takes connections and does not answer; 0 of 2 servers serve",
        f"{gone} refuses connections; 0 of 2 servers serve",
    ]


@pytest.mark.parametrize(
    "words",
    ["topics delete kept --yes", "zk get /", "topics list --via zookeeper"],
    ids=["a change", "znodes", "forced"],
)
def test_zookeeper_is_not_passed_over_where_it_is_needed(frozen: LocalCluster, capsys: Capture, words: str) -> None:
    where = ("-b", frozen.bootstrap_servers, "--zookeeper", frozen.zookeeper_connect, "--timeout", "4")
    ran = in_process(*words.split(), *where, capture=capsys)
    assert "asking the brokers alone" not in ran.err
    assert ran.code in (3, 5), ran.err


@pytest.mark.parametrize("connect", ["frozen", "closed"])
def test_the_doctor_goes_on_to_the_brokers(frozen: LocalCluster, capsys: Capture, connect: str) -> None:
    zookeeper = frozen.zookeeper_connect if connect == "frozen" else "127.0.0.1:1"
    where = ("-b", frozen.bootstrap_servers, "--zookeeper", zookeeper, "--timeout", "10")
    ran = in_process("doctor", *where, "-o", "json", capture=capsys)
    failed = [(step["name"], step["needed_for"]) for step in ran.json if step["status"] != "ok"]
    assert (ran.code, [where for _, where in failed]) == (3, [zookeeper]), (ran.out, ran.err)
    names = [step["name"] for step in ran.json]
    assert names[-1] == "every broker" and names.index("broker port") > names.index(failed[0][0])


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
    ran = in_process(*words, "-b", servers, "-o", "json", capture=capsys)
    assert ran.code == 0
    assert [(row["topic"], row["partition"], row["result"]) for row in ran.json[:2]] == [
        ("kept", 0, "not_needed"),
        ("kept", 1, "not_needed"),
    ]


def test_reassignments_are_planned_and_followed(servers: str, capsys: Capture, tmp_path: Path) -> None:
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "kept"}]}')
    words = ("--topics-to-move-json-file", f"{topics}", "--broker-list", "0", "--proposed", f"{plan}")
    ran = in_process("reassign", "generate", *words, "-b", servers, "--timeout", "10", capture=capsys)
    assert ran.code == 0, ran.err
    words = ("--reassignment-json-file", f"{plan}", "-o", "json", "--timeout", "10")
    ran = in_process("reassign", "verify", *words, "-b", servers, capture=capsys)
    assert (ran.code, [row["state"] for row in ran.json]) == (0, ["complete", "complete"])
    assert ran.err.splitlines()[-1] == (
        "cannot tell now whether a throttle is left: the settings of topic kept are not known"
    )


def test_records_are_deleted_without_the_topics_settings(servers: str, capsys: Capture) -> None:
    """Leaders refuse compacted-only topics, whoever asks."""
    words = ("records", "delete", "--topic", "kept", "--partition", "0", "--before-offset", "0", "--yes")
    ran = in_process(*words, "-b", servers, "-o", "json", "--timeout", "10", capture=capsys)
    assert (ran.code, [row["result"] for row in ran.json]) == (0, ["nothing_to_do"]), ran.err
    assert ran.err.startswith("warning: settings of 1 topic are not known")


def test_replicas_are_compared_by_their_records_alone(servers: str, capsys: Capture) -> None:
    words = ("replicas", "verify", "--topic", "kept", "-o", "json", "--timeout", "10")
    ran = in_process(*words, "-b", servers, capture=capsys)
    assert (ran.code, [row["replicas"][0]["agrees"] for row in ran.json]) == (0, [True, True]), ran.err
    assert ran.err.startswith("warning: cleanup.policy of 1 topic is not known: compared as if compacted")


CHANGES = {
    "topics create new --partitions 1 --replication-factor 1": "klamm topics",
    "topics delete kept --yes": "klamm topics list",
    "topics alter kept --partitions 3 --yes": "klamm topics describe kept",
}
"""Changes that a broker writes to ZooKeeper before it answers, and what shows whether they were made."""


@pytest.mark.parametrize("words", CHANGES)
def test_a_change_that_nobody_answered_may_still_happen(servers: str, capsys: Capture, words: str) -> None:
    ran = in_process(*words.split(), "-b", servers, "--timeout", "4", "-o", "json", capture=capsys)
    assert (ran.code, ran.error["kind"]) == (5, "under_way"), ran.err
    assert "may still take effect" in ran.error["message"], ran.err
    assert CHANGES[words] in ran.error["hint"]


def test_a_dry_run_that_nobody_answered_changes_nothing(servers: str, capsys: Capture) -> None:
    words = ("topics", "create", "new", "--partitions", "1", "--replication-factor", "1", "--dry-run")
    ran = in_process(*words, "-b", servers, "--timeout", "4", capture=capsys)
    assert (ran.code, "may still take effect" in ran.err) in ((0, False), (3, False)), ran.err
