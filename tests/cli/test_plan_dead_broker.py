"""Plans for a cluster in which a broker is dead from the start: made, applied and verified without waiting for it."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from applied_plans import FAST, QUICK_LOCK, SLOW, WAIT_S, Room, made_plan
from ended_sessions import kill_for_good
from guest_cluster import GuestCluster
from operated_cluster import Capture, filled
from operated_cluster import Klamm as Operator
from patience import wait_for

from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

pytestmark = pytest.mark.timeout(600)

DEAD = 3
SETTINGS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "group.min.session.timeout.ms": "1000",
    # The groups' topic would be a part of every plan.
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}


@pytest.fixture(scope="module")
def four_brokers(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("dead")
    with GuestCluster(zookeeper, 4, directory=folder, config=SETTINGS, racks=["a", "b", "c", "a"]) as cluster:
        yield cluster


@pytest.fixture(params=["wire", "znodes"])
def klamm(request: pytest.FixtureRequest, four_brokers: LocalCluster, capsys: Capture) -> Operator:
    if request.param == "wire":
        return Operator(capsys, "--bootstrap-server", four_brokers.bootstrap_servers)
    return Operator(capsys, "--zookeeper", four_brokers.zookeeper_connect)


def without_broker(cluster: LocalCluster, klamm: Operator, topic: str, assignment: str) -> None:
    """Fill a topic while all brokers live, then kill one and wait until the cluster knows."""
    wire = Operator(klamm._capture, "--bootstrap-server", cluster.bootstrap_servers)
    if DEAD not in {broker["id"] for broker in klamm("brokers", "list", "-o", "json").json}:
        cluster.start_broker(DEAD)
        cluster.wait_until_serving()
    filled(wire, topic, assignment, records=200)
    kill_for_good(cluster, DEAD)
    wait_for(lambda: DEAD not in {broker["id"] for broker in klamm("brokers", "list", "-o", "json").json})
    wait_for(lambda: all(DEAD not in (partition["leader"], *partition["isr"]) for partition in klamm.partitions(topic)))


def applied(klamm: Operator, plan: Path) -> None:
    assert klamm("plan", "check", plan).code == 0
    done = klamm("plan", "apply", plan, "--throttle", FAST, *QUICK_LOCK, "--timeout", "60", "-o", "json")
    assert done.code == 0, (done.out, done.err)
    assert klamm("plan", "verify", plan).code == 0


def test_who_looks_for_the_lock_creates_no_topic(
    four_brokers: LocalCluster, capsys: Capture, topic_name: str, tmp_path: Path
) -> None:
    """A broker that is asked for the coordinator of a group creates the groups' topic; looking must not."""
    by_wire = Operator(capsys, "--bootstrap-server", four_brokers.bootstrap_servers)
    assert by_wire("topics", "create", topic_name, "--replica-assignment", "0:1").code == 0
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 2])
    status = by_wire("plan", "status", plan, "-o", "json")
    assert (status.code, status.json["lock"]) == (0, None), status.err
    assert [topic["topic"] for topic in by_wire("topics", "list", "-o", "json").json] == [topic_name]
    assert by_wire("topics", "delete", topic_name, "--yes").code == 0
    wait_for(lambda: by_wire("topics", "list", "-o", "json").json == [])


def test_a_dead_broker_is_emptied(four_brokers: LocalCluster, klamm: Operator, topic_name: str, tmp_path: Path) -> None:
    """Its replicas, leaders and place in the ISR went with it: the others have the records."""
    without_broker(four_brokers, klamm, topic_name, f"{DEAD}:1,1:{DEAD},1:2")
    plan = tmp_path / "plan.json"
    words = ("--topic", topic_name, "--out", plan, "-o", "json")
    assert klamm("plan", "decommission", str(DEAD), *words).code == 0
    applied(klamm, plan)
    partitions = klamm.partitions(topic_name)
    assert all(
        DEAD not in partition["replicas"] and sorted(partition["isr"]) == sorted(partition["replicas"])
        for partition in partitions
    ), partitions
    back = klamm("plan", "rollback", plan, "--throttle", FAST, *QUICK_LOCK, "--timeout", "3", "-o", "json")
    assert back.code in (1, 2, 4, 5), (back.code, back.err)
    assert str(DEAD) in back.err + back.out, "the way back leads to a dead broker"


