"""The messages between broker and cleaning process: one line of JSON each, typed on both sides.

The broker sends a ``CleaningPlan``; the process answers with ``Indexed``, a ``GroupCleaned`` per finished segment,
``Progress`` in between, and ends with ``Finished`` or ``Failed``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from engine.broker.log.cleaner.stats import CleaningStats
from engine.broker.log.segment_swap import NewSegment
from engine.kafka.formats.index_entries import AbortedTransaction


@dataclass(frozen=True, slots=True)
class SegmentToClean:
    """A segment, given by its first offset and that of the next segment."""

    base_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LastOfProducer:
    """The last data offset of an active producer (-1 if only a marker is known), and its epoch."""

    last_offset: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleaningLimits:
    """Topic settings that limit the result, and resources that limit the work."""

    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    map_bytes: int
    io_buffer_bytes: int
    io_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """Everything that a process needs to clean a log once, frozen at ``now_ms``.

    ``segments`` are all below ``first_uncleanable_offset``; keys are collected from ``first_dirty_offset`` on.
    ``aborted`` are the aborted transactions that reach into them.
    """

    folder: str
    now_ms: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    segments: tuple[SegmentToClean, ...]
    aborted: tuple[AbortedTransaction, ...]
    producers: Mapping[int, LastOfProducer]
    limits: CleaningLimits


class FailureKind(StrEnum):
    """What a failure means for the broker."""

    NO_SPACE = "no space"
    """The disk is full: nothing is lost, and a later try may work."""
    DISK = "disk"
    """The disk failed: the log dir goes offline."""
    FAULT = "fault"
    """The log has content that cannot be cleaned."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """The map of keys is complete up to ``end_offset``."""

    end_offset: int
    key_count: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The process is alive and working."""

    bytes_read: int


@dataclass(frozen=True, slots=True)
class GroupCleaned:
    """``new`` segments are on disk, to replace those of ``base_offsets``.

    There is one new segment, or several if one index cannot span all offsets. The first keeps the first base offset.
    """

    base_offsets: tuple[int, ...]
    new: tuple[NewSegment, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """All is done; the log is clean up to ``end_offset``."""

    end_offset: int
    stats: CleaningStats


@dataclass(frozen=True, slots=True)
class Failed:
    """No more reports follow; segments that were not reported as cleaned must be discarded."""

    kind: FailureKind
    error_number: int
    message: str


Report = Indexed | Progress | GroupCleaned | Finished | Failed

_REPORTS: Mapping[str, type[Any]] = {
    report.__name__: report for report in (Indexed, Progress, GroupCleaned, Finished, Failed)
}


def encode_plan(plan: CleaningPlan) -> bytes:
    return json.dumps(asdict(plan)).encode() + b"\n"


def decode_plan(line: bytes) -> CleaningPlan:
    fields = json.loads(line)
    fields["segments"] = tuple(SegmentToClean(**segment) for segment in fields["segments"])
    fields["aborted"] = tuple(AbortedTransaction(*aborted) for aborted in fields["aborted"])
    fields["producers"] = {int(key): LastOfProducer(**producer) for key, producer in fields["producers"].items()}
    fields["limits"] = CleaningLimits(**fields["limits"])
    return CleaningPlan(**fields)


def encode_report(report: Report) -> bytes:
    return json.dumps({"report": type(report).__name__, **asdict(report)}).encode() + b"\n"


def decode_report(line: bytes) -> Report:
    fields = json.loads(line)
    kind = fields.pop("report")
    if kind == GroupCleaned.__name__:
        fields["base_offsets"] = tuple(fields["base_offsets"])
        fields["new"] = tuple(NewSegment(**segment) for segment in fields["new"])
    elif kind == Finished.__name__:
        fields["stats"] = CleaningStats(**fields["stats"])
    elif kind == Failed.__name__:
        fields["kind"] = FailureKind(fields["kind"])
    report: Report = _REPORTS[kind](**fields)
    return report
