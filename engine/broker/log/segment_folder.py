"""What a partition's folder holds at start; it also clears up what a crash left half done."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from engine.broker.log.batch_scan import scan_batches
from engine.broker.log.small_files import TEMPORARY_SUFFIX
from engine.kafka.formats.log_dir_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_of_file_name,
    segment_file_name,
)
from engine.runtime.descriptors import open_file

logger = logging.getLogger(__name__)

OFFSET_MAX = 2**63 - 1


class SegmentFolder:
    """The files of a partition by name, with their sizes."""

    __slots__ = ("folder", "sizes")

    def __init__(self, folder: Path) -> None:
        """List a folder; ``sizes`` has the sizes of log files, and 0 for other files."""
        self.folder = folder
        self.sizes: dict[str, int] = {}
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file():
                    self.sizes[entry.name] = entry.stat().st_size if entry.name.endswith(LOG_SUFFIX) else 0

    @property
    def base_offsets(self) -> list[int]:
        """Base offsets of the segments, ascending."""
        offsets = (offset_of_file_name(name) for name in self.sizes if name.endswith(LOG_SUFFIX))
        return sorted(offset for offset in offsets if offset is not None)

    @property
    def snapshot_offsets(self) -> list[int]:
        """Offsets of the producer snapshots."""
        offsets = (offset_of_file_name(name) for name in self.sizes if name.endswith(SNAPSHOT_SUFFIX))
        return [offset for offset in offsets if offset is not None]

    def log_size_bytes(self, base_offset: int) -> int:
        return self.sizes[segment_file_name(base_offset, LOG_SUFFIX)]

    def has_offset_index(self, base_offset: int) -> bool:
        return segment_file_name(base_offset, OFFSET_INDEX_SUFFIX) in self.sizes

    def has_time_index(self, base_offset: int) -> bool:
        return segment_file_name(base_offset, TIME_INDEX_SUFFIX) in self.sizes

    def has_transaction_index(self, base_offset: int) -> bool:
        return segment_file_name(base_offset, TRANSACTION_INDEX_SUFFIX) in self.sizes

    def clear_up(self) -> None:
        """Remove files marked for deletion or half cleaned, finish swaps, and remove indexes without a log."""
        if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in self.sizes):
            self._remove_temporary()
            self._finish_swaps()
        for name in [name for name in self.sizes if name.endswith(TEMPORARY_SUFFIX)]:
            self._remove(name)
        for name in [name for name in self.sizes if name.endswith(INDEX_SUFFIXES)]:
            offset = offset_of_file_name(name)
            if offset is not None and segment_file_name(offset, LOG_SUFFIX) not in self.sizes:
                logger.warning("Removing an index without a log file path=%s", self.folder / name)
                self._remove(name)

    def _remove_temporary(self) -> None:
        first_cleaned = OFFSET_MAX
        for name in self.sizes:
            offset = offset_of_file_name(name)
            if offset is not None and name.endswith(CLEANED_SUFFIX):
                first_cleaned = min(first_cleaned, offset)
        for name in list(self.sizes):
            if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)):
                self._remove(name)
            elif name.endswith(SWAP_SUFFIX) and (offset_of_file_name(name) or 0) >= first_cleaned:
                # A swap file beyond an unfinished clean file belongs to an incomplete split.
                self._remove(name)

    def _finish_swaps(self) -> None:
        """Replace the original segments with the cleaned ones made from them."""
        swaps = [name for name in self.sizes if name.endswith(SWAP_SUFFIX)]
        ranges = [self._range(name) for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
        if ranges:
            first, end = min(start for start, _ in ranges), max(end for _, end in ranges)
            for name in [name for name in self.sizes if not name.endswith(SWAP_SUFFIX)]:
                offset = offset_of_file_name(name)
                if offset is not None and first <= offset < end:
                    logger.info("Removing a segment file that has already been cleaned path=%s", self.folder / name)
                    self._remove(name)
        for name in swaps:
            target = name.removesuffix(SWAP_SUFFIX)
            (self.folder / name).rename(self.folder / target)
            del self.sizes[name]
            size_bytes = (self.folder / target).stat().st_size
            self.sizes[target] = size_bytes if target.endswith(LOG_SUFFIX) else 0

    def _range(self, name: str) -> tuple[int, int]:
        """Return the offsets that a swapped log file covers."""
        base_offset = next_offset = offset_of_file_name(name) or 0
        fd = open_file(self.folder / name, os.O_RDONLY)
        try:
            for _, header in scan_batches(fd, 0, os.fstat(fd).st_size):
                next_offset = header.next_offset
        finally:
            os.close(fd)
        return base_offset, next_offset

    def _remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)
        del self.sizes[name]
