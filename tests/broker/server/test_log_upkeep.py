"""The log manager's periodic work goes on, whatever happens to one log or one job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from log_folders import NOW_MS, ManagedLogs, checkpoint, data_batch, write_checkpoints
from virtual_time import ManualClock, run_virtual

from engine.broker.log.disk_jobs import DeleteJob, DiskJob
from engine.broker.log.log import Log
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.broker.server import log_upkeep
from engine.broker.server.log_upkeep import LogUpkeep
from engine.common.model import TopicPartition
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from engine.runtime.offload import Offloader

DEADLINE_S = 20
TP = TopicPartition("t", 0)


class FailingJob:
    """A job that fails in a way that nobody foresaw."""

    def run(self) -> None:
        raise ValueError("nobody has thought of it")

    def finish(self) -> None:
        """Nothing to finish."""


async def _run_here(work: Any) -> Any:
    return work()


def upkeep_of(logs: LogManager, **intervals: int) -> LogUpkeep:
    """Return the upkeep of these logs on virtual time: all work is due in a year, except what ``intervals`` names."""
    year_ms = 365 * 86_400_000
    wanted = dict.fromkeys(
        (
            "replica_high_watermark_checkpoint_interval_ms",
            "log_flush_offset_checkpoint_interval_ms",
            "log_flush_start_offset_checkpoint_interval_ms",
            "log_initial_task_delay_ms",
            "log_retention_check_interval_ms",
            "producer_id_expiration_check_interval_ms",
        ),
        year_ms,
    )
    config: Any = SimpleNamespace(**wanted | intervals)
    here: Any = SimpleNamespace(run=_run_here)
    return LogUpkeep(config, logs, here)


@pytest.mark.parametrize(
    ("interval", "file"),
    [
        ("replica_high_watermark_checkpoint_interval_ms", HIGH_WATERMARK_CHECKPOINT),
        ("log_flush_offset_checkpoint_interval_ms", RECOVERY_POINT_CHECKPOINT),
        ("log_flush_start_offset_checkpoint_interval_ms", LOG_START_OFFSET_CHECKPOINT),
    ],
)
def test_each_checkpoint_is_written_at_its_own_interval(tmp_path: Path, interval: str, file: str) -> None:
    """A killed broker forgets no more than an interval. Otherwise deleted records would come back."""
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(TP, 6)
    log = broker.logs.logs[TP]
    write_checkpoints(broker.logs)

    def written() -> dict[str, int | None]:
        names = (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
        return {name: checkpoint(tmp_path / "d", name).get(TP) for name in names}

    async def run() -> None:
        upkeep = upkeep_of(broker.logs, **{interval: 7_000})
        upkeep.start()
        expected = written()
        for n in (1, 2):
            log.update_high_watermark(4 + n)
            log.flush(2 + n)
            log.increment_log_start_offset(n)
            present = {
                HIGH_WATERMARK_CHECKPOINT: 4 + n,
                RECOVERY_POINT_CHECKPOINT: 2 + n,
                LOG_START_OFFSET_CHECKPOINT: n,
            }
            await asyncio.sleep(7.1)
            expected[file] = present[file]
            assert written() == expected
        await upkeep.stop()

    run_virtual(run)
    broker.logs.release()


def test_files_that_nobody_uses_are_closed_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ManagedLogs(tmp_path / "d").loaded()
    names = [TopicPartition("t", number) for number in range(2)]
    for name in names:
        broker.create(name)
    closed: list[TopicPartition] = []
    monkeypatch.setattr(Log, "release_idle_files", lambda log: closed.append(log.topic_partition))

    async def run() -> None:
        upkeep = upkeep_of(broker.logs)
        upkeep.start()
        await asyncio.sleep(log_upkeep.IDLE_FILES_INTERVAL_MS / 1000 + 1)
        assert closed == names
        await upkeep.stop()

    run_virtual(run)
    broker.logs.release()


@pytest.mark.parametrize(
    ("interval", "file", "interval_ms"),
    [
        ("replica_high_watermark_checkpoint_interval_ms", HIGH_WATERMARK_CHECKPOINT, -1),
        ("replica_high_watermark_checkpoint_interval_ms", HIGH_WATERMARK_CHECKPOINT, 0),
        ("log_flush_offset_checkpoint_interval_ms", RECOVERY_POINT_CHECKPOINT, 0),
        ("log_flush_start_offset_checkpoint_interval_ms", LOG_START_OFFSET_CHECKPOINT, 0),
    ],
)
def test_without_an_interval_a_checkpoint_is_written_once(
    tmp_path: Path, interval: str, file: str, interval_ms: int
) -> None:
    """As Kafka 3.9.1 (KafkaScheduler.schedule); all the time would keep the disk busy."""
    broker = ManagedLogs(tmp_path / "d").loaded()
    broker.create(TP, 6)
    log = broker.logs.logs[TP]
    write_checkpoints(broker.logs)

    def move(offset: int) -> None:
        log.flush(offset)
        log.update_high_watermark(offset)
        log.increment_log_start_offset(offset)

    async def run() -> None:
        upkeep = upkeep_of(broker.logs, log_initial_task_delay_ms=30_000, **{interval: interval_ms})
        upkeep.start()
        for offset, waited_s, expected in ((5, 29, checkpoint(tmp_path / "d", file).get(TP)), (5, 2, 5), (6, 9_000, 5)):
            move(offset)
            await asyncio.sleep(waited_s)
            assert checkpoint(tmp_path / "d", file).get(TP) == expected
        await upkeep.stop()

    run_virtual(run)
    broker.logs.release()


def test_what_is_old_goes_after_the_first_delay_and_then_at_each_interval(tmp_path: Path) -> None:
    broker = ManagedLogs(tmp_path / "d", config=LogConfig(retention_ms=1_000)).loaded()
    broker.create(TP, 2)
    log = broker.logs.logs[TP]
    log.append_as_leader(data_batch(b"v", timestamp_ms=NOW_MS, producer=(1, 0, 0)), 0)

    async def run() -> None:
        upkeep = upkeep_of(
            broker.logs,
            log_initial_task_delay_ms=30_000,
            log_retention_check_interval_ms=300_000,
            producer_id_expiration_check_interval_ms=600_000,
        )
        upkeep.start()
        for waited_s in (30, 300):
            log.update_high_watermark(log.log_end_offset)
            broker.clock.advance(2_000)
            await asyncio.sleep(waited_s + 1)
            assert log.log_start_offset == log.log_end_offset
            log.append_as_leader(data_batch(b"v", timestamp_ms=broker.clock.now_ms()), 0)
        assert set(log.producers.producers) == {1}
        broker.clock.advance(broker.logs.producer_id_expiration_ms)
        await asyncio.sleep(600)
        assert log.producers.producers == {}
        await upkeep.stop()

    run_virtual(run)
    broker.logs.release()


def test_jobs_behind_one_that_fails_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs are handed out once: a forgotten one leaves its files on the disk until the next start."""
    manager = LogManager(LogManagerConfig((tmp_path / "d",)), lambda _: LogConfig(), ManualClock(NOW_MS), print)
    doomed = tmp_path / "d" / "doomed"
    doomed.write_text("x")
    waiting: list[DiskJob] = [FailingJob(), DeleteJob(manager, tmp_path / "d", [doomed])]

    def due_jobs() -> Sequence[DiskJob]:
        taken = list(waiting)
        waiting.clear()
        return taken

    monkeypatch.setattr(manager, "due_jobs", due_jobs)
    monkeypatch.setattr(log_upkeep, "DUE_INTERVAL_MS", 1)

    async def run() -> None:
        upkeep = LogUpkeep(BrokerConfig.from_properties({"zookeeper.connect": "localhost"}), manager, Offloader(1))
        upkeep.start()
        async with asyncio.timeout(DEADLINE_S):
            while doomed.exists():
                await asyncio.sleep(0.001)
        await upkeep.stop()

    asyncio.run(run())
    manager.release()
    assert "nobody has thought of it" in caplog.text


