"""Everything that the commands for brokers, log dirs, offsets, old records and settings show, in every place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import check_golden, check_json, check_report, command, in_pipe

from cli.output.report import Report
from cli.views.brokers import broker_details_report, log_dirs_report, totals_report
from cli.views.brokers_load import load_report
from cli.views.offsets import offsets_report
from cli.views.records_deletion import deletions_report
from engine.admin.brokers.description import BrokerDetails, BrokerPartitions, ListenerDescription
from engine.admin.brokers.load import BrokerLoad
from engine.admin.brokers.self_report import DirSummary, OfferedApi, SelfReport
from engine.admin.log_dirs.describing import (
    NOT_ALIVE,
    DirReplica,
    LogDir,
    totals_by_broker,
    totals_by_dir,
    totals_by_topic,
)
from engine.admin.offsets.listing import PartitionOffset
from engine.admin.records.deletion import DeletionResult, RecordsDeletion

pytestmark = pytest.mark.usefixtures("own_folder")

Recorded = Callable[[str], str]
MIB, GIB = 1 << 20, 1 << 30

OFFLINE = {
    "brokers-describe-leaderless": ("leaderless", ["brokers", "describe"]),
    "brokers-describe-one": ("reassignment-under-way", ["brokers", "describe", "2"]),
}
OF_ZOOKEEPER = {
    "configs-describe-topic": ["--topic", "t1"],
    "configs-describe-brokers": ["--entity-type", "brokers"],
    "configs-describe-users": ["--entity-type", "users"],
    "configs-describe-clients-of-users": ["--entity-type", "users", "--entity-type", "clients"],
    "configs-describe-nothing": ["--ip", "10.0.0.1"],
}


def number_brokers_epochs(snapshot: Path) -> None:
    """Give brokers fixed epochs: ZooKeeper's counter depends on what went before."""
    content = json.loads(snapshot.read_text())
    for index, broker in enumerate(content["brokers"]):
        assert broker["broker_epoch"] > 0
        broker["broker_epoch"] = 90 + index
    snapshot.write_text(json.dumps(content))


@pytest.mark.parametrize("scene", OFFLINE)
def test_brokers_of_a_snapshot(recorded: Recorded, monkeypatch: pytest.MonkeyPatch, scene: str) -> None:
    tree, words = OFFLINE[scene]
    taken = in_pipe(command("cluster", "snapshot", "s.json", "--zookeeper", recorded(tree)), monkeypatch)
    assert taken.code == 0
    number_brokers_epochs(Path("s.json"))
    check_golden(scene, command(*words, "--snapshot", "s.json"), monkeypatch)
    check_json("brokers describe", in_pipe(command(*words, "--snapshot", "s.json", "-o", "json"), monkeypatch))


@pytest.mark.parametrize("scene", OF_ZOOKEEPER)
def test_settings(recorded: Recorded, monkeypatch: pytest.MonkeyPatch, scene: str) -> None:
    words = ["configs", "describe", *OF_ZOOKEEPER[scene], "--zookeeper", recorded("dynamic-configs")]
    check_golden(scene, command(*words), monkeypatch)
    check_json("configs describe", in_pipe(command(*words, "-o", "json"), monkeypatch))


LOG_DIRS = [
    LogDir(
        0, "/data/kafka-a", None, 5 * GIB + 7 * MIB, 3, 100 * GIB, 8 * GIB,
        (
            DirReplica("orders", 0, 5 * GIB, 0, False),
            DirReplica("orders", 1, 7 * MIB, 1200, False),
            DirReplica("payments.incoming", 11, 0, None, False),
        ),
    ),
    LogDir(0, "/data/kafka-b", None, 2 * GIB, 1, 100 * GIB, 90 * GIB, (DirReplica("orders", 1, 2 * GIB, 88, True),)),
    LogDir(1, "/data/kafka-a", None, 0, 0, None, None),
    LogDir(1, "/data/kafka-b", "KAFKA_STORAGE_ERROR", 0, 0, None, None),
    LogDir(2, None, "no answer within 8 s", 0, 0, None, None),
    LogDir(7, None, NOT_ALIVE, 0, 0, None, None),
]  # fmt: skip
FAILED = [log_dir for log_dir in LOG_DIRS if log_dir.error]
MANY_REPLICAS = [
    LogDir(
        0, "/data", None, sum(range(40)) * MIB, 40, 100 * GIB, 8 * GIB,
        tuple(DirReplica("orders", index, index * MIB, index % 3, False) for index in range(40)),
    )
]  # fmt: skip
SOUND = [
    SelfReport(
        "3.9",
        "3.9-IV0",
        (OfferedApi(0, "Produce", 0, 11), OfferedApi(999, None, 0, 0)),
        (
            DirSummary("/data/kafka-a", 12, 3 * GIB, 100 * GIB, 40 * GIB, None),
            DirSummary("/data/kafka-b", 0, 0, None, None, "KAFKA_STORAGE_ERROR"),
        ),
    ),
    SelfReport(trouble="no answer within 8 s"),
]
LISTENERS = (
    ListenerDescription("PLAINTEXT", "PLAINTEXT", "kafka-1.example.org", 9092),
    ListenerDescription("REPLICATION", "SSL", "10.1.2.3", 9093),
)
MANY = tuple(f"orders-{index}" for index in range(12))
BROKERS = [
    BrokerDetails(
        1, True, True, "rack-a", LISTENERS, 8589934610, 1_700_000_000_000, 9999,
        BrokerPartitions(12, 3, 4, 2, MANY, ("orders-7",), 1, 2),
        {"leader.replication.throttled.rate": "1000000"}, SOUND[0],
    ),
    BrokerDetails(2, True, False, None, LISTENERS[:1], None, None, None, BrokerPartitions(), {}, SOUND[1]),
    BrokerDetails(7, False, False, None, (), None, None, None, BrokerPartitions(5, 0, 2, 0, MANY[:5], ()), {}),
]  # fmt: skip

