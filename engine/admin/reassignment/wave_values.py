"""The input of an execution of waves, its progress reports and its outcome. Nothing here acts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from engine.admin.reassignment.adaptive_throttle import ThrottleRange
from engine.admin.reassignment.lock import SESSION_TIMEOUT_S
from engine.admin.reassignment.lock_holder import Holder
from engine.admin.reassignment.wave_progress import WaveProgress
from engine.common.model import TopicPartition

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
        """Something that a person wants to know: the throttle was changed, an answer got lost."""


class WaveControl:
    """Changes an execution while it runs. Belongs to the caller that started it."""

    def __init__(self) -> None:
        self._wanted: ThrottleRange | None = None

    def set_throttle(self, limits: ThrottleRange) -> None:
        """Let brokers copy at another rate from the next look on, and in the waves that follow."""
        self._wanted = limits

    def take_throttle(self) -> ThrottleRange | None:
        """Return the throttle that was asked for since the last call."""
        wanted, self._wanted = self._wanted, None
        return wanted
