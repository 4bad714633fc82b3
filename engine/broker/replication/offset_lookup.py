"""Looks up a partition's offsets, by time and by leader epoch; and moves the log's start.

Source: Partition of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from engine.broker.log import log_times
from engine.broker.log.log import Log
from engine.broker.log.log_times import BatchToSearch, OffsetAtTime
from engine.broker.replication.partition import Partition
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    IsolationLevel,
)
from engine.runtime.offload import Offloader
from engine.runtime.turns import Breather

NO_TIMESTAMP = -1
HIGH_WATERMARK = -1
"""The offset in DeleteRecords that means everything that is replicated."""


class LogDeletion(NamedTuple):
    """The offset that DeleteRecords wants, and how far all live replicas are."""

    requested_offset: int
    low_watermark: int


class OffsetSearch:
    """Finds records by time. A thread decompresses and scans batches, one at a time per broker, because a batch of 2 kB
    may hold millions of records. Belongs to one event loop."""

    def __init__(self, offloader: Offloader) -> None:
        self._offloader = offloader
        self._turn = asyncio.Lock()

    async def offset_for_timestamp(self, log: Log, timestamp_ms: int) -> OffsetAtTime | None:
        """Return the first record whose timestamp is at least ``timestamp_ms``, or None."""
        breather = Breather()
        step = log_times.step_by_time(log, timestamp_ms, 0)
        while step is not None:
            record = None if step.batch is None else await self._first_record(step.batch)
            if record is not None:
                return record
            await breather.give_way()
            step = log_times.step_by_time(log, timestamp_ms, step.next_offset)
        return None

    async def offset_of_max_timestamp(self, log: Log) -> OffsetAtTime | None:
        """Return the first record that has the log's largest timestamp, or None if none has one."""
        batch = log_times.newest_batch(log)
        return None if batch is None else await self._first_record(batch)

    async def _first_record(self, batch: BatchToSearch) -> OffsetAtTime | None:
        async with self._turn:
            return await self._offloader.run(batch.first_record)


async def offset_at_time(
    search: OffsetSearch,
    partition: Partition,
    timestamp: int,
    *,
    isolation: IsolationLevel | None,
    current_leader_epoch: int,
    leader_only: bool,
) -> OffsetAtTime | None:
    """Return the first offset at or after a time, or at one of the reserved timestamps; None if there is none.

    ``isolation`` is None for followers and tools, which may see the whole log. A consumer learns nothing beyond what it
    may read. Shortly after an election the high watermark may be behind what an earlier leader has told; then offsets
    beyond it are refused rather than taken back.

    Raises:
        KafkaError: what ``Partition.checked_log`` raises; OFFSET_NOT_AVAILABLE; what the log's search raises.
    """
    log = partition.checked_log(current_leader_epoch, leader_only=leader_only)
    readable_end = _readable_end(log, isolation)
    is_lagging = isolation is not None and _is_lagging(partition, log)
    if timestamp == LATEST_TIMESTAMP:
        if is_lagging:
            raise _not_available(partition, log)
        return OffsetAtTime(readable_end, NO_TIMESTAMP, partition.leader_epoch)
    at = await _found(search, log, timestamp)
    # Meanwhile another broker may have become the leader, and records beyond the high watermark may be gone.
    log = partition.checked_log(current_leader_epoch, leader_only=leader_only)
    readable_end = _readable_end(log, isolation)
    is_lagging = isolation is not None and _is_lagging(partition, log)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP):
        return at
    if at is not None and at.offset < readable_end:
        return at
    if is_lagging:
        raise _not_available(partition, log)
    return None


def segment_offsets_before(
    partition: Partition, timestamp: int, max_count: int, *, now_ms: int, is_consumer: bool, leader_only: bool
) -> list[int]:
    """Answer ListOffsets version 0: base offsets of segments, newest first; for consumers cut at the high watermark.

    Raises:
        KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR; UNKNOWN_SERVER_ERROR for a negative count.
    """
    log = partition.checked_log(-1, leader_only=leader_only)
    if max_count < 0:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The number of offsets is negative.")
    offsets = log_times.segment_offsets_before(log, timestamp, max_count, now_ms)
    high_watermark = log.high_watermark
    if not is_consumer or not any(offset > high_watermark for offset in offsets):
        return offsets
    return [high_watermark, *(offset for offset in offsets if offset <= high_watermark)]


def end_offset_for_epoch(partition: Partition, leader_epoch: int, *, current_leader_epoch: int) -> tuple[int, int]:
    """Return (largest epoch up to ``leader_epoch``, its end offset) of a led partition; (-1, -1) if unknown.

    Raises:
        KafkaError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
    """
    log = partition.checked_log(current_leader_epoch, leader_only=True)
    return log.leader_epochs.end_offset_for(leader_epoch, log.log_end_offset)


def delete_records(partition: Partition, offset: int) -> LogDeletion:
    """Move the log's start to ``offset`` (-1: the high watermark), never back.

    Raises:
        KafkaError: NOT_LEADER_OR_FOLLOWER; POLICY_VIOLATION (the topic is only compacted); OFFSET_OUT_OF_RANGE;
            KAFKA_STORAGE_ERROR.
    """
    log = partition.led_log()
    if not log.config.is_deleted_by_retention:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Records of partition {partition.topic_partition} can not be deleted due to the configured policy",
        )
    requested = log.high_watermark if offset == HIGH_WATERMARK else offset
    if requested < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"The offset {requested} for partition {partition.topic_partition} is not valid",
        )
    log.increment_log_start_offset(requested)
    return LogDeletion(requested, partition.low_watermark)


def _is_lagging(partition: Partition, log: Log) -> bool:
    epoch_start = partition.leader_epoch_start_offset
    return epoch_start is not None and epoch_start > log.high_watermark


def _readable_end(log: Log, isolation: IsolationLevel | None) -> int:
    if isolation is None:
        return log.log_end_offset
    return log.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else log.high_watermark


async def _found(search: OffsetSearch, log: Log, timestamp: int) -> OffsetAtTime | None:
    if log.config.record_magic < 1 and timestamp != EARLIEST_TIMESTAMP:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            "Cannot search offsets based on timestamp because message format version for partition "
            f"{log.topic_partition} is {log.config.message_format_version} which is earlier than the minimum required "
            "version 0.10.0-IV0",
        )
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return log_times.earliest_offset(log)
    if timestamp == LATEST_TIERED_TIMESTAMP:
        # Nothing is ever tiered here.
        return OffsetAtTime(-1, NO_TIMESTAMP, -1)
    if timestamp == MAX_TIMESTAMP:
        return await search.offset_of_max_timestamp(log)
    return await search.offset_for_timestamp(log, timestamp)


def _not_available(partition: Partition, log: Log) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"Failed to fetch offsets for partition {partition.topic_partition} with leader epoch {partition.leader_epoch} "
        f"as this partition's high watermark ({log.high_watermark}) is lagging behind the start offset from the "
        f"beginning of this epoch ({partition.leader_epoch_start_offset}).",
    )
