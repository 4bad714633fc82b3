"""Plans on three nodes of Kafka 4 without ZooKeeper, over the wire alone: there the lock is membership in a group."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_tools import run_tool
from klamm_program import PROGRAM, Ran, environment, in_process
from kraft_cluster import KAFKA_4_VERSION, KRaftCluster
from patience import wait_for
from plan_files import write_plan

from engine.admin.reassignment.wave_progress import Step
from engine.common.model import TopicPartition
from engine.local.addresses import own_loopback_address

Capture = pytest.CaptureFixture[str]
DRIVER = Path(__file__).parents[1] / "support" / "programs" / "killed_at_step.py"
START, TARGET = [[1, 2], [1, 2]], [[1, 3], [2, 1]]
WORDS = ("--lock-timeout", "2s", "--throttle", "20M")
SLOW = ("--lock-timeout", "2s", "--throttle", "15000")
"""A throttle that makes two megabytes take longer than a test."""

pytestmark = pytest.mark.timeout(900)


class Kafka:
    """Three nodes of Kafka 4, reached over the wire."""

    def __init__(self, cluster: KRaftCluster, capture: Capture) -> None:
        self.cluster = cluster
        self.where = ("--bootstrap-server", cluster.bootstrap)
        self._capture = capture

    def __call__(self, *words: str | Path, stdin: str = "") -> Ran:
        return in_process(*words, *self.where, capture=self._capture, stdin=stdin)

    def start(self, folder: Path, *words: str | Path, kill_after: int | None = None) -> subprocess.Popen[str]:
        """Start klamm in its own process, which is killed with -9 after a step."""
        driver = [] if kill_after is None else [sys.executable, DRIVER, str(kill_after), folder / "steps"]
        return subprocess.Popen(
            [*(driver or [PROGRAM]), *map(str, words), *self.where],
            env=environment(folder),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def killed(self, folder: Path, after: int, *words: str | Path) -> list[str]:
        """Run until the kill after this step, or (0) to the end; return the steps that were done."""
        steps = folder / "steps"
        steps.unlink(missing_ok=True)
        with self.start(folder, *words, kill_after=after) as process:
            try:
                _, said = process.communicate(timeout=120)
            finally:
                process.kill()
        assert process.returncode == (-signal.SIGKILL if after else 0), said
        return steps.read_text().splitlines()

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        return list(self("topics", "describe", topic, "-o", "json").json[0]["partitions"])

    def replicas(self, topic: str) -> list[list[int]]:
        return [partition["replicas"] for partition in self.partitions(topic)]

    def throttles(self, topic: str) -> list[str]:
        entities = (("--topic", topic), ("--entity-type", "brokers"))
        settings = [self("configs", "describe", *entity, "-o", "json").json for entity in entities]
        flat = [entry for each in settings for entry in (each if isinstance(each, list) else [each])]
        return [config["name"] for entry in flat for config in entry["configs"] if "throttled" in config["name"]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KRaftCluster]:
    settings = {
        "auto.leader.rebalance.enable": "false",
        "replica.fetch.max.bytes": "65536",
        "group.min.session.timeout.ms": "1000",
        "offsets.topic.num.partitions": "1",
    }
    folder = tmp_path_factory.mktemp("plans-on-kafka-4")
    with KRaftCluster(folder, host=own_loopback_address(), overrides=settings, shares_jvm=False) as started:
        yield started


@pytest.fixture
def kafka(cluster: KRaftCluster, capsys: Capture) -> Kafka:
    return Kafka(cluster, capsys)


def made_plan(kafka: Kafka, folder: Path, topic: str, targets: list[list[int]] = TARGET) -> Path:
    folder.mkdir(exist_ok=True)
    snapshot = folder / "snapshot.json"
    snapshot.unlink(missing_ok=True)
    assert kafka("cluster", "snapshot", snapshot).code == 0
    replicas = {TopicPartition(topic, index): replicas for index, replicas in enumerate(targets)}
    return write_plan(folder / "plan.json", snapshot, replicas)


def filled(kafka: Kafka, topic: str) -> None:
    assert kafka("topics", "create", topic, "--replica-assignment", "1:2,1:2").code == 0
    for partition in ("0", "1"):
        sent = kafka("produce", topic, "--partition", partition, "--acks", "all", stdin=("x" * 999 + "\n") * 2000)
        assert sent.code == 0, sent.err


def test_a_plan_is_applied_verified_and_rolled_back(kafka: Kafka, tmp_path: Path) -> None:
    filled(kafka, "applied")
    plan = made_plan(kafka, tmp_path, "applied")
    assert kafka("plan", "check", plan).code == 0
    assert kafka("plan", "verify", plan).code == 1
    applied = kafka("plan", "apply", plan, *WORDS, "--throttle-p99", "2s", "-o", "jsonl")
    assert applied.code == 0, applied.err
    events = [json.loads(line) for line in applied.out.splitlines()]
    assert {event["event"] for event in events if "event" in event} >= set(Step) - {Step.ENDED}
    assert (kafka.replicas("applied"), [partition["leader"] for partition in kafka.partitions("applied")]) == (
        TARGET,
        [1, 2],
    )
    assert (kafka("plan", "verify", plan).code, kafka.throttles("applied")) == (0, [])
    status = kafka("plan", "status", plan, "-o", "json").json
    assert (status["done"], status["lock"], status["journal"]["event"]) == (2, None, "done")
    undone = kafka("plan", "rollback", plan, *WORDS)
    assert undone.code == 0, undone.err
    assert (kafka.replicas("applied"), kafka.throttles("applied")) == (START, [])
    compared = kafka("replicas", "verify", "--topic", "applied", "-o", "json")
    assert (compared.code, [row["to_offset"] for row in compared.json]) == (0, [2000, 2000])


def test_killed_after_every_step_another_machine_goes_on(kafka: Kafka, tmp_path: Path) -> None:
    """Plans move replicas there and back in turns. The second machine has the plan file and nothing else.

    The test kills klamm once after each kind of step, when it first occurs.
    """
    filled(kafka, "killed")
    there = made_plan(kafka, tmp_path / "there", "killed")
    steps = kafka.killed(tmp_path / "there", 0, "plan", "apply", there, *WORDS)
    assert {line.split()[0] for line in steps} == set(Step), "every step is killed after once"
    back = made_plan(kafka, tmp_path / "back", "killed", START)
    names = [line.split()[0] for line in steps]
    firsts = [names.index(name) + 1 for name in dict.fromkeys(names)]
    for number, after in enumerate(firsts):
        plan, target = (there, TARGET) if number % 2 else (back, START)
        for left in plan.parent.glob("plan.json.*"):
            left.unlink()
        assert kafka.killed(plan.parent, after, "plan", "apply", plan, *WORDS) == steps[:after]
        machine = tmp_path / f"machine-{after}"
        machine.mkdir()
        copied = machine / "plan.json"
        copied.write_bytes(plan.read_bytes())
        went_on = kafka("plan", "resume", copied, *WORDS)
        assert went_on.code == 0, (steps[after - 1], went_on.err)
        assert (kafka.replicas("killed"), kafka.throttles("killed")) == (target, []), steps[after - 1]
    assert kafka("replicas", "verify", "--topic", "killed").code == 0


def test_one_operator_at_a_time(kafka: Kafka, tmp_path: Path) -> None:
    filled(kafka, "locked")
    plan = made_plan(kafka, tmp_path, "locked")
    with kafka.start(tmp_path, "plan", "apply", plan, *SLOW) as running:
        try:
            wait_for(lambda: "locked" in kafka("reassign", "list").out)
            refused = kafka("plan", "resume", plan, "--journal", tmp_path / "other", *WORDS)
            assert (refused.code, f"(pid {running.pid}) since 20" in refused.err) == (4, True), refused.err
            holder = kafka("plan", "status", plan, "-o", "json").json["lock"]
            assert (f"(pid {running.pid})" in holder["who"], holder["what"]) == (True, "apply plan.json")
            assert kafka("plan", "verify", plan).code == 5
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=120)
        finally:
            running.kill()
    assert (running.returncode, f"go on with: klamm plan resume {plan}" in said) == (130, True), said
    undone = kafka("plan", "rollback", plan, *WORDS)
    assert undone.code == 0, undone.err
    assert (kafka.replicas("locked"), kafka.throttles("locked")) == (START, [])


def test_kafkas_own_tool_takes_the_plan_file(kafka: Kafka, tmp_path: Path) -> None:
    filled(kafka, "theirs")
    plan = made_plan(kafka, tmp_path, "theirs")

    def tool(*words: str) -> str:
        ran = run_tool(
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            *kafka.where, "--reassignment-json-file", str(plan), *words, version=KAFKA_4_VERSION,
        )  # fmt: skip
        return ran.stdout + ran.stderr

    assert "Successfully started partition reassignments for theirs-0,theirs-1" in tool("--execute")
    assert kafka("plan", "resume", plan, *WORDS).code == 0
    assert tool("--verify").count("is completed") == 2


@pytest.mark.parametrize("victim", ["target", "controller", "source"])
def test_a_node_is_killed_in_the_middle_of_a_wave(kafka: Kafka, tmp_path: Path, victim: str) -> None:
    """Whoever dies, no record is lost. Resuming the plan does what it could not do before."""
    topic = f"dies-{victim}"
    controller = kafka.cluster.active_controller()
    target, source = (node_id for node_id in sorted(kafka.cluster.node_ids) if node_id != controller)
    dies = kafka.cluster.node({"target": target, "controller": controller, "source": source}[victim])
    assert kafka("topics", "create", topic, "--replica-assignment", f"{source}:{controller}").code == 0
    assert kafka("produce", topic, "--acks", "all", stdin=("x" * 999 + "\n") * 3000).code == 0
    plan = made_plan(kafka, tmp_path, topic, [[source, target]])
    words = ("--lock-timeout", "2s", "--throttle", "300k", "--stall", "4s", "-o", "json")
    with kafka.start(tmp_path, "plan", "apply", plan, *words) as running:
        try:
            wait_for(lambda: topic in kafka("reassign", "list").out)
            dies.kill()
            out, said = running.communicate(timeout=180)
        finally:
            running.kill()
            dies.start()
    kafka.cluster.wait_until_up()
    assert running.returncode in (0, 1), (said, out)
    if victim == "target":
        assert (running.returncode, "the copy has stalled" in json.loads(out)["reason"]) == (1, True), (said, out)
    wait_for(lambda: kafka("cluster", "health").code == 0)
    went_on = kafka("plan", "resume", plan, *WORDS)
    assert went_on.code == 0, went_on.err
    assert (kafka.replicas(topic), kafka.throttles(topic)) == ([[source, target]], [])
    compared = kafka("replicas", "verify", "--topic", topic, "-o", "json")
    assert (compared.code, compared.json[0]["to_offset"]) == (0, 3000), compared.out
