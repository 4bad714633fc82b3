"""A run of waves as values: its input, its progress (bytes, rate, time left), and how it ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from engine.admin.reassignment.adaptive_throttle import ThrottleRange
from engine.admin.reassignment.lock import SESSION_TIMEOUT_S
from engine.admin.reassignment.lock_holder import Holder
from engine.common.model import TopicPartition

WINDOW_S = 60.0
"""The time left is estimated from the slowest and the fastest stretch of the last minute."""

STRETCH_S = 20.0
"""Under a throttle brokers copy in bursts with pauses of some seconds between them: a stretch is longer than both."""

RATE_S = 30.0
"""The rate is the mean of at least this many seconds, once that many were seen."""

TELLING_SHARE = 0.01
"""The time left is shown once this share of the bytes has moved: less says nothing about the rest."""


@dataclass(frozen=True, slots=True)
class WaveProgress:
    """All waves at one moment. Bytes and times are None if sizes are unknown or nothing has moved yet.

    ``left_s_min`` and ``left_s_max``: the seconds that the rest takes at the fastest and at the slowest recent rate.
    ``p99_s`` is that of the slowest broker, if answers are measured.
    """

    wave: int
    wave_count: int
    done_count: int
    count: int
    moved_bytes: int | None
    total_bytes: int | None
    rate: float
    left_s_min: float | None
    left_s_max: float | None
    throttle: int | None
    p99_s: float | None = None

    @property
    def share(self) -> float:
        """The share of the bytes that has moved; of the partitions, if sizes are unknown or all are empty.

        It is not 1 before all partitions have arrived, with or without bytes.
        """
        if self.total_bytes and self.moved_bytes is not None:
            share = self.moved_bytes / self.total_bytes
            return share if self.done_count == self.count else min(share, 0.99)
        return self.done_count / self.count if self.count else 1.0


class WaveMeter:
    """Computes progress from one look after another. ``to_copy`` are the bytes of each partition of the plan."""

    def __init__(self, to_copy: Mapping[TopicPartition, int | None], wave_count: int) -> None:
        known = [size for size in to_copy.values() if size is not None]
        self._to_copy = to_copy
        self._total = sum(known) if len(known) == len(to_copy) else None
        self._wave_count = wave_count
        self._seen: deque[tuple[float, int]] = deque()
        self._moved_at_first: int | None = None
        self._last_moved: dict[TopicPartition, int] = {}

    def update(
        self,
        wave: int,
        done: frozenset[TopicPartition],
        remaining: Mapping[TopicPartition, int | None],
        throttle: int | None,
        now_s: float,
    ) -> WaveProgress:
        """Take a look at ``now_s`` (monotonic) into account: ``remaining`` are the bytes left of those that move."""
        count = len(self._to_copy)
        if self._total is None:
            return WaveProgress(
                wave, self._wave_count, len(done), count, None, None, 0.0, None, None, throttle
            )  # fmt: skip
        moved = sum(self._moved(name, done, remaining) for name in self._to_copy)
        self._seen.append((now_s, moved))
        while len(self._seen) > 2 and now_s - self._seen[1][0] > WINDOW_S:
            self._seen.popleft()
        if self._moved_at_first is None:
            self._moved_at_first = moved
        left = self._total - moved
        told_from = self._moved_at_first + TELLING_SHARE * (self._total - self._moved_at_first)
        rates = self._rates() if moved >= told_from else []
        return WaveProgress(
            wave,
            self._wave_count,
            len(done),
            count,
            moved,
            self._total,
            self._rate(),
            left / max(rates) if rates and max(rates) > 0 else None,
            left / min(rates) if rates and min(rates) > 0 else None,
            throttle,
        )

    def _moved(
        self, name: TopicPartition, done: frozenset[TopicPartition], remaining: Mapping[TopicPartition, int | None]
    ) -> int:
        size = self._to_copy[name] or 0
        if name in done:
            return size
        left = remaining.get(name)
        if left is not None:
            self._last_moved[name] = max(0, size - left)
        # For moves without a figure now, use the last known figure.
        return self._last_moved.get(name, 0) if name in remaining else 0

    def _rate(self) -> float:
        """Return the recent mean rate, or that of everything seen if that is shorter."""
        last_s, last = self._seen[-1]
        old = [look for look in self._seen if last_s - look[0] >= RATE_S]
        start_s, start = old[-1] if old else self._seen[0]
        return max(0.0, (last - start) / (last_s - start_s)) if last_s > start_s else 0.0

    def _rates(self) -> list[float]:
        """Return the rates of the stretches seen, oldest first."""
        rates: list[float] = []
        start_s, start = self._seen[0]
        for now_s, moved in self._seen:
            if now_s - start_s >= STRETCH_S:
                rates.append(max(0.0, (moved - start) / (now_s - start_s)))
                start_s, start = now_s, moved
        return rates


STALL_S = 300.0
"""A wave counts as stalled if no byte is copied for this long."""


class Step(StrEnum):
    """The steps of an execution, each reported after it is done. After an interruption, another run can continue."""

    LOCKED = "locked"
    SAVED = "saved"
    """Journal and rollback file are on disk."""
    CLEARED = "cleared"
    """Throttles that an earlier run left are removed."""
    WAVE_BEGUN = "wave_begun"
    """The gate is passed, and the journal says what will move."""
    THROTTLED = "throttled"
    STARTED = "started"
    COPIED = "copied"
    WAVE_DONE = "wave_done"
    """The wave's throttle is removed, and the journal says that it is done."""
    ELECTED = "elected"
    ENDED = "ended"
    """The journal says how it ended."""


