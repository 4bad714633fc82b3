"""Plans carried out on three living brokers: wave by wave, killed after every step, by two operators at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from klamm_program import PROGRAM, Ran, environment
from operated_cluster import Capture, filled
from operated_cluster import Klamm as Operator
from plan_files import write_plan

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.groups.group_reading import find_coordinators
from engine.admin.reassignment.journal import read_journal
from engine.admin.reassignment.lock import operator_lock, read_holder
from engine.admin.reassignment.lock_by_group import GROUP
from engine.admin.reassignment.lock_holder import Holder, LockHeld
from engine.admin.reassignment.wave_values import Step
from engine.common.model import TopicPartition
from engine.local.cluster import LocalCluster
from engine.protocol.apis.describe_groups import DescribeGroupsRequest
from engine.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity

WAIT_S = 120.0

pytestmark = pytest.mark.timeout(900)
DRIVER = Path(__file__).parents[1] / "support" / "killed_at_step.py"
QUICK_LOCK = ("--lock-timeout", "3s")
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
    with LocalCluster(3, directory=folder, config=settings, racks=["a", "b", "c"], log_dir_count=2) as cluster:
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
    """The steps are those that a whole run tells; after each of them a run is killed with -9.

    Plans lead there and back in turns. Every other time the second machine knows ZooKeeper only. Now and then it waits
    until the lock of the dead ends by itself; else somebody ends its session at once.
    """
    filled(by_wire, topic_name, "0:1,0:1")
    there, here = [[0, 2], [1, 0]], [[0, 1], [0, 1]]
    forth = made_plan(by_wire, tmp_path, topic_name, *there)
    first = Room(tmp_path / "first", by_wire.where)
    first.folder.mkdir()
    words = ("--throttle", FAST, *QUICK_LOCK)
    whole, steps = first.killed(0, "plan", "apply", forth, *words)
    assert whole.code == 0, whole.err
    assert {line.split()[0] for line in steps} == set(Step), "every step is killed after once"
    back = made_plan(by_wire, tmp_path / "first", topic_name, *here)

    for after in range(1, len(steps) + 1):
        plan, target = (back, here) if after % 2 else (forth, there)
        machine = tmp_path / f"machine-{after}"
        machine.mkdir()
        for left in (*plan.parent.glob("plan.json.*"), first.folder / "steps"):
            left.unlink(missing_ok=True)
        killed, done = first.killed(after, "plan", "apply", plan, *words)
        assert (killed.code, done) == (-signal.SIGKILL, steps[:after]), killed.err
        if after > 1:
            the_journal_tells_the_truth(plan.with_name("plan.json.journal"), done)

        copied = machine / "plan.json"
        copied.write_bytes(plan.read_bytes())
        if after % 6:
            asyncio.run(end_lock_session(brokers))
        second = by_znodes if after % 4 > 1 else by_wire
        went_on = second("plan", "resume", copied, *words, "-o", "json")
        assert went_on.code == 0, (steps[after - 1], went_on.err)
        assert by_znodes.replicas(topic_name) == target, steps[after - 1]
        assert by_znodes.leaders(topic_name) == [one[0] for one in target], steps[after - 1]
        nothing_is_left(by_znodes, topic_name)
    assert by_wire("replicas", "verify", "--topic", topic_name).code == 0


async def end_lock_session(brokers: LocalCluster) -> None:
    """Let the members of the lock's group leave it, as the coordinator does when it has not heard of them for long."""
    addresses = [(host, int(port)) for host, port in (one.split(":") for one in brokers.bootstrap_servers.split(","))]
    async with Cluster(ClusterTarget("c", Origin.OPTIONS, bootstrap=tuple(addresses))) as cluster:
        wire = await cluster.wire()
        home = (await find_coordinators(wire, [GROUP]))[GROUP]
        assert isinstance(home, int)
        answer = await wire.call_broker(home, DescribeGroupsRequest(groups=[GROUP]))
        left = [MemberIdentity(member_id=one.member_id) for one in answer.groups[0].members]
        await wire.call_broker(home, LeaveGroupRequest(group_id=GROUP, members=left))


