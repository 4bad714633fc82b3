"""What a log needs from its environment: the log manager in a broker, substitutes in tests and tools."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from engine.broker.log.disk_jobs import DirKeeper, DiskJob
from engine.common.clock import Clock
from engine.common.errors import KlammError
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig


class LoadingStopped(KlammError):
    """The broker was told to end while it recovered logs. The next start recovers them again."""


class Flushable(Protocol):
    """The part of a log that flushing needs."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def config(self) -> LogConfig: ...

    @property
    def is_offline(self) -> bool: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def unflushed_records(self) -> int: ...

    @property
    def last_flush_ms(self) -> int: ...

    def begin_flush(self, offset: int) -> DiskJob | None:
        """Prepare to bring everything before ``offset`` to the disk; None if it is there already."""


class LogEnvironment(DirKeeper, Protocol):
    """The clock, and the place for work that must not run on the event loop or concerns several logs."""

    @property
    def clock(self) -> Clock: ...

    @property
    def producer_id_expiration_ms(self) -> int:
        """``producer.id.expiration.ms``"""

    @property
    def verifies_transactions(self) -> bool:
        """``transaction.partition.verification.enable``"""

    @property
    def takes_zstd(self) -> bool:
        """Whether all brokers know the codec: from IBP 2.1 on."""

    @property
    def keeps_topic_ids(self) -> bool:
        """Whether a partition's folder tells its topic id: from IBP 2.8 on."""

    @property
    def is_stopping(self) -> bool:
        """Whether the broker is ending: a recovery under way ends with ``LoadingStopped``."""

    def note_converted(self, topic: str, records: int, took_s: float, size_bytes: int) -> None:
        """Count records that a leader stores in another form than it received them: format, codec or offsets.

        ``took_s`` is how long that took, ``size_bytes`` what they need now.
        """

    def flush_soon(self, log: Flushable, offset: int) -> None:
        """Flush a log up to ``offset`` soon: it has rolled there."""

    def checkpoint_soon(self, log_dir: Path) -> None:
        """Write a dir's checkpoints soon: a log was cut below what they say is on disk."""
