"""All logs of a broker without the broker: a log manager on dirs of a test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from log_folders import NOW_MS, data_batch
from manual_clock import ManualClock

from engine.broker.log.disk_jobs import DiskJob
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.checkpoints import decode_offset_checkpoint

TOPIC_ID = bytes(range(16))


class ManagedLogs:
    """A log manager on dirs of a test, and what it reported."""

    def __init__(self, *dirs: Path, config: LogConfig | None = None, delay_ms: int = 60_000, threads: int = 1) -> None:
        self.clock = ManualClock(NOW_MS)
        self.failed: list[Path] = []
        self.config = config or LogConfig()
        settings = LogManagerConfig(dirs, threads, log_segment_delete_delay_ms=delay_ms)
        self.logs = LogManager(settings, lambda topic: self.config, self.clock, self.failed.append)

    def loaded(self) -> ManagedLogs:
        self.logs.load()
        return self

    def create(self, partition: TopicPartition, values: int = 1) -> None:
        log = self.logs.get_or_create(partition, topic_id=TOPIC_ID, is_new=True)
        for n in range(values):
            log.append_as_leader(data_batch(b"%d" % n, timestamp_ms=NOW_MS), 0)
        log.update_high_watermark(log.log_end_offset)


def run_jobs(jobs: Iterable[DiskJob]) -> None:
    for job in jobs:
        job.run()
        job.finish()


def checkpoint(path: Path, name: str) -> dict[TopicPartition, int]:
    return decode_offset_checkpoint((path / name).read_text(), name)
