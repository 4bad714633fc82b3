"""Flushes that no request waits for: after rolls, and by ``flush.ms``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from engine.broker.log.disk_jobs import DiskJob
from engine.broker.log.environment import Flushable
from engine.kafka.config.values import LONG_MAX

logger = logging.getLogger(__name__)


class DueFlushes:
    """The logs to flush, each up to an offset."""

    def __init__(self) -> None:
        self._logs: dict[int, tuple[Flushable, int]] = {}

    def add(self, log: Flushable, offset: int) -> None:
        """Put a log on the list."""
        self._logs[id(log)] = (log, offset)

    def jobs(self, logs: Iterable[Flushable], now_ms: int) -> Iterator[DiskJob]:
        """Yield the flush of each log on the list, and of those of ``logs`` whose ``flush.ms`` is over.

        Each begins only when the iterator reaches it, because it holds files open: do one before the next. One that
        cannot begin stays on the list.
        """
        wanted = list(self._logs.values())
        self._logs.clear()
        for log in logs:
            flush_ms = log.config.flush_ms
            if flush_ms != LONG_MAX and log.unflushed_records and now_ms - log.last_flush_ms >= flush_ms:
                wanted.append((log, log.log_end_offset))
        for log, offset in wanted:
            try:
                job = None if log.is_offline else log.begin_flush(offset)
            except Exception as error:
                # Whatever is wrong with one log, the others are flushed.
                logger.warning("A log could not be flushed partition=%s", log.topic_partition, exc_info=error)
                self._logs.setdefault(id(log), (log, offset))
                continue
            if job is not None:
                yield job
