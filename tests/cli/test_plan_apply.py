"""Plans carried out on three living brokers: wave by wave, killed after every step, by two operators at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from klamm_program import PROGRAM, Ran, environment, in_process
from operated_cluster import Capture, filled
from operated_cluster import Klamm as Operator
from plan_files import write_plan

from engine.admin.reassignment.journal import read_journal
from engine.common.model import TopicPartition
from engine.local.cluster import LocalCluster

WAIT_S = 60.0
DRIVER = Path(__file__).parents[1] / "support" / "killed_at_step.py"
QUICK_LOCK = ("--lock-timeout", "1s")
FAST = "50M"
SLOW = "15000"
"""A throttle under which three megabytes take much longer than a test."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
        "controlled.shutdown.retry.backoff.ms": "100",
        "replica.fetch.max.bytes": "65536",
        # The lock of plans outlives a killed operator by its session time-out.
        "group.min.session.timeout.ms": "1000",
    }
    folder = tmp_path_factory.mktemp("applied")
    with LocalCluster(3, directory=folder, config=settings, racks=["a", "b", "c"]) as cluster:
        yield cluster


@dataclass
class Room:
    """One operator's machine: a home and a folder of its own, on one side of the cluster."""

    folder: Path
    where: tuple[str, ...]

    def start(self, *words: str | Path, program: Sequence[str | Path] = (PROGRAM,)) -> subprocess.Popen[str]:
        self.folder.mkdir(exist_ok=True)
        return subprocess.Popen(
            [*program, *map(str, words), *self.where],
            cwd=self.folder,
            env=environment(self.folder, HOME=str(self.folder), PYTHONPATH=str(DRIVER.parents[2])),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str | Path, program: Sequence[str | Path] = (PROGRAM,)) -> Ran:
        with self.start(*words, program=program) as process:
            try:
                out, err = process.communicate(timeout=WAIT_S)
            finally:
                process.kill()
        return Ran(process.returncode, out, err)

    def killed(self, after: int, *words: str | Path) -> tuple[Ran, list[str]]:
        """Run until the kill after this step; return the steps that were done."""
        steps = self.folder / "steps"
        steps.unlink(missing_ok=True)
        ran = self.run(*words, program=(sys.executable, DRIVER, str(after), steps))
        return ran, steps.read_text(encoding="utf-8").split("\n")[:-1] if steps.exists() else []


@pytest.fixture
def by_wire(brokers: LocalCluster, capsys: Capture) -> Operator:
    return Operator(capsys, "--bootstrap-server", brokers.bootstrap_servers)


@pytest.fixture
def by_znodes(brokers: LocalCluster, capsys: Capture) -> Operator:
    return Operator(capsys, "--zookeeper", brokers.zookeeper_connect)


def made_plan(klamm: Operator, folder: Path, topic: str, *targets: Sequence[int], throttle: int | None = None) -> Path:
    snapshot = folder / "snapshot.json"
    snapshot.unlink(missing_ok=True)
    assert klamm("cluster", "snapshot", snapshot).code == 0
    replicas = {TopicPartition(topic, index): one for index, one in enumerate(targets)}
    return write_plan(folder / "plan.json", snapshot, replicas, throttle=throttle)


def nothing_is_left(by_znodes: Operator, topic: str) -> None:
    """No throttle, no lock, no reassignment."""
    assert by_znodes.settings("--topic", topic) == {}
    for broker in range(3):
        assert by_znodes.settings("--broker", str(broker)) == {}
    assert topic not in by_znodes("reassign", "list").out


