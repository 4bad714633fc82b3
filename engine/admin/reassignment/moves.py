"""A reassignment of single partitions: which broker sends to which, its progress and its rate. Pure.

Source of the rules: ReassignPartitionsCommand of Kafka 3.9 (KIP-455), with its own state for a partition that is gone.

Totals are what the moves copy in all, as brokers report it, so that an observer who joins midway, even from another
machine, sees the true progress. Without these reports, they are the largest remainder so far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.common.errors import ErrorCode
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot

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


class ReassignmentState(StrEnum):
    """How far one partition is."""

    COMPLETE = "complete"
    IN_PROGRESS = "in_progress"
    FAILED = "failed"
    NOT_FOUND = "not_found"
    WAITING = "waiting"
    """A run of its plan, which is under way, has not begun to move it."""
    NOT_BEGUN = "not_begun"
    """It is where it was before the plan: nothing of the plan was carried out, or a run ended before its wave."""
    ROLLED_BACK = "rolled_back"
    """It is where it was before the plan: a rollback has led it there."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition of a plan; ``reason`` says what is wrong.

    ``replicas`` are those it has now, including those being added and removed. Of the ``total_bytes`` that its move
    copies, ``remaining_bytes`` are left; both are None if the sizes are unknown.
    """

    topic: str
    partition: int
    state: ReassignmentState
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    remaining_bytes: int | None = None
    reason: str | None = None
    total_bytes: int | None = None

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class ReplicaFlow:
    """The brokers that hold a partition now, and those that have to copy it."""

    sources: frozenset[int]
    destinations: frozenset[int]


Flows = dict[TopicPartition, ReplicaFlow]


def flows_of(
    running: Mapping[TopicPartition, ReplicaAssignment],
    plan: Iterable[PartitionMove],
    current: Mapping[TopicPartition, ReplicaAssignment],
) -> Flows:
    """Return which brokers copy from which, once ``plan`` runs beside the reassignments that are ``running`` already.

    Replicas that a running reassignment adds are not sources yet.
    """
    flows = {
        name: ReplicaFlow(frozenset(assignment.origin_replicas), frozenset(assignment.adding_replicas))
        for name, assignment in running.items()
    }
    for move in plan:
        present = running.get(move.name) or current[move.name]
        sources = frozenset(present.origin_replicas)
        flows[move.name] = ReplicaFlow(sources, frozenset(move.replicas) - sources)
    return flows


def brokers_of(flows: Flows) -> frozenset[int]:
    """Return the brokers that send or receive."""
    moving = [flow for flow in flows.values() if flow.destinations]
    return frozenset().union(*(flow.sources | flow.destinations for flow in moving))


def status_of(move: PartitionMove, described: PartitionSnapshot | None, *, is_listed: bool = False) -> PartitionStatus:
    """Return how far a partition is. ``is_listed``: an older controller still has it on its list.

    The order of the replicas counts, because the first one is the preferred leader.
    """
    topic, partition = move.name
    if described is None:
        state, reason = ReassignmentState.NOT_FOUND, "no such partition"
        return PartitionStatus(topic, partition, state, (), move.replicas, reason=reason)
    assignment = described.assignment
    if assignment.is_being_reassigned or is_listed:
        return PartitionStatus(
            topic,
            partition,
            ReassignmentState.IN_PROGRESS,
            assignment.replicas,
            move.replicas,
            assignment.adding_replicas,
            assignment.removing_replicas,
            reason=_elsewhere(move, assignment),
        )
    if assignment.replicas == move.replicas:
        return PartitionStatus(topic, partition, ReassignmentState.COMPLETE, assignment.replicas, move.replicas)
    # A plan that never started looks like one that started and was cancelled: the cluster keeps no trace of either.
    reason = "not there, and no move is active: not started, cancelled or undone"
    return PartitionStatus(
        topic, partition, ReassignmentState.FAILED, assignment.replicas, move.replicas, reason=reason
    )


def _elsewhere(move: PartitionMove, assignment: ReplicaAssignment) -> str | None:
    target = assignment.target_replicas
    if not assignment.is_being_reassigned or target == move.replicas:
        return None
    return f"it is on its way to {','.join(map(str, target))} instead"


WINDOW_S = 15.0
"""The rate is that of the last seconds: throttles and neighbours change."""


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """One partition, or (name None) all of them. ``eta_s`` is None while nothing moves or sizes are unknown.

    ``reason`` says what prevents a partition from progressing.
    """

    name: TopicPartition | None
    moved_bytes: int
    total_bytes: int
    rate: float
    eta_s: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ReassignmentProgress:
    """All partitions at one moment."""

    overall: MoveProgress
    partitions: tuple[MoveProgress, ...]
    """Those still in progress."""
    done_count: int
    count: int


class ProgressWatcher(Protocol):
    """Gets the progress of a reassignment while it is followed."""

    def show(self, progress: ReassignmentProgress) -> None:
        """This is the progress now."""

    def end(self) -> None:
        """The watching has ended: it is done, the time is up, or the watching was interrupted."""


class ProgressMeter:
    """Computes progress from one look after another."""

    def __init__(self) -> None:
        self._totals: dict[TopicPartition, int] = {}
        self._seen: deque[tuple[float, dict[TopicPartition, int]]] = deque()

    def update(self, statuses: Sequence[PartitionStatus], now_s: float) -> ReassignmentProgress:
        """Take a look at ``now_s`` (monotonic) into account."""
        moved: dict[TopicPartition, int] = {}
        for status in statuses:
            remaining = self._remaining(status)
            seen = self._totals.get(status.name, 0)
            total = self._totals[status.name] = max(seen, status.total_bytes or 0, remaining)
            moved[status.name] = total - remaining
        self._seen.append((now_s, moved))
        while len(self._seen) > 2 and now_s - self._seen[1][0] > WINDOW_S:
            self._seen.popleft()
        going = [status for status in statuses if status.state is ReassignmentState.IN_PROGRESS]
        return ReassignmentProgress(
            self._progress(None, now_s),
            tuple(replace(self._progress(status.name, now_s), reason=status.reason) for status in going),
            len(statuses) - len(going),
            len(statuses),
        )

    def _remaining(self, status: PartitionStatus) -> int:
        if status.state is not ReassignmentState.IN_PROGRESS:
            return 0
        if status.remaining_bytes is not None:
            return status.remaining_bytes
        last = self._seen[-1][1].get(status.name, 0) if self._seen else 0
        return self._totals.get(status.name, status.total_bytes or 0) - last

    def _progress(self, name: TopicPartition | None, now_s: float) -> MoveProgress:
        total = sum(self._totals.values()) if name is None else self._totals.get(name, 0)
        moved = self._moved(name, self._seen[-1][1])
        first_s, first = self._seen[0]
        elapsed = now_s - first_s
        rate = max(0.0, (moved - self._moved(name, first)) / elapsed) if elapsed > 0 else 0.0
        return MoveProgress(name, moved, total, rate, (total - moved) / rate if rate > 0 else None)

    def _moved(self, name: TopicPartition | None, moved: dict[TopicPartition, int]) -> int:
        return sum(moved.values()) if name is None else moved.get(name, 0)
