"""Names in a log dir: partition folders, and the files in them (segments, their indexes, snapshots). Only names.

Folders are ``<topic>-<n>`` and three types with a suffix: ``<topic>-<n>.<32 hex>-delete`` waits for its removal,
``-future`` is a replica moving from another log dir, and ``-stray`` is a replica that the cluster no longer knows.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from engine.common.errors import StorageError
from engine.common.model import TopicPartition


class LogDirKind(StrEnum):
    """The type of a partition's folder; the value is the end of its name."""

    CURRENT = ""
    DELETE = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


FILE_NAME_LENGTH_MAX = 255

_WITH_SUFFIX = re.compile(r"^(?P<name>\S+-\S+)\.(?P<unique>[^\s.]+)(?P<suffix>-delete|-future|-stray)$")


def log_dir_name(topic_partition: TopicPartition) -> str:
    """Return the name of the folder of a partition's replica."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def suffixed_log_dir_name(topic_partition: TopicPartition, kind: LogDirKind, unique: str) -> str:
    """Return the name of a deleted, moving or stray folder.

    ``unique`` is 32 hexadecimal digits. As in Kafka, a topic's name is cut if the result would exceed 255 characters,
    except for ``-future``, whose name must lead back to the partition.
    """
    end = f"-{topic_partition.partition}.{unique}{kind.value}"
    if kind is LogDirKind.FUTURE:
        return topic_partition.topic + end
    return topic_partition.topic[: FILE_NAME_LENGTH_MAX - len(end)] + end


def parse_log_dir_name(name: str) -> tuple[TopicPartition, LogDirKind]:
    """Return the partition of a folder, and the folder's type.

    Raises:
        StorageError: the folder is not a partition's. Such a folder makes Kafka's start fail.
    """
    kind = next((kind for kind in LogDirKind if kind.value and name.endswith(kind.value)), LogDirKind.CURRENT)
    plain = name
    if kind is not LogDirKind.CURRENT:
        match = _WITH_SUFFIX.match(name)
        if match is None:
            raise _not_a_partition(name)
        plain = match["name"]
    topic, dash, partition = plain.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        raise _not_a_partition(name)
    return TopicPartition(topic, int(partition)), kind


def _not_a_partition(name: str) -> StorageError:
    return StorageError(
        f"Found directory {name!r}, which is not in the form of topic-partition or topic-partition.uniqueId-delete "
        "(if marked for deletion). A log dir should only contain topic data; move the directory away.",
        path=name,
    )


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