@pytest.mark.parametrize("is_enabled", [True, False])
def test_without_the_cleaner_a_compacted_topic_keeps_everything(tmp_path: Path, is_enabled: bool) -> None:
    """As in Kafka 3.9.1 (LogManager.cleanupLogs), also where the policy is to delete, too."""
    policies = {"both": ("compact", "delete"), "deleted": ("delete",)}
    limits = LogManagerConfig((tmp_path / "d",), log_cleaner_enable=is_enabled)
    manager = LogManager(
        limits, lambda topic: LogConfig(retention_ms=1, cleanup_policy=policies[topic]), ManualClock(NOW_MS), print
    )
    manager.load()
    for topic in policies:
        log = manager.get_or_create(TopicPartition(topic, 0), is_new=True)
        log.append_as_leader(data_batch(b"old", timestamp_ms=1000), 0)
        log.update_high_watermark(log.log_end_offset)
    sum(manager.retention_steps())
    starts = {partition.topic: log.log_start_offset for partition, log in manager.logs.items()}
    assert starts == {"both": int(is_enabled), "deleted": 1}
    manager.release()


def test_a_log_whose_retention_fails_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = LogConfig(retention_ms=1)
    manager = LogManager(LogManagerConfig((tmp_path / "d",)), lambda _: config, ManualClock(NOW_MS), print)
    manager.load()
    logs = [manager.get_or_create(TopicPartition("t", index), is_new=True) for index in range(3)]
    for log in logs:
        log.append_as_leader(data_batch(b"old", timestamp_ms=1000), 0)
        log.update_high_watermark(log.log_end_offset)
    real = type(logs[0]).delete_old_segments

    def failing(log: Any, now_ms: int) -> int:
        if log is logs[0]:
            raise ValueError("nobody has thought of it")
        return real(log, now_ms)

    monkeypatch.setattr(type(logs[0]), "delete_old_segments", failing)
    assert sum(manager.retention_steps()) == 2
    assert [log.log_start_offset for log in logs] == [0, 1, 1]
    assert "partition=t-0" in caplog.text
    manager.release()
