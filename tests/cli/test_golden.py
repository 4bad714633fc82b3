"""What each command shows of a recorded cluster: on terminals, in colour, in a pipe, as JSON by its schema."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from golden import SCHEMAS, check_golden, check_json, check_report, command, in_pipe, paths_in

from cli.output.printer import json_text
from cli.output.report import Report
from cli.table_of_commands import ENTRIES
from cli.views.brokers_load import heat_section
from cli.views.doctor import doctor_report
from cli.views.elections import elections_report
from cli.views.reassignment import cancelled_report, planned_report
from cli.views.replicas import verification_report
from cli.views.topics import topic_changes_report
from cli.views.znodes import znode_report
from engine.admin.brokers.load import load_of_plan
from engine.admin.cluster.snapshot_file import save_snapshot
from engine.admin.elections.scope_and_result import ElectionResult, PartitionElection
from engine.admin.reassignment.cancel import CancelledPartition, CancelResult
from engine.admin.reassignment.prepare import PlannedMove
from engine.admin.replicas.comparison import Difference, DifferenceKind, Side
from engine.admin.replicas.verification import PartitionVerification, ReplicaVerdict
from engine.admin.topics.changes import TopicChange, TopicOutcome
from engine.admin.znodes.tree import Znode
from engine.common.model import TopicPartition
from engine.local.doctor import Check, CheckStatus

ROOT = Path(__file__).parents[2]
Recorded = Callable[[str], str]

READING = {
    "topics-list": ("deletion-waits", ["topics", "list"], "topics list"),
    "topics-describe": ("reassignment-under-way", ["topics", "describe", "move", "manual"], "topics describe"),
    "topics-under-replicated": (
        "leaderless", ["topics", "describe", "--under-replicated-partitions"], "topics describe",
    ),
    "topics-overrides": ("leaderless", ["topics", "describe", "--topics-with-overrides"], "topics describe"),
    "topics-unknown": ("leaderless", ["topics", "describe", "absent"], "error"),
    "topics-delete-dry-run": ("leaderless", ["topics", "delete", "lag", "move", "--dry-run"], None),
    "zk-tree": ("leaderless", ["zk", "tree", "/brokers/topics"], "zk tree"),
    "elect-preferred-dry-run": (
        "leaderless", ["elect", "preferred", "--all-topic-partitions", "--dry-run"], "elect",
    ),
    "elect-unclean-dry-run": ("leaderless", ["elect", "unclean", "--topic", "lag", "--dry-run"], "elect"),
    "reassign-list": ("reassignment-under-way", ["reassign", "list"], "reassign list"),
    "reassign-list-none": ("leaderless", ["reassign", "list"], "reassign list"),
    "reassign-verify": (
        "reassignment-under-way",
        ["reassign", "verify", "--dry-run", "--reassignment-json-file", "plan.json"],
        "reassign verify",
    ),
    "reassign-execute-dry-run": (
        "reassignment-under-way",
        ["reassign", "execute", "--dry-run", "--via", "wire", "--reassignment-json-file", "plan.json"],
        "error",
    ),
    "reassign-execute-small-plan": (
        "leaderless",
        [
            "reassign", "execute", "--dry-run", "--allow-replication-factor-change",
            "--reassignment-json-file", "small-plan.json",
        ],
        "reassign execute --dry-run",
    ),
    "reassign-generate": (
        "reassignment-under-way",
        [
            "reassign", "generate", "--topics-to-move-json-file", "topics.json", "--broker-list", "0,1,2",
            "--seed", "3",
        ],
        "reassign generate",
    ),
}  # fmt: skip
OFFLINE = {
    "cluster-describe": ("reassignment-under-way", ["cluster", "describe"], "cluster describe"),
    "brokers-list": ("reassignment-under-way", ["brokers", "list"], "brokers list"),
    "cluster-health-leaderless": ("leaderless", ["cluster", "health"], "cluster health"),
    "cluster-health-moving": (
        "reassignment-under-way", ["cluster", "health", "--fail-on", "warning"], "cluster health",
    ),
    "cluster-load": ("large", ["cluster", "load"], "cluster load"),
    "cluster-load-of-a-topic": ("large", ["cluster", "load", "orders.00000"], "cluster load"),
    "reassign-execute-offline": (
        "large",
        ["reassign", "execute", "--dry-run", "--throttle", "50000000", "--reassignment-json-file", "large-plan.json"],
        "reassign execute --dry-run",
    ),
    "elect-preferred-offline": (
        "leaderless",
        ["elect", "preferred", "--topic", "t1", "--dry-run"],
        "elect",
    ),
    "reassign-generate-with-sizes": (
        "large",
        [
            "reassign", "generate", "--topics-to-move-json-file", "large-topics.json", "--broker-list", "0,1,2,3,4",
            "--seed", "3",
        ],
        "reassign generate",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def files_of_a_caller(own_folder: Path) -> None:
    Path("topics.json").write_text('{"version":1,"topics":[{"topic":"move"},{"topic":"manual"}]}')
    Path("large-topics.json").write_text('{"version":1,"topics":[{"topic":"orders.00000"}]}')
    large = [{"topic": "orders.00000", "partition": p, "replicas": [p, p + 1, p + 2]} for p in range(3)]
    Path("large-plan.json").write_text(json.dumps({"version": 1, "partitions": large}))
    small = [{"topic": "t1", "partition": p, "replicas": [2, 0]} for p in (0, 1, 2)]
    Path("small-plan.json").write_text(json.dumps({"version": 1, "partitions": small}))
    partitions: list[dict[str, Any]] = [
        {"topic": "move", "partition": 0, "replicas": [1, 2]},
        {"topic": "move", "partition": 1, "replicas": [0, 2]},
        {"topic": "manual", "partition": 0, "replicas": [0, 1]},
        {"topic": "manual", "partition": 1, "replicas": [2, 0]},
        {"topic": "gone", "partition": 0, "replicas": [0]},
    ]
    Path("plan.json").write_text(json.dumps({"version": 1, "partitions": partitions}))


@pytest.mark.parametrize("scene", READING)
def test_of_a_recorded_cluster(recorded: Recorded, monkeypatch: pytest.MonkeyPatch, scene: str) -> None:
    tree, words, schema = READING[scene]
    where = recorded(tree)
    run = command(*words, "--zookeeper", where)
    check_golden(scene, run, monkeypatch, {where: "ZOOKEEPER"})
    if schema is not None:
        check_json(schema, in_pipe(command(*words, "--zookeeper", where, "-o", "json"), monkeypatch))


@pytest.mark.parametrize("scene", OFFLINE)
def test_of_a_snapshot(recorded: Recorded, monkeypatch: pytest.MonkeyPatch, scene: str) -> None:
    tree, words, schema = OFFLINE[scene]
    if tree == "large":
        made = runpy.run_path(str(ROOT / "fixtures" / "snapshots" / "large_cluster.py"))
        save_snapshot(made["large_cluster"](topics=20, partitions=100, brokers=9), Path("snapshot.json"))
    else:
        taken = in_pipe(command("cluster", "snapshot", "snapshot.json", "--zookeeper", recorded(tree)), monkeypatch)
        assert taken.code == 0
        # A broker's epoch is the transaction of its registration: here, the one that loaded the recorded tree.
        text = Path("snapshot.json").read_text("utf-8")
        Path("snapshot.json").write_text(re.sub(r'"broker_epoch": \d+', '"broker_epoch": 175', text), "utf-8")
    run = command(*words, "--snapshot", "snapshot.json")
    check_golden(scene, run, monkeypatch)
    check_json(schema, in_pipe(command(*words, "--snapshot", "snapshot.json", "-o", "json"), monkeypatch))


def test_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for words in (
        ("dev", "--zookeeper", "127.0.0.1:2181", "--bootstrap-server", "127.0.0.1:9092"),
        ("prod", "--zookeeper", "zk1:2181,zk2:2181/kafka", "--read-only"),
    ):
        assert in_pipe(command("profiles", "add", *words), monkeypatch).code == 0
    check_golden("profiles-list", command("profiles", "list"), monkeypatch, {str(tmp_path): "HOME"})
    check_json("profiles list", in_pipe(command("profiles", "list", "-o", "json"), monkeypatch))


def side(broker: int, value: str, error: str | None = None) -> Side:
    record = {
        "offset": 1507,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        "key": "customer-17",
        "value": value,
    }
    return Side(broker, 1500, 1519, 3, (record,), error)


REPORTS: dict[str, tuple[str, Report]] = {
    "elect-preferred": (
        "elect",
        elections_report(
            [
                PartitionElection("orders", 0, 1, 0, 0, ElectionResult.ELECTED),
                PartitionElection("orders", 1, 1, 1, 1, ElectionResult.NOT_NEEDED),
                PartitionElection(
                    "orders", 2, 0, 0, 2, ElectionResult.FAILED,
                    "preferred replica 2 is not in sync (PREFERRED_LEADER_NOT_AVAILABLE)",
                ),
                PartitionElection("payments.incoming", 17, -1, -1, 4, ElectionResult.UNDER_WAY),
            ]
        ),
    ),
    "reassign-cancel": (
        "reassign cancel",
        cancelled_report(
            [
                CancelledPartition("move", 0, CancelResult.CANCELLED, (0, 1)),
                CancelledPartition("move", 1, CancelResult.NOT_ACTIVE, (1, 2)),
                CancelledPartition("move", 2, CancelResult.FAILED, (1, 2, 0), "NOT_CONTROLLER"),
            ],
            ["throttle removed from topic move and brokers 0, 1, 2"],
        ),
    ),
    "reassign-execute-plan": (
        "reassign execute --dry-run",
        planned_report(
            [PlannedMove("move", 0, (0, 1), (1, 2), (2,), (0,)), PlannedMove("move", 1, (0, 2), (2, 1), (1,), (0,))],
            heat_section(
                load_of_plan(
                    {TopicPartition("move", 0): (0, 1), TopicPartition("move", 1): (0, 2)},
                    {TopicPartition("move", 0): (1, 2), TopicPartition("move", 1): (2, 1)},
                    {TopicPartition("move", 0): 3 << 20, TopicPartition("move", 1): 5 << 30},
                ),
                2,
                (3 << 20) + (5 << 30),
            ),
        ),
    ),
    "replicas-verify": (
        "replicas verify",
        verification_report(
            [
                PartitionVerification(
                    "orders", 0, 0, 3000,
                    (ReplicaVerdict(0, 3000, 0, True), ReplicaVerdict(1, 2990, 10, True)),
                ),
                PartitionVerification(
                    "orders", 1, 1200, 3000,
                    (
                        ReplicaVerdict(0, 3000, 0, True),
                        ReplicaVerdict(1, 3000, 0, False),
                        ReplicaVerdict(2, None, None, None, "its broker is dead"),
                    ),
                    Difference(
                        1500, DifferenceKind.CORRUPT,
                        (side(0, '{"order": 1507, "cents": 100}'), side(1, '{"order": 1507, "cents": 900}')),
                    ),
                ),
            ]
        ),
    ),
    "doctor": (
        "doctor",
        doctor_report(
            [
                Check("python", CheckStatus.OK, "3.11.7", "everything"),
                Check("java", CheckStatus.MISSING, "no Java 17 or newer", "local up, zookeeper start",
                      "apt install openjdk-17-jre-headless"),
                Check("kcat", CheckStatus.OPTIONAL, "not found", "trying the cluster with another client",
                      "apt install kcat"),
            ]
        ),
    ),
    "zk-get": (
        "zk get",
        znode_report(
            Znode(
                "/controller", "controller", {"broker": 2, "kraft_controller_epoch": -1}, None, 0, 0,
                "0x100002d7c450003", 28, 28, datetime(2026, 11, 21, 2, 14, 7, tzinfo=UTC),
                datetime(2026, 11, 21, 2, 14, 7, tzinfo=UTC),
            )
        ),
    ),
    "topics-create": (
        "topics changes",
        topic_changes_report(
            [
                TopicChange("orders", TopicOutcome.CREATED, "Z-VskPoZQ2C9fKPH9YP6oA", 6, 3),
                TopicChange("old", TopicOutcome.MARKED_FOR_DELETION),
            ]
        ),
    ),
}  # fmt: skip


COUNTED = {"broker_count"}
"""Columns that count what JSON lists."""


@pytest.mark.parametrize("scene", REPORTS)
def test_of_what_was_done(monkeypatch: pytest.MonkeyPatch, scene: str) -> None:
    schema, report = REPORTS[scene]
    check_report(scene, schema, report, monkeypatch)
    columns = {column.name for column in report.table.columns}
    assert columns - paths_in(json.loads(json_text(report.data))) <= COUNTED, "CSV and JSON have the same names"


def test_every_schema_is_for_a_command() -> None:
    words = {entry.name for entry in ENTRIES}
    named = {name for name in json.loads(SCHEMAS.read_text("utf-8"))["$defs"] if " " in name}
    assert {name for name in named if name.split()[0] not in words} == {"difference side"}
    used = {schema for _, _, schema in [*READING.values(), *OFFLINE.values()]} | {
        schema for schema, _ in REPORTS.values()
    }
    assert {schema for schema in used if schema and " " in schema} <= named


def test_znodes_and_doctor_keep_to_their_schemas(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    where = recorded("leaderless")
    check_json("zk get", in_pipe(command("zk", "get", "/controller", "--zookeeper", where, "-o", "json"), monkeypatch))
    check_json("doctor", in_pipe(command("doctor", "-o", "json"), monkeypatch))
