"""Due work in all logs of a broker: flushes, retention, expiring producers, checkpoints after a truncation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from log_folders import NOW_MS, ManagedLogs, checkpoint, data_batch, write_checkpoints

from engine.broker.log.disk_jobs import run_jobs
from engine.broker.log.flush_state import DueFlushes
from engine.broker.log.log import Log
from engine.broker.log.producer_state import ProducerStateManager
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.checkpoints import HIGH_WATERMARK_CHECKPOINT

A, B, C = (TopicPartition("topic", n) for n in range(3))


def test_rolled_segments_are_flushed_when_due(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d", config=LogConfig(segment_bytes=150)).loaded()
    broker.create(A, 5)
    log = broker.logs.logs[A]
    assert log.recovery_point == 0
    run_jobs(broker.logs.due_jobs())
    assert log.recovery_point == log.segments[-1].base_offset > 0
    assert list(broker.logs.flush_jobs()) == []


def test_flush_ms_flushes_what_waits(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d", config=LogConfig(flush_ms=1000)).loaded()
    broker.create(A, 2)
    assert list(broker.logs.flush_jobs()) == []
    broker.clock.advance(1000)
    run_jobs(broker.logs.flush_jobs())
    assert broker.logs.logs[A].recovery_point == 2
    broker.clock.advance(5000)
    assert list(broker.logs.flush_jobs()) == []


def test_a_job_that_was_given_up_counts_as_not_done(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d", config=LogConfig(flush_ms=0)).loaded()
    broker.create(A, 2)
    (job,) = broker.logs.flush_jobs()
    job.finish()
    assert broker.logs.logs[A].recovery_point == 0


def test_a_log_on_the_list_is_flushed_once() -> None:
    flushes = DueFlushes()
    asked: list[int] = []
    flushes.add(cast("Log", SimpleNamespace(is_offline=False, begin_flush=asked.append)), 5)
    for _ in range(2):
        assert list(flushes.jobs((), NOW_MS)) == []
    assert asked == [5]


def test_a_log_that_was_deleted_is_not_flushed(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d", config=LogConfig(segment_bytes=150)).loaded()
    broker.create(A, 5)
    broker.logs.delete(A)
    assert list(broker.logs.flush_jobs()) == []
    assert broker.failed == []


def test_retention_visits_every_log(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d", config=LogConfig(segment_bytes=150, retention_ms=1000)).loaded()
    for partition in (A, B, C):
        broker.create(partition, 4)
    broker.config = replace(broker.config)
    assert sum(broker.logs.retention_steps()) == 0
    broker.clock.advance(2000)
    deleted = list(broker.logs.retention_steps())
    assert len(deleted) == 3
    assert min(deleted) > 1
    assert {log.log_start_offset for log in broker.logs.logs.values()} == {4}
    broker.clock.advance(broker.config.file_delete_delay_ms)
    run_jobs(broker.logs.due_jobs())
    assert list((tmp_path / "d").rglob("*.deleted")) == []


def test_retention_drops_very_many_segments_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 of them held the event loop for 0.2 s; the server gives way between the steps."""
    for module in ("retention", "log_manager"):
        monkeypatch.setattr(f"engine.broker.log.{module}.DROPPED_AT_ONCE_MAX", 2)
    broker = ManagedLogs(tmp_path / "d", config=LogConfig(segment_bytes=150, retention_ms=1000)).loaded()
    for partition in (A, B):
        broker.create(partition, 9)
    before = {partition: len(log.segments) for partition, log in broker.logs.logs.items()}
    broker.clock.advance(2000)
    deleted = list(broker.logs.retention_steps())
    assert max(deleted) == 2
    assert sum(deleted) == sum(before.values()) > 5
    assert {log.log_start_offset for log in broker.logs.logs.values()} == {9}


def test_retention_leaves_a_log_alone_that_is_being_cleaned(tmp_path: Path) -> None:
    """The cleaner reads the segments that retention would take away."""
    broker = ManagedLogs(tmp_path / "d", config=LogConfig(segment_bytes=150, retention_ms=1000)).loaded()
    for partition in (A, B):
        broker.create(partition, 4)
    cleaned, other = (broker.logs.logs[partition] for partition in (A, B))
    cleaned.cleaning.is_in_progress = True
    broker.clock.advance(2000)
    steps = broker.logs.retention_steps()
    assert (next(steps), cleaned.log_start_offset) == (0, 0)
    assert next(steps) > 0
    assert other.log_start_offset == 4


def test_producers_expire_in_all_logs(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 0)
    log = broker.logs.logs[A]
    log.append_as_leader(data_batch(b"v", timestamp_ms=NOW_MS, producer=(1, 0, 0)), 0)
    list(broker.logs.producer_expiry_steps())
    assert len(log.producers.producers) == 1
    broker.clock.advance(86_400_000)
    list(broker.logs.producer_expiry_steps())
    assert log.producers.producers == {}