def the_journal_tells_the_truth(path: Path, steps: Sequence[str]) -> None:
    """What is told as done is in the journal; one more thing may stand there that was about to be told."""
    told = [event["event"] for event in read_journal(path).events]
    for event, step in (("begun", "saved"), ("wave", "wave_begun"), ("wave_done", "wave_done"), ("done", "ended")):
        assert told.count(event) == sum(line.startswith(f"{step} ") for line in steps), (event, steps)


def test_one_operator_at_a_time_and_an_interrupt_says_what_is_left(
    brokers: LocalCluster, by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1")
    plan = made_plan(by_wire, tmp_path, topic_name, [2, 1])
    first = Room(tmp_path / "first", (*by_wire.where, *by_znodes.where))
    with first.start("plan", "apply", plan, "--throttle", SLOW, *QUICK_LOCK) as running:
        try:
            wait_until(lambda: topic_name in by_znodes("reassign", "list").out)
            for second in (by_wire, by_znodes):
                refused = second("plan", "resume", plan, "--journal", tmp_path / "other", *QUICK_LOCK)
                assert refused.code == 4, refused.err
                assert f"another operator carries out a plan: {os.environ.get('USER', '')}" in refused.err
                assert f"(pid {running.pid}) since 20" in refused.err
                holder = second("plan", "status", plan, "-o", "json").json["lock"]
                assert (f"(pid {running.pid})" in holder["who"], holder["what"]) == (True, "apply plan.json")
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=WAIT_S)
        finally:
            running.kill()
    assert running.returncode == 130, said
    assert f"what copies keeps its throttle until a plan command ends it; go on with: klamm plan resume {plan}" in said
    assert read_journal(plan.with_name("plan.json.journal")).last["reason"] == "interrupted"
    assert by_wire("plan", "status", plan, "-o", "json").json["lock"] is None, "the lock was given back"
    # The copy goes on, and only what copies is throttled.
    assert by_wire("plan", "verify", plan).code == 5
    assert by_znodes.settings("--broker", "2")["follower.replication.throttled.rate"] == SLOW
    begun = by_wire("plan", "apply", plan, *QUICK_LOCK)
    assert (begun.code, "klamm plan resume" in begun.err) == (2, True), begun.err
    undone = by_wire("plan", "rollback", plan, "--throttle", FAST, *QUICK_LOCK)
    assert undone.code == 0, undone.err
    assert by_znodes.replicas(topic_name) == [[0, 1]]
    nothing_is_left(by_znodes, topic_name)


def test_a_replica_goes_to_another_log_dir_and_back(by_wire: Operator, topic_name: str, tmp_path: Path) -> None:
    filled(by_wire, topic_name, "0:1")

    def place() -> tuple[str, str]:
        """Return the log dir of the replica on broker 0, and the other one."""
        dirs = by_wire("brokers", "log-dirs", "--broker-list", "0", "-o", "json").json
        (here,) = {one["log_dir"] for one in dirs if any(r["topic"] == topic_name for r in one["replicas"])}
        return here, next(one["log_dir"] for one in dirs if one["log_dir"] != here)

    here, other = place()
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 1])
    document = json.loads(plan.read_text())
    document["partitions"][0]["log_dirs"] = [other, "any"]
    document["klamm"]["rollback"][0]["log_dirs"] = [here, "any"]
    document["klamm"]["score"]["moves"] = 1
    plan.write_text(json.dumps(document))
    assert by_wire("plan", "check", plan).code == 0
    applied = by_wire("plan", "apply", plan, "--throttle", FAST, *QUICK_LOCK, "-o", "json")
    assert (applied.code, applied.json["done"]) == (0, 1), applied.err
    assert place() == (other, here)
    back = json.loads((tmp_path / "plan.json.rollback.json").read_text())
    assert back["partitions"][0]["log_dirs"] == [here, "any"]
    undone = by_wire("plan", "rollback", plan, *QUICK_LOCK)
    assert undone.code == 0, undone.err
    assert place() == (here, other)
    nothing_is_left(by_wire, topic_name)


