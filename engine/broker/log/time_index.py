"""The sparse time index of a segment (``.timeindex``): the largest timestamp up to an offset."""

from __future__ import annotations

from engine.broker.log.index_file import IndexFile
from engine.broker.log.segment_paths import SegmentPaths
from engine.kafka.formats.index_entries import TIME_ENTRY, TimestampOffset
from engine.kafka.formats.segment_files import TIME_INDEX_SUFFIX

NO_TIMESTAMP = -1

_TIMESTAMP, _OFFSET = 0, 1


class TimeIndex(IndexFile):
    """An entry is the largest timestamp so far and the last offset of the first batch that had it."""

    __slots__ = ("_last_timestamp_ms",)

    def __init__(self, paths: SegmentPaths, capacity_bytes: int, count: int = 0) -> None:
        super().__init__(paths, TIME_INDEX_SUFFIX, TIME_ENTRY, capacity_bytes, count)
        self._last_timestamp_ms = NO_TIMESTAMP

    @classmethod
    def load(cls, paths: SegmentPaths, capacity_bytes: int) -> TimeIndex:
        """Find the end of an existing file's entries; a missing file is empty. A preallocated tail does not count."""
        path = paths.path(TIME_INDEX_SUFFIX)
        size_bytes = path.stat().st_size if path.exists() else 0
        index = cls(paths, capacity_bytes, size_bytes // TIME_ENTRY.size)
        index._drop_preallocated_tail(_TIMESTAMP)
        index._remember_last()
        return index

    @property
    def is_full(self) -> bool:
        """Whether only the slot reserved for the roll is left."""
        return self.count >= self.capacity - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; timestamp -1 at the base offset if there is none."""
        if self.count == 0:
            return TimestampOffset(NO_TIMESTAMP, self._paths.base_offset)
        return self._at(self.count - 1)

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry if its timestamp is beyond the last entry's."""
        if timestamp_ms > self._last_timestamp_ms:
            self._append(timestamp_ms, offset - self._paths.base_offset)
            self._last_timestamp_ms = timestamp_ms

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """Return the last entry whose timestamp is at most ``timestamp_ms``, or (-1, base offset)."""
        slot = self._floor_slot(timestamp_ms, _TIMESTAMP)
        return TimestampOffset(NO_TIMESTAMP, self._paths.base_offset) if slot < 0 else self._at(slot)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at ``offset`` and beyond."""
        self._cut(self._floor_slot(offset - 1 - self._paths.base_offset, _OFFSET) + 1)
        self._remember_last()

    def reset(self) -> None:
        """Drop all entries."""
        self._cut(0)
        self._last_timestamp_ms = NO_TIMESTAMP

    def _at(self, slot: int) -> TimestampOffset:
        timestamp_ms, relative_offset = self.entry(slot)
        return TimestampOffset(timestamp_ms, self._paths.base_offset + relative_offset)

    def _remember_last(self) -> None:
        self._last_timestamp_ms = self.entry(self.count - 1)[_TIMESTAMP] if self.count else NO_TIMESTAMP
