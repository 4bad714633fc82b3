"""Names of partition folders in a log dir: ``<topic>-<n>`` and three types with a suffix.

``<topic>-<n>.<32 hex>-delete`` waits for its removal, ``-future`` is a replica moving from another log dir, and
``-stray`` is a replica that the cluster no longer knows.
"""

from __future__ import annotations

import re
from enum import StrEnum

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
