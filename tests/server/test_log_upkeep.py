"""The log manager's periodic work goes on, whatever befalls one log or one job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from log_folders import NOW_MS, data_batch

from engine.common.clock import ManualClock
from engine.common.model import TopicPartition
from engine.config.broker import BrokerConfig
from engine.config.log_config import LogConfig
from engine.runtime.offload import Offloader
from engine.server import log_upkeep
from engine.server.log_upkeep import LogUpkeep
from engine.storage.disk_jobs import DeleteJob, DiskJob
from engine.storage.log_manager import LogManager, LogManagerConfig

DEADLINE_S = 20


class FailingJob:
    """Work that meets what nobody has thought of."""

    def run(self) -> None:
        raise ValueError("nobody has thought of it")

    def finish(self) -> None:
        """Nothing was done."""


def test_jobs_behind_one_that_fails_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are handed out once: what is forgotten stays on the disk until the next start."""
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
    assert manager.run_retention() == 2
    assert [log.log_start_offset for log in logs] == [0, 1, 1]
    assert "partition=t-0" in caplog.text
    manager.release()
