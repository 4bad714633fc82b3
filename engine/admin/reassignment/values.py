"""Reassignments as values: what is wanted, what was refused, what is under way. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.common.errors import ErrorCode
from engine.common.model import ReplicaAssignment, TopicPartition

Targets = Mapping[TopicPartition, tuple[int, ...] | None]
"""Wanted replicas by partition; None cancels."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the cluster does not start or cancel one partition's reassignment."""

    name: TopicPartition
    code: ErrorCode
    message: str | None

    def __str__(self) -> str:
        return f"{self.name}: {self.message or self.code.name}"


@dataclass(frozen=True, slots=True)
class RunningReassignments:
    """What is under way. ``listed`` are those that are still in the znode, moving or not."""

    assignments: Mapping[TopicPartition, ReplicaAssignment]
    listed: Mapping[TopicPartition, tuple[int, ...]]

    @property
    def names(self) -> frozenset[TopicPartition]:
        return frozenset(self.assignments) | frozenset(self.listed)


@dataclass(frozen=True, slots=True)
class RunningReassignment:
    """One partition that is being reassigned, as a listing shows it."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
