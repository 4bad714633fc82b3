"""Replaces old segments with new ones, so that a crash at any point leaves one or the other set whole.

The new ones begin as ``.cleaned`` files. While one of these exists, a start throws away all ``.cleaned`` files, and
all ``.swap`` files from the first ``.cleaned`` one on. So the renames go from the last to the first. Once all are
renamed, a start finishes the swap. Source: LocalLog.replaceSegments of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.broker.log.segment import LogSegment
from engine.kafka.formats.log_dir_names import DELETED_SUFFIX, SWAP_SUFFIX


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A segment that is on disk under ``.cleaned`` names."""

    base_offset: int
    size_bytes: int
    has_transaction_index: bool


def swap_in(new: Sequence[LogSegment], old: Sequence[LogSegment]) -> list[Path]:
    """Rename ``new``, which is in offset order, to normal segments; return the paths of ``old`` to remove later.

    The first new one begins where the first old one does: a start tells from the offsets which files to replace.

    Raises:
        OSError: the disk fails.
    """
    for segment in reversed(new):
        segment.change_suffix(SWAP_SUFFIX)
    paths: list[Path] = []
    for segment in old:
        segment.change_suffix(DELETED_SUFFIX)
        segment.close_file()
        paths += segment.file_paths()
    for segment in new:
        segment.change_suffix("")
    return paths