REPORTS: dict[str, tuple[str, Report]] = {
    "brokers-describe": ("brokers describe", broker_details_report(BROKERS, with_apis=False)),
    "brokers-describe-apis": ("brokers describe", broker_details_report(BROKERS[:1], with_apis=True)),
    "brokers-log-dirs": ("brokers log-dirs", log_dirs_report(LOG_DIRS, order="name")),
    "brokers-log-dirs-by-size": ("brokers log-dirs", log_dirs_report(LOG_DIRS[:1], order="size")),
    "brokers-log-dirs-largest": (
        "brokers log-dirs", log_dirs_report(MANY_REPLICAS, order="name", names_topics=False),
    ),
    "brokers-log-dirs-none": ("brokers log-dirs", log_dirs_report([], order="name")),
    "brokers-log-dirs-of-dirs": (
        "brokers log-dirs --summary", totals_report(totals_by_dir(LOG_DIRS), "dir", order="size", failed=FAILED),
    ),
    "brokers-log-dirs-of-brokers": (
        "brokers log-dirs --summary", totals_report(totals_by_broker(LOG_DIRS), "broker", order="name", failed=FAILED),
    ),
    "brokers-log-dirs-of-topics": (
        "brokers log-dirs --summary", totals_report(totals_by_topic(LOG_DIRS), "topic", order="lag", failed=FAILED),
    ),
    "offsets": (
        "offsets",
        offsets_report([PartitionOffset("orders", 0, 1, 1507), PartitionOffset("orders", 1, 2, 0)], by_time=False),
    ),
    "offsets-by-time": (
        "offsets",
        offsets_report(
            [
                PartitionOffset("orders", 0, 1, 1507, 1_700_000_000_123, 4),
                PartitionOffset("orders", 1, 2),
                PartitionOffset("orders", 2, -1, error="LEADER_NOT_AVAILABLE"),
            ],
            by_time=True,
        ),
    ),
    "records-delete": (
        "records delete",
        deletions_report(
            [
                RecordsDeletion("orders", 0, 1, 0, 1507, 1000, 1000, 3 * MIB, DeletionResult.DELETED, 1000),
                RecordsDeletion("orders", 1, 2, 7, 7, 7, 0, 0, DeletionResult.NOTHING_TO_DO),
                RecordsDeletion(
                    "payments.incoming", 11, 2, 0, 90, 80, 80, None, DeletionResult.UNDER_WAY, 0, "REQUEST_TIMED_OUT"
                ),
                RecordsDeletion(
                    "payments.incoming", 12, 0, 0, 9, 9, 9, None, DeletionResult.FAILED, None, "POLICY_VIOLATION"
                ),
            ]
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("scene", REPORTS)
def test_of_values(monkeypatch: pytest.MonkeyPatch, scene: str) -> None:
    check_report(scene, *REPORTS[scene], monkeypatch)


def test_machines_get_all_replicas_and_are_not_told_otherwise() -> None:
    report = log_dirs_report(MANY_REPLICAS, order="name", names_topics=False, is_for_people=False)
    assert (len(report.table.rows), report.notes) == (40, ())


def test_a_rate_of_nothing_is_0_and_an_unknown_one_is_none() -> None:
    idle, silent = BrokerLoad(0, None, True, 1, 1, 1, 10, 0, 0.4, 1.6), BrokerLoad(1, None, True, 1, 0, 0, 10)
    rows = load_report([idle, silent], {1: "no answer"}).table.rows
    assert [tuple(row[-3:]) for row in rows] == [(0, 0, 2), (None, None, None)]
