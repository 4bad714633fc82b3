"""Counts the partitions in a Produce request's frame; it looks only at counts and lengths."""

from __future__ import annotations

import struct

from engine.kafka.protocol.codec import Buffer
from engine.kafka.protocol.wire import Malformed, read_varint, skip_tagged

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_FLEXIBLE_SINCE, _TRANSACTIONAL_SINCE = 9, 3
_ACKS_AND_TIMEOUT_BYTES, _INDEX_BYTES = 6, 4


def names_many_partitions(frame: Buffer, position: int, version: int, at_most: int) -> bool:
    """Return whether the request body at ``position`` has more topics, partitions and tagged fields than ``at_most``.

    It looks at no more of them than that. It leaves malformed frames to the decoder.
    """
    try:
        return _Frame(frame, position, version >= _FLEXIBLE_SINCE).names_more(
            at_most, has_transactional_id=version >= _TRANSACTIONAL_SINCE
        )
    except (IndexError, Malformed, struct.error):
        return False


class _Frame:
    """A request that is being read."""

    __slots__ = ("_frame", "_is_flexible", "_position")

    def __init__(self, frame: Buffer, position: int, is_flexible: bool) -> None:
        self._frame = frame
        self._position = position
        self._is_flexible = is_flexible

    def names_more(self, at_most: int, *, has_transactional_id: bool) -> bool:
        if has_transactional_id:
            self._skip_sized(_INT16)
        self._position += _ACKS_AND_TIMEOUT_BYTES
        topics = named = self._size(_INT32)
        for _ in range(topics):
            if named > at_most:
                return True
            self._skip_sized(_INT16)
            partitions = self._size(_INT32)
            named += partitions
            if named > at_most:
                return True
            for _ in range(partitions):
                self._position += _INDEX_BYTES
                self._skip_sized(_INT32)
                named += self._skip_tags(at_most)
                if named > at_most:
                    return True
            named += self._skip_tags(at_most)
        return named + self._skip_tags(at_most) > at_most

    def _size(self, plain: struct.Struct) -> int:
        """Read a count or length; null counts as zero."""
        if self._is_flexible:
            above, self._position = read_varint(self._frame, self._position)
            return max(above - 1, 0)
        size: int = plain.unpack_from(self._frame, self._position)[0]
        self._position += plain.size
        return max(size, 0)

    def _skip_sized(self, plain: struct.Struct) -> None:
        size = self._size(plain)
        self._position += size

    def _skip_tags(self, at_most: int) -> int:
        """Return the number of tagged fields; it skips no more of them than ``at_most``."""
        if not self._is_flexible:
            return 0
        count, behind = read_varint(self._frame, self._position)
        if 0 < count <= at_most:
            first, behind = self._frame[self._position], self._position + 1
            behind = skip_tagged(self._frame, behind, first)
        self._position = behind
        return count
