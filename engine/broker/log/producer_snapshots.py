"""Lists, writes, reads and removes the ``.snapshot`` files of a partition's folder.

A thread may write a snapshot later; until then the snapshot counts as present. A crash before that loses nothing: the
recovery point is not beyond it yet, and a recovery reads the records from there on.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from engine.broker.log.file_range import write_fully
from engine.kafka.formats.log_dir_names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, offset_of_file_name, segment_file_name
from engine.kafka.formats.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
)
from engine.runtime.descriptors import open_file


class PendingSnapshot:
    """A snapshot whose content is fixed and whose file is not written yet."""

    __slots__ = ("_lock", "entries", "is_settled", "path")

    def __init__(self, path: Path, entries: Callable[[], list[ProducerSnapshotEntry]]) -> None:
        self.path = path
        self.entries = entries
        self.is_settled = False
        """The file is written, or nobody wants it any more."""
        self._lock = threading.Lock()

    def write(self) -> None:
        """Write the file; safe in any thread. Raises OSError.

        A caller that drops it meanwhile waits for the write, but not for the work on its content.
        """
        if self.is_settled:
            return
        data = encode_producer_snapshot(_in_javas_order(self.entries()))
        with self._lock:
            if not self.is_settled:
                _write_file(self.path, data)
                self.is_settled = True

    def move_to(self, path: Path) -> None:
        """Take the new path after a rename. A thread must not write to a name that may be used again."""
        with self._lock:
            self.path = path

    def drop(self) -> None:
        """Cancel the write, or wait until a running one ends."""
        with self._lock:
            self.is_settled = True


class ProducerSnapshots:
    """The snapshots in ascending order of offset."""

    __slots__ = ("_offsets", "_pending", "_unsynced", "folder")

    def __init__(self, folder: Path, offsets: Collection[int]) -> None:
        self.folder = folder
        self._offsets = sorted(offsets)
        self._pending: dict[int, PendingSnapshot] = {}
        self._unsynced: set[int] = set()

    @classmethod
    def list_folder(cls, folder: Path) -> ProducerSnapshots:
        """Find the snapshots in a folder."""
        names = [path.name for path in folder.iterdir() if path.suffix == SNAPSHOT_SUFFIX]
        return cls(folder, [offset for offset in map(offset_of_file_name, names) if offset is not None])

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self._offsets)

    @property
    def latest(self) -> int | None:
        return self._offsets[-1] if self._offsets else None

    def path(self, offset: int) -> Path:
        return self.folder / segment_file_name(offset, SNAPSHOT_SUFFIX)

    def add(self, offset: int, entries: Callable[[], list[ProducerSnapshotEntry]]) -> None:
        """Add a snapshot for ``offset``. The next flush writes it and brings it to the disk.

        Any thread may call ``entries`` at any time; it must always return the producers as they are now.
        """
        self._forget(offset)
        self._pending[offset] = PendingSnapshot(self.path(offset), entries)
        self._offsets = sorted([*self._offsets, offset])

    @property
    def pending(self) -> tuple[PendingSnapshot, ...]:
        """Return the snapshots that are not written yet."""
        return tuple(self._pending.values())

    def forget_written(self) -> None:
        """Release the content of the snapshots that are written."""
        self._pending = {offset: snapshot for offset, snapshot in self._pending.items() if not snapshot.is_settled}

    def write_pending(self) -> None:
        """Write all pending snapshots now. The next flush brings them to the disk. Raises OSError."""
        for offset, snapshot in self._pending.items():
            self._unsynced.add(offset)
            snapshot.write()
        self.forget_written()

    def take_unsynced(self) -> list[Path]:
        """Return the snapshots that no flush has brought to the disk; from now on they count as if one had."""
        paths = [self.path(offset) for offset in sorted(self._unsynced | self._pending.keys())]
        self._unsynced.clear()
        return paths

    def move_to(self, folder: Path) -> None:
        """Take the new paths after a rename of the partition's folder."""
        self.folder = folder
        for offset, snapshot in self._pending.items():
            snapshot.move_to(self.path(offset))

    def copy(self) -> ProducerSnapshots:
        """Return a list of its own of the same snapshots, for a thread that adds to it."""
        other = ProducerSnapshots(self.folder, self._offsets)
        other._pending = dict(self._pending)
        return other

    def take_over(self, other: ProducerSnapshots) -> None:
        """Take what was added to a copy, and drop what it found damaged."""
        for offset in self.offsets:
            if offset not in other.offsets:
                self._forget(offset)
        for offset, snapshot in other._pending.items():
            if offset not in self._offsets:
                self.add(offset, snapshot.entries)

    def nothing_is_synced(self) -> None:
        """Note that the newest snapshot, which the next start loads, may not be on disk."""
        self._unsynced.update(self._offsets[-1:])

    def read(self, offset: int) -> list[ProducerSnapshotEntry]:
        """Return the producers in a snapshot. Raises CorruptFileError if it is damaged."""
        pending = self._pending.get(offset)
        if pending is not None:
            return pending.entries()
        return decode_producer_snapshot(self.path(offset).read_bytes())

    def delete(self, offset: int) -> None:
        """Remove a snapshot now."""
        self._forget(offset)
        self.path(offset).unlink(missing_ok=True)

    def mark_deleted(self, offset: int) -> Path | None:
        """Rename a snapshot so that it can be removed later; return its new path, or None if there was none."""
        if offset not in self._offsets:
            return None
        self._forget(offset)
        source = self.path(offset)
        target = source.with_name(source.name + DELETED_SUFFIX)
        with contextlib.suppress(FileNotFoundError):
            return source.rename(target)
        return None

    def remove_stray(self, base_offsets: Collection[int]) -> None:
        """Remove snapshots that match no segment's base offset, but keep the newest if it is beyond all segments."""
        stray = [offset for offset in self._offsets if offset not in base_offsets]
        newest_base_offset = max(base_offsets, default=-1)
        for offset in stray[:-1]:
            self.delete(offset)
        if stray and base_offsets and stray[-1] < newest_base_offset:
            self.delete(stray[-1])

    def _forget(self, offset: int) -> None:
        pending = self._pending.pop(offset, None)
        if pending is not None:
            pending.drop()
        self._unsynced.discard(offset)
        self._offsets = [other for other in self._offsets if other != offset]


def _write_file(path: Path, data: bytes) -> None:
    fd = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_fully(fd, data, 0)
    finally:
        os.close(fd)


def _in_javas_order(entries: list[ProducerSnapshotEntry]) -> list[ProducerSnapshotEntry]:
    """Sort the entries as Kafka's HashMap<Long, …> yields them, so that equal states give equal bytes."""
    capacity = 16
    while len(entries) > capacity * 3 // 4:
        capacity *= 2
    return sorted(entries, key=lambda entry: _spread(entry.producer_id) & (capacity - 1))


def _spread(value: int) -> int:
    folded = (value ^ (value >> 32)) & 0xFFFFFFFF
    return folded ^ (folded >> 16)
