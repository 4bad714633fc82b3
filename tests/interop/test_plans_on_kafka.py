"""Plans on three Kafka brokers: applied in waves, rolled back, resumed after klamm or a broker was killed.

Kafka's own tool accepts the file.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import ApacheKafkaBroker, wait_until_all_know_each_other
from kafka_cluster import kafka_cluster
from kafka_tools import run_tool
from kazoo.client import KazooClient
from klamm_program import PROGRAM, Ran, environment, in_process
from patience import wait_for
from plan_files import write_plan

from engine.admin.reassignment.journal import read_journal
from engine.admin.reassignment.wave_progress import Step
from engine.common.model import TopicPartition
from engine.local.zookeeper import EmbeddedZooKeeper

Capture = pytest.CaptureFixture[str]
DRIVER = Path(__file__).parents[1] / "support" / "programs" / "killed_at_step.py"
START, TARGET = [[0, 1], [0, 1]], [[0, 2], [1, 0]]
WORDS = ("--lock-timeout", "1s", "--throttle", "20M")
SLOW = ("--lock-timeout", "2s", "--throttle", "15000")
"""A throttle that makes two megabytes take longer than a test."""


@dataclass
class Servers:
    """Three Kafka brokers and their ZooKeeper."""

    brokers: Sequence[ApacheKafkaBroker]
    server: EmbeddedZooKeeper

    @property
    def zookeeper(self) -> str:
        return self.server.connect_string

    def kill(self, broker_id: int) -> None:
        """Kill a broker and end its session, as ZooKeeper does half a minute later."""
        self.brokers[broker_id].kill()
        client = KazooClient(self.zookeeper)
        client.start()
        try:
            is_controller = json.loads(client.get("/controller")[0])["brokerid"] == broker_id
            for path in (f"/brokers/ids/{broker_id}", *(["/controller"] if is_controller else [])):
                client.delete(path)
        finally:
            client.stop()
            client.close()

    def start(self, broker_id: int) -> None:
        self.brokers[broker_id].start()
        wait_until_all_know_each_other(self.brokers)


@dataclass
class Kafka:
    """Three Kafka brokers, reached by both interfaces."""

    wire: tuple[str, ...]
    znodes: tuple[str, ...]
    capture: Capture

    def __call__(self, *words: str | Path, stdin: str = "", side: tuple[str, ...] | None = None) -> Ran:
        return in_process(*words, *(side or self.wire), capture=self.capture, stdin=stdin)

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        described = self("topics", "describe", topic, "-o", "json", side=self.znodes)
        return list(described.json[0]["partitions"])

    def replicas(self, topic: str) -> list[list[int]]:
        return [partition["replicas"] for partition in self.partitions(topic)]

    def throttles(self, topic: str) -> list[Any]:
        entities = (("--topic", topic), ("--entity-type", "brokers"))
        settings = [self("configs", "describe", *entity, "-o", "json", side=self.znodes).json for entity in entities]
        flat = [entry for each in settings for entry in (each if isinstance(each, list) else [each])]
        return [config["name"] for entry in flat for config in entry["configs"] if "throttled" in config["name"]]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    settings = {
        "auto.leader.rebalance.enable": "false",
        "auto.create.topics.enable": "false",
        "controlled.shutdown.retry.backoff.ms": "100",
        "replica.fetch.max.bytes": "65536",
        "zookeeper.session.timeout.ms": "30000",
        "group.min.session.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
    }
    with kafka_cluster(tmp_path_factory.mktemp("plans-on-kafka"), 3, 22092, settings, shares_jvm=False) as running:
        yield Servers(running.brokers, running.server)


@pytest.fixture
def kafka(servers: Servers, capsys: Capture) -> Kafka:
    bootstrap = ",".join(broker.bootstrap for broker in servers.brokers)
    return Kafka(("--bootstrap-server", bootstrap), ("--zookeeper", servers.zookeeper), capsys)


def made_plan(
    kafka: Kafka, folder: Path, topic: str, start: list[list[int]] = START, target: list[list[int]] = TARGET
) -> Path:
    assignment = ",".join(":".join(map(str, replicas)) for replicas in start)
    assert kafka("topics", "create", topic, "--replica-assignment", assignment).code == 0
    for partition in range(len(start)):
        lines = ("x" * 999 + "\n") * 2000
        sent = kafka("produce", topic, "--partition", str(partition), "--acks", "all", stdin=lines)
        assert sent.code == 0, sent.err
    assert kafka("cluster", "snapshot", folder / "snapshot.json").code == 0
    targets = {TopicPartition(topic, index): replicas for index, replicas in enumerate(target)}
    return write_plan(folder / "plan.json", folder / "snapshot.json", targets)


@pytest.mark.parametrize("side", ["wire", "znodes"])
def test_a_plan_is_applied_and_rolled_back(kafka: Kafka, tmp_path: Path, side: str) -> None:
    topic, where = f"applied-{side}", getattr(kafka, side)
    plan = made_plan(kafka, tmp_path, topic)
    assert kafka("plan", "check", plan, side=where).code == 0
    applied = kafka("plan", "apply", plan, *WORDS, side=where)
    assert applied.code == 0, applied.err
    assert (kafka.replicas(topic), [partition["leader"] for partition in kafka.partitions(topic)]) == (TARGET, [0, 1])
    assert (kafka("plan", "verify", plan, side=where).code, kafka.throttles(topic)) == (0, [])
    undone = kafka("plan", "rollback", plan, *WORDS, side=where)
    assert undone.code == 0, undone.err
    assert (kafka.replicas(topic), kafka.throttles(topic)) == (START, [])
    compared = kafka("replicas", "verify", "--topic", topic, "-o", "json")
    assert (compared.code, [row["to_offset"] for row in compared.json]) == (0, [2000, 2000])


def operator(folder: Path, *words: str | Path, kill_after: int | None = None) -> subprocess.Popen[str]:
    """Start klamm in its own process, which may be killed with -9 after a step."""
    driver = [] if kill_after is None else [sys.executable, DRIVER, str(kill_after), folder / "steps"]
    return subprocess.Popen(
        [*(driver or [PROGRAM]), *map(str, words)],
        env=environment(folder), cwd=folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def killed(folder: Path, after: int, *words: str | Path) -> list[str]:
    """Run until the kill after this step, or (0) to the end; return the steps that were done."""
    steps = folder / "steps"
    steps.unlink(missing_ok=True)
    with operator(folder, *words, kill_after=after) as process:
        try:
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == (-signal.SIGKILL if after else 0), said
    return steps.read_text().splitlines()


@pytest.mark.timeout(900)
def test_killed_after_every_step_another_machine_goes_on(kafka: Kafka, tmp_path: Path) -> None:
    """Every machine has the plan file and nothing else.

    The plan and its rollback have the same steps. They are killed in turns, once after each step, so every step of a
    wave is killed in both directions. Both the killed process and its successor ask by either interface.
    """
    topic = "killed"
    plan = made_plan(kafka, tmp_path, topic)

    def machine(name: str) -> Path:
        (tmp_path / name).mkdir()
        copied = tmp_path / name / "plan.json"
        copied.write_bytes(plan.read_bytes())
        return copied

    def stands(replicas: list[list[int]], told: str) -> None:
        assert (kafka.replicas(topic), kafka.throttles(topic)) == (replicas, []), told

    there = killed(tmp_path, 0, "plan", "apply", plan, *WORDS, *kafka.wire)
    stands(TARGET, "there")
    back = killed(tmp_path, 0, "plan", "rollback", plan, *WORDS, *kafka.wire)
    stands(START, "back")
    assert there == back
    assert {line.split()[0] for line in there} == set(Step), "every step is killed after once"
    for after, step in enumerate(there, 1):
        command, go_on, target = ("apply", "resume", TARGET) if after % 2 else ("rollback", "rollback", START)
        dead, alive = (kafka.wire, kafka.znodes) if after % 4 < 2 else (kafka.znodes, kafka.wire)
        first, second = machine(f"dead-{after}"), machine(f"alive-{after}")
        assert killed(first.parent, after, "plan", command, first, *WORDS, *dead) == there[:after]
        went_on = kafka("plan", go_on, second, *WORDS, side=alive)
        assert went_on.code == 0, (command, step, went_on.err)
        stands(target, f"{command}: {step}")
    compared = kafka("replicas", "verify", "--topic", topic, "-o", "json")
    assert (compared.code, [row["to_offset"] for row in compared.json]) == (0, [2000, 2000])
    print(f"killed with -9 after each of {len(there)} steps, there and back in turns")


def test_one_operator_at_a_time(kafka: Kafka, tmp_path: Path) -> None:
    plan = made_plan(kafka, tmp_path, "locked")
    both = (*kafka.wire, *kafka.znodes)
    with operator(tmp_path, "plan", "apply", plan, *SLOW, *both) as running:
        try:
            wait_for(lambda: "locked" in kafka("reassign", "list", side=kafka.znodes).out)
            for second in (kafka.wire, kafka.znodes):
                refused = kafka("plan", "resume", plan, "--journal", tmp_path / "other", *WORDS, side=second)
                assert (refused.code, f"(pid {running.pid}) since 20" in refused.err) == (4, True), refused.err
                holder = kafka("plan", "status", plan, "-o", "json", side=second).json["lock"]
                assert (f"(pid {running.pid})" in holder["who"], holder["what"]) == (True, "apply plan.json")
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=120)
        finally:
            running.kill()
    assert (running.returncode, f"go on with: klamm plan resume {plan}" in said) == (130, True), said
    undone = kafka("plan", "rollback", plan, *WORDS, side=both)
    assert undone.code == 0, undone.err
    assert (kafka.replicas("locked"), kafka.throttles("locked")) == (START, [])


def test_zookeeper_stands_still_in_the_middle_of_a_wave(servers: Servers, kafka: Kafka, tmp_path: Path) -> None:
    """Longer than the session of the lock, and shorter than those of the brokers."""
    plan = made_plan(kafka, tmp_path, "frozen")
    both, journal = (*kafka.wire, *kafka.znodes), plan.with_name("plan.json.journal")
    words = ("--lock-timeout", "3s", "--throttle", "300k", "-o", "json")
    with operator(tmp_path, "plan", "apply", plan, *words, *both) as running:
        try:
            wait_for(lambda: "frozen" in kafka("reassign", "list", side=kafka.znodes).out or running.poll() is not None)
            assert running.poll() is None, running.communicate()
            servers.server.pause()
            try:
                time.sleep(6)
            finally:
                servers.server.resume()
            out, said = running.communicate(timeout=120)
        finally:
            running.kill()
    # 5: klamm gave up while the wave was under way.
    assert running.returncode in (0, 1, 5), (out, said)
    assert running.returncode == 0 or f"klamm plan resume {plan}" in out + said
    assert read_journal(journal).last["event"] == ("done" if running.returncode == 0 else "stopped"), (out, said)
    wait_for(lambda: kafka("cluster", "health").code == 0)
    went_on = kafka("plan", "resume", plan, *WORDS, side=both)
    assert went_on.code == 0, went_on.err
    assert (kafka.replicas("frozen"), kafka.throttles("frozen")) == (TARGET, [])
    compared = kafka("replicas", "verify", "--topic", "frozen", "-o", "json")
    assert (compared.code, [row["to_offset"] for row in compared.json]) == (0, [2000, 2000])


def test_kafkas_own_tool_takes_the_plan_file(kafka: Kafka, tmp_path: Path) -> None:
    plan = made_plan(kafka, tmp_path, "theirs")

    def tool(*words: str) -> str:
        ran = run_tool(
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            *kafka.wire, "--reassignment-json-file", str(plan), *words,
        )  # fmt: skip
        return ran.stdout + ran.stderr

    assert "Successfully started partition reassignments for theirs-0,theirs-1" in tool("--execute")
    followed = kafka("plan", "resume", plan, *WORDS)
    assert followed.code == 0, followed.err
    assert tool("--verify").count("is completed") == 2


@pytest.mark.parametrize("victim", ["target", "controller", "source"])
def test_a_broker_is_killed_in_the_middle_of_a_wave(
    servers: Servers, kafka: Kafka, tmp_path: Path, victim: str
) -> None:
    """Whoever dies, no record is lost. Resuming the plan does what it could not do before."""
    topic = f"dies-{victim}"
    controller = int(kafka("cluster", "describe", "-o", "json", side=kafka.znodes).json["controller_id"])
    target, source = (controller + 1) % 3, (controller + 2) % 3
    dies = {"target": target, "controller": controller, "source": source}[victim]
    plan = made_plan(kafka, tmp_path, topic, [[source, controller]], [[source, target]])
    words = ("--lock-timeout", "1s", "--throttle", "300k", "--stall", "4s", "-o", "json")
    both = (*kafka.wire, *kafka.znodes)
    with operator(tmp_path, "plan", "apply", plan, *words, *both) as running:

        def is_moving() -> bool:
            assert running.poll() is None, running.communicate()
            return topic in kafka("reassign", "list", side=kafka.znodes).out

        try:
            wait_for(is_moving)
            servers.kill(dies)
            out, said = running.communicate(timeout=120)
        finally:
            running.kill()
    servers.start(dies)
    assert running.returncode in (0, 1), (said, out)
    ended, journal = json.loads(out), plan.with_name("plan.json.journal")
    ending = ("done", "done") if running.returncode == 0 else ("stopped", "stopped")
    assert (ended["outcome"], read_journal(journal).last["event"]) == ending, (said, out)
    assert read_journal(journal).last["reason"] == ended["reason"]
    if victim == "target":
        assert "the copy has stalled" in ended["reason"], (said, out)
    wait_for(lambda: kafka("cluster", "health").code == 0)
    went_on = kafka("plan", "resume", plan, *WORDS, side=both)
    assert went_on.code == 0, went_on.err
    assert read_journal(journal).last["event"] == "done"
    assert (kafka.replicas(topic), kafka.throttles(topic)) == ([[source, target]], [])
    compared = kafka("replicas", "verify", "--topic", topic, "-o", "json")
    assert (compared.code, compared.json[0]["to_offset"]) == (0, 2000), compared.out


def test_a_broker_that_is_dead_from_the_start_is_not_waited_for(servers: Servers, kafka: Kafka, tmp_path: Path) -> None:
    """Kafka ends no move before all its targets are in the ISR: what would wait is not begun, all else is done."""
    topic, dead, plan = "dead", 2, tmp_path / "plan.json"

    def applied() -> Ran:
        return kafka("plan", "apply", plan, *WORDS, "--stall", "5s", "--timeout", "60", "-o", "json")

    def made(*words: str) -> Ran:
        # A plan that has begun is not overwritten.
        plan.with_name("plan.json.journal").unlink()
        return kafka("plan", *words, "--out", plan, "-o", "json")

    # The lock's group needs its topic, which Kafka makes only while three brokers live.
    made_plan(kafka, tmp_path, topic, [[0, 1], [0, 1], [0, 1]], [[0, dead], [0, 1], [0, 1]])
    assert applied().code == 0
    assert kafka("topics", "create", "held", "--replica-assignment", f"0:{dead}").code == 0
    servers.kill(dead)
    try:
        wait_for(lambda: all(dead not in partition["isr"] for partition in kafka.partitions(topic)))
        # ZooKeeper tells of it before the brokers hear, and plans are made by what brokers say.
        wait_for(lambda: dead not in [broker["id"] for broker in kafka("brokers", "list", "-o", "json").json])
        held_up = made("decommission", "0", "--topic", "held")
        assert (held_up.code, "would wait for broker 2, which is dead" in held_up.err) == (0, True), held_up.err
        assert (applied().code, kafka.replicas("held")) == (1, [[0, dead]])
        assert made("leaders", "--topic", topic).code == 0
        assert applied().code == 0
        assert kafka("plan", "verify", plan).code == 0
        assert kafka.replicas(topic)[0] == [0, dead], "only what lives is reordered"
        assert made("decommission", str(dead), "--topic", topic).code == 0
        emptied = applied()
        assert emptied.code == 0, (emptied.out, emptied.err)
        assert kafka("plan", "verify", plan).code == 0
        assert all(dead not in (*partition["replicas"], *partition["isr"]) for partition in kafka.partitions(topic))
    finally:
        servers.start(dead)
    assert kafka.throttles(topic) == []
