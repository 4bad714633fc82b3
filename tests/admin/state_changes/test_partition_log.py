"""What state-change logs say about one partition."""

from __future__ import annotations

import asyncio
from datetime import UTC
from pathlib import Path

import pytest
from state_change_logs import entry, write_log

from engine.admin.cluster.errors import NotFound
from engine.admin.state_changes import partition_log as module
from engine.admin.state_changes.merged_rows import Role
from engine.admin.state_changes.partition_log import partition_log, read_partition_log
from engine.common.model import TopicPartition

RECORDED = Path(__file__).parents[3] / "fixtures" / "state-changes"
DAY_MS = 86_400_000
ORDERS = TopicPartition("orders", 3)


def test_a_recorded_log_of_kafka_is_taken_apart() -> None:
    log = read_partition_log([RECORDED / "broker-killed"], TopicPartition("move", 0), zone=UTC)
    assert log.file_count == 2 and not log.problems and not log.left_out
    assert len(log.entries) == 9
    first = log.entries[0]
    assert (first.row.broker, first.row.role) == (0, Role.CONTROLLER)
    assert first.state is not None
    assert (first.state.leader, first.state.isr, first.state.leader_epoch) == (1, (1,), 7)
    assert [entry.row.utc_start for entry in log.entries] == sorted(entry.row.utc_start or b"" for entry in log.entries)


def test_only_the_partition_and_only_the_last_day_of_the_logs(tmp_path: Path) -> None:
    entries = [
        entry(0, 1, "Partition orders-3 an hour too early"),
        entry(2 * 3_600_000, 1, "Partition orders-3 in time"),
        entry(DAY_MS, 1, "Partition orders-30 is another one"),
        entry(DAY_MS + 3_600_000, 1, "Partition orders-4 is the last line"),
    ]
    write_log(tmp_path / "broker-1" / "state-change.log", [line for entry in entries for line in entry.lines])
    log = read_partition_log([tmp_path], ORDERS, zone=UTC)
    assert [entry.row.message for entry in log.entries] == ["Partition orders-3 in time"]
    assert read_partition_log([tmp_path], TopicPartition("absent", 0), zone=UTC).entries == ()


def test_the_oldest_of_many_entries_are_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES_MAX", 3)
    entries = [entry(number, 1, f"Partition orders-3 step {number}") for number in range(5)]
    write_log(tmp_path / "state-change.log", [line for entry in entries for line in entry.lines])
    log = read_partition_log([tmp_path], ORDERS, zone=UTC)
    assert [entry.row.message[-1] for entry in log.entries] == ["2", "3", "4"]
    assert log.left_out == 2
    assert [entry.number for entry in log.entries] == [2, 3, 4]


def test_damage_is_told_and_a_missing_place_too(tmp_path: Path) -> None:
    write_log(tmp_path / "broker-1" / "state-change.log", entry(0, 1, "Partition orders-3 was here").lines)
    (tmp_path / "broker-2").mkdir()
    (tmp_path / "broker-2" / "state-change.log").write_bytes(b"\x1f\x8b no gzip")
    log = read_partition_log([tmp_path], ORDERS, zone=UTC)
    assert len(log.entries) == 1
    assert [problem.source for problem in log.problems] == [str(tmp_path / "broker-2" / "state-change.log")]
    with pytest.raises(NotFound):
        asyncio.run(partition_log([tmp_path / "absent"], ORDERS))
