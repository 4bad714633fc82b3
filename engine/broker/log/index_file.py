"""An index file of fixed-size entries: appended to, searched by bisection, cut, preallocated and trimmed.

The base of the offset and the time index; it does not know what the entries mean. Entries wait in memory until there is
a kilobyte of them. A crash loses none that matter: recovery rebuilds the index of unflushed records from the log. Files
are open only while they are needed: idle partitions hold no descriptors.
"""

from __future__ import annotations

import os
import struct

from engine.broker.log.file_range import read_fully, write_fully
from engine.broker.log.segment_paths import SegmentPaths
from engine.runtime.descriptors import open_file

WRITE_BEHIND_BYTES = 1024
BLOCK_ENTRIES = 512


class IndexFile:
    """Entries of one segment, in the order of both their fields."""

    __slots__ = (
        "_block",
        "_block_start",
        "_entry",
        "_kind",
        "_paths",
        "_pending",
        "_stored_count",
        "capacity",
        "count",
    )

    def __init__(self, paths: SegmentPaths, kind: str, entry: struct.Struct, capacity_bytes: int, count: int) -> None:
        """``count`` entries are in the file; ``capacity_bytes`` is ``segment.index.bytes``."""
        self._paths = paths
        self._kind = kind
        self._entry = entry
        self.capacity = capacity_bytes // entry.size
        self.count = count
        self._stored_count = count
        self._pending = bytearray()
        self._block = b""
        self._block_start = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the entries, without what is preallocated."""
        return self.count * self._entry.size

    def preallocate(self) -> None:
        """Create the file, or make it as long as ``segment.index.bytes`` allows; the space is taken up when used."""
        self._resize(max(self.capacity, self.count) * self._entry.size)

    def trim(self) -> None:
        """Write waiting entries and cut the file after the last one."""
        self.write_pending()
        self._resize(self.size_bytes)

    def write_pending(self) -> None:
        """Write waiting entries to the file."""
        if self._pending:
            fd = open_file(self._paths.path(self._kind), os.O_RDWR | os.O_CREAT)
            try:
                write_fully(fd, self._pending, self._stored_count * self._entry.size)
            finally:
                os.close(fd)
            self._stored_count = self.count
            self._pending = bytearray()

    def release(self) -> None:
        """Free memory that only makes the next search faster."""
        self._block = b""

    def entry(self, slot: int) -> tuple[int, ...]:
        """Return the fields of the entry at ``slot``."""
        waiting = slot - self._stored_count
        if waiting >= 0:
            return self._entry.unpack_from(self._pending, waiting * self._entry.size)
        return self._entry.unpack(self._read(slot, 1))

    def _append(self, first: int, second: int) -> None:
        self._pending += self._entry.pack(first, second)
        self.count += 1
        if len(self._pending) >= WRITE_BEHIND_BYTES:
            self.write_pending()

    def _drop_preallocated_tail(self, field: int) -> None:
        """Count only the entries before the first with a zero ``field``, which only the first entry in use may have."""
        if self.count == 0 or self.entry(self.count - 1)[field] != 0:
            return
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[field] != 0:
                low = middle + 1
            else:
                high = middle
        self._cut(low)

    def _cut(self, count: int) -> None:
        """Keep the first ``count`` entries."""
        if count < self._stored_count:
            self._stored_count = count
            self._pending = bytearray()
        else:
            del self._pending[(count - self._stored_count) * self._entry.size :]
        self.count = count
        self._block = b""

    def _floor_slot(self, target: int, field: int) -> int:
        """Return the last slot whose ``field`` is at most ``target``, or -1."""
        if self.count > self._stored_count and self.entry(self._stored_count)[field] <= target:
            return self._stored_count + self._floor_within(self._pending, target, field)
        if self._stored_count == 0:
            return -1
        if self._is_in_block(target, field):
            return self._block_start + self._floor_within(self._block, target, field)
        self._load_block(target, field)
        return self._block_start + self._floor_within(self._block, target, field)

    def _load_block(self, target: int, field: int) -> None:
        """Keep the stored entries around ``target`` in memory: the next search probably needs them too."""
        unpack, size = self._entry.unpack, self._entry.size
        low, high = 0, self._stored_count
        fd = open_file(self._paths.path(self._kind), os.O_RDONLY)
        try:
            while high - low > BLOCK_ENTRIES:
                middle = (low + high) // 2
                if unpack(read_fully(fd, middle * size, size))[field] <= target:
                    low = middle
                else:
                    high = middle
            self._block = read_fully(fd, low * size, (high - low) * size)
        finally:
            os.close(fd)
        self._block_start = low

    def _is_in_block(self, target: int, field: int) -> bool:
        if not self._block or self._entry.unpack_from(self._block)[field] > target:
            return False
        last: int = self._entry.unpack_from(self._block, len(self._block) - self._entry.size)[field]
        return target < last

    def _floor_within(self, entries: bytes | bytearray, target: int, field: int) -> int:
        unpack, size = self._entry.unpack_from, self._entry.size
        low, high = 0, len(entries) // size
        while low < high:
            middle = (low + high) // 2
            if unpack(entries, middle * size)[field] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _read(self, slot: int, count: int) -> bytes:
        fd = open_file(self._paths.path(self._kind), os.O_RDONLY)
        try:
            return read_fully(fd, slot * self._entry.size, count * self._entry.size)
        finally:
            os.close(fd)

    def _resize(self, size_bytes: int) -> None:
        fd = open_file(self._paths.path(self._kind), os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(fd, size_bytes)
        finally:
            os.close(fd)