def test_bad_files_and_other_clusters_change_nothing(by_wire: Operator, topic_name: str, tmp_path: Path) -> None:
    assert by_wire("topics", "create", topic_name, "--replica-assignment", "0:1").code == 0
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 2])
    good, journal = plan.read_text(), plan.with_name("plan.json.journal")
    for changed, told in (
        (good.replace('"cluster_id": "', '"cluster_id": "x'), "this plan is one of cluster x"),
        (good.replace('"replicas": [0, 2]', '"replicas": [0, 9]'), "shall go to broker 9, which is not alive"),
        (good.replace(topic_name, f"{topic_name}-gone"), f"{topic_name}-gone-0 does not exist any more"),
    ):
        plan.write_text(changed)
        refused = by_wire("plan", "apply", plan, *QUICK_LOCK)
        assert (refused.code, told in refused.err) == (1, True), refused.err
    plan.write_text(good)
    journal.write_text('{"event": "journal", "format": 1, "plan": "another"}\n')
    of_another = by_wire("plan", "apply", plan, *QUICK_LOCK)
    assert (of_another.code, "the journal belongs to another plan" in of_another.err) == (2, True), of_another.err
    journal.write_text("{broken\n")
    damaged = by_wire("plan", "resume", plan, *QUICK_LOCK)
    assert (damaged.code, "the journal is damaged" in damaged.err) == (2, True), damaged.err
    assert "move it away and resume" in damaged.err
    journal.unlink()
    assert by_wire.replicas(topic_name) == [[0, 1]]
    assert by_wire("topics", "create", f"{topic_name}-new", "--replica-assignment", "0:1").code == 0
    drifted = by_wire("plan", "check", plan)
    assert (drifted.code, "its own partitions have not" in drifted.out) == (1, True)
    applied = by_wire("plan", "apply", plan, *QUICK_LOCK)
    assert (applied.code, "may not be the smallest any more" in applied.err) == (0, True), applied.err
    assert by_wire.replicas(topic_name) == [[0, 2]]


def test_of_many_who_want_the_lock_one_has_it(brokers: LocalCluster) -> None:
    """Half of them know ZooKeeper, half brokers only; all come at once, and each lets go at once."""
    wire, zookeeper = brokers.bootstrap_servers.split(","), brokers.zookeeper_connect
    addresses = tuple((host, int(port)) for host, _, port in (one.partition(":") for one in wire))
    inside: list[int] = []
    had: list[int] = []

    async def contend(number: int) -> None:
        target = ClusterTarget("c", Origin.OPTIONS, zookeeper if number % 2 else None, addresses)
        async with Cluster(target, timeout_s=20) as cluster:
            while number not in had:
                holder = Holder.myself(f"contender {number}")
                with suppress(LockHeld):
                    async with operator_lock(cluster, holder, session_timeout_s=4.0) as lock:
                        inside.append(number)
                        assert inside == [number]
                        assert (await read_holder(cluster)) == holder
                        await asyncio.sleep(0.3)
                        await lock.ensure()
                        assert inside == [number]
                        inside.remove(number)
                        had.append(number)

    async def all_at_once() -> None:
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(contend(number))

    asyncio.run(all_at_once())
    assert sorted(had) == [0, 1, 2, 3]


def test_a_passed_deadline_and_a_cancelled_copy(
    by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1")
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 2], throttle=int(SLOW))
    late = by_wire("plan", "apply", plan, *QUICK_LOCK, "--timeout", "1", "-o", "json")
    assert (late.code, late.json["reason"], late.json["under_way"]) == (
        5,
        "the deadline has passed",
        [f"{topic_name}-0"],
    )
    assert late.json["throttles_left"] == [f"the throttle of {topic_name} stays on while it copies"]
    room = Room(tmp_path / "first", by_wire.where)
    with room.start("plan", "resume", plan, *QUICK_LOCK, "-o", "json") as running:
        try:
            wait_until(lambda: by_znodes("plan", "status", plan, "-o", "json").json["lock"] is not None)
            wait_until(lambda: '"wave": 1' in plan.with_name("plan.json.journal").read_text().split('"begun"')[-1])
            assert by_wire("reassign", "cancel", "--all", "--yes", "--preserve-throttles").code == 0
            out, said = running.communicate(timeout=WAIT_S)
        finally:
            running.kill()
    assert running.returncode == 1, said
    assert json.loads(out)["reason"] == f"somebody has cancelled {topic_name}-0"
    assert by_znodes.replicas(topic_name) == [[0, 1]]
    nothing_is_left(by_znodes, topic_name)