def test_a_cut_below_the_recovery_point_is_checkpointed_at_once(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    for partition in (A, B):
        broker.create(partition, 5)
        broker.logs.logs[partition].flush()
    write_checkpoints(broker.logs)
    assert checkpoint(tmp_path / "d", "recovery-point-offset-checkpoint") == {A: 5, B: 5}
    broker.logs.logs[A].truncate_to(2)
    broker.logs.logs[A].append_as_leader(data_batch(*(b"other" for _ in range(9))), 1)
    broker.logs.logs[B].truncate_fully_and_start_at(3)
    run_jobs(broker.logs.due_jobs())
    assert checkpoint(tmp_path / "d", "recovery-point-offset-checkpoint") == {A: 2, B: 3}


def test_a_log_that_begins_anew_below_the_recovery_point_is_checkpointed_at_once(tmp_path: Path) -> None:
    """A recovery that trusted the old recovery point would take everything written from here on for sound."""
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 5)
    log = broker.logs.logs[A]
    log.flush()
    write_checkpoints(broker.logs)
    log.truncate_fully_and_start_at(3)
    run_jobs(broker.logs.due_jobs())
    assert checkpoint(tmp_path / "d", "recovery-point-offset-checkpoint") == {A: 3}


def test_a_cut_of_what_was_never_flushed_needs_no_checkpoint(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 5)
    broker.logs.logs[A].truncate_to(2)
    assert list(broker.logs.due_jobs()) == []


def test_checkpoints_written_twice_at_once_stay_whole(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(A, 2)
    first, second = broker.logs.checkpoint_jobs(HIGH_WATERMARK_CHECKPOINT) + broker.logs.checkpoint_jobs(
        HIGH_WATERMARK_CHECKPOINT
    )
    first.run()
    second.run()
    second.finish()
    first.finish()
    assert checkpoint(tmp_path / "d", "replication-offset-checkpoint") == {A: 2}
    assert list((tmp_path / "d").glob("*.tmp")) == []


class FailsFor:
    """Replaces a method: it fails for one object, in a way that nobody foresaw, until ``is_mended``."""

    def __init__(self, real: Callable[..., Any], failing: object) -> None:
        self.is_mended = False
        self._real, self._failing = real, failing

    def __get__(self, owner: object, _: type) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if owner is self._failing and not self.is_mended:
                raise ValueError("nobody has thought of it")
            return self._real(owner, *args)

        return call


def test_a_log_that_cannot_be_flushed_keeps_no_other_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = ManagedLogs(tmp_path / "d", config=LogConfig(segment_bytes=150)).loaded()
    for partition in (A, B, C):
        broker.create(partition, 5)
    fault = FailsFor(Log.begin_flush, broker.logs.logs[A])
    monkeypatch.setattr(Log, "begin_flush", fault)
    run_jobs(broker.logs.due_jobs())
    flushed = [log.recovery_point > 0 for log in broker.logs.logs.values()]
    assert flushed == [False, True, True]
    assert "partition=topic-0" in caplog.text and "nobody has thought of it" in caplog.text
    fault.is_mended = True
    run_jobs(broker.logs.due_jobs())
    assert broker.logs.logs[A].recovery_point > 0, "it stays on the list"


def test_a_log_whose_producers_cannot_expire_keeps_those_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    for partition in (A, B, C):
        broker.create(partition, 0)
        batch = data_batch(b"v", timestamp_ms=NOW_MS, producer=(1, 0, 0))
        broker.logs.logs[partition].append_as_leader(batch, 0)
    producers = [log.producers for log in broker.logs.logs.values()]
    monkeypatch.setattr(ProducerStateManager, "expire", FailsFor(ProducerStateManager.expire, producers[0]))
    broker.clock.advance(86_400_000)
    list(broker.logs.producer_expiry_steps())
    assert [len(each.producers) for each in producers] == [1, 0, 0]
    assert "partition=topic-0" in caplog.text and "nobody has thought of it" in caplog.text


def test_a_log_whose_files_cannot_be_closed_keeps_those_of_no_other_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    for partition in (A, B, C):
        broker.create(partition)
    logs, closed = list(broker.logs.logs.values()), []
    monkeypatch.setattr(Log, "release_idle_files", lambda log: closed.append(log.topic_partition))
    monkeypatch.setattr(Log, "release_idle_files", FailsFor(Log.release_idle_files, logs[0]))
    list(broker.logs.idle_file_steps())
    assert closed == [B, C]
    assert "partition=topic-0" in caplog.text
