"""With half of the brokers dead, reading commands say soon what they know and what not, in every form."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from guest_cluster import GuestCluster
from klamm_program import PROGRAM, Ran, environment, in_process, klamm
from patience import wait_for

from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

Capture = pytest.CaptureFixture[str]

READERS = {
    "topics list": 0,
    "topics describe": 0,
    "topics describe --unavailable-partitions": 0,
    "configs describe --topic both": 0,
    "configs describe --entity-type brokers": None,
    "reassign list": 0,
    "brokers list": 0,
    "brokers describe": 1,
    "brokers log-dirs": 1,
    "brokers log-dirs --summary topic": 1,
    "offsets": 1,
    "offsets both --time earliest": 0,
    "cluster describe": 0,
    "cluster health": 1,
    "cluster load": 0,
    "elect preferred --all-topic-partitions --dry-run": None,
    "replicas verify --topic both": 1,
}
"""Each reading command with its exit code; None if that depends on how widely the death is known."""

OF_THE_CONTROLLER = ("reassign list",)
"""Over the wire only the controller knows. If it is dead and no other is elected, nobody can be asked."""


@pytest.fixture(scope="module")
def half_dead(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two brokers; the test kills broker 1."""
    settings = {
        "auto.leader.rebalance.enable": "false",
        "offsets.topic.num.partitions": "1",
        # A broker that freezes for the time of a test stays a member.
        "zookeeper.session.timeout.ms": "30000",
        "controlled.shutdown.enable": "false",
    }
    folder = tmp_path_factory.mktemp("half-dead")
    with GuestCluster(zookeeper, 2, directory=folder, config=settings) as cluster:
        yield cluster


def run(cluster: LocalCluster, words: str, *more: str, capture: Capture, znodes: bool = False, stdin: str = "") -> Ran:
    side = ("--zookeeper", cluster.zookeeper_connect) if znodes else ("-b", cluster.bootstrap_servers)
    return in_process(*words.split(), *side, *more, capture=capture, stdin=stdin)


@pytest.fixture
def paused(slow: LocalCluster, capsys: Capture) -> Iterator[LocalCluster]:
    """Broker 1 is frozen for less time than its session lasts."""
    slow.pause_broker(1)
    yield slow
    slow.resume_broker(1)
    slow.wait_until_serving()
    wait_until_followed(slow, capsys)


def wait_until_followed(cluster: LocalCluster, capture: Capture) -> None:
    """Wait until broker 1 is in every ISR that it belongs to."""
    under_replicated = "topics describe --under-replicated-partitions"
    wait_for(lambda: not run(cluster, under_replicated, capture=capture).out, "broker 1 catches up")


DELETE = "records delete --topic slow --partition 0 --yes --before-offset"


