"""Repairs a segment after a crash: cuts it at the first bad byte and rebuilds its indexes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from engine.broker.log.batch_scan import check_batches
from engine.broker.log.environment import LoadingStopped, LogEnvironment
from engine.broker.log.indexes import NO_TIMESTAMP
from engine.broker.log.leader_epoch_cache import LeaderEpochCache
from engine.broker.log.producer_state import ProducerStateManager
from engine.broker.log.segment import LogSegment
from engine.broker.log.segment_split import SegmentOverflow, is_overflow
from engine.kafka.protocol.records.header import BatchHeader

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_MS = 10_000
_BATCHES_BETWEEN_LOOKS = 4096


class RecoveryProgress:
    """Reports now and then how far a long recovery has come, and ends it if the broker must stop."""

    __slots__ = ("_clock", "_environment", "_next_ms", "_seen")

    def __init__(self, environment: LogEnvironment) -> None:
        self._environment = environment
        self._clock = environment.clock
        self._seen = 0
        self._next_ms = self._clock.monotonic_ms() + PROGRESS_INTERVAL_MS

    def at(self, segment: LogSegment, position: int) -> None:
        """Note that the recovery of ``segment`` has reached ``position``.

        Raises:
            LoadingStopped: the broker must stop; the next start can recover the files on disk as before.
        """
        if self._environment.is_stopping:
            raise LoadingStopped(f"stopped while recovering {segment.path}")
        self._seen += 1
        if self._seen % _BATCHES_BETWEEN_LOOKS == 0 and self._clock.monotonic_ms() >= self._next_ms:
            self._next_ms = self._clock.monotonic_ms() + PROGRESS_INTERVAL_MS
            percent = 100 * position // max(segment.size_bytes, 1)
            logger.info(
                "Still recovering path=%s done_percent=%d done_bytes=%d of_bytes=%d",
                segment.path,
                percent,
                position,
                segment.size_bytes,
            )


def recover_segment(
    segment: LogSegment,
    end_offset: int,
    producers: ProducerStateManager,
    leader_epochs: LeaderEpochCache,
    progress: RecoveryProgress,
    before_cut: Callable[[], object],
) -> int:
    """Check every batch, cut at the first that is bad, and rebuild all indexes; return the bytes cut off.

    An offset that does not ascend is bad too: offsets have no checksum. The next segment begins at ``end_offset``.

    ``producers`` must be valid for the segment's start; afterwards it is valid for its end. The cache gets the epochs
    that it lacks.

    Raises:
        SegmentOverflow: the segment must be split first.
        OSError: the disk fails.
    """
    offset_index, time_index = segment.offset_index, segment.time_index
    offset_index.reset()
    time_index.reset()
    segment.transaction_index.reset()
    segment.max_timestamp_ms, segment.max_timestamp_offset = NO_TIMESTAMP, segment.base_offset
    valid_bytes = indexed_bytes = 0
    last_offset = segment.base_offset - 1
    latest_epoch = leader_epochs.latest_epoch
    for position, header, data in check_batches(segment.file().fd, segment.size_bytes):
        if header.base_offset <= last_offset:
            break
        last_offset = header.base_offset + header.last_offset_delta
        if not segment.takes(last_offset):
            if is_overflow(segment, position, end_offset):
                raise SegmentOverflow(segment)
            break
        if header.max_timestamp > segment.max_timestamp_ms:
            segment.max_timestamp_ms, segment.max_timestamp_offset = header.max_timestamp, last_offset
        if position - indexed_bytes > segment.index_interval_bytes:
            segment.add_index_entries(last_offset, position)
            indexed_bytes = position
        if header.magic >= 2:
            if header.partition_leader_epoch > latest_epoch:
                leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
                latest_epoch = leader_epochs.latest_epoch
            if header.producer_id >= 0:
                _replay(segment, producers, header, data)
            producers.map_end_offset = last_offset + 1
        valid_bytes = position + len(data)
        progress.at(segment, valid_bytes)
    cut_bytes = segment.size_bytes - valid_bytes
    if cut_bytes:
        before_cut()
        os.ftruncate(segment.file().fd, valid_bytes)
        # No later flush may cover this file, and after a power failure the bytes cut off would be back.
        os.fsync(segment.file().fd)
        segment.size_bytes = valid_bytes
    time_index.maybe_append(segment.max_timestamp_ms, segment.max_timestamp_offset)
    segment.trim()
    segment.has_unsynced_index = True
    return cut_bytes


def _replay(segment: LogSegment, producers: ProducerStateManager, header: BatchHeader, data: memoryview) -> None:
    completed = producers.replay(data, 0, header)
    if completed is not None:
        if completed.is_aborted:
            segment.add_aborted(producers.aborted(completed))
        producers.complete(completed)
