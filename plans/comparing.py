"""How two plans differ: partition by partition, and in their figures. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.common.model import TopicPartition
from plans.plan_file import PlanEntry, PlanFile


class Change(StrEnum):
    """What became of a partition from the first plan to the second."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class PartitionDifference:
    """One partition that the plans treat differently; None if a plan leaves it alone."""

    topic: str
    partition: int
    change: Change
    before: tuple[int, ...] | None
    after: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class FigureDifference:
    name: str
    before: object
    after: object


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """All differences between two plans."""

    partitions: tuple[PartitionDifference, ...]
    figures: tuple[FigureDifference, ...]

    @property
    def is_empty(self) -> bool:
        return not self.partitions and not self.figures


_FIGURES = ("moves", "bytes", "leader_changes", "reordered", "remaining_moves", "gap", "is_optimal", "makespan_s")
_INPUT = ("cluster_id", "input_digest", "strategy", "throttle")


def compare_plans(before: PlanFile, after: PlanFile) -> PlanDifference:
    """Return the differences, partitions by name."""
    old, new = _entries(before), _entries(after)
    partitions = [
        _difference(name, old.get(name), new.get(name))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    pairs = [(name, getattr(before.klamm, name), getattr(after.klamm, name)) for name in _INPUT]
    pairs += [(name, getattr(before.klamm.score, name), getattr(after.klamm.score, name)) for name in _FIGURES]
    figures = tuple(FigureDifference(*pair) for pair in pairs if pair[1] != pair[2])
    return PlanDifference(tuple(partitions), figures)


def _entries(plan: PlanFile) -> dict[TopicPartition, PlanEntry]:
    return {entry.name: entry for entry in plan.partitions}


def _difference(name: TopicPartition, old: PlanEntry | None, new: PlanEntry | None) -> PartitionDifference:
    change = Change.CHANGED if old and new else Change.REMOVED if old else Change.ADDED
    return PartitionDifference(
        *name, change, None if old is None else old.replicas, None if new is None else new.replicas
    )