def test_a_plan_is_applied_in_waves_and_rolled_back(
    by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1,1:0,0:1")
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 2], [2, 0], [1, 0])
    would = by_wire("plan", "apply", plan, "--wave-replicas", "1", "--dry-run", "-o", "json")
    assert (would.code, [(one["wave"], one["partition"]) for one in would.json]) == (0, [(1, 0), (2, 1), (3, 2)])
    assert not list(tmp_path.glob("plan.json.*"))

    done = by_wire("plan", "apply", plan, "--wave-replicas", "1", "--throttle", FAST, *QUICK_LOCK, "-o", "jsonl")
    assert done.code == 0, done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [one["wave"] for one in events if one.get("event") == "wave_done"] == [1, 2, 3]
    assert (events[-1]["outcome"], events[-1]["done"], events[-1]["partitions"]) == ("done", 3, 3)
    assert by_znodes.replicas(topic_name) == [[0, 2], [2, 0], [1, 0]]
    assert by_znodes.leaders(topic_name) == [0, 2, 1]
    nothing_is_left(by_znodes, topic_name)
    assert by_wire("plan", "verify", plan).code == 0
    status = by_wire("plan", "status", plan, "-o", "json").json
    assert (status["done"], status["waiting"], status["lock"], status["journal"]["event"]) == (3, 0, None, "done")
    back = json.loads((tmp_path / "plan.json.rollback.json").read_text())
    assert [one["replicas"] for one in back["partitions"]] == [[0, 1], [1, 0], [0, 1]]

    again = by_wire("plan", "apply", plan, *QUICK_LOCK)
    assert (again.code, "has the replicas of the plan already" in again.err) == (1, True), again.err
    undone = by_wire("plan", "rollback", plan, *QUICK_LOCK)
    assert undone.code == 0, undone.err
    assert by_znodes.replicas(topic_name) == [[0, 1], [1, 0], [0, 1]]
    assert by_znodes.leaders(topic_name) == [0, 1, 0]
    assert by_wire("plan", "verify", plan).code == 1
    nothing_is_left(by_znodes, topic_name)


def test_killed_after_every_step_another_machine_goes_on(
    brokers: LocalCluster, by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    """The steps are those that a whole run tells; after each of them the run is killed with -9."""
    filled(by_wire, topic_name, "0:1,1:0")
    start, target = [[0, 1], [1, 0]], [[0, 2], [2, 0]]
    plan = made_plan(by_wire, tmp_path, topic_name, *target)
    first = Room(tmp_path / "first", by_wire.where)
    first.folder.mkdir()
    words = ("--wave-replicas", "1", "--throttle", FAST, *QUICK_LOCK)
    whole, steps = first.killed(0, "plan", "apply", plan, *words)
    assert whole.returncode == 0 if hasattr(whole, "returncode") else whole.code == 0, whole.err
    assert steps[0] == "locked 0" and steps[-1] == "ended 2"

    for after in range(1, len(steps) + 1):
        assert by_wire("plan", "rollback", plan, "--throttle", FAST, *QUICK_LOCK).code == 0
        assert by_znodes.replicas(topic_name) == start
        for left in tmp_path.glob("plan.json.*"):
            left.unlink()
        killed, done = first.killed(after, "plan", "apply", plan, *words)
        assert (killed.code, done) == (-signal.SIGKILL, steps[:after]), killed.err
        journal = plan.with_name("plan.json.journal")
        if after > 1:
            told = [event["event"] for event in read_journal(journal).events]
            assert told.count("wave_done") == sum(one.startswith("wave_done") for one in done)
            assert told.count("wave") >= sum(one.startswith("wave_begun") for one in done)

        machine = tmp_path / f"machine-{after}"
        machine.mkdir()
        (machine / "plan.json").write_bytes(plan.read_bytes())
        second = Room(machine, by_wire.where)
        went_on = second.run("plan", "resume", machine / "plan.json", *words, "-o", "json")
        assert went_on.code == 0, (steps[after - 1], went_on.err)
        assert by_znodes.replicas(topic_name) == target, steps[after - 1]
        assert by_znodes.leaders(topic_name) == [0, 2], steps[after - 1]
        nothing_is_left(by_znodes, topic_name)
    assert by_wire("replicas", "verify", "--topic", topic_name).code == 0
