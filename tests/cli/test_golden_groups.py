"""What a person and a script see of groups: golden in every place, JSON by its schema, the same in every format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import yaml
from golden import check_report, printed

from cli.exit_codes import ExitCode
from cli.output.format import OutputFormat
from cli.output.report import Report
from cli.views.groups import (
    NOTES_MAX,
    deleted_groups_report,
    deleted_offsets_report,
    group_list_report,
    members_report,
    offsets_report,
    reset_report,
    states_report,
)
from engine.admin.cluster.errors import Unknown
from engine.admin.groups.deleting import DeletedGroup, DeletedOffset, DeletionResult
from engine.admin.groups.describing import GroupsListed
from engine.admin.groups.description import DescribedGroup, described_group, described_old_group
from engine.admin.groups.old_consumers import OldGroup
from engine.admin.groups.reset_plan import PartitionReset, ResetResult
from engine.admin.groups.values import (
    CommittedOffset,
    GroupDescription,
    GroupMember,
    GroupState,
    GroupType,
    ListedGroup,
)
from engine.common.errors import ErrorCode
from engine.common.model import Node, TopicPartition

ORDERS = [TopicPartition("orders", index) for index in range(3)]
GONE = TopicPartition("gone", 0)
STATIC = GroupMember(
    "node-2-cf7d26bb-53fb-42bf-b3c0-8202bec3a921", "node-2", "app-2", "/127.0.0.1", (ORDERS[0], ORDERS[1])
)
DYNAMIC = GroupMember("app-1-09763890-8df8-45d2-b976-792adc88ee1a", None, "app-1", "/127.0.0.1", (ORDERS[2],))
WORKER = GroupMember("connect-1-0c5b4a46-77ff-4ff0-9a0c-0d1f0a34d1c2", None, "connect-1", "/10.0.0.9", None)
NODES = {1: Node(1, "kafka-1.example", 9092)}
ENDS = {ORDERS[0]: 1234, ORDERS[1]: 880, ORDERS[2]: Unknown("no leader"), GONE: Unknown("UNKNOWN_TOPIC_OR_PARTITION")}
OLD_MEMBER = "mirror_host-1.example-1700000000000-0a1b2c3d"


def described() -> list[DescribedGroup]:
    """Return a group with every oddity, one without readers, one in ZooKeeper, and one without a coordinator."""
    offsets = {
        ORDERS[0]: CommittedOffset(1200, 3, "batch 7"),
        ORDERS[1]: CommittedOffset(900),
        GONE: CommittedOffset(7),
    }
    billing = GroupDescription(
        "billing", GroupType.CLASSIC, GroupState.STABLE, "consumer", "range", 1, (STATIC, DYNAMIC)
    )
    nightly = GroupDescription("nightly", GroupType.CLASSIC, GroupState.EMPTY, "", "", 2, ())
    connect = GroupDescription(
        "workers", GroupType.CLASSIC, GroupState.PREPARING_REBALANCE, "connect", "", 1, (WORKER,)
    )
    forbidden = Unknown("GROUP_AUTHORIZATION_FAILED", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return [
        described_group(billing, offsets, ENDS, NODES),
        DescribedGroup("lost", GroupType.CLASSIC, None, "", "", None, error="COORDINATOR_NOT_AVAILABLE"),
        described_old_group(
            OldGroup("mirror", (OLD_MEMBER,), {ORDERS[0]: f"{OLD_MEMBER}-0"}, {ORDERS[0]: CommittedOffset(1000)}), ENDS
        ),
        described_group(nightly, forbidden, {}, NODES),
        described_group(connect, {}, {}, NODES),
    ]


RESETS = [
    PartitionReset("billing", "orders", 0, 1200, 0, ResetResult.RESET),
    PartitionReset("billing", "orders", 1, None, 880, ResetResult.FAILED, "UNKNOWN_MEMBER_ID"),
]
REPORTS: dict[str, Callable[[], Report]] = {
    "groups-list": lambda: group_list_report(
        GroupsListed(
            (
                ListedGroup("billing", GroupType.CLASSIC, "consumer", GroupState.STABLE, 1),
                ListedGroup("from-0.8", GroupType.ZOOKEEPER, "", GroupState.ACTIVE, -1),
                ListedGroup("nightly", GroupType.CLASSIC, "", None, 2),
            ),
            (ListedGroup("connect-cluster", GroupType.CLASSIC, "connect", GroupState.STABLE, 1),),
        ),
        with_state=True,
        with_type=False,
        exit_code=ExitCode.DONE,
    ),
    "groups-describe": lambda: offsets_report(described(), exit_code=ExitCode.REFUSED),
    "groups-members": lambda: members_report(described(), is_verbose=True, exit_code=ExitCode.DONE),
    "groups-state": lambda: states_report(described(), exit_code=ExitCode.DONE),
    "groups-reset": lambda: reset_report(RESETS, exit_code=ExitCode.REFUSED),
    "groups-delete": lambda: deleted_groups_report(
        [
            DeletedGroup("billing", GroupType.CLASSIC, DeletionResult.FAILED, "the group is Stable, with 1 member"),
            DeletedGroup("nightly", GroupType.CLASSIC, DeletionResult.DELETED),
        ],
        exit_code=ExitCode.REFUSED,
    ),
    "groups-delete-offsets": lambda: deleted_offsets_report(
        [
            DeletedOffset("billing", "gone", 0, 7, DeletionResult.DELETED),
            DeletedOffset("billing", "gone", 1, None, DeletionResult.NOTHING_COMMITTED),
        ],
        exit_code=ExitCode.DONE,
        groups=["billing"],
        topics=["gone"],
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_what_a_person_sees(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_report(name, name.replace("-", " ", 1), REPORTS[name](), monkeypatch)


@pytest.mark.parametrize("name", REPORTS)
def test_all_formats_tell_the_same(name: str) -> None:
    report = REPORTS[name]()
    data = json.loads(printed(report, OutputFormat.JSON))
    assert yaml.safe_load(printed(report, OutputFormat.YAML)) == data
    assert [json.loads(line) for line in printed(report, OutputFormat.JSONL).splitlines()] == data
    rows = list(csv.reader(io.StringIO(printed(report, OutputFormat.CSV))))
    assert rows[0] == [column.name for column in report.table.columns]
    plain = [line.split("\t") for line in printed(report, OutputFormat.PLAIN).splitlines()]
    kept = [index for index, column in enumerate(report.table.columns) if column.in_plain]
    assert plain == [[row[index] or "-" for index in kept] for row in rows[1:]]


def test_what_json_says_of_a_group() -> None:
    billing = json.loads(printed(REPORTS["groups-describe"](), OutputFormat.JSON))[0]
    partitions = billing.pop("partitions")
    assert billing == {
        "group": "billing",
        "type": "classic",
        "state": "Stable",
        "protocol_type": "consumer",
        "assignment_strategy": "range",
        "coordinator": {"id": 1, "host": "kafka-1.example", "port": 9092},
        "member_count": 2,
        "error": None,
    }
    assert partitions[1] == {
        "topic": "orders",
        "partition": 0,
        "current_offset": 1200,
        "log_end_offset": 1234,
        "lag": 34,
        "consumer_id": STATIC.member_id,
        "group_instance_id": "node-2",
        "host": "/127.0.0.1",
        "client_id": "app-2",
        "metadata": "batch 7",
        "error": None,
    }
    assert (partitions[2]["lag"], partitions[3]["lag"]) == (-20, None), "cut behind its back; not known"


def test_what_is_not_known_is_null() -> None:
    lost = json.loads(printed(REPORTS["groups-state"](), OutputFormat.JSON))[1]
    assert lost == {
        "group": "lost",
        "type": "classic",
        "state": None,
        "protocol_type": None,
        "assignment_strategy": None,
        "coordinator": None,
        "member_count": None,
        "error": "COORDINATOR_NOT_AVAILABLE",
    }


@pytest.mark.parametrize("report_of", [offsets_report, states_report])
def test_many_groups_are_one_table(report_of: Callable[..., Report], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    billing, lost, *_ = described()
    many = [replace(billing, group=f"g{number}") for number in range(40)]
    lines = printed(report_of([*many, lost], exit_code=ExitCode.DONE), OutputFormat.TABLE).splitlines()
    assert sum(line.startswith("─") for line in lines) == 1
    assert sum("COORDINATOR_NOT_AVAILABLE" in line for line in lines) == 1
    assert {line.split()[0] for line in lines} >= {f"g{number}" for number in range(40)}


def test_many_groups_without_members_are_counted_and_one_is_named() -> None:
    def group(name: str, state: GroupState) -> DescribedGroup:
        described = GroupDescription(name, GroupType.CLASSIC, state, "consumer", "", 1, ())
        return described_group(described, {}, {}, NODES)

    empty = [group(f"g{number}", GroupState.EMPTY) for number in range(NOTES_MAX)]
    report = states_report([*empty, group("busy", GroupState.PREPARING_REBALANCE)], exit_code=ExitCode.DONE)
    assert report.notes == ("10 groups have no active members", "consumer group 'busy' has a rebalance going on")


def test_names_cannot_move_the_cursor() -> None:
    evil = DescribedGroup("a\x1b[2J\tb", GroupType.CLASSIC, GroupState.EMPTY, "", "", None)
    for output in (OutputFormat.TABLE, OutputFormat.PLAIN):
        assert "\x1b" not in printed(states_report([evil], exit_code=ExitCode.DONE), output)


def test_a_member_whose_partitions_cannot_be_read_is_a_row_with_the_reason() -> None:
    """Of another protocol, or of the consumers' with bytes that do not decode; one that owns nothing has no reason."""
    garbled = GroupDescription("g", GroupType.CLASSIC, GroupState.STABLE, "consumer", "own", 1, (WORKER,))
    idle = replace(garbled, group="idle", members=(replace(WORKER, assignment=()),))
    connect = replace(garbled, group="c", protocol_type="connect")
    groups = [described_group(group, {}, {}, NODES) for group in (connect, garbled, idle)]
    plain = printed(offsets_report(groups, exit_code=ExitCode.DONE), OutputFormat.CSV).splitlines()
    assert [line.split(",")[0] for line in plain[1:]] == ["c", "g", "idle"]
    assert all(WORKER.member_id in line for line in plain[1:])
    assert [line.rpartition("their protocol is ")[2] for line in plain[1:3]] == ["connect", "consumer"]
    assert "cannot be read" not in plain[3]
    shown = printed(offsets_report(groups[:1], exit_code=ExitCode.DONE), OutputFormat.TABLE)
    assert "what its members own cannot be read; their protocol is connect" in shown
