"""What a log needs of those around it. The log manager is it in a broker; tests and tools bring their own."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from engine.common.clock import Clock
from engine.common.errors import KlammError
from engine.common.model import TopicPartition
from engine.config.log_config import LogConfig
from engine.storage.disk_jobs import DirKeeper, DiskJob


class LoadingStopped(KlammError):
    """Logs were being recovered when the broker was to end. The next start recovers them again."""


class Flushable(Protocol):
    """A log, as far as flushing goes."""

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
        """Prepare to bring all before ``offset`` to the disk; None if it is there."""


class LogEnvironment(DirKeeper, Protocol):
    """Clock, and where to turn with what must not be done on the event loop or concerns more than one log."""

    @property
    def clock(self) -> Clock: ...

    @property
    def producer_id_expiration_ms(self) -> int:
        """``producer.id.expiration.ms``"""

    @property
    def is_stopping(self) -> bool:
        """Whether the broker is to end: a recovery under way ends with ``LoadingStopped``."""

    def flush_soon(self, log: Flushable, offset: int) -> None:
        """Flush a log up to ``offset`` as soon as may be: it has rolled there."""

    def checkpoint_soon(self, log_dir: Path) -> None:
        """Write a dir's checkpoints as soon as may be: a log was cut below what they say is on the disk."""
