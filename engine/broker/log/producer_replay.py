"""Brings a log's producer state up to date: loads the newest snapshot and replays the batches that follow.

Used at start and after truncation. Reads only headers, except for control batches. A truncation that leaves much to
replay leaves it to a job for a thread: a segment of small batches takes seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

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
    find: Callable[[LogSegment, int], int] = LogSegment.find,
    is_written_later: bool = False,
) -> None:
    """Make ``producers`` valid for ``end_offset``.

    ``find`` returns a position at or before an offset's batch. With ``is_written_later`` the next flush writes the
    snapshots.

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
                producers.take_snapshot(is_written_later=is_written_later)
            replay_segment(producers, segment, start_offset, end_offset, find(segment, start_offset))
    producers.map_end_offset = end_offset
    producers.take_snapshot(is_written_later=is_written_later)


def replay_segment(
    producers: ProducerStateManager, segment: LogSegment, start_offset: int, end_offset: int, position: int
) -> None:
    """Replay the batches from ``position`` on that reach ``start_offset`` and begin before ``end_offset``."""
    if position < 0:
        return
    for at, header in segment.iter_batches(position):
        if header.base_offset >= end_offset:
            return
        if header.has_producer_id and header.last_offset >= start_offset:
            completed = producers.replay(_bytes_of(segment, at, header), 0, header)
            if completed is not None:
                producers.complete(completed)


def bytes_to_replay(producers: ProducerStateManager, segments: SegmentList, log_start: int, end_offset: int) -> int:
    """Return about how many bytes ``rebuild_producer_state`` will scan."""
    start_offset = producers.snapshots.latest or log_start
    size_bytes = 0
    for segment in segments.reaching(start_offset):
        if segment.base_offset < end_offset:
            skipped = segment.find(start_offset) if start_offset > segment.base_offset else 0
            size_bytes += segment.size_bytes - skipped if skipped >= 0 else 0
    return size_bytes


class ReplayJob:
    """A disk job that builds the producer state of a log that was cut, and gives it to ``on_done``.

    If it fails, nothing is taken over, and it has no error: whoever needs the state builds it, and reports what is
    wrong.
    """

    __slots__ = (
        "_built",
        "_end_offset",
        "_is_of_use",
        "_log_start_offset",
        "_now_ms",
        "_on_done",
        "_segments",
        "_start",
        "error",
    )

    def __init__(
        self,
        producers: ProducerStateManager,
        segments: SegmentList,
        log_start_offset: int,
        end_offset: int,
        now_ms: int,
        on_done: Callable[[ProducerStateManager], None],
    ) -> None:
        self.error: OSError | None = None
        self._is_of_use = True
        self._built = producers.detached()
        self._segments = segments.copy()
        self._log_start_offset = log_start_offset
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._on_done = on_done
        # The indexes belong to the event loop.
        start_offset = max(producers.snapshots.latest or 0, log_start_offset)
        self._start = (start_offset, segments.reaching(start_offset)[0].find(start_offset))

    def run(self) -> None:
        try:
            rebuild_producer_state(
                self._built,
                self._segments,
                self._log_start_offset,
                self._end_offset,
                now_ms=self._now_ms,
                find=self._position,
                is_written_later=True,
            )
        except OSError as error:
            logger.warning("The producers of a cut log could not be read in a thread: %s", error)
            self._is_of_use = False

    def finish(self) -> None:
        if self._is_of_use and self._built.map_end_offset == self._end_offset:
            self._on_done(self._built)

    def _position(self, segment: LogSegment, offset: int) -> int:
        start_offset, position = self._start
        return position if offset == start_offset and segment.base_offset < offset else 0


def _bytes_of(segment: LogSegment, position: int, header: BatchHeader) -> bytes:
    """Read a control batch whole; for others the header is enough."""
    return read_fully(segment.file().fd, position, header.size_bytes) if header.is_control else b""


def _offsets_to_snapshot(segments: SegmentList) -> tuple[int, ...]:
    """Return the start offsets of the last two segments: a truncation seldom reaches back further."""
    return tuple(segments.base_offsets[-2:])
