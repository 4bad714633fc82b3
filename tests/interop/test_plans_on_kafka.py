"""Plans on three brokers of Kafka: applied in waves, rolled back, resumed after a kill of klamm or of a broker.

Kafka's own tool takes the file.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import ApacheKafkaBroker, run_tool, wait_until_all_know_each_other
from kazoo.client import KazooClient
from klamm_program import PROGRAM, Ran, environment, in_process
from plan_files import write_plan

from engine.admin.reassignment.journal import read_journal
from engine.common.model import TopicPartition
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

Capture = pytest.CaptureFixture[str]
DRIVER = Path(__file__).parents[1] / "support" / "killed_at_step.py"
START, TARGET = [[0, 1], [0, 1]], [[0, 2], [1, 0]]
WORDS = ("--lock-timeout", "1s", "--throttle", "20M")


@dataclass
class Servers:
    """Three Kafka brokers and their ZooKeeper."""

    brokers: Sequence[ApacheKafkaBroker]
    zookeeper: str

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
    """Three Kafka brokers, asked on either side."""

    wire: tuple[str, ...]
    znodes: tuple[str, ...]
    capture: Capture

    def __call__(self, *words: str | Path, stdin: str = "", side: tuple[str, ...] | None = None) -> Ran:
        return in_process(*words, *(side or self.wire), capture=self.capture, stdin=stdin)

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        described = self("topics", "describe", topic, "-o", "json", side=self.znodes)
        return list(described.json[0]["partitions"])

    def replicas(self, topic: str) -> list[list[int]]:
        return [one["replicas"] for one in self.partitions(topic)]

    def throttles(self, topic: str) -> list[Any]:
        entities = [("--topic", topic), *(("--broker", str(broker)) for broker in range(3))]
        found = [self("configs", "describe", *one, "-o", "json", side=self.znodes).json for one in entities]
        flat = [one for each in found for one in (each if isinstance(each, list) else [each])]
        return [config["name"] for one in flat for config in one["configs"] if "throttled" in config["name"]]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    host, folder = own_loopback_address(), tmp_path_factory.mktemp("plans-on-kafka")
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
    with ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(host=host, fsync=False)).connect_string
        brokers = [
            stack.enter_context(
                ApacheKafkaBroker(
                    folder / str(broker_id),
                    broker_id=broker_id,
                    host=host,
                    port=22092 + broker_id,
                    zookeeper_connect=zookeeper,
                    overrides=settings,
                    heap="300m",
                )
            )
            for broker_id in range(3)
        ]
        wait_until_all_know_each_other(brokers)
        yield Servers(brokers, zookeeper)


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
    assert (kafka.replicas(topic), [one["leader"] for one in kafka.partitions(topic)]) == (TARGET, [0, 1])
    assert (kafka("plan", "verify", plan, side=where).code, kafka.throttles(topic)) == (0, [])
    undone = kafka("plan", "rollback", plan, *WORDS, side=where)
    assert undone.code == 0, undone.err
    assert (kafka.replicas(topic), kafka.throttles(topic)) == (START, [])
    compared = kafka("replicas", "verify", "--topic", topic, "-o", "json")
    assert (compared.code, [one["to_offset"] for one in compared.json]) == (0, [2000, 2000])


def test_a_killed_one_is_resumed_through_the_znodes(kafka: Kafka, tmp_path: Path) -> None:
    plan, steps = made_plan(kafka, tmp_path, "killed"), tmp_path / "steps"
    killed = subprocess.run(
        [sys.executable, DRIVER, "6", steps, "plan", "apply", plan, *WORDS, *kafka.wire],
        env=environment(tmp_path, PYTHONPATH=str(DRIVER.parents[2])), cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    assert (killed.returncode, steps.read_text().split()[-2:]) == (-signal.SIGKILL, ["started", "1"]), killed.stderr
    assert kafka.throttles("killed")
    for left in tmp_path.glob("plan.json.*"):
        left.unlink()
    went_on = kafka("plan", "resume", plan, *WORDS, side=kafka.znodes)
    assert went_on.code == 0, went_on.err
    assert (kafka.replicas("killed"), kafka.throttles("killed")) == (TARGET, [])


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
    """Whoever dies: no record is lost, and what the plan could not do is done by going on with it."""
    topic = f"dies-{victim}"
    controller = int(kafka("cluster", "describe", "-o", "json", side=kafka.znodes).json["controller_id"])
    target, source = (controller + 1) % 3, (controller + 2) % 3
    dies = {"target": target, "controller": controller, "source": source}[victim]
    plan = made_plan(kafka, tmp_path, topic, [[source, controller]], [[source, target]])
    words = ("--lock-timeout", "1s", "--throttle", "300k", "--stall", "4s", "-o", "json")
    both = (*kafka.wire, *kafka.znodes)
    with subprocess.Popen(
        [PROGRAM, "plan", "apply", plan, *words, *both],
        env=environment(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip

        def is_moving() -> bool:
            assert running.poll() is None, running.communicate()
            return topic in kafka("reassign", "list", side=kafka.znodes).out

        try:
            wait_until(is_moving)
            servers.kill(dies)
            out, said = running.communicate(timeout=120)
        finally:
            running.kill()
    servers.start(dies)
    assert running.returncode in (0, 1), (said, out)
    ended, journal = json.loads(out), plan.with_name("plan.json.journal")
    told = ("done", "done") if running.returncode == 0 else ("stopped", "stopped")
    assert (ended["outcome"], read_journal(journal).last["event"]) == told, (said, out)
    assert read_journal(journal).last["reason"] == ended["reason"]
    if victim == "target":
        assert "the copy has stalled" in ended["reason"], (said, out)
    wait_until(lambda: kafka("cluster", "health").code == 0)
    went_on = kafka("plan", "resume", plan, *WORDS, side=both)
    assert went_on.code == 0, went_on.err
    assert read_journal(journal).last["event"] == "done"
    assert (kafka.replicas(topic), kafka.throttles(topic)) == ([[source, target]], [])
    compared = kafka("replicas", "verify", "--topic", topic, "-o", "json")
    assert (compared.code, compared.json[0]["to_offset"]) == (0, 2000), compared.out


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