class Outcome(StrEnum):
    """How an execution ended."""

    DONE = "done"
    STOPPED = "stopped"
    """A gate has stopped it: ``reason`` says which."""
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class WaveSettings:
    """How waves are carried out.

    Attributes: plan_digest: identifies the plan in its journal. what: what is done, for the lock and the journal, such
    as ``apply plan.json``. journal: path of the journal. rollback_file: where the rollback is written; None writes
    none. throttle: None copies at full speed. deadline_s: seconds from now, None has no end. elects: whether leaders
    that the plan changes are elected at the end.
    """

    plan_digest: str
    what: str
    journal: Path
    rollback_file: Path | None
    throttle: ThrottleRange | None = None
    deadline_s: float | None = None
    stall_s: float = STALL_S
    lock_timeout_s: float = SESSION_TIMEOUT_S
    elects: bool = True


@dataclass(frozen=True, slots=True)
class WavesResult:
    """The outcome. ``wave`` is the last that has started, ``left`` says which throttles stay, and why.

    ``gone`` of its partitions no longer exist.
    """

    outcome: Outcome
    reason: str | None
    wave: int
    wave_count: int
    done: int
    moving: tuple[TopicPartition, ...]
    count: int
    left: tuple[str, ...] = ()
    gone: int = 0


class WaveWatcher(Protocol):
    """Gets the course of an execution."""

    def step(self, step: Step, wave: int) -> None:
        """This step is done; ``wave`` counts from 1, 0 is before the first."""

    def show(self, progress: WaveProgress) -> None:
        """This is the progress now."""

    def saved(self, rollback_file: Path) -> None:
        """The rollback is in this file."""

    def waits_for(self, holder: Holder) -> None:
        """Another operator holds the lock; if it is dead its lock ends soon."""

    def says(self, text: str) -> None:
        """Something that the user wants to know: the throttle was changed, an answer was lost."""


class WaveControl:
    """Changes an execution while it runs. Belongs to the caller that started it."""

    def __init__(self) -> None:
        self._wanted: ThrottleRange | None = None

    def set_throttle(self, limits: ThrottleRange) -> None:
        """Let brokers copy at another rate from the next look on, and in the waves that follow."""
        self._wanted = limits

    def take_throttle(self) -> ThrottleRange | None:
        """Return the throttle that somebody has requested since the last call."""
        wanted, self._wanted = self._wanted, None
        return wanted