def test_a_move_that_would_wait_for_a_dead_broker_is_not_begun(
    four_brokers: LocalCluster, klamm: Operator, topic_name: str, tmp_path: Path
) -> None:
    """The broker beside the dead one must be emptied: the plan says what would wait, and the gate stays closed."""
    without_broker(four_brokers, klamm, topic_name, f"1:{DEAD}")
    plan = tmp_path / "plan.json"
    made = klamm("plan", "decommission", "1", "--topic", topic_name, "--out", plan, "-o", "json")
    assert (made.code, f"would wait for broker {DEAD}, which is dead" in made.err) == (0, True), made.err
    words = ("--throttle", FAST, *QUICK_LOCK, "--stall", "1s", "-o", "json")
    stopped = klamm("plan", "apply", plan, *words)
    warning = f"{topic_name}-0 would wait for dead broker {DEAD}, which keeps its replica"
    assert (stopped.code, stopped.json["reason"], stopped.json["under_way"]) == (1, warning, []), stopped.err
    assert klamm.replicas(topic_name) == [[1, DEAD]]


def test_a_run_that_waits_for_a_dead_broker_must_end_before_it_can_be_rolled_back(
    four_brokers: LocalCluster, capsys: Capture, topic_name: str, tmp_path: Path
) -> None:
    wire = Operator(capsys, "--bootstrap-server", four_brokers.bootstrap_servers)
    if DEAD not in {broker["id"] for broker in wire("brokers", "list", "-o", "json").json}:
        four_brokers.start_broker(DEAD)
        four_brokers.wait_until_serving()
    filled(wire, topic_name, "0:1")
    plan = made_plan(wire, tmp_path, topic_name, [DEAD, 1])
    with Room(tmp_path / "room", wire.where).start("plan", "apply", plan, "--throttle", SLOW, *QUICK_LOCK) as running:
        try:
            wait_for(lambda: topic_name in wire("reassign", "list").out)
            kill_for_good(four_brokers, DEAD)
            wait_for(lambda: f"waits for dead broker {DEAD}" in wire("plan", "verify", plan).out)
            verified = wire("plan", "verify", plan)
            rollback = f"klamm plan rollback {plan} {' '.join(wire.where)}"
            (advice,) = [line for line in verified.err.splitlines() if "to stop it" in line]
            assert re.search(rf"; to stop it: end the run of \S+ \(pid {running.pid}\), then: {rollback}$", advice), (
                advice
            )
            assert wire("plan", "rollback", plan, *QUICK_LOCK, "--lock-timeout", "1s").code == 4
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=WAIT_S)
        finally:
            running.kill()
    assert wire("plan", "verify", plan).err.splitlines()[-1].endswith(f"; to stop it: {rollback}")
    both = Operator(capsys, *wire.where, "--zookeeper", four_brokers.zookeeper_connect)
    undone = wire("plan", "rollback", plan, *QUICK_LOCK)
    assert (undone.code, wire.replicas(topic_name)) == (0, [[0, 1]]), undone.err
    # Only ZooKeeper has the throttle of a dead broker, and other tests look at it.
    rates = "leader.replication.throttled.rate,follower.replication.throttled.rate"
    alter = ("configs", "alter", "--broker", str(DEAD), "--delete-config", rates, "--via", "zookeeper", "--yes")
    assert both(*alter).code == 0


