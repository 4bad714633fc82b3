"""One replica on its way to another log dir of its broker: the future log follows the current one, then replaces it.

All state belongs to the event loop. A step reads and flushes in a thread and appends on the loop, in pieces small
enough not to delay others. Nothing else touches the future log, so there are no locks. After every wait the copy checks
whether what it has read is still valid. Source: ReplicaAlterLogDirsThread, LocalLeaderEndPoint and Partition of Kafka
3.9.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

from engine.broker.log.disk_jobs import DiskJob
from engine.broker.log.file_range import FileRange
from engine.broker.log.log import Log
from engine.broker.log.log_manager import LogManager
from engine.broker.log.log_moves import check_prepared, preparing_jobs, replace_current_with_future
from engine.broker.replication.follower import append_copied
from engine.broker.replication.partition import Partition
from engine.broker.replication.throttle import ReplicationQuota
from engine.broker.replication.truncation import UNDEFINED_EPOCH, Truncation, truncation_for
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.protocol.records.layout import LOG_OVERHEAD
from engine.runtime.turns import Breather

logger = logging.getLogger("kafka.server.ReplicaAlterLogDirsThread")

RunSlow = Callable[[Callable[[], bytes | None]], Awaitable[bytes | None]]
"""Runs in a thread what waits for a disk."""

PIECE_BYTES: Final = 262_144
PIECE_BATCHES: Final = 256
"""How much is appended before others have their turn: about a millisecond's work."""

FLUSH_BYTES: Final = 16_777_216
"""After this many bytes, a thread flushes: beyond the kernel's limit of dirty pages every append waits."""

FLUSHES_BEFORE_SWAP_MAX: Final = 10
"""With ``flush.messages``, a log that is written all the time may never be both level and flushed. Then the swap
flushes the rest itself, and holds the event loop for it."""

_OFFSET_AND_SIZE: Final = struct.Struct(">qi")


