"""Elections, reassignments with throttles and log dirs, replica verification and health on three Kafka brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import ApacheKafkaBroker, wait_until_all_know_each_other
from kafka_cluster import kafka_cluster
from kafka_tools import run_tool
from klamm_program import Ran, in_process
from patience import wait_for
from tool_effects import Operator, change_broker_settings, change_topics_and_leaders, move_with_throttles

from engine.local.zookeeper import EmbeddedZooKeeper

Capture = pytest.CaptureFixture[str]


class Cluster:
    """Three Kafka brokers, reached by both interfaces."""

    def __init__(self, zookeeper: str, brokers: Sequence[ApacheKafkaBroker]) -> None:
        self.brokers = brokers
        self.by_wire = ("--bootstrap-server", ",".join(broker.bootstrap for broker in brokers))
        self.by_znodes = ("--zookeeper", zookeeper)

    def log_dirs(self, broker: int) -> list[str]:
        return [str(self.brokers[broker].folder / name) for name in ("one", "two")]


@pytest.fixture(scope="module")
def kafka(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {
        "auto.leader.rebalance.enable": "false",
        "auto.create.topics.enable": "false",
        "replica.fetch.max.bytes": "65536",
        # No broker dies here, and a broker that a busy machine delays must not lose its leaders.
        "zookeeper.session.timeout.ms": "30000",
    }
    folder = tmp_path_factory.mktemp("moves-on-kafka")
    with kafka_cluster(folder, 3, 21092, settings, log_dirs=("one", "two"), zookeeper=zookeeper) as running:
        yield Cluster(running.zookeeper, running.brokers)


def settings_of(kafka: Cluster, capture: Capture, *entity: str) -> dict[str, str]:
    settings = in_process("configs", "describe", *entity, *kafka.by_znodes, "-o", "json", capture=capture).json
    entities = settings if isinstance(settings, list) else [settings]
    return {entry["name"]: entry["value"] for entity in entities for entry in entity["configs"]}


def partitions_of(kafka: Cluster, topic: str, capture: Capture) -> list[dict[str, Any]]:
    described = in_process("topics", "describe", topic, *kafka.by_znodes, "-o", "json", capture=capture)
    return list(described.json[0]["partitions"])


def plan_file(folder: Path, topic: str, *replicas: list[int], log_dirs: list[str] | None = None) -> Path:
    partitions: list[dict[str, Any]] = [
        {"topic": topic, "partition": index, "replicas": replica} for index, replica in enumerate(replicas)
    ]
    if log_dirs is not None:
        partitions[0]["log_dirs"] = log_dirs
    path = folder / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return path


def test_the_whole_round(kafka: Cluster, capsys: Capture, tmp_path: Path) -> None:
    def klamm(*words: str | Path, side: tuple[str, ...] = kafka.by_wire, stdin: str = "") -> Ran:
        return in_process(*words, *side, capture=capsys, stdin=stdin)

    assert klamm("topics", "create", "m", "--replica-assignment", "0:1,1:0").code == 0
    for partition in ("0", "1"):
        sent = klamm("produce", "m", "--partition", partition, "--acks", "all", stdin=("x" * 999 + "\n") * 3000)
        assert sent.code == 0, sent.err

    plan = plan_file(tmp_path, "m", [2, 1], [1, 0, 2])
    files: tuple[str | Path, ...] = ("--reassignment-json-file", plan)
    grows = "--allow-replication-factor-change"
    slow = klamm("reassign", "execute", *files, grows, "--throttle", "30000", "--rollback-file", tmp_path / "back.json")
    assert slow.code == 5, slow.err
    assert settings_of(kafka, capsys, "--broker", "2")["follower.replication.throttled.rate"] == "30000"
    for side in (kafka.by_wire, kafka.by_znodes):
        verified = klamm("reassign", "verify", *files, "-o", "json", side=side)
        assert (verified.code, [move["adding"] for move in verified.json]) == (5, [[2], [2]]), verified.err
        assert all(move["remaining_bytes"] > 0 for move in verified.json)
    theirs = run_tool(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        "--bootstrap-server", kafka.brokers[0].bootstrap, "--verify", "--reassignment-json-file", str(plan),
    )  # fmt: skip
    assert theirs.stdout.count("still in progress") == 2, theirs.stdout
    cancelled = klamm("reassign", "cancel", *files, "-o", "json")
    assert (cancelled.code, {row["result"] for row in cancelled.json}) == (0, {"cancelled"}), cancelled.err
    assert [sorted(partition["replicas"]) for partition in partitions_of(kafka, "m", capsys)] == [[0, 1], [0, 1]]
    assert settings_of(kafka, capsys, "--topic", "m") == {} == settings_of(kafka, capsys, "--broker", "2")

    moved = klamm("reassign", "execute", *files, grows, "--throttle", "9000000", "--rollback-file", tmp_path / "b2",
                  "--wait", "--timeout", "90", side=kafka.by_znodes)  # fmt: skip
    assert moved.code == 0, moved.err
    assert [partition["replicas"] for partition in partitions_of(kafka, "m", capsys)] == [[2, 1], [1, 0, 2]]
    assert settings_of(kafka, capsys, "--topic", "m") == {} == settings_of(kafka, capsys, "--broker", "2")

    compared = klamm("replicas", "verify", "--topic", "m", "-o", "json")
    assert (compared.code, [row["to_offset"] for row in compared.json]) == (0, [3000, 3000]), compared.err
    assert klamm("elect", "preferred", "--all-topic-partitions").code == 0
    assert klamm("cluster", "health", "--fail-on", "warning", side=kafka.by_znodes).code == 0


@pytest.mark.parametrize("side", ["by_wire", "by_znodes"])
def test_leaked_throttles_come_off_without_the_plan(kafka: Cluster, capsys: Capture, tmp_path: Path, side: str) -> None:
    def klamm(*words: str | Path, side: tuple[str, ...] = kafka.by_wire, stdin: str = "") -> Ran:
        return in_process(*words, *side, capture=capsys, stdin=stdin)

    topic = f"leaked-{side.replace('_', '-')}"
    assert klamm("topics", "create", topic, "--replica-assignment", "0:1").code == 0
    assert klamm("produce", topic, "--acks", "all", stdin=("x" * 999 + "\n") * 3000).code == 0
    files = ("--reassignment-json-file", plan_file(tmp_path, topic, [2, 1]))
    slow = klamm("reassign", "execute", *files, "--throttle", "30000", "--rollback-file", tmp_path / "back.json")
    assert slow.code == 5, slow.err
    assert klamm("reassign", "verify", "--all", side=getattr(kafka, side)).code == 5
    assert klamm("reassign", "cancel", *files, "--preserve-throttles").code == 0
    assert "klamm reassign verify --all" in klamm("cluster", "health", "-o", "table").out
    assert settings_of(kafka, capsys, "--topic", topic) != {} != settings_of(kafka, capsys, "--broker", "2")
    done = klamm("reassign", "verify", "--all", side=getattr(kafka, side))
    assert done.code == 0, done.err
    assert settings_of(kafka, capsys, "--topic", topic) == {} == settings_of(kafka, capsys, "--broker", "2")


def test_a_target_that_goes_is_named_while_it_is_waited_for(kafka: Cluster, capsys: Capture, tmp_path: Path) -> None:
    def klamm(*words: str | Path, side: tuple[str, ...] = kafka.by_wire, stdin: str = "") -> Ran:
        return in_process(*words, *side, capture=capsys, stdin=stdin)

    assert klamm("topics", "create", "held", "--replica-assignment", "0:1").code == 0
    assert klamm("produce", "held", "--acks", "all", stdin=("x" * 999 + "\n") * 3000).code == 0
    files = ("--reassignment-json-file", plan_file(tmp_path, "held", [2, 1]))
    slow = klamm("reassign", "execute", *files, "--throttle", "30000", "--rollback-file", tmp_path / "back.json")
    assert slow.code == 5, slow.err
    kafka.brokers[2].stop()
    try:
        held = klamm("reassign", "verify", *files, "--wait", "--timeout", "15", "-o", "json")
    finally:
        kafka.brokers[2].start()
        wait_until_all_know_each_other(kafka.brokers)
    assert (held.code, held.json[0]["reason"]) == (5, "waits for dead broker 2"), held.err
    stop = f"klamm reassign cancel {' '.join(map(str, (*files, *kafka.by_wire)))}"
    assert held.err.splitlines()[-1] == f"it goes on when the broker is back; to stop it: {stop}"
    again = klamm("reassign", "execute", *files, "--additional", "--throttle", "90000000", "--wait", "--timeout", "90")
    assert again.code == 0, again.err
    assert settings_of(kafka, capsys, "--topic", "held") == {} == settings_of(kafka, capsys, "--broker", "2")


def test_a_replica_goes_to_another_log_dir(kafka: Cluster, capsys: Capture, tmp_path: Path) -> None:
    def klamm(*words: str | Path, stdin: str = "") -> Ran:
        return in_process(*words, *kafka.by_wire, capture=capsys, stdin=stdin)

    assert klamm("topics", "create", "d", "--replica-assignment", "0:1").code == 0
    assert klamm("produce", "d", "--acks", "all", stdin=("x" * 999 + "\n") * 3000).code == 0
    there = next(path for path in kafka.log_dirs(0) if not (Path(path) / "d-0").exists())
    wrong = klamm("reassign", "execute", "--reassignment-json-file",
                  plan_file(tmp_path, "d", [0, 1], log_dirs=["/nowhere", "any"]))  # fmt: skip
    assert (wrong.code, "has no log dir /nowhere" in wrong.err) == (2, True)
    plan = plan_file(tmp_path, "d", [0, 1], log_dirs=[there, "any"])
    slow = klamm("reassign", "execute", "--reassignment-json-file", plan, "--replica-alter-log-dirs-throttle",
                 "20000", "--rollback-file", tmp_path / "slow")  # fmt: skip
    assert (slow.code, "started to move 1 replica to other log dirs" in slow.err) == (5, True), slow.err
    assert klamm("reassign", "verify", "--all").code == 0, "no reassignment is under way"
    assert settings_of(kafka, capsys, "--broker", "0"), "but this move is, and keeps its rate"
    moved = klamm("reassign", "execute", "--reassignment-json-file", plan, "--additional",
                  "--replica-alter-log-dirs-throttle", "90000000", "--rollback-file", tmp_path / "back",
                  "--wait", "--timeout", "90")  # fmt: skip
    assert moved.code == 0, moved.err
    assert (Path(there) / "d-0").is_dir()
    assert settings_of(kafka, capsys, "--broker", "0") == {} == settings_of(kafka, capsys, "--topic", "d")
    assert settings_of(kafka, capsys, "--topic", "d") == {} == settings_of(kafka, capsys, "--broker", "0")


@pytest.mark.parametrize("side", ["by_wire", "by_znodes"])
def test_leaders_are_given_back(kafka: Cluster, capsys: Capture, tmp_path: Path, side: str) -> None:
    def klamm(*words: str | Path, where: tuple[str, ...] = kafka.by_wire) -> Ran:
        return in_process(*words, *where, capture=capsys)

    topic = side.replace("_", "-")
    assert klamm("topics", "create", topic, "--replica-assignment", "0:1").code == 0
    # A different order moves nothing and leaves the leader where it is.
    reordered = plan_file(tmp_path, topic, [1, 0])
    assert klamm("reassign", "execute", "--reassignment-json-file", reordered, "--wait", "--timeout", "90",
                 "--rollback-file", tmp_path / "back").code == 0  # fmt: skip
    elected = klamm("elect", "preferred", "--topic", topic, "-o", "json", where=getattr(kafka, side))
    assert elected.code == 0, elected.err
    assert [(row["before"], row["after"], row["result"]) for row in elected.json] == [(0, 1, "elected")]
    nobody = klamm("elect", "unclean", "--topic", topic, "--yes", "-o", "json")
    assert (nobody.code, nobody.json[0]["result"]) == (0, "not_needed")


def test_a_replica_in_a_failed_log_dir_is_not_offered(
    zookeeper: EmbeddedZooKeeper, capsys: Capture, tmp_path: Path
) -> None:
    """Its broker is alive, so that an unclean election seemed to have somebody to elect."""
    with kafka_cluster(
        tmp_path, 1, 21192, {}, log_dirs=("one", "two"), shares_jvm=False, zookeeper=zookeeper
    ) as running:

        def klamm(*words: str) -> Ran:
            return in_process(*words, "--bootstrap-server", running.bootstrap, "-o", "json", capture=capsys)

        assert klamm("topics", "create", "t", "--partitions", "2", "--replication-factor", "1").code == 0
        failing = running.brokers[0].folder / "two"
        partition = next(failing.glob("t-*")).name.rpartition("-")[2]
        # The broker's next checkpoint of high watermarks fails, within five seconds.
        failing.rename(failing.with_name("hidden"))
        failing.write_text("no folder\n")
        election = ("elect", "unclean", "--topic", "t", "--partition", partition)

        def previewed() -> dict[str, Any] | None:
            (found,) = klamm(*election, "--dry-run").json
            return dict(found) if found["before"] == -1 else None

        found = wait_for(previewed, "the partition loses its leader")
        assert (found["result"], found["after"]) == ("would_fail", -1)
        assert found["error"] == "no replica can lead: 0 is offline although its broker is alive (a failed log dir?)"
        asked = klamm(*election, "--yes")
        assert (asked.code, asked.json[0]["result"]) == (1, "failed")
        assert "ELIGIBLE_LEADERS_NOT_AVAILABLE" in asked.json[0]["error"]


@pytest.mark.parametrize("side", ["wire", "znodes"])
def test_changes_leave_what_kafkas_tools_leave(kafka: Cluster, capsys: Capture, tmp_path: Path, side: str) -> None:
    operator = Operator(kafka.by_znodes[1], kafka.by_wire[1], side, capsys, tmp_path)
    change_broker_settings(operator)
    operator.forget_changes()
    change_topics_and_leaders(operator)


def test_throttled_moves_leave_what_kafkas_tool_leaves(kafka: Cluster, capsys: Capture, tmp_path: Path) -> None:
    move_with_throttles(Operator(kafka.by_znodes[1], kafka.by_wire[1], "wire", capsys, tmp_path))


@pytest.mark.parametrize("side", ["wire", "znodes"])
def test_a_broker_is_demoted_and_restored(kafka: Cluster, capsys: Capture, tmp_path: Path, side: str) -> None:
    where = kafka.by_wire if side == "wire" else kafka.by_znodes
    topic, way_back = f"demoted-{side}", tmp_path / "way-back.json"

    def klamm(*words: str | Path) -> Ran:
        return in_process(*words, *where, "--yes", "--timeout", "60", capture=capsys)

    def shape() -> list[tuple[list[int], int]]:
        return [(partition["replicas"], partition["leader"]) for partition in partitions_of(kafka, topic, capsys)]

    created = in_process("topics", "create", topic, "--replica-assignment", "0:1,0:2", *kafka.by_wire, capture=capsys)
    assert created.code == 0, created.err
    done = klamm("brokers", "demote", "0", "--rollback-file", way_back)
    assert done.code in (0, 1), done.err
    assert shape() == [([1, 0], 1), ([2, 0], 2)]
    back = klamm("brokers", "restore", way_back, "--rollback-file", tmp_path / "again.json")
    assert back.code == 0, back.err
    assert shape() == [([0, 1], 0), ([0, 2], 0)]


def test_beside_a_dead_broker_another_is_demoted_by_zookeeper(kafka: Cluster, capsys: Capture, tmp_path: Path) -> None:
    """The controller need not wait for anything to reorder replicas."""
    topic, way_back = "beside-a-dead-one", tmp_path / "way-back.json"

    def klamm(*words: str | Path) -> Ran:
        return in_process(*words, *kafka.by_znodes, "--timeout", "60", capture=capsys)

    def shape() -> list[tuple[list[int], int]]:
        return [(partition["replicas"], partition["leader"]) for partition in partitions_of(kafka, topic, capsys)]

    created = klamm("topics", "create", topic, "--replica-assignment", "0:1:2,0:2:1,1:0:2")
    assert created.code == 0, created.err
    kafka.brokers[1].stop()
    try:
        done = klamm("brokers", "demote", "0", "--rollback-file", way_back, "--yes")
        assert done.code in (0, 1), done.err
        assert f"{topic}-0 stays" not in done.err
        assert shape() == [([2, 1, 0], 2)] * 3
        back = klamm("brokers", "restore", way_back, "--rollback-file", tmp_path / "again.json", "--yes")
        assert [entry for entry, _ in shape()] == [[0, 1, 2], [0, 2, 1], [1, 0, 2]], back.err
        assert [leader for _, leader in shape()] == [0, 0, 2], "the third one's preferred leader is dead"
    finally:
        kafka.brokers[1].start()
        wait_until_all_know_each_other(kafka.brokers)