@pytest.mark.parametrize(
    "words", [("rebalance", "--keep-dead"), ("expand", "2"), ("leaders",)], ids=["rebalance", "expand", "leaders"]
)
def test_replicas_of_a_dead_broker_that_stay_are_not_waited_for(
    four_brokers: LocalCluster, klamm: Operator, topic_name: str, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Each partition of the dead broker keeps it in its list, outside its ISR; all else is levelled around it."""
    without_broker(four_brokers, klamm, topic_name, f"{DEAD}:1,1:{DEAD},0:1,0:1,0:1,0:1,1:0,0:{DEAD}")
    plan = tmp_path / "plan.json"
    assert klamm("plan", *words, "--topic", topic_name, "--out", plan, "-o", "json").code == 0
    partitions = json.loads(plan.read_text())["partitions"]
    assert partitions
    applied(klamm, plan)
    by_number = {partition["partition"]: partition for partition in klamm.partitions(topic_name)}
    for partition in partitions:
        assert by_number[partition["partition"]]["replicas"] == partition["replicas"]
    kept = [number for number, partition in by_number.items() if DEAD in partition["replicas"]]
    assert kept == [0, 1, 7]
    assert all(
        sorted(partition["isr"]) == sorted({*partition["replicas"]} - {DEAD}) for partition in by_number.values()
    ), by_number


def test_settings_of_a_dead_broker_are_found_and_removed(
    four_brokers: LocalCluster, capsys: Capture, topic_name: str, tmp_path: Path
) -> None:
    """A throttle on a dead broker slows it down when it returns; each message says how to get at it."""
    wire = Operator(capsys, "--bootstrap-server", four_brokers.bootstrap_servers)
    both = Operator(capsys, *wire.where, "--zookeeper", four_brokers.zookeeper_connect)
    without_broker(four_brokers, wire, topic_name, f"1:{DEAD}")
    rate = "leader.replication.throttled.rate"
    of_dead = ("configs", "alter", "--broker", str(DEAD), "--add-config", f"{rate}=70000", "--yes")
    hint = "the settings of a dead broker are in ZooKeeper: "
    for ran in (wire(*of_dead), wire("configs", "describe", "--broker", str(DEAD))):
        assert (ran.code, f"{hint}--zookeeper HOST:PORT" in ran.err) == (2, True), ran.err
    assert f"{hint}--via zookeeper" in both(*of_dead).err
    nothing = both("configs", "describe", "--broker", str(DEAD), "-o", "json")
    assert (nothing.code, nothing.json["configs"]) == (0, [])
    assert f"broker {DEAD} is dead" in nothing.err
    assert both("configs", "describe", "--broker", "9").code == 2
    assert both(*of_dead, "--via", "zookeeper").code == 0
    assert both("configs", "describe", "--broker", str(DEAD), "--via", "zookeeper", "-o", "json").code == 0

    sick = both("cluster", "health", "-o", "json").json
    (leaked,) = (reason for reason in sick["reasons"] if reason["check"] == "leaked_throttles")
    assert leaked["examples"] == [f"broker {DEAD}, dead: {rate}=70000"]
    assert f"broker {DEAD} keeps {rate}=70000" in both("reassign", "verify", "--all").err, "the same, everywhere"
    program, *words = shlex.split(leaked["advice"])
    assert program == "klamm"
    pasted = Operator(capsys)(*words, "--yes")
    assert pasted.code == 0, pasted.err
    assert "leaked_throttles" not in both("cluster", "health", "-o", "json").out

    plan = tmp_path / "plan.json"
    for broker, message in ((DEAD, f"broker {DEAD} is dead, and gets no replica"), (9, "unknown broker id 9")):
        move = {"topic": topic_name, "partition": 0, "replicas": [1, broker]}
        if broker == DEAD:
            assert wire("topics", "create", f"{topic_name}-2", "--replica-assignment", "1:2").code == 0
            move["topic"] = f"{topic_name}-2"
        plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
        for klamm in (wire, both):
            refused = klamm("reassign", "execute", "--reassignment-json-file", plan, "--yes")
            assert (refused.code, message in refused.err) == (2, True), refused.err
