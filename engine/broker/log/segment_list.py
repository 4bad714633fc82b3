"""The segments of a log in order of their base offsets. There is always one; the last is active."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from engine.broker.log.segment import LogSegment


class SegmentList:
    """Ordered by base offset, searched by offset."""

    __slots__ = ("_base_offsets", "_segments")

    def __init__(self) -> None:
        self._base_offsets: list[int] = []
        self._segments: list[LogSegment] = []

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(tuple(self._segments))

    def __contains__(self, base_offset: int) -> bool:
        index = bisect_left(self._base_offsets, base_offset)
        return index < len(self._base_offsets) and self._base_offsets[index] == base_offset

    def copy(self) -> SegmentList:
        """Return a list of its own with the same segments."""
        other = SegmentList()
        other._base_offsets, other._segments = list(self._base_offsets), list(self._segments)
        return other

    @property
    def base_offsets(self) -> list[int]:
        return list(self._base_offsets)

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    @property
    def last(self) -> LogSegment:
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        return self.count_and_bytes()[1]

    def count_and_bytes(self) -> tuple[int, int]:
        """Return how many segments there are, and the bytes of all."""
        segments = self._segments
        if len(segments) == 1:
            return 1, segments[0].size_bytes
        return len(segments), sum([segment.size_bytes for segment in segments])

    def add(self, segment: LogSegment) -> None:
        """Add a segment; it replaces one with the same base offset."""
        index = bisect_left(self._base_offsets, segment.base_offset)
        if segment.base_offset in self:
            self._segments[index] = segment
        else:
            self._base_offsets.insert(index, segment.base_offset)
            self._segments.insert(index, segment)

    def remove(self, segment: LogSegment) -> None:
        index = bisect_left(self._base_offsets, segment.base_offset)
        del self._base_offsets[index], self._segments[index]

    def floor(self, offset: int) -> LogSegment | None:
        """Return the last segment that begins at or before ``offset``."""
        index = bisect_right(self._base_offsets, offset)
        return self._segments[index - 1] if index else None

    def after(self, segment: LogSegment) -> LogSegment | None:
        index = bisect_right(self._base_offsets, segment.base_offset)
        return self._segments[index] if index < len(self._segments) else None

    def between(self, start: int, end: int) -> list[LogSegment]:
        """Return the segment of ``start`` and the following ones that begin before ``end``."""
        first = max(0, bisect_right(self._base_offsets, start) - 1)
        return self._segments[first : bisect_left(self._base_offsets, end)] if start < end else []

    def reaching(self, offset: int) -> list[LogSegment]:
        """Return the segment of ``offset`` (or the first, if ``offset`` is before all of them) and all that follow."""
        return self._segments[max(0, bisect_right(self._base_offsets, offset) - 1) :]
