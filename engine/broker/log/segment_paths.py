"""Where one segment's files are. The folder changes when a partition is renamed, the suffix when a file is deleted."""

from __future__ import annotations

from pathlib import Path

from engine.kafka.formats.segment_files import segment_file_name


class SegmentPaths:
    """The paths of a segment's files, built on demand: thousands of segments are idle."""

    __slots__ = ("base_offset", "folder", "suffix")

    def __init__(self, folder: Path, base_offset: int, suffix: str = "") -> None:
        """``suffix`` is ``.deleted``, ``.cleaned``, ``.swap`` or nothing."""
        self.folder = folder
        self.base_offset = base_offset
        self.suffix = suffix

    def path(self, kind: str) -> Path:
        """Return the path of the file of ``kind``, e.g. ``.log``."""
        return self.folder / (segment_file_name(self.base_offset, kind) + self.suffix)
