"""A plan that the dashboard carries out: the wave, the progress, and all messages. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from engine.admin.reassignment.lock_holder import Holder
from engine.admin.reassignment.plan_runs import PlanRun, Verb
from engine.admin.reassignment.wave_progress import Outcome, Step, WaveProgress, WavesResult

SAID_MAX = 200


class RunState(StrEnum):
    UNDER_WAY = "under way"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class PlanRunState:
    """Follows an execution (a ``WaveWatcher``), and remembers what it reports. Owned by the plan desk.

    Args:
        changed: called after each change.
        clock: milliseconds since 1970.
    """

    def __init__(self, run: PlanRun, wave_count: int, *, clock: Callable[[], int], changed: Callable[[], None]) -> None:
        self.run = run
        self.wave_count = wave_count
        self.wave = 0
        self.progress: WaveProgress | None = None
        self.said: deque[tuple[int, str]] = deque(maxlen=SAID_MAX)
        self.result: WavesResult | None = None
        self.error = ""
        self.was_stopped = False
        self._clock = clock
        self._changed = changed

    @property
    def state(self) -> RunState:
        if self.result is not None:
            return RunState.DONE if self.result.outcome is Outcome.DONE else RunState.STOPPED
        if self.was_stopped:
            return RunState.STOPPED
        return RunState.FAILED if self.error else RunState.UNDER_WAY

    @property
    def is_under_way(self) -> bool:
        return self.state is RunState.UNDER_WAY

    @property
    def place(self) -> str:
        return f"wave {self.wave} of {self.wave_count}"

    # What the execution reports

    def step(self, step: Step, wave: int) -> None:
        self.wave = wave
        message = {
            Step.LOCKED: "the plan lock is taken",
            Step.WAVE_BEGUN: f"wave {wave} of {self.wave_count} begins",
            Step.WAVE_DONE: f"wave {wave} of {self.wave_count} is done",
            Step.ELECTED: "preferred leaders are elected",
        }.get(step)
        if message is not None:
            self.says(message)

    def show(self, progress: WaveProgress) -> None:
        self.progress = progress
        self._changed()

    def saved(self, rollback_file: Path) -> None:
        self.says(f"the rollback is in {rollback_file}")

    def waits_for(self, holder: Holder) -> None:
        self.says(f"the lock is held by {holder}, for {holder.what}; waiting in case that run was killed")

    # How it ended

    def ended(self, result: WavesResult) -> None:
        """It is complete, or a gate has stopped it."""
        self.result = result
        where = "where they were before the plan" if self.run.verb is Verb.ROLLBACK else "where the plan wants them"
        message = f"{result.done} of {result.count} partitions are {where}"
        if result.reason is not None:
            when = f"at wave {result.wave} of {result.wave_count}" if result.wave else "before the first wave"
            message = f"stopped {when}: {result.reason}"
        self.says(message)

    def failed(self, error: str) -> None:
        self.error = error
        self.says(error)

    def stopped(self) -> None:
        """The user has stopped it. The caller says what happens to the moves under way."""
        self.was_stopped = True
        self.says("stopped")

    def says(self, text: str) -> None:
        """Something that the user should know."""
        self.said.append((self._clock(), text))
        self._changed()
