"""The sparse offset index of a segment (``.index``): the position from which to scan for an offset."""

from __future__ import annotations

from engine.broker.log.index_file import IndexFile
from engine.broker.log.segment_paths import SegmentPaths
from engine.common.errors import StorageError
from engine.kafka.formats.index_entries import OFFSET_ENTRY, OffsetPosition
from engine.kafka.formats.segment_files import OFFSET_INDEX_SUFFIX

_OFFSET, _POSITION = 0, 1


class OffsetIndex(IndexFile):
    """An entry is the last offset of an append and the position where that append begins."""

    __slots__ = ("_last_relative_offset",)

    def __init__(self, paths: SegmentPaths, capacity_bytes: int, count: int = 0) -> None:
        super().__init__(paths, OFFSET_INDEX_SUFFIX, OFFSET_ENTRY, capacity_bytes, count)
        self._last_relative_offset = 0

    @classmethod
    def load(cls, paths: SegmentPaths, capacity_bytes: int) -> OffsetIndex:
        """Find the end of an existing file's entries. A preallocated tail, which a crash leaves, does not count."""
        size_bytes = paths.path(OFFSET_INDEX_SUFFIX).stat().st_size
        index = cls(paths, capacity_bytes, size_bytes // OFFSET_ENTRY.size)
        index._drop_preallocated_tail(_POSITION)
        index._remember_last()
        return index

    @property
    def is_full(self) -> bool:
        return self.count >= self.capacity

    @property
    def last_offset(self) -> int:
        """The last entry's offset; the base offset if there is no entry."""
        return self._paths.base_offset + self._last_relative_offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry.

        Raises:
            StorageError: ``offset`` is not greater than the last entry's.
        """
        relative_offset = offset - self._paths.base_offset
        if self.count and relative_offset <= self._last_relative_offset:
            raise StorageError(
                f"Attempt to append an offset {offset} to position {self.count} no larger than the last offset "
                f"appended ({self.last_offset})",
                path=str(self._paths.path(OFFSET_INDEX_SUFFIX)),
            )
        self._append(relative_offset, position)
        self._last_relative_offset = relative_offset

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry whose offset is at most ``offset``, or the segment's start."""
        slot = self._floor_slot(offset - self._paths.base_offset, _OFFSET)
        if slot < 0:
            return OffsetPosition(self._paths.base_offset, 0)
        relative_offset, position = self.entry(slot)
        return OffsetPosition(self._paths.base_offset + relative_offset, position)

    def first_offset_after(self, position: int) -> int | None:
        """Return the offset of the first entry whose position is beyond ``position``, or None."""
        slot = self._floor_slot(position, _POSITION) + 1
        return None if slot >= self.count else self._paths.base_offset + self.entry(slot)[_OFFSET]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at ``offset`` and beyond."""
        self._cut(self._floor_slot(offset - 1 - self._paths.base_offset, _OFFSET) + 1)
        self._remember_last()

    def reset(self) -> None:
        """Drop all entries."""
        self._cut(0)
        self._last_relative_offset = 0

    def _remember_last(self) -> None:
        self._last_relative_offset = self.entry(self.count - 1)[_OFFSET] if self.count else 0
