"""Outcomes of reads and writes of many znodes, as values. No I/O here: the controller's pure core uses them too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from engine.common.errors import CoordinationError
from engine.common.model import LeaderAndIsr, LeaderIsrAndControllerEpoch, TopicPartition

T = TypeVar("T")

PartitionStateRead = LeaderIsrAndControllerEpoch | CoordinationError | None
"""A partition's state; None if it has none; an error if it cannot be read or decoded."""


@dataclass(slots=True)
class PartitionStateUpdates:
    """Outcomes of conditional writes of state znodes."""

    updated: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    """Written; ``partition_epoch`` is the znode's new version."""
    failed: dict[TopicPartition, CoordinationError] = field(default_factory=dict)
    """Refused for a reason other than the version, mostly NoNode."""
    to_retry: list[TopicPartition] = field(default_factory=list)
    """Somebody else wrote first: read again and decide again."""


@dataclass(frozen=True, slots=True)
class Notifications(Generic[T]):
    """Notices in order: the znodes' names, their contents without repeats, and the names of empty ones."""

    names: tuple[str, ...]
    values: tuple[T, ...]
    malformed: tuple[str, ...] = ()
