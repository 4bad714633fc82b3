"""Checkpoint files: a version line, a line with the number of entries, one line per entry.

Offset checkpoints (``<topic> <partition> <offset>``) are in a log dir, ``leader-epoch-checkpoint`` (``<epoch> <start
offset>``) in a partition's folder. This module handles text; ``engine.broker.log`` handles files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from engine.common.errors import CorruptFileError
from engine.common.model import TopicPartition

CHECKPOINT_VERSION = 0

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"

T = TypeVar("T")


class EpochEntry(NamedTuple):
    """Records from ``start_offset`` on were written under ``leader_epoch``."""

    leader_epoch: int
    start_offset: int


def encode_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> str:
    return _encode([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def decode_offset_checkpoint(text: str, location: str) -> dict[TopicPartition, int]:
    """Return an offset checkpoint's entries; ``location`` names the file in errors. An empty file has none.

    Raises:
        CorruptFileError: unknown version, a malformed line, or a wrong number of entries.
    """
    return dict(_decode(text, location, 3, _offset_entry))


def encode_leader_epoch_checkpoint(entries: Iterable[EpochEntry]) -> str:
    return _encode([f"{entry.leader_epoch} {entry.start_offset}" for entry in entries])


def decode_leader_epoch_checkpoint(text: str, location: str) -> list[EpochEntry]:
    """Return a leader epoch checkpoint's entries; errors as for offset checkpoints."""
    return _decode(text, location, 2, _epoch_entry)


def _offset_entry(fields: list[str]) -> tuple[TopicPartition, int]:
    return TopicPartition(fields[0], int(fields[1])), int(fields[2])


def _epoch_entry(fields: list[str]) -> EpochEntry:
    return EpochEntry(int(fields[0]), int(fields[1]))


def _encode(lines: list[str]) -> str:
    return "\n".join([str(CHECKPOINT_VERSION), str(len(lines)), *lines, ""])


def _decode(text: str, location: str, field_count: int, parse: Callable[[list[str]], T]) -> list[T]:
    lines = text.splitlines()
    if len(lines) < 2:
        if lines:
            _check_version(lines[0], location)
        return []
    _check_version(lines[0], location)
    expected = _parse_count(lines[1], location)
    entries = []
    for line in lines[2:]:
        fields = line.split()
        if len(fields) != field_count:
            raise _malformed(line, location)
        try:
            entries.append(parse(fields))
        except ValueError as error:
            raise _malformed(line, location) from error
    if len(entries) != expected:
        raise CorruptFileError(
            f"Expected [{expected}] entries in checkpoint file [{location}], but found only [{len(entries)}]",
            path=location,
        )
    return entries


def _check_version(line: str, location: str) -> None:
    version = _parse_count(line, location)
    if version != CHECKPOINT_VERSION:
        raise CorruptFileError(
            f"Unrecognised version:{version}, expected version: {CHECKPOINT_VERSION} in checkpoint file at: {location}",
            path=location,
        )


def _parse_count(line: str, location: str) -> int:
    try:
        return int(line)
    except ValueError as error:
        raise _malformed(line, location) from error


def _malformed(line: str, location: str) -> CorruptFileError:
    return CorruptFileError(f"Malformed line in checkpoint file [{location}]: {line}", path=location)
