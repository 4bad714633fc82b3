"""Plans applied while klamm, a broker or ZooKeeper fails: killed after every step, and in the middle of a wave."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from applied_plans import FAST, QUICK_LOCK, WAIT_S, Room, made_plan, nothing_is_left, plan_cluster
from operated_cluster import Capture, filled
from operated_cluster import Klamm as Operator
from patience import wait_for

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.groups.group_reading import find_coordinators
from engine.admin.reassignment.journal import read_journal
from engine.admin.reassignment.lock_by_group import GROUP
from engine.admin.reassignment.wave_progress import Step
from engine.kafka.protocol.apis.describe_groups import DescribeGroupsRequest
from engine.kafka.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from engine.local.cluster import LocalCluster

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with plan_cluster(tmp_path_factory.mktemp("applied")) as cluster:
        yield cluster


def test_killed_after_every_step_another_machine_goes_on(
    three_brokers: LocalCluster, by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    """A complete run gives the steps. After each of them a run is killed with -9.

    Plans move replicas there and back in turns. Every other time the second machine knows only ZooKeeper. Sometimes it
    waits until the dead operator's lock expires; otherwise somebody ends that session at once.
    """
    filled(by_wire, topic_name, "0:1,0:1", records=1000)
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
            asyncio.run(end_lock_session(three_brokers))
        second = by_znodes if after % 4 > 1 else by_wire
        went_on = second("plan", "resume", copied, *words, "-o", "json")
        assert went_on.code == 0, (steps[after - 1], went_on.err)
        assert by_znodes.replicas(topic_name) == target, steps[after - 1]
        assert by_znodes.leaders(topic_name) == [each[0] for each in target], steps[after - 1]
        nothing_is_left(by_znodes, topic_name)
    assert by_wire("replicas", "verify", "--topic", topic_name).code == 0
    print(f"killed with -9 after each of {len(steps)} steps: {', '.join(steps)}")


async def end_lock_session(three_brokers: LocalCluster) -> None:
    """Let the members of the lock's group leave it, as the coordinator does when they have been silent for long."""
    servers = (address.split(":") for address in three_brokers.bootstrap_servers.split(","))
    addresses = [(host, int(port)) for host, port in servers]
    async with Cluster(ClusterTarget("c", Origin.OPTIONS, bootstrap=tuple(addresses))) as cluster:
        wire = await cluster.wire()
        home = (await find_coordinators(wire, [GROUP]))[GROUP]
        assert isinstance(home, int)
        answer = await wire.call_broker(home, DescribeGroupsRequest(groups=[GROUP]))
        left = [MemberIdentity(member_id=member.member_id) for member in answer.groups[0].members]
        await wire.call_broker(home, LeaveGroupRequest(group_id=GROUP, members=left))


def the_journal_tells_the_truth(path: Path, steps: Sequence[str]) -> None:
    """Check that the journal has everything that was reported as done, and at most one more step."""
    events = [event["event"] for event in read_journal(path).events]
    for event, step in (("begun", "saved"), ("wave", "wave_begun"), ("wave_done", "wave_done"), ("done", "ended")):
        assert events.count(event) == sum(line.startswith(f"{step} ") for line in steps), (event, steps)


@pytest.mark.parametrize("victim", ["target", "controller", "source"])
def test_a_broker_is_killed_in_the_middle_of_a_wave(
    three_brokers: LocalCluster, by_znodes: Operator, topic_name: str, tmp_path: Path, capsys: Capture, victim: str
) -> None:
    """Whoever dies, no record is lost. Resuming the plan does what it could not do before."""
    wire, zookeeper = three_brokers.bootstrap_servers, three_brokers.zookeeper_connect
    both = Operator(capsys, "--bootstrap-server", wire, "--zookeeper", zookeeper)
    controller = int(json.loads(by_znodes("cluster", "describe", "-o", "json").out)["controller_id"])
    target, source, third = (controller + 1) % 3, (controller + 2) % 3, controller
    dies = {"target": target, "controller": controller, "source": source}[victim]
    filled(both, topic_name, f"{source}:{third}")
    plan = made_plan(both, tmp_path, topic_name, [source, target])
    room = Room(tmp_path / "first", both.where)
    words = ("--throttle", "500k", "--stall", "4s", *QUICK_LOCK, "-o", "json")
    with room.start("plan", "apply", plan, *words) as running:
        try:
            wait_for(lambda: topic_name in by_znodes("reassign", "list").out)
            three_brokers.kill_broker(dies)
            out, said = running.communicate(timeout=WAIT_S)
        finally:
            running.kill()
            three_brokers.start_broker(dies)
    assert running.returncode in (0, 1), (said, out)
    if victim == "target":
        assert running.returncode == 1 and "the copy has stalled" in json.loads(out)["reason"], (said, out)
    wait_for(lambda: both("cluster", "health").code == 0)
    went_on = both("plan", "resume", plan, "--throttle", FAST, *QUICK_LOCK)
    assert went_on.code == 0, went_on.err
    assert by_znodes.replicas(topic_name) == [[source, target]]
    nothing_is_left(by_znodes, topic_name)
    compared = both("replicas", "verify", "--topic", topic_name, "-o", "json")
    assert (compared.code, compared.json[0]["to_offset"]) == (0, 3000), compared.out


def test_zookeeper_stands_still_in_the_middle_of_a_wave(
    three_brokers: LocalCluster, by_wire: Operator, by_znodes: Operator, topic_name: str, tmp_path: Path
) -> None:
    filled(by_wire, topic_name, "0:1")
    plan = made_plan(by_wire, tmp_path, topic_name, [0, 2])
    room = Room(tmp_path / "first", (*by_wire.where, *by_znodes.where))
    words = ("--throttle", "500k", "--lock-timeout", "2s", "-o", "json")
    with room.start("plan", "apply", plan, *words) as running:
        try:
            wait_for(lambda: topic_name in by_znodes("reassign", "list").out)
            three_brokers.zookeeper.pause()
            try:
                # Longer than the session of the lock.
                time.sleep(2.5)
            finally:
                three_brokers.zookeeper.resume()
            out, said = running.communicate(timeout=WAIT_S)
        finally:
            running.kill()
    # 5: klamm gave up while the wave was under way.
    assert running.returncode in (0, 1, 5), (out, said)
    assert running.returncode == 0 or f"klamm plan resume {plan}" in out + said
    wait_for(lambda: by_znodes("cluster", "health").code == 0)
    went_on = by_wire("plan", "resume", plan, "--throttle", FAST, *QUICK_LOCK)
    assert went_on.code == 0, went_on.err
    assert by_znodes.replicas(topic_name) == [[0, 2]]
    nothing_is_left(by_znodes, topic_name)