@pytest.fixture(scope="module")
def slow(half_dead: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> LocalCluster:
    """A topic with two records, whose follower is about to freeze."""
    folder = tmp_path_factory.mktemp("slow")
    where = ("-b", half_dead.bootstrap_servers)
    assert klamm("topics", "create", "slow", "--replica-assignment", "0:1", *where, folder=folder).code == 0
    assert klamm("produce", "slow", "--acks", "all", *where, folder=folder, stdin="a\nb\nc\n").code == 0
    return half_dead


def test_a_replica_that_stands_still_keeps_a_deletion_under_way(paused: LocalCluster, capsys: Capture) -> None:
    ran = run(paused, f"{DELETE} 1", "--timeout", "3", "-o", "json", capture=capsys)
    assert (ran.code, ran.json[0]["result"], ran.json[0]["error"]) == (5, "under_way", "REQUEST_TIMED_OUT")
    assert "not followed yet" in ran.err
    ran = run(paused, f"{DELETE} 2", "--no-wait", "-o", "json", capture=capsys)
    assert (ran.code, ran.json[0]["result"]) == (5, "under_way")
    started = run(paused, "offsets slow --time earliest", "-o", "json", capture=capsys).json
    assert started[0]["offset"] == 2, "the leader has begun at once"


def test_an_interrupt_says_what_goes_on(paused: LocalCluster, capsys: Capture, tmp_path: Path) -> None:
    words = [*f"{DELETE} 3".split(), "-b", paused.bootstrap_servers, "--verbose"]
    process = subprocess.Popen(
        [PROGRAM, *words], cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "DescribeLogDirs" in line:
            break
    earliest = "offsets slow --time earliest"
    wait_for(lambda: run(paused, earliest, capture=capsys).rows[0][2] == "3", "the leader begins")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.splitlines()[-2:] == [
        "error: interrupted",
        "hint: the brokers still delete what was requested; see what is left with: klamm offsets --time earliest "
        f"--bootstrap-server {paused.bootstrap_servers}",
    ]


def test_a_broker_that_stands_still_is_named_by_those_who_look_at_all(paused: LocalCluster, capsys: Capture) -> None:
    ran = run(paused, "cluster health", "--timeout", "12", "-o", "json", capture=capsys)
    silent = [reason for reason in ran.json["reasons"] if reason["check"] == "silent_brokers"]
    assert (ran.code, silent[0]["examples"][0][:26]) == (1, "broker 1: no answer within"), ran.err
    ran = run(paused, "brokers describe", "--timeout", "12", "-o", "json", capture=capsys)
    assert (ran.code, [str(row["error"])[:16] for row in ran.json]) == (1, ["None", "no answer within"]), ran.err


DRY_RUNS = (
    "topics create more",
    "topics create more --replica-assignment 0:1",
    "topics alter slow --partitions 2",
    "topics delete slow",
    "configs alter --broker {controller} --add-config log.cleaner.threads=2",
    "reassign execute --reassignment-json-file {plan}",
    "brokers demote {controller}",
)


def test_a_dry_run_does_not_wait_for_a_silent_controller(slow: LocalCluster, capsys: Capture, tmp_path: Path) -> None:
    controller, plan = slow.controller_id(), tmp_path / "plan.json"
    assert controller is not None
    plan.write_text('{"version": 1, "partitions": [{"topic": "slow", "partition": 0, "replicas": [1, 0]}]}')
    slow.pause_broker(controller)
    try:
        for words in DRY_RUNS:
            spelled = words.format(controller=controller, plan=plan)
            ran = run(slow, spelled, "--dry-run", "--timeout", "5", "-o", "json", capture=capsys)
            assert ran.code == 3, (words, ran.out, ran.err)
            assert "within 2 s" in ran.error["message"], (words, ran.err)
            port = slow.status().brokers[controller].port
            assert any(name in ran.error["message"] for name in (f"broker {controller}", f":{port}")), (words, ran.err)
    finally:
        slow.resume_broker(controller)
        slow.wait_until_serving()
        wait_until_followed(slow, capsys)


def test_commands_that_look(slow: LocalCluster, capsys: Capture) -> None:
    """All in one test, because the cluster dies only once: while its session lives, and when everybody knows."""
    for topic, assignment in (("both", "0:1,0:1"), ("gone", "1")):
        created = run(slow, f"topics create {topic} --replica-assignment {assignment}", capture=capsys)
        assert created.code == 0, created.err
    assert run(slow, "produce both --partition 0", capture=capsys, stdin="a\nb\n").code == 0
    slow.restart_broker(1, {"zookeeper.session.timeout.ms": "7000"})
    wait_until_followed(slow, capsys)
    slow.kill_broker(1)
    for words in READERS:
        for znodes in (False, True):
            _is_told(slow, words, capsys, znodes=znodes)
    _wait_until_known(slow, capsys)
    for words, code in READERS.items():
        for znodes in (False, True):
            ran = _is_told(slow, words, capsys, znodes=znodes)
            assert code is None or ran.code == code, (words, znodes, ran.out, ran.err)
    _looks_closer(slow, capsys)
    _is_told_where_both_are_named(slow, capsys)


def _is_told_where_both_are_named(cluster: LocalCluster, capture: Capture) -> None:
    """The only named broker is dead, so ZooKeeper gives the others."""
    dead = cluster.broker(1).address
    sides = ("-b", dead, "--zookeeper", cluster.zookeeper_connect)
    for words, code in (*READERS.items(), ("groups list", 0)):
        ran = in_process(*words.split(), *sides, "--timeout", "15", "-o", "json", capture=capture)
        assert code is None or ran.code == code, (words, ran.err)
        json.loads(ran.out)
    silent = f"warning: no answer from {dead}: asking the brokers that ZooKeeper names"
    ran = in_process("offsets", "both", *sides, capture=capture)
    assert (ran.code, ran.err.splitlines()[0]) == (0, silent)


def _is_told(cluster: LocalCluster, words: str, capture: Capture, *, znodes: bool) -> Ran:
    started = time.monotonic()
    ran = run(cluster, words, "--timeout", "15", "-o", "json", capture=capture, znodes=znodes)
    if words in OF_THE_CONTROLLER and not znodes and ran.code == 3:
        return ran
    assert ran.code in (0, 1), (words, znodes, ran.err)
    json.loads(ran.out)
    assert time.monotonic() - started < 12, f"{words} is held up by the dead broker"
    return ran


def _wait_until_known(cluster: LocalCluster, capture: Capture) -> None:
    def is_known() -> bool:
        described = run(cluster, "topics describe gone", "-o", "json", capture=capture)
        live = run(cluster, "brokers list", "-o", "json", capture=capture, znodes=True).json
        return described.json[0]["partitions"][0]["leader"] == -1 and [broker["id"] for broker in live] == [0]

    wait_for(is_known, "the cluster knows that the broker is gone")


def _looks_closer(cluster: LocalCluster, capture: Capture) -> None:
    rows = run(cluster, "offsets", "-o", "json", capture=capture).json
    answers = {(row["topic"], row["partition"]): (row["offset"], row["leader"], row["error"]) for row in rows}
    assert answers == {
        ("both", 0): (2, 0, None),
        ("both", 1): (0, 0, None),
        ("gone", 0): (None, -1, "LEADER_NOT_AVAILABLE"),
        ("slow", 0): (3, 0, None),
    }
    dead, live = run(cluster, "brokers describe", "-o", "json", capture=capture, znodes=True).json[::-1]
    assert (dead["id"], dead["alive"], dead["error"]) == (1, False, "not alive")
    assert (dead["partitions"]["held"], dead["partitions"]["leaderless"]) == (4, ["gone-0"])
    assert dead["partitions"]["out_of_sync"] == ["both-0", "both-1", "slow-0"]
    assert (live["id"], live["alive"], live["partitions"]["led"]) == (0, True, 3)
    refused = run(cluster, "records delete --topic gone --partition 0 --before-offset -1 --yes", capture=capture)
    assert (refused.code, "LEADER_NOT_AVAILABLE" in refused.err) == (4, True)
    answers = run(cluster, "brokers log-dirs", "-o", "json", capture=capture).json
    assert [(row["broker"], row["error"]) for row in answers] == [(0, None), (1, "not alive")]
    named = run(cluster, "brokers log-dirs --broker-list 0,1", capture=capture)
    assert (named.code, "not alive: 1" in named.err) == (2, True)
    # The low watermark is that of the live replicas.
    words = "records delete --topic both --partition 0 --before-offset 1 --yes"
    gone = run(cluster, words, "-o", "json", capture=capture)
    assert (gone.code, gone.json[0]["low_watermark"]) == (0, 1), gone.err
