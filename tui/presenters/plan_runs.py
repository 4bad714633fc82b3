"""The current run of a plan, and past ones: lines for the page, rows of the history. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.admin.analysis.moves import MovesBoard
from engine.admin.reassignment.journal import JournalRecord
from engine.admin.reassignment.wave_progress import WaveProgress
from tui.cells import Tone
from tui.lines import Line, line
from tui.presenters.plan_card import throttle_text
from tui.state.plan_run import PlanRunState, RunState
from tui.units import NOTHING, byte_rate, clock_time, percent, size, span, span_left

_TONES = {
    RunState.UNDER_WAY: Tone.ACCENT, RunState.DONE: Tone.GOOD, RunState.STOPPED: Tone.WARN, RunState.FAILED: Tone.BAD,
}  # fmt: skip
_MARKS = {RunState.UNDER_WAY: "▶", RunState.DONE: "✔", RunState.STOPPED: "■", RunState.FAILED: "✖"}
_BAR = 16


def run_lines(run: PlanRunState, moves: MovesBoard | None = None) -> list[Line]:
    """Return the progress of a run, and what it said last.

    Until the run itself can tell the time left, it is that of the reassignments under way.
    """
    tone = _TONES[run.state]
    head: list[Any] = [(f"{_MARKS[run.state]} {run.run.verb} {run.run.path.name}: {run.state}", tone)]
    lines = [line(*head)]
    if run.progress is not None and run.is_under_way:
        where, how = progress_texts(run.progress, moves)
        lines = [line(*head, f"   {where}"), line(("  ", Tone.PLAIN), (how, tone))]
    if run.said:
        at_ms, text = run.said[-1]
        lines.append(line((f"  {clock_time(at_ms)}  ", Tone.QUIET), (text, tone if run.error else Tone.PLAIN)))
    return lines


def progress_texts(progress: WaveProgress, moves: MovesBoard | None = None) -> tuple[str, str]:
    """Return where a run is: wave, partitions, throttle; and its progress: bytes, rate, a range for the time left."""
    where = f"wave {progress.wave} of {progress.wave_count}   {progress.done_count}/{progress.count} partitions"
    where = f"{where}   {throttle_text(progress.throttle)}"
    if progress.moved_bytes is None or progress.total_bytes is None:
        return where, "sizes are not known"
    share = progress.moved_bytes / progress.total_bytes if progress.total_bytes else 1.0
    full = int(share * _BAR)
    bar = f"{'━' * full}{'╌' * (_BAR - full)} {percent(share)}"
    sizes = f"{size(progress.moved_bytes)} of {size(progress.total_bytes)}"
    return where, f"{bar}  {sizes}   {byte_rate(progress.rate)}   {time_left(progress, moves)}"


def time_left(progress: WaveProgress, moves: MovesBoard | None = None) -> str:
    """Return the time left, as a range if the rate varies."""
    least, most = progress.left_s_min, progress.left_s_max
    if least is None:
        if moves is None or moves.left_s is None:
            return "time left not known"
        return f"moving now: {span_left(moves.left_s, moves.left_low_s, moves.left_high_s)}"
    if most is None:
        return f"at least {span(least)} left"
    return f"{span(least)} left" if span(least) == span(most) else f"{span(least)} to {span(most)} left"


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run of a plan, from its journal."""

    plan: str
    began: str
    who: str
    what: str
    waves: int
    waves_done: int
    ended: str
    outcome: str
    """``done``, ``stopped`` with the reason, or that no end is recorded."""


NO_END = "no end is recorded: killed, or still under way"


def past_runs(journals: Sequence[tuple[Path, JournalRecord]]) -> list[PastRun]:
    """Return all runs in the journals, the newest first."""
    runs = [run for path, record in journals for run in _runs_of(path, record.events)]
    return sorted(runs, key=lambda run: run.began, reverse=True)


def _runs_of(path: Path, events: Sequence[Mapping[str, Any]]) -> list[PastRun]:
    """A run is everything from one ``begun`` to the next."""
    starts = [index for index, event in enumerate(events) if event["event"] == "begun"]
    found = []
    for start, end in pairwise([*starts, len(events)]):
        begun, rest = events[start], events[start + 1 : end]
        last = next((event for event in reversed(rest) if event["event"] in ("done", "stopped")), None)
        outcome, ended = NO_END, NOTHING
        if last is not None:
            reason = last.get("reason")
            outcome, ended = f"stopped: {reason}" if reason else str(last["event"]), str(last.get("time", NOTHING))
        found.append(
            PastRun(
                path.name.removesuffix(".journal"),
                str(begun.get("time", NOTHING)),
                str(begun.get("who", NOTHING)),
                str(begun.get("what", NOTHING)),
                int(begun.get("waves", 0)),
                sum(event["event"] == "wave_done" for event in rest),
                ended,
                outcome,
            )
        )
    return found
