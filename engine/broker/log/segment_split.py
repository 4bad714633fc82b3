"""Splits a segment that reaches further than its indexes can count: their offsets have 31 bits (KAFKA-6264).

Old Kafkas wrote such segments, and also made them by merging segments in a compaction. A recovery notices them; a
cleaning splits them by itself. Source: LocalLog.splitOverflowedSegment and LogLoader of Kafka 3.9.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from engine.broker.log.batch_scan import check_batches
from engine.broker.log.file_range import write_fully
from engine.broker.log.segment import LogSegment
from engine.broker.log.segment_swap import NewSegment
from engine.common.errors import KafkaError, KlammError
from engine.kafka.formats.index_entries import RELATIVE_OFFSET_MAX
from engine.kafka.formats.log_dir_names import CLEANED_SUFFIX, LOG_SUFFIX, SegmentPaths
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.header import BatchHeader

_COPY_BYTES = 1024 * 1024


class SegmentOverflow(KlammError):
    """A segment has offsets that are too far from its base, and must be split before it can be used."""

    def __init__(self, segment: LogSegment) -> None:
        super().__init__(f"Detected offset overflow at segment {segment!r}")
        self.segment = segment


class _Piece(NamedTuple):
    base_offset: int
    start: int
    end: int


def is_overflow(segment: LogSegment, position: int, end_offset: int) -> bool:
    """Return whether the batches from ``position`` on, though too far from the base, may belong to the segment.

    Offsets have no checksum. An offset counts as damage if the next batch, or the next segment at ``end_offset``,
    does not exceed it.
    """
    last_offset = segment.base_offset - 1
    for _, header, _ in check_batches(segment.file().fd, segment.size_bytes, position):
        if header.base_offset <= last_offset or header.last_offset >= end_offset:
            return False
        last_offset = header.last_offset
    return True


def split_segment(segment: LogSegment) -> list[NewSegment]:
    """Copy a segment's batches to ``.cleaned`` files without indexes, in pieces that indexes can count.

    The first piece has the segment's base offset, and no batch if all are too far from it. Bytes after the last whole
    batch stay with it: others decide whether to cut them.

    Raises:
        OSError: the disk fails.
    """
    status = os.fstat(segment.file().fd)
    new = []
    for piece in _pieces(segment):
        path = SegmentPaths(segment.paths.folder, piece.base_offset, CLEANED_SUFFIX).path(LOG_SUFFIX)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            _copy(segment.file().fd, piece, fd)
            os.utime(fd, ns=(status.st_mtime_ns, status.st_mtime_ns))
            os.fsync(fd)
        finally:
            os.close(fd)
        new.append(NewSegment(piece.base_offset, piece.end - piece.start, has_transaction_index=False))
    return new


def first_offset_of(data: bytes | memoryview, header: BatchHeader) -> int:
    """Return the offset of a batch's first record.

    In old formats a compressed batch carries its last offset instead.
    """
    if header.magic >= 2 or not header.is_compressed:
        return header.base_offset
    try:
        return next((record.offset for record in iter_batch_records(data, 0, header)), header.base_offset)
    except KafkaError:
        # No client can read these records, so it does not matter where a search for them begins.
        return header.base_offset


def _pieces(segment: LogSegment) -> Iterator[_Piece]:
    base_offset, start = segment.base_offset, 0
    for position, header, data in check_batches(segment.file().fd, segment.size_bytes):
        if header.last_offset - base_offset > RELATIVE_OFFSET_MAX:
            yield _Piece(base_offset, start, position)
            base_offset, start = first_offset_of(data, header), position
    yield _Piece(base_offset, start, segment.size_bytes)


def _copy(source_fd: int, piece: _Piece, fd: int) -> None:
    for position in range(piece.start, piece.end, _COPY_BYTES):
        data = os.pread(source_fd, min(_COPY_BYTES, piece.end - position), position)
        write_fully(fd, data, position - piece.start)
