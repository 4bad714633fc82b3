"""Names of the files of a partition's folder: segments, their indexes, snapshots. Names only, no files."""

from __future__ import annotations

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

DELETED_SUFFIX = ".deleted"
"""Appended to a file that goes after ``file.delete.delay.ms``."""

CLEANED_SUFFIX = ".cleaned"
"""Appended to what the cleaner has not finished: thrown away at start."""

SWAP_SUFFIX = ".swap"
"""Appended to what the cleaner has finished but not put in place: put in place at start."""

INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)

OFFSET_DIGITS = 20


def segment_file_name(base_offset: int, suffix: str) -> str:
    """Return e.g. ``00000000000000000042.log`` for offset 42 and ``.log``."""
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix}"


def offset_of_file_name(name: str) -> int | None:
    """Return the offset that a file's name starts with, or None if the name is no such file's."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else None
