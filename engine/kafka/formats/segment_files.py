"""Names of the files in a partition's folder: segments, their indexes, snapshots. Only names, no files."""

from __future__ import annotations

from pathlib import Path

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

DELETED_SUFFIX = ".deleted"
"""Suffix of a file that is removed after ``file.delete.delay.ms``."""

CLEANED_SUFFIX = ".cleaned"
"""Suffix of the cleaner's unfinished files: a start throws them away."""

SWAP_SUFFIX = ".swap"
"""Suffix of the cleaner's finished files that are not in place yet: a start puts them in place."""

INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)

OFFSET_DIGITS = 20


def segment_file_name(base_offset: int, suffix: str) -> str:
    """Return e.g. ``00000000000000000042.log`` for offset 42 and ``.log``."""
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix}"


def offset_of_file_name(name: str) -> int | None:
    """Return the offset at the start of a file's name, or None if the name has none."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else None


class SegmentPaths:
    """The paths of a segment's files, built on demand: thousands of segments are idle.

    The folder changes when a partition is renamed, the suffix when a file is deleted.
    """

    __slots__ = ("base_offset", "folder", "suffix")

    def __init__(self, folder: Path, base_offset: int, suffix: str = "") -> None:
        """``suffix`` is ``.deleted``, ``.cleaned``, ``.swap`` or nothing."""
        self.folder = folder
        self.base_offset = base_offset
        self.suffix = suffix

    def path(self, kind: str) -> Path:
        """Return the path of the file of ``kind``, e.g. ``.log``."""
        return self.folder / (segment_file_name(self.base_offset, kind) + self.suffix)
