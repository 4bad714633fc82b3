"""Puts new segments in the place of old ones, so that a crash at any point leaves the ones or the others whole.

The new ones are there as ``.cleaned`` files. As long as one of them is, a start throws away what is ``.cleaned``, and
what is ``.swap`` from the first of those on: so they are renamed from the last to the first. From then on a start
finishes the swap. Source: LocalLog.replaceSegments of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.formats.segment_files import DELETED_SUFFIX, SWAP_SUFFIX
from engine.storage.segment import LogSegment


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A segment that is on the disk under ``.cleaned`` names."""

    base_offset: int
    size_bytes: int
    has_transaction_index: bool


def swap_in(new: Sequence[LogSegment], old: Sequence[LogSegment]) -> list[Path]:
    """Give ``new``, in order of their offsets, the names of segments; return the paths of ``old``, to be removed later.

    The first new one begins where the first old one does: a start tells by the offsets which files are replaced.

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
