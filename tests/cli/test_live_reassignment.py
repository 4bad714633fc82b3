"""Elections, reassignments and health on three running brokers, over the wire and through the znodes."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from ended_sessions import kill_for_good
from klamm_program import PROGRAM, environment
from operated_cluster import Capture, Klamm, filled, plan_file
from patience import wait_for

from cli.framework import progress
from engine.local.cluster import LocalCluster

WAIT_S = 60.0
SLOW = "15000"
"""A throttle that makes three megabytes take much longer than a test."""


def test_a_broker_goes_and_comes_back(
    three_brokers: LocalCluster, by_wire: Klamm, by_znodes: Klamm, topic_name: str, tmp_path: Path
) -> None:
    first, second = f"{topic_name}-a", f"{topic_name}-b"
    for topic in (first, second):
        assert by_wire("topics", "create", topic, "--replica-assignment", "0:1:2,0:2:1").code == 0
    assert by_wire("cluster", "health").code == 0
    three_brokers.stop_broker(0)

    failed = by_znodes("elect", "preferred", "--topic", first, "--partition", "0", "-o", "json")
    assert failed.code == 1, failed.err
    assert failed.json[0]["result"] == "failed"
    assert "preferred replica 0 is dead" in failed.json[0]["error"]
    assert "warning:" in failed.err
    sick = by_znodes("cluster", "health", "-o", "json")
    assert (sick.code, sick.json["status"]) == (1, "critical")
    checks = {reason["check"]: reason for reason in sick.json["reasons"]}
    assert checks["under_replicated_dead_broker"]["count"] >= 4
    assert "broker 0" in checks["missing_brokers"]["examples"][0]

    three_brokers.start_broker(0)
    assert by_znodes("cluster", "health", "--wait", "--timeout", str(WAIT_S)).code == 0
    strict = by_znodes("cluster", "health", "--fail-on", "warning", "-o", "json")
    assert strict.code == 1
    assert "preferred_leader_imbalance" in {reason["check"] for reason in strict.json["reasons"]}

    # Brokers learn of an ISR after ZooKeeper has it.
    assert by_wire("cluster", "health", "--wait", "--timeout", str(WAIT_S)).code == 0
    would = by_wire("elect", "preferred", "--topic", first, "--dry-run", "-o", "json")
    assert [(row["result"], row["after"]) for row in would.json] == [("would_be_elected", 0)] * 2
    assert 0 not in by_znodes.leaders(first)
    listed = tmp_path / "partitions.json"
    listed.write_text(json.dumps({"partitions": [{"topic": first, "partition": p} for p in (0, 1)]}))
    for klamm, words in ((by_wire, ("--path-to-json-file", str(listed))), (by_znodes, ("--topic", second))):
        done = klamm("elect", "preferred", *words, "-o", "json")
        assert done.code == 0, done.err
        assert [(row["result"], row["after"], row["preferred"]) for row in done.json] == [("elected", 0, 0)] * 2
        again = klamm("elect", "preferred", *words, "-o", "json")
        assert (again.code, {row["result"] for row in again.json}) == (0, {"not_needed"})
    assert by_znodes.leaders(first) == by_znodes.leaders(second) == [0, 0]


def test_an_unclean_election_is_asked_for_twice(
    three_brokers: LocalCluster, by_wire: Klamm, by_znodes: Klamm, topic_name: str
) -> None:
    assert by_wire("topics", "create", topic_name, "--replica-assignment", "2:1").code == 0
    lost = f"{topic_name}-lost"
    assert by_wire("topics", "create", lost, "--replica-assignment", "2").code == 0
    doomed = {name: f"{topic_name}-{name}" for name in ("both", "wire", "znodes")}
    for name in doomed.values():
        assert by_wire("topics", "create", name, "--replica-assignment", "2:1").code == 0
    three_brokers.stop_broker(1)
    three_brokers.stop_broker(2)
    three_brokers.start_broker(1)
    try:
        sides = {"both": (by_wire, by_znodes.where), "wire": (by_wire, ()), "znodes": (by_znodes, ())}
        for name, (klamm, where) in sides.items():
            held_up = klamm("topics", "delete", doomed[name], "--yes", *where, "--timeout", "20", "-o", "json")
            election = held_up.json[0]
            assert (held_up.code, election["result"], election["held_up_by"]) == (5, "marked_for_deletion", [2]), (
                held_up.err
            )
            assert "waits for broker 2, which is dead" in held_up.err
            for words in ([], ["--if-not-exists"]):
                shape = ("--partitions", "1", "--replication-factor", "1")
                again = klamm("topics", "create", doomed[name], *shape, *words, *where)
                assert (again.code, "is marked for deletion" in again.err) == (4, True), (name, again.err)
                assert "--if-not-exists" not in again.err
        gone = doomed["wire"]
        for asked in (["topics", "describe", gone], ["offsets", gone], ["configs", "describe", "--topic", gone]):
            unknown = by_wire(*asked)
            assert (unknown.code, f"brokers do not know {gone} any more" in unknown.err) == (2, True), unknown.err
        offline = by_wire("cluster", "health", "-o", "json")
        assert "offline_partitions" in {reason["check"] for reason in offline.json["reasons"]}
        words = ("elect", "unclean", "--topic", topic_name)
        refused = by_wire(*words)
        assert (refused.code, "--yes" in refused.err) == (2, True)
        hopeless = by_wire("elect", "unclean", "--topic", lost)
        assert "elect unclean leaders of 1 partition in" in hopeless.err, "not of 0 partitions"
        assert "none of whose replicas can lead" in hopeless.err
        through_znode = by_znodes(*words, "--yes")
        assert (through_znode.code, "not possible through ZooKeeper" in through_znode.err) == (2, True)
        assert by_znodes.leaders(topic_name) == [-1]
        done = by_wire(*words, "--yes", "-o", "json")
        assert (done.code, done.json[0]["before"], done.json[0]["after"]) == (0, -1, 1), done.err
    finally:
        three_brokers.start_broker(2)
    assert by_wire("cluster", "health", "--wait", "--timeout", str(WAIT_S)).code == 0
    assert by_wire("elect", "preferred", "--all-topic-partitions").code == 0


def test_a_topic_moves_there_and_back(klamm_by: Klamm, by_znodes: Klamm, topic_name: str, tmp_path: Path) -> None:
    assert klamm_by("topics", "create", topic_name, "--replica-assignment", "0:1,1:2").code == 0
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic_name}]}))
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    words = ("reassign", "generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2", "--seed", "4")
    shown = klamm_by(*words, "--proposed", plan)
    assert shown.out.splitlines()[0] == "Current partition replica assignment"
    proposed = json.loads(plan.read_text())
    assert proposed.pop("klamm") == {"cluster_id": klamm_by("cluster", "describe", "-o", "json").json["cluster_id"]}
    assert json.loads(shown.out.splitlines()[4]) == proposed
    assert klamm_by(*words, "-o", "json").json["proposed"] == proposed
    assert klamm_by(*words[:2], f"{topic_name}|no-other", *words[4:], "-o", "json").json["proposed"] == proposed
    both = klamm_by(*words, topic_name)
    assert (both.code, "name topics, or give" in both.err) == (2, True)
    target = [partition["replicas"] for partition in proposed["partitions"]]

    assert "before and after" in klamm_by(*words, "-o", "table").out
    assert "before and after" not in klamm_by(*words, "-o", "table", "--no-plot").out
    execute = ("reassign", "execute", "--reassignment-json-file", plan, "--rollback-file", back)
    assert "before and after" in klamm_by(*execute, "--dry-run", "-o", "table").out
    would = klamm_by(*execute, "--dry-run", "-o", "json")
    assert would.code == 0 and would.json[0]["replicas"] == [0, 1]
    assert not back.exists() and by_znodes.replicas(topic_name) == [[0, 1], [1, 2]]
    moved = klamm_by(*execute, "--wait", "--timeout", str(WAIT_S), "--throttle", "5000000", "-o", "json")
    assert (moved.code, {move["state"] for move in moved.json}) == (0, {"complete"}), moved.err
    assert by_znodes.replicas(topic_name) == target
    assert by_znodes.settings("--topic", topic_name) == {} == by_znodes.settings("--broker", "1")

    idle = klamm_by("reassign", "execute", "--reassignment-json-file", plan)
    assert (idle.code, "nothing to move" in idle.err) == (0, True)
    undone = klamm_by("reassign", "execute", "--reassignment-json-file", back, "--rollback-file", tmp_path / "b2",
                      "--wait", "--timeout", str(WAIT_S))  # fmt: skip
    assert undone.code == 0, undone.err
    assert by_znodes.replicas(topic_name) == [[0, 1], [1, 2]]
    wrong = klamm_by("reassign", "verify", "--reassignment-json-file", plan, "-o", "json")
    assert (wrong.code, {move["state"] for move in wrong.json} <= {"failed", "complete"}) == (1, True)


def test_a_slow_move_is_watched_changed_and_cancelled(
    by_wire: Klamm, by_znodes: Klamm, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1,1:0")
    assert by_wire("configs", "alter", "--topic", topic_name, "--add-config",
                   "leader.replication.throttled.replicas=99:0").code == 0  # fmt: skip
    plan = plan_file(tmp_path, topic_name, [2, 1], [1, 0, 2])
    files = ("--reassignment-json-file", plan)
    back = tmp_path / "back.json"
    grows = "--allow-replication-factor-change"
    unmeant = by_wire("reassign", "execute", *files)
    assert (unmeant.code, unmeant.err.splitlines()) == (2, [
        f"error: the plan changes the replication factor of 1 partition: {topic_name}-1 has 2, and would have 3",
        f"hint: if that is meant: {grows}",
    ])  # fmt: skip
    started = by_wire(
        "reassign", "execute", *files, grows, "--throttle", SLOW, "--rollback-file", back, "-o", "json",
    )  # fmt: skip
    assert (started.code, {move["state"] for move in started.json}) == (5, {"in_progress"}), started.err
    assert all(move["remaining_bytes"] > 0 for move in started.json)
    listed = by_znodes("reassign", "list", "-o", "json").json
    assert [(move["adding"], move["removing"]) for move in listed] == [([2], [0]), ([2], [])]
    assert by_znodes("reassign", "verify", *files).code == 5
    assert by_wire("reassign", "verify", *files, "--wait", "--timeout", "2").code == 5
    assert by_wire("cluster", "health").code == 0

    second = by_wire("reassign", "execute", *files, grows)
    assert (second.code, "REASSIGNMENT_IN_PROGRESS" in second.err) == (4, True)
    again = by_wire("reassign", "execute", *files, grows, "--additional", "--wait", "--timeout", "4")
    assert (again.code, "nothing to move" in again.err, "/2 done" in again.err) == (5, True, True), again.err
    assert by_wire("reassign", "execute", *files, grows, "--additional", "--throttle", "20000").code == 5
    as_kafka = by_wire("kafka-reassign-partitions.sh", "--execute", *files, "--additional", "--throttle", "20000")
    assert (as_kafka.code, "Successfully started partition" in as_kafka.out) == (0, True), (
        "a script that stops at errors goes on"
    )
    assert json.loads(back.read_text())["partitions"][0]["replicas"] == [0, 1]
    assert by_znodes.settings("--broker", "2")["follower.replication.throttled.rate"] == "20000"
    assert by_znodes("reassign", "cancel", *files).code == 2
    assert by_wire("reassign", "cancel", *files, "--dry-run").code == 0
    unconfirmed = by_wire("reassign", "cancel", "--all")
    assert (unconfirmed.code, "without confirmation" in unconfirmed.err) == (2, True), "other people's moves, too"
    assert len(by_znodes("reassign", "list", "-o", "json").json) == 2

    cancelled = by_wire("reassign", "cancel", *files, "-o", "json")
    assert (cancelled.code, {row["result"] for row in cancelled.json}) == (0, {"cancelled"}), cancelled.err
    assert [sorted(replicas) for replicas in by_znodes.replicas(topic_name)] == [[0, 1], [0, 1]]
    assert by_znodes.settings("--topic", topic_name) == {"leader.replication.throttled.replicas": "99:0"}
    assert all(by_znodes.settings("--broker", str(broker)) == {} for broker in range(3))
    assert by_wire("reassign", "cancel", *files, "-o", "json").json[0]["result"] == "not_active"
    assert by_wire("reassign", "verify", *files).code == 1
    assert by_wire("topics", "delete", topic_name, "--yes").code == 0
    gone = by_wire("reassign", "verify", *files, "-o", "json")
    assert (gone.code, {move["state"] for move in gone.json}) == (1, {"not_found"})


def test_leaked_throttles_come_off_without_the_plan(
    klamm_by: Klamm, by_wire: Klamm, by_znodes: Klamm, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1")
    files = ("--reassignment-json-file", plan_file(tmp_path, topic_name, [2, 1]))
    back = ("--rollback-file", tmp_path / "back.json")
    assert by_wire("reassign", "execute", *files, "--throttle", SLOW, *back).code == 5
    moving = klamm_by("reassign", "verify", "--all", "-o", "json")
    assert (moving.code, [(move["state"], move["target"]) for move in moving.json]) == (5, [("in_progress", [2, 1])])
    assert by_znodes.settings("--topic", topic_name) != {} != by_znodes.settings("--broker", "2")
    assert by_wire("reassign", "cancel", *files, "--preserve-throttles").code == 0
    sick = by_wire("cluster", "health", "-o", "json")
    (leaked,) = (reason for reason in sick.json["reasons"] if reason["check"] == "leaked_throttles")
    remedy = "klamm reassign verify --all"
    assert remedy in by_wire("cluster", "health", "-o", "table").out
    assert any(topic_name in example for example in leaked["examples"])
    assert klamm_by(*remedy.split()[1:], "--dry-run").code == 0
    assert by_znodes.settings("--topic", topic_name) != {}
    done = klamm_by(*remedy.split()[1:])
    assert (done.code, done.out, "nothing is under way" in done.err) == (0, "", True), done.err
    assert by_znodes.settings("--broker", "2") == {} == by_znodes.settings("--topic", topic_name)
    assert klamm_by("reassign", "verify", "--all", *files).code == 2


def test_a_rate_that_an_earlier_plan_has_left_is_not_called_another_clients(
    klamm_by: Klamm, by_wire: Klamm, by_znodes: Klamm, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1")
    files = ("--reassignment-json-file", plan_file(tmp_path, topic_name, [2, 1]))
    started = by_wire("reassign", "execute", *files, "--throttle", SLOW, "--rollback-file", tmp_path / "back.json")
    assert started.code == 5, started.err
    assert by_wire("reassign", "cancel", *files, "--preserve-throttles").code == 0
    assert by_znodes.settings("--broker", "2") != {} != by_znodes.settings("--topic", topic_name)
    other = f"{topic_name}-other"
    filled(by_wire, other, "0:1")
    words = ("reassign", "execute", "--reassignment-json-file", plan_file(tmp_path, other, [2, 1]), "--dry-run")
    words += ("--throttle", "80000000")
    planned = klamm_by(*words)
    assert (planned.code, "another client" in planned.err) == (0, False), planned.err
    key = "leader.replication.throttled.rate"
    assert by_wire("configs", "alter", "--broker", "0", "--add-config", f"{key}=70000000").code == 0
    # A broker reads a change from ZooKeeper a moment after it has taken it.
    wait_for(lambda: by_wire.settings("--broker", "0").get(key) == "70000000")
    planned = klamm_by(*words)
    assert f"broker 0 has {key}=70000000, set by another client" in planned.err, planned.err
    assert by_wire("configs", "alter", "--broker", "0", "--delete-config", key).code == 0
    assert by_wire("reassign", "verify", "--all").code == 0
    assert by_znodes.settings("--broker", "2") == {} == by_znodes.settings("--topic", topic_name)


@pytest.mark.parametrize("named", ["brokers", "both"])
def test_a_target_that_dies_is_named_while_it_is_waited_for(
    three_brokers: LocalCluster, by_wire: Klamm, by_znodes: Klamm, topic_name: str, tmp_path: Path, named: str
) -> None:
    filled(by_wire, topic_name, "0:1")
    files = ("--reassignment-json-file", plan_file(tmp_path, topic_name, [2, 1]))
    where = ["--bootstrap-server", three_brokers.bootstrap_servers]
    where += ["--zookeeper", three_brokers.zookeeper_connect] if named == "both" else []
    words = ["reassign", "execute", *files, "--throttle", SLOW, "--wait", "--timeout", "12", *where, "-o", "json"]
    running = subprocess.Popen(
        [PROGRAM, *words], cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        wait_for(lambda: topic_name in by_znodes("reassign", "list").out, "the move begins")
        assert running.poll() is None
        kill_for_good(three_brokers, 2)
        out, said = running.communicate(timeout=WAIT_S)
    finally:
        running.kill()
        running.wait()
        three_brokers.start_broker(2)
    (status,) = json.loads(out)
    assert (running.returncode, status["state"], status["reason"]) == (5, "in_progress", "waits for dead broker 2"), (
        said
    )
    assert "; waits for dead broker 2\n" in said, "the live view has told it too"
    stop = f"klamm reassign cancel {' '.join(map(str, (*files, *where)))}"
    assert said.splitlines()[-1] == f"it goes on when the broker is back; to stop it: {stop}"
    assert by_wire("reassign", "execute", *files, "--additional", "--throttle", "90000000").code in (0, 5)
    assert by_znodes("reassign", "verify", *files, "--wait", "--timeout", str(WAIT_S)).code == 0
    assert by_znodes.settings("--broker", "2") == {} == by_znodes.settings("--topic", topic_name)


def test_ctrl_c_says_how_to_go_on_and_the_throttle_comes_off_from_elsewhere(
    three_brokers: LocalCluster, by_wire: Klamm, by_znodes: Klamm, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1")
    plan = plan_file(tmp_path, topic_name, [2, 1])
    words = ["reassign", "execute", "--reassignment-json-file", str(plan), "--throttle", SLOW, "--wait"]
    running = subprocess.Popen(
        [PROGRAM, *words, "--bootstrap-server", three_brokers.bootstrap_servers],
        cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        wait_for(lambda: topic_name in by_znodes("reassign", "list").out, "the move begins")
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=WAIT_S)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130, said
    assert "klamm reassign verify" in said
    rollbacks = list(tmp_path.glob("rollback-*.json"))
    assert json.loads(rollbacks[0].read_text())["partitions"][0]["replicas"] == [0, 1]
    assert "follower.replication.throttled.rate" in by_znodes.settings("--broker", "2")

    files = ("--reassignment-json-file", plan)
    assert by_wire("reassign", "execute", *files, "--additional", "--throttle", "90000000").code in (0, 5)
    done = by_znodes("reassign", "verify", *files, "--wait", "--timeout", str(WAIT_S))
    assert done.code == 0, done.err
    assert by_znodes.replicas(topic_name) == [[2, 1]]
    assert by_znodes.settings("--broker", "2") == {} == by_znodes.settings("--topic", topic_name)


def test_replicas_are_compared_until_a_byte_goes_bad(
    three_brokers: LocalCluster, by_wire: Klamm, by_znodes: Klamm, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(by_wire, topic_name, "0:1:2")
    monkeypatch.setattr(progress, "_LOG_PACE_S", 0.0)
    good = by_znodes("replicas", "verify", "--topic", f"{topic_name}.*", "-o", "json")
    assert good.code == 0, good.err
    compared = [line for line in good.err.splitlines() if line.startswith("compared ")]
    assert compared, "how far it is, of how much, and how long it will take"
    assert all(re.fullmatch(r"compared \d+ of 3000 offsets \[.*\] \d+/s, \d+ s left", line) for line in compared), (
        compared
    )
    assert compared[-1].startswith("compared 3000 of 3000 offsets")
    for klamm in (by_wire, by_znodes):
        carried = klamm("cluster", "load", topic_name, "-o", "json").json
        assert [(broker["broker"], broker["replica_count"], broker["leader_count"]) for broker in carried] == [
            (0, 1, 1), (1, 1, 0), (2, 1, 0),
        ]  # fmt: skip
        assert all(broker["size_bytes"] > 3_000_000 for broker in carried)
    assert [(row["from_offset"], row["to_offset"]) for row in good.json] == [(0, 3000)]
    assert [replica["agrees"] for replica in good.json[0]["replicas"]] == [True] * 3

    (folder,) = three_brokers.broker(2).spec.log_dirs
    (log,) = (folder / f"{topic_name}-0").glob("*.log")
    data = log.read_bytes()
    with log.open("r+b") as file:
        file.seek(data.index(b"x" * 500, len(data) // 2) + 250)
        file.write(b"y")
    bad = by_wire("replicas", "verify", "--topic", topic_name, "-o", "json")
    assert (bad.code, [replica["agrees"] for replica in bad.json[0]["replicas"]]) == (1, [True, True, False]), bad.err
    difference = bad.json[0]["first_difference"]
    assert difference["kind"] == "corrupt"
    assert [side["broker"] for side in difference["sides"]] == [0, 2]
    assert "y" in difference["sides"][1]["records"][0]["value"]
    assert by_wire("replicas", "verify", "--topic", "absent").code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("nonsense", "not JSON"),
        ('{"partitions":[]}', "cannot be empty"),
        ('{"partitions":[{"topic":"T","partition":0,"replicas":[1,1]}]}', "multiple entries for 1"),
        ('{"partitions":[{"topic":"T","partition":0,"replicas":[1,9]}]}', "unknown broker id 9"),
        ('{"partitions":[{"topic":"T","partition":7,"replicas":[1]}]}', "unable to find partition: T-7"),
        ('{"partitions":[{"topic":"absent","partition":0,"replicas":[1]}]}', "unable to find partition: absent-0"),
    ],
)
def test_plans_that_cannot_be_executed(
    klamm_by: Klamm, by_znodes: Klamm, topic_name: str, tmp_path: Path, text: str, message: str
) -> None:
    klamm_by("topics", "create", topic_name, "--replica-assignment", "0:1")
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    plan.write_text(text.replace("T", topic_name))
    ran = klamm_by("reassign", "execute", "--reassignment-json-file", plan, "--rollback-file", back,
                   "--throttle", "50000")  # fmt: skip
    assert ran.code == 2, ran.err
    assert message.replace("T", topic_name) in ran.err
    assert not back.exists()
    assert by_znodes.replicas(topic_name) == [[0, 1]]
    assert by_znodes.settings("--topic", topic_name) == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["elect", "preferred"], "give one of --topic"),
        (["elect", "preferred", "--topic", "a", "--all-topic-partitions"], "give one of --topic"),
        (["elect", "preferred", "--topic", "absent"], "'absent' does not exist"),
        (["elect", "preferred", "--partition", "1"], "only allowed with --topic"),
        (["elect", "preferred", "--path-to-json-file", "/nowhere.json"], "no such file"),
        (["reassign", "execute"], "--reassignment-json-file"),
        (["reassign", "cancel"], "give --reassignment-json-file or --all"),
        (["reassign", "verify", "--reassignment-json-file", "/nowhere.json"], "no such file"),
        (["cluster", "health", "--fail-on", "nothing"], "--fail-on must be"),
    ],
)
def test_wrong_use(by_wire: Klamm, words: list[str], message: str) -> None:
    ran = by_wire(*words)
    assert (ran.code, message in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("words", [["elect", "preferred", "--all-topic-partitions"], ["reassign", "list"]])
def test_nobody_there(three_brokers: LocalCluster, capsys: Capture, words: list[str]) -> None:
    nobody = Klamm(capsys, "--bootstrap-server", f"{three_brokers.host}:1")
    assert nobody(*words).code == 3
    wrong_chroot = Klamm(capsys, "--zookeeper", f"{three_brokers.zookeeper_connect}/elsewhere")
    ran = wrong_chroot(*words)
    assert (ran.code, "chroot" in ran.err) == (3, True)


def test_deleted_records_and_other_segment_boundaries_are_no_difference(
    three_brokers: LocalCluster, by_wire: Klamm, topic_name: str
) -> None:
    small = ("--config", "segment.bytes=20000")
    assert by_wire("topics", "create", topic_name, "--replica-assignment", "0:1:2", *small).code == 0
    three_brokers.stop_broker(2)
    try:
        for begin in range(0, 2000, 100):
            lines = "".join(f"{number} {'x' * 90}\n" for number in range(begin, begin + 100))
            assert by_wire("produce", topic_name, stdin=lines).code == 0
        assert by_wire("configs", "alter", "--topic", topic_name, "--add-config", "segment.bytes=50000").code == 0
    finally:
        three_brokers.start_broker(2)
    assert by_wire("cluster", "health", "--wait", "--timeout", str(WAIT_S)).code == 0

    def segments(broker: int) -> list[str]:
        (folder,) = three_brokers.broker(broker).spec.log_dirs
        return sorted(path.name for path in (folder / f"{topic_name}-0").glob("*.log"))

    assert segments(0) != segments(2)
    whole = by_wire("replicas", "verify", "--topic", topic_name, "-o", "json")
    assert (whole.code, whole.json[0]["from_offset"], whole.json[0]["to_offset"]) == (0, 0, 2000), whole.err

    assert by_wire("records", "delete", "--topic", topic_name, "--partition", "0", "--before-offset", "777",
                   "--yes").code == 0  # fmt: skip
    trimmed = by_wire("replicas", "verify", "--topic", topic_name, "-o", "json")
    assert (trimmed.code, trimmed.json[0]["from_offset"], trimmed.json[0]["to_offset"]) == (0, 777, 2000), trimmed.err
    assert [replica["agrees"] for replica in trimmed.json[0]["replicas"]] == [True] * 3


def test_fewer_replicas_than_min_isr_are_told(
    by_wire: Klamm, by_znodes: Klamm, topic_name: str, tmp_path: Path
) -> None:
    settings = ("--config", "min.insync.replicas=2")
    assert by_wire("topics", "create", topic_name, "--replica-assignment", "0:1,1:0", *settings).code == 0
    plan = plan_file(tmp_path, topic_name, [0], [1, 0])
    words = ("reassign", "execute", "--reassignment-json-file", plan, "--dry-run", "--allow-replication-factor-change")
    for side in (by_wire, by_znodes):
        ran = side(*words)
        assert (ran.code, ran.err.splitlines()[0]) == (0, (
            f"warning: {topic_name}-0 will have fewer replicas (1) than min.insync.replicas (2):"
            " brokers before Kafka 3.7 refuse writes with acks=all"
        ))  # fmt: skip


def test_logs_that_are_compacted_at_different_times_are_no_difference(
    three_brokers: LocalCluster, by_wire: Klamm, topic_name: str
) -> None:
    settings = ("cleanup.policy=compact", "segment.bytes=20000", "min.cleanable.dirty.ratio=0.01")
    configs = [word for setting in settings for word in ("--config", setting)]
    assert by_wire("topics", "create", topic_name, "--replica-assignment", "0:1:2", *configs).code == 0

    def size(broker: int) -> int:
        (folder,) = three_brokers.broker(broker).spec.log_dirs
        sizes = []
        for path in (folder / f"{topic_name}-0").glob("*.log"):
            # The cleaner removes files while the test looks at them.
            with suppress(FileNotFoundError):
                sizes.append(path.stat().st_size)
        return sum(sizes)

    try:
        for begin in range(0, 2000, 100):
            lines = "".join(f"key-{n % 50}\t{n} {'x' * 90}\n" for n in range(begin, begin + 100))
            assert by_wire("produce", topic_name, "--key-separator", "\t", "--acks", "all", stdin=lines).code == 0
            if begin == 1000:
                three_brokers.stop_broker(2)
        wait_for(lambda: size(0) <= 60_000, "the leader's log is compacted")
    finally:
        three_brokers.start_broker(2)

    def agree() -> bool:
        compared = by_wire("replicas", "verify", "--topic", topic_name, "-o", "json")
        verdicts = [replica["agrees"] for replica in compared.json[0]["replicas"]]
        # A broker that has just started may not know its replica yet. That is no answer, but no difference either.
        assert False not in verdicts, compared.out
        return verdicts == [True] * 3

    wait_for(agree, "the replicas agree")
    assert by_wire("cluster", "health", "--wait", "--timeout", str(WAIT_S)).code == 0
    assert by_wire("replicas", "verify", "--topic", topic_name).code == 0


def test_a_topic_that_is_deleted_while_it_moves_ends_the_wait(
    three_brokers: LocalCluster, by_wire: Klamm, by_znodes: Klamm, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1")
    plan = plan_file(tmp_path, topic_name, [2, 1])
    words = ["reassign", "execute", "--reassignment-json-file", plan, "--throttle", SLOW, "--wait", "-o", "json"]
    running = subprocess.Popen(
        [PROGRAM, *words, "--bootstrap-server", three_brokers.bootstrap_servers],
        cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_for(lambda: topic_name in by_znodes("reassign", "list").out, "the move begins")
        assert running.poll() is None
        assert by_wire("topics", "delete", topic_name, "--yes").code == 0
        out, said = running.communicate(timeout=WAIT_S)
    finally:
        running.kill()
        running.wait()
    assert (running.returncode, [move["state"] for move in json.loads(out)]) == (1, ["not_found"]), said
    assert all(by_znodes.settings("--broker", str(broker)) == {} for broker in range(3))


def test_a_broker_is_demoted_and_restored(
    klamm_by: Klamm, by_znodes: Klamm, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The restoration writes its rollback here.
    monkeypatch.chdir(tmp_path)
    assert klamm_by("topics", "create", topic_name, "--replica-assignment", "0:1,0:2,1:2").code == 0
    lonely = f"{topic_name}-lonely"
    assert klamm_by("topics", "create", lonely, "--replica-assignment", "0").code == 0
    way_back = tmp_path / "demoted.json"
    demote = ("brokers", "demote", "0", "--rollback-file", way_back)
    tried = klamm_by(*demote, "--dry-run", "-o", "json")
    assert [0, 1] in [row["replicas"] for row in tried.json], tried.err
    assert not way_back.exists()
    assert by_znodes.replicas(topic_name) == [[0, 1], [0, 2], [1, 2]]

    done = klamm_by(*demote, "--yes")
    assert done.code == 1, "a partition has no other replica"
    assert f"{lonely}-0 stays with its leader: there is no other replica" in done.err
    (notice,) = [line for line in done.err.splitlines() if f"{way_back}" in line]
    notice, _, options = notice.partition(f"; to go back: klamm brokers restore {way_back} ")
    assert (notice, shlex.split(options)) == (f"the rollback is in {way_back}", list(klamm_by.where))
    assert by_znodes.replicas(topic_name) == [[1, 0], [2, 0], [1, 2]]
    assert by_znodes.leaders(topic_name) == [1, 2, 1]
    again = klamm_by("brokers", "demote", "0", "--yes")
    assert "nothing else to do" in again.err, "what is left does not become so by itself"
    assert "already the case" not in again.err

    assert klamm_by("topics", "delete", lonely, "--yes").code == 0
    foreign = tmp_path / "foreign.json"
    text = json.loads(way_back.read_text())
    text["partitions"] = [{"topic": topic_name, "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}]
    foreign.write_text(json.dumps(text))
    refused = klamm_by("brokers", "restore", foreign, "--yes")
    assert (refused.code, "has other replicas now" in refused.err) == (2, True)
    back = klamm_by("brokers", "restore", way_back, "--yes", "--rollback-file", tmp_path / "demoted-again.json")
    assert back.code == 0, back.err
    saved = json.loads((tmp_path / "demoted-again.json").read_text())["partitions"]
    assert [row["replicas"] for row in saved if row["topic"] == topic_name] == [[1, 0], [2, 0]]
    assert by_znodes.replicas(topic_name) == [[0, 1], [0, 2], [1, 2]]
    assert by_znodes.leaders(topic_name) == [0, 0, 1]
