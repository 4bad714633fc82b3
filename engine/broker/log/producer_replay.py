"""Brings a log's producer state up to date: loads the newest snapshot and replays the batches that follow.

Used at start and after truncation. Reads only headers, except for control batches.
"""

from __future__ import annotations

import logging

from engine.broker.log.file_range import read_fully
from engine.broker.log.producer_state import ProducerStateManager
from engine.broker.log.segment import LogSegment
from engine.broker.log.segment_list import SegmentList
from engine.kafka.protocol.records.header import BatchHeader

logger = logging.getLogger(__name__)


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: SegmentList,
    log_start_offset: int,
    end_offset: int,
    *,
    now_ms: int,
    had_clean_shutdown: bool = False,
) -> None:
    """Make ``producers`` valid for ``end_offset``.

    A log that was closed cleanly and has no snapshot was written by a Kafka without producer state: this function
    does not read it, and gives it empty snapshots.
    """
    offsets_to_snapshot = _offsets_to_snapshot(segments)
    if had_clean_shutdown and producers.snapshots.latest is None:
        for offset in (*offsets_to_snapshot, end_offset):
            producers.map_end_offset = offset
            producers.take_snapshot()
        return
    had_nothing = producers.is_empty and producers.map_end_offset >= end_offset
    producers.truncate_and_reload(log_start_offset, end_offset, now_ms)
    if end_offset > producers.map_end_offset and not had_nothing:
        for segment in segments.reaching(producers.map_end_offset):
            if segment.base_offset >= end_offset:
                break
            start_offset = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.map_end_offset = start_offset
            if segment.base_offset in offsets_to_snapshot:
                producers.take_snapshot()
            replay_segment(producers, segment, start_offset, end_offset)
    producers.map_end_offset = end_offset
    producers.take_snapshot()


def replay_segment(producers: ProducerStateManager, segment: LogSegment, start_offset: int, end_offset: int) -> None:
    """Replay a segment's batches from the one that holds ``start_offset`` to the last before ``end_offset``."""
    start = segment.find(start_offset)
    if start < 0:
        return
    for position, header in segment.iter_batches(start):
        if header.base_offset >= end_offset:
            return
        if header.has_producer_id:
            completed = producers.replay(_bytes_of(segment, position, header), 0, header)
            if completed is not None:
                producers.complete(completed)


def _bytes_of(segment: LogSegment, position: int, header: BatchHeader) -> bytes:
    """Read a control batch whole; for others the header is enough."""
    return read_fully(segment.file().fd, position, header.size_bytes) if header.is_control else b""


def _offsets_to_snapshot(segments: SegmentList) -> tuple[int, ...]:
    """Return the start offsets of the last two segments: a truncation seldom reaches back further."""
    return tuple(segments.base_offsets[-2:])
