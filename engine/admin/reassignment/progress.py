"""How fast partitions move: bytes done, rate and time left, per partition and in all. Pure.

Totals are what brokers say the moves copy in all, so that an observer who joins midway, even from another machine, sees
the true share. Without that, they are the largest remainder that was seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from engine.admin.reassignment.moves import PartitionStatus, ReassignmentState
from engine.common.model import TopicPartition

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