class LogDirCopy:
    """A move under way. ``is_cancelled`` ends it; the canceller removes the future log."""

    __slots__ = (
        "_cuts",
        "_flushes_before_swap",
        "_is_flushed",
        "_leader_epoch",
        "_log_manager",
        "_quota",
        "_read_bytes_max",
        "_run_slow",
        "_unflushed_bytes",
        "_who",
        "failures",
        "future",
        "is_cancelled",
        "partition",
        "paused_until_ms",
    )

    def __init__(
        self,
        partition: Partition,
        future: Log,
        *,
        log_manager: LogManager,
        quota: ReplicationQuota,
        read_bytes_max: int,
        run_slow: RunSlow,
        who: str,
    ) -> None:
        self.partition = partition
        self.future = future
        self.failures = 0
        """Unexpected failures since the last successful step."""
        self.is_cancelled = False
        self.paused_until_ms = 0
        self._log_manager = log_manager
        self._quota = quota
        self._read_bytes_max = read_bytes_max
        self._run_slow = run_slow
        self._who = who
        self._leader_epoch: int | None = None
        self._cuts = 0
        self._unflushed_bytes = 0
        self._is_flushed = False
        self._flushes_before_swap = 0

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.topic_partition

    async def step(self) -> bool:
        """Copy some more, or put the future log in place if it is level; return whether that has happened.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR ends the move; anything else is worth another try.
        """
        current = self.partition.log
        if current is None:
            return False
        self._align(current)
        if self.future.is_unsettled:
            await self._carry_out(self._log_manager.settling_jobs([self.future]))
            self.future.has_unsettled_cut = False
            return False
        if self.future.log_end_offset < current.log_end_offset:
            await self._copy(current)
        if not self._stands(current) or self.future.log_end_offset != current.log_end_offset:
            return False
        is_due = self.future.is_flush_due and self._flushes_before_swap < FLUSHES_BEFORE_SWAP_MAX
        if not self._is_flushed or is_due:
            # This comes before the swap, so that what is on disk now stays there. The little that comes in between
            # is as safe as any record that was just appended; the swap flushes it if flush.messages demands that.
            self._flushes_before_swap += 1
            await self._prepare(current)
            self._is_flushed = True
            return False
        self.partition.replace_log(replace_current_with_future(self._log_manager, self.topic_partition))
        for job in self._log_manager.replaced.jobs(self.topic_partition):
            await self._run_slow(job.run)
            job.finish()
        return True

    @property
    def is_wanted(self) -> bool:
        """Whether both logs still exist, and the move is not cancelled."""
        partition = self.partition
        return not self.is_cancelled and partition.log is not None and partition.future_log is self.future

    def _stands(self, current: Log) -> bool:
        """Return whether what was read of ``current`` may still be appended."""
        return self.is_wanted and self.partition.log is current and current.truncation_count == self._cuts

    # -- reading and appending

    async def _copy(self, current: Log) -> None:
        future = self.future
        read = current.read(
            future.log_end_offset, self._read_bytes_max, limit_offset=current.log_end_offset, min_one_batch=True
        )
        data = b"" if read.records is None else await self._bytes_of(current, read.records)
        copied_bytes, breather = 0, Breather()
        for piece in pieces(memoryview(data)):
            await breather.give_way()
            if not self._stands(current):
                return
            self._append(current, piece)
            copied_bytes += len(piece)
        if not copied_bytes and self._stands(current):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"No whole batch of {self.topic_partition} can be read at offset {future.log_end_offset}",
            )
        if self._unflushed_bytes >= FLUSH_BYTES:
            await self._flush()

    async def _bytes_of(self, current: Log, records: FileRange) -> bytes:
        try:
            if records.size_bytes <= PIECE_BYTES and self._is_flushed:
                # The end of the log is in memory: without a wait, the future log is level with it afterwards.
                return records.read()
            return await self._run_slow(records.read) or b""
        except OSError as error:
            message = f"Error while reading {self.topic_partition} in dir {current.log_dir}: {error.strerror or error}"
            self._log_manager.fail_dir(current.log_dir, message, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error

    def _append(self, current: Log, piece: memoryview) -> None:
        future = self.future
        append_copied(future, piece)
        future.update_high_watermark(current.high_watermark)
        if future.log_start_offset < current.log_start_offset <= future.high_watermark:
            future.increment_log_start_offset(current.log_start_offset)
        self._quota.record(len(piece))
        self._unflushed_bytes += len(piece)

    async def _flush(self) -> None:
        job = self.future.begin_flush()
        await self._carry_out([] if job is None else [job])

    async def _prepare(self, current: Log) -> None:
        await self._carry_out(preparing_jobs(self._log_manager, current, self.future))

    async def _carry_out(self, jobs: Iterable[DiskJob]) -> None:
        self._unflushed_bytes = 0
        for job in jobs:
            await self._run_slow(job.run)
            if self.is_cancelled:
                return
            job.finish()
            check_prepared(self.topic_partition, job)

    # -- following cuts of the current log

    def _align(self, current: Log) -> None:
        """Cut what the current log no longer has, or has differently."""
        future = self.future
        cut = current.take_lowest_cut()
        self._cuts = current.truncation_count
        if cut is not None and cut < future.log_end_offset:
            self._cut(current, Truncation(cut, True), "due to a truncation of the current replica")
        if self._leader_epoch != self.partition.leader_epoch:
            # The current log may have been cut and written again while it was not being copied.
            self._cut_by_epochs(current)
            self._leader_epoch = self.partition.leader_epoch
        if future.log_end_offset > current.log_end_offset:
            end = Truncation(current.log_end_offset, True)
            self._cut(current, end, f"due to the current replica's log end offset {end.offset}")
        if future.log_end_offset < current.log_start_offset:
            future.truncate_fully_and_start_at(current.log_start_offset)

    def _cut_by_epochs(self, current: Log) -> None:
        future = self.future
        while (epoch := future.leader_epochs.latest_epoch) != UNDEFINED_EPOCH:
            answer = current.leader_epochs.end_offset_for(epoch, current.log_end_offset)
            truncation = truncation_for(
                answer.leader_epoch,
                answer.end_offset,
                fallback_offset=future.high_watermark,
                log_end_offset=future.log_end_offset,
                end_offset_for_epoch=lambda asked: future.leader_epochs.end_offset_for(asked, future.log_end_offset),
            )
            self._cut(
                current,
                truncation,
                f"due to leader epoch and offset EpochEndOffset(errorCode=0, "
                f"partition={self.topic_partition.partition}, leaderEpoch={answer.leader_epoch}, "
                f"endOffset={answer.end_offset})",
            )
            if truncation.is_complete or future.leader_epochs.latest_epoch == epoch:
                return
        known = Truncation(future.high_watermark, True)
        self._cut(current, known, f"due to local high watermark {known.offset}")

    def _cut(self, current: Log, truncation: Truncation, why: str) -> None:
        future, offset = self.future, truncation.offset
        logger.info("%s: Truncating partition %s with %s %s", self._who, self.topic_partition, truncation, why)
        if offset <= future.log_start_offset < future.log_end_offset:
            future.truncate_fully_and_start_at(current.log_start_offset)
        else:
            future.truncate_to(offset)


def pieces(data: memoryview) -> Iterator[memoryview]:
    """Yield whole batches, some at a time, without an incomplete one at the end."""
    start = position = batches = 0
    while position + LOG_OVERHEAD <= len(data):
        _, size_bytes = _OFFSET_AND_SIZE.unpack_from(data, position)
        end = position + LOG_OVERHEAD + size_bytes
        if size_bytes < 0 or end > len(data):
            break
        if batches and (batches == PIECE_BATCHES or end - start > PIECE_BYTES):
            yield data[start:position]
            start, batches = position, 0
        position, batches = end, batches + 1
    if position > start:
        yield data[start:position]
