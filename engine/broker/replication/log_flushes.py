"""Flushes that a request waits for: with ``flush.messages`` an answer promises that the disk has the records.

Source: UnifiedLog.append of Kafka 3.9, which flushes before it returns. Here a thread waits for the disk, and requests
that come during a flush of their log share the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from engine.broker.log.disk_jobs import DiskJob
from engine.broker.log.log import Log
from engine.common.errors import ErrorCode, KafkaError
from engine.runtime.supervisor import Supervisor

CarryOut = Callable[[Iterable[DiskJob]], Awaitable[None]]
"""Runs jobs for the disk in threads, and finishes them."""


class LogFlushes:
    """All flushes under way, at most one per log."""

    def __init__(self, carry_out: CarryOut) -> None:
        self._carry_out = carry_out
        self._under_way: dict[Log, asyncio.Task[KafkaError | None]] = {}
        self._supervisor = Supervisor("log-flushes")

    async def flush(self, log: Log) -> None:
        """Return when the disk has what the log holds now, by a flush that began after the records were written.

        Records that are cut or deleted with their topic before then need no flush.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        offset = log.log_end_offset
        while not log.is_retired and log.recovery_point < min(offset, log.log_end_offset):
            error = await asyncio.shield(self._under_way.get(log) or self._begin(log))
            if error is not None:
                raise KafkaError(error.code, error.message)

    def when_flushed(self, log: Log, tell: Callable[[ErrorCode], None]) -> None:
        """Flush like ``flush``, and report the result."""
        self._supervisor.start(self._tell(log, tell), str(log.topic_partition))

    async def stop(self) -> None:
        """Wait for the disk if it is at work, and start nothing more."""
        await self._supervisor.stop()

    def _begin(self, log: Log) -> asyncio.Task[KafkaError | None]:
        task = self._under_way[log] = self._supervisor.start(self._flush(log), str(log.topic_partition))
        return task

    async def _flush(self, log: Log) -> KafkaError | None:
        try:
            job = log.begin_flush()
            if job is not None:
                await self._carry_out([job])
                job.raise_error()
        except KafkaError as error:
            return error
        finally:
            del self._under_way[log]
        return None

    async def _tell(self, log: Log, tell: Callable[[ErrorCode], None]) -> None:
        try:
            await self.flush(log)
        except KafkaError as error:
            tell(error.code)
        else:
            tell(ErrorCode.NONE)
