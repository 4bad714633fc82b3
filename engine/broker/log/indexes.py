"""A segment's indexes: of offsets, of times, and of aborted transactions (``.txnindex``, only where there are some).

The first two are files of fixed-size entries: appended to, searched by bisection, cut, preallocated and trimmed.
Entries wait in memory until there is a kilobyte of them. A crash loses none that matter: recovery rebuilds the index of
unflushed records from the log. Files are open only while they are needed: idle partitions hold no descriptors.
"""

from __future__ import annotations

import os
import struct

from engine.broker.log.file_range import read_fully, write_fully
from engine.common.errors import CorruptFileError, StorageError
from engine.kafka.formats.index_entries import (
    ABORTED_TRANSACTION_ENTRY,
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedTransaction,
    OffsetPosition,
    TimestampOffset,
    encode_aborted_transaction,
    iter_aborted_transactions,
)
from engine.kafka.formats.log_dir_names import (
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SegmentPaths,
)
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
        self._cut(0)
        self._last_relative_offset = 0

    def _remember_last(self) -> None:
        self._last_relative_offset = self.entry(self.count - 1)[_OFFSET] if self.count else 0


class TransactionIndex:
    """Ordered by last offset. Entries stay in memory once read: every read_committed fetch asks for them."""

    __slots__ = ("_entries", "_exists", "_paths")

    def __init__(self, paths: SegmentPaths, *, exists: bool) -> None:
        """``exists`` says whether there is a file yet."""
        self._paths = paths
        self._exists = exists
        self._entries: list[AbortedTransaction] | None = None if exists else []

    def entries(self) -> list[AbortedTransaction]:
        """Return all aborted transactions.

        Raises:
            CorruptFileError: the file is of a later version.
        """
        if self._entries is None:
            self._entries = list(iter_aborted_transactions(self._paths.path(TRANSACTION_INDEX_SUFFIX).read_bytes()))
        return self._entries

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction.

        Raises:
            StorageError: its last offset is not beyond those already there.
        """
        entries = self.entries()
        if entries and entries[-1].last_offset >= transaction.last_offset:
            raise StorageError(
                f"The last offset of appended transactions must increase sequentially, but {transaction.last_offset} "
                f"is not greater than current last offset {entries[-1].last_offset}",
                path=str(self._paths.path(TRANSACTION_INDEX_SUFFIX)),
            )
        self._write(encode_aborted_transaction(transaction), len(entries))
        entries.append(transaction)

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the entries that overlap ``[fetch_offset, upper_bound_offset)``, and whether later segments have
        none.
        """
        aborted = []
        for transaction in self.entries():
            if transaction.last_offset >= fetch_offset and transaction.first_offset < upper_bound_offset:
                aborted.append(transaction)
            if transaction.last_stable_offset >= upper_bound_offset:
                return aborted, True
        return aborted, False

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose last offset is ``offset`` or later."""
        entries = self.entries()
        kept = [transaction for transaction in entries if transaction.last_offset < offset]
        if len(kept) < len(entries):
            os.truncate(self._paths.path(TRANSACTION_INDEX_SUFFIX), len(kept) * ABORTED_TRANSACTION_ENTRY.size)
            self._entries = kept

    def reset(self) -> None:
        """Drop all entries; the file stays, empty."""
        if self._exists:
            os.truncate(self._paths.path(TRANSACTION_INDEX_SUFFIX), 0)
        self._entries = []

    def check(self) -> None:
        """Raise CorruptFileError if the file cannot belong to this segment."""
        for transaction in self.entries():
            if transaction.last_offset < self._paths.base_offset:
                raise CorruptFileError(
                    f"Last offset of aborted transaction {transaction} is less than start offset "
                    f"{self._paths.base_offset}",
                    path=str(self._paths.path(TRANSACTION_INDEX_SUFFIX)),
                )

    def release(self) -> None:
        """Release memory that only makes the next lookup faster."""
        if self._exists:
            self._entries = None

    def _write(self, data: bytes, slot: int) -> None:
        path = self._paths.path(TRANSACTION_INDEX_SUFFIX)
        fd = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            write_fully(fd, data, slot * ABORTED_TRANSACTION_ENTRY.size)
        finally:
            os.close(fd)
        self._exists = True


NO_TIMESTAMP = -1

_TIMESTAMP, _TIMED_OFFSET = 0, 1


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
        self._cut(self._floor_slot(offset - 1 - self._paths.base_offset, _TIMED_OFFSET) + 1)
        self._remember_last()

    def reset(self) -> None:
        self._cut(0)
        self._last_timestamp_ms = NO_TIMESTAMP

    def _at(self, slot: int) -> TimestampOffset:
        timestamp_ms, relative_offset = self.entry(slot)
        return TimestampOffset(timestamp_ms, self._paths.base_offset + relative_offset)

    def _remember_last(self) -> None:
        self._last_timestamp_ms = self.entry(self.count - 1)[_TIMESTAMP] if self.count else NO_TIMESTAMP
