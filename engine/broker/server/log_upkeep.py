"""The log manager's periodic work, at Kafka's intervals. Slow parts run in threads, one after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from engine.broker.log.disk_jobs import DiskJob
from engine.broker.log.log_manager import LogManager
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.formats.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from engine.runtime.offload import Offloader
from engine.runtime.supervisor import Supervisor
from engine.runtime.turns import Breather

logger = logging.getLogger(__name__)

DUE_INTERVAL_MS = 1000
"""Interval of checks for flushes after rolls, files to remove and due checkpoints."""

IDLE_FILES_INTERVAL_MS = 300_000


async def _in_turns(steps: Callable[[], Iterable[object]]) -> None:
    breather = Breather()
    for _ in steps():
        await breather.give_way()


class LogUpkeep:
    """Retention, flushes, checkpoints, removals."""

    def __init__(self, config: BrokerConfig, log_manager: LogManager, offloader: Offloader) -> None:
        self._config = config
        self._logs = log_manager
        self._offloader = offloader
        self._supervisor = Supervisor("log-upkeep")

    def start(self) -> None:
        config, logs, every = self._config, self._logs, self._supervisor.every
        self._jobs_every(DUE_INTERVAL_MS, logs.due_jobs, "due")
        for interval_ms, checkpoint in (
            (config.replica_high_watermark_checkpoint_interval_ms, HIGH_WATERMARK_CHECKPOINT),
            (config.log_flush_offset_checkpoint_interval_ms, RECOVERY_POINT_CHECKPOINT),
            (config.log_flush_start_offset_checkpoint_interval_ms, LOG_START_OFFSET_CHECKPOINT),
        ):
            self._jobs_every(interval_ms, partial(logs.checkpoint_jobs, checkpoint), checkpoint)
        self._supervisor.start(self._retention(), "retention")
        for interval_ms, steps, name in (
            (config.producer_id_expiration_check_interval_ms, logs.producer_expiry_steps, "producer-expiration"),
            (IDLE_FILES_INTERVAL_MS, logs.idle_file_steps, "idle-files"),
        ):
            every(interval_ms, partial(_in_turns, steps), name)

    async def stop(self) -> None:
        await self._supervisor.stop()

    def _jobs_every(self, interval_ms: int, jobs: Callable[[], Iterable[DiskJob]], name: str) -> None:
        async def run() -> None:
            for job in jobs():
                try:
                    await self._run(job)
                except Exception:
                    # The following jobs are not asked for again.
                    logger.exception("Work for the disk failed job=%s kind=%s", type(job).__name__, name)

        async def run_once() -> None:
            await asyncio.sleep(self._config.log_initial_task_delay_ms / 1000)
            await run()

        if interval_ms > 0:
            self._supervisor.every(interval_ms, run, name)
        else:
            # As Kafka's scheduler does it: without a period there is no second time.
            self._supervisor.start(run_once(), name)

    async def _run(self, job: DiskJob) -> None:
        running = asyncio.create_task(self._offloader.run(job.run), name="disk job")
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            # The thread cannot be stopped, and its work must not continue after the shutdown.
            await running
            raise
        finally:
            job.finish()

    async def _retention(self) -> None:
        """Delete old segments, log by log in turns, so that thousands of partitions do not block the loop."""
        await asyncio.sleep(self._config.log_initial_task_delay_ms / 1000)
        while True:
            deleted, breather = 0, Breather()
            for count in self._logs.retention_steps():
                deleted += count
                await breather.give_way()
            if deleted:
                logger.info("Retention removed old segments count=%d", deleted)
            await asyncio.sleep(self._config.log_retention_check_interval_ms / 1000)
