"""The ``.snapshot`` files of a partition's folder: which there are, writing, reading, removing."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from engine.formats.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
)
from engine.formats.segment_files import DELETED_SUFFIX, SNAPSHOT_SUFFIX, offset_of_file_name, segment_file_name


class ProducerSnapshots:
    """The snapshots by offset, ascending."""

    __slots__ = ("_offsets", "folder")

    def __init__(self, folder: Path, offsets: Collection[int]) -> None:
        self.folder = folder
        self._offsets = sorted(offsets)

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

    @property
    def oldest(self) -> int | None:
        return self._offsets[0] if self._offsets else None

    def path(self, offset: int) -> Path:
        return self.folder / segment_file_name(offset, SNAPSHOT_SUFFIX)

    def write(self, offset: int, entries: list[ProducerSnapshotEntry]) -> None:
        """Write the snapshot for ``offset``. The next flush brings it to the disk."""
        self.path(offset).write_bytes(encode_producer_snapshot(_in_javas_order(entries)))
        if offset not in self._offsets:
            self._offsets = sorted([*self._offsets, offset])

    def read(self, offset: int) -> list[ProducerSnapshotEntry]:
        """Return the producers in a snapshot; CorruptFileError where it is damaged."""
        return decode_producer_snapshot(self.path(offset).read_bytes())

    def delete(self, offset: int) -> None:
        """Remove a snapshot now."""
        self._forget(offset)
        self.path(offset).unlink(missing_ok=True)

    def mark_deleted(self, offset: int) -> Path | None:
        """Rename a snapshot so that it can be removed later; return its new path, or None where there was none."""
        if offset not in self._offsets:
            return None
        self._forget(offset)
        source = self.path(offset)
        target = source.with_name(source.name + DELETED_SUFFIX)
        with contextlib.suppress(FileNotFoundError):
            return source.rename(target)
        return None

    def remove_stray(self, base_offsets: Collection[int]) -> None:
        """Remove those that are of no segment's base offset, but for the newest if it is beyond all segments."""
        stray = [offset for offset in self._offsets if offset not in base_offsets]
        newest_base_offset = max(base_offsets, default=-1)
        for offset in stray[:-1]:
            self.delete(offset)
        if stray and base_offsets and stray[-1] < newest_base_offset:
            self.delete(stray[-1])

    def _forget(self, offset: int) -> None:
        self._offsets = [other for other in self._offsets if other != offset]


def _in_javas_order(entries: list[ProducerSnapshotEntry]) -> list[ProducerSnapshotEntry]:
    """Order the entries as Kafka's HashMap<Long, …> yields them, so that equal states give equal bytes."""
    capacity = 16
    while len(entries) > capacity * 3 // 4:
        capacity *= 2
    return sorted(entries, key=lambda entry: _spread(entry.producer_id) & (capacity - 1))


def _spread(value: int) -> int:
    folded = (value ^ (value >> 32)) & 0xFFFFFFFF
    return folded ^ (folded >> 16)