@pytest.mark.parametrize("victim", ["target", "controller", "source"])
def test_a_broker_is_killed_in_the_middle_of_a_wave(
    brokers: LocalCluster, by_znodes: Operator, topic_name: str, tmp_path: Path, capsys: Capture, victim: str
) -> None:
    """Whoever dies: no record is lost, and what the plan could not do is done by going on with it."""
    both = Operator(capsys, "--bootstrap-server", brokers.bootstrap_servers, "--zookeeper", brokers.zookeeper_connect)
    controller = int(json.loads(by_znodes("cluster", "describe", "-o", "json").out)["controller_id"])
    target, source, third = (controller + 1) % 3, (controller + 2) % 3, controller
    dies = {"target": target, "controller": controller, "source": source}[victim]
    filled(both, topic_name, f"{source}:{third}")
    plan = made_plan(both, tmp_path, topic_name, [source, target])
    room = Room(tmp_path / "first", both.where)
    words = ("--throttle", "500k", "--stall", "4s", *QUICK_LOCK, "-o", "json")
    with room.start("plan", "apply", plan, *words) as running:
        try:
            wait_until(lambda: topic_name in by_znodes("reassign", "list").out)
            brokers.kill_broker(dies)
            out, said = running.communicate(timeout=WAIT_S)
        finally:
            running.kill()
            brokers.start_broker(dies)
    assert running.returncode in (0, 1), (said, out)
    if victim == "target":
        assert running.returncode == 1 and "the copy has stalled" in json.loads(out)["reason"], (said, out)
    wait_until(lambda: both("cluster", "health").code == 0)
    went_on = both("plan", "resume", plan, "--throttle", FAST, *QUICK_LOCK)
    assert went_on.code == 0, went_on.err
    assert by_znodes.replicas(topic_name) == [[source, target]]
    nothing_is_left(by_znodes, topic_name)
    compared = both("replicas", "verify", "--topic", topic_name, "-o", "json")
    assert (compared.code, compared.json[0]["to_offset"]) == (0, 3000), compared.out


def test_zookeeper_stands_still_in_the_middle_of_a_wave(
    brokers: LocalCluster, by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1")
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 2])
    room = Room(tmp_path / "first", (*by_wire.where, *by_znodes.where))
    words = ("--throttle", "500k", *QUICK_LOCK, "-o", "json")
    with room.start("plan", "apply", plan, *words) as running:
        try:
            wait_until(lambda: topic_name in by_znodes("reassign", "list").out)
            brokers.zookeeper.pause()
            try:
                # Longer than the session of the lock.
                time.sleep(2.5)
            finally:
                brokers.zookeeper.resume()
            out, said = running.communicate(timeout=WAIT_S)
        finally:
            running.kill()
    assert running.returncode in (0, 1, 3), (out, said)
    wait_until(lambda: by_znodes("cluster", "health").code == 0)
    went_on = by_wire("plan", "resume", plan, "--throttle", FAST, *QUICK_LOCK)
    assert went_on.code == 0, went_on.err
    assert by_znodes.replicas(topic_name) == [[0, 2]]
    nothing_is_left(by_znodes, topic_name)


def test_an_empty_plan_is_done_at_once(by_wire: Operator, topic_name: str, tmp_path: Path) -> None:
    assert by_wire("topics", "create", topic_name, "--replica-assignment", "0:1").code == 0
    plan = made_plan(by_wire, tmp_path, topic_name)
    applied = by_wire("plan", "apply", plan)
    assert (applied.code, "nothing to move" in applied.err) == (0, True), applied.err
    assert not plan.with_name("plan.json.journal").exists()
    assert by_wire("plan", "verify", plan).code == 0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
