"""Why something is wrong: all that is known about a problem, in lines. Pure."""

from __future__ import annotations

from engine.admin.analysis.incidents import runs_around
from engine.admin.health.report import Check
from engine.admin.watch.events import Event
from tui.actions import Registry
from tui.drawing.cells import Tone
from tui.drawing.lines import Line, fitted, line
from tui.drawing.units import at_least, plain, span
from tui.pages.timeline import run_line, severity
from tui.state.board import Board
from tui.state.location import Only
from tui.state.problems import Problem


def age_text(problem: Problem, board: Board) -> str:
    """Return for how long it has been so, as far as anybody saw it."""
    if problem.since is None:
        return ""
    seconds = max(0, board.frame.at_ms - problem.since.at_ms) // 1000
    text = span(seconds) if seconds else "0s"
    return at_least(text, is_least=problem.since.is_least)


def why_lines(
    problem: Problem, board: Board, registry: Registry | None = None, *, run_width: int | None = None
) -> list[Line]:
    """Return all that is known of a problem: cases, what happened to cause it, what to do, and the keys for that.

    ``run_width``: what happened many times takes one line of at most that many cells, which ends with names of cases.
    """
    effect = problem.effect
    if len(problem.examples) > 1:
        # In a row it names the first cases.
        effect = effect.partition(plain(problem.examples[0]))[0].rstrip(", ")
    lines = [line((f"{problem.sign} {problem.subject}", problem.tone), f"  {effect}")]
    cases = (problem.means, *problem.examples)
    lines += [line(f"  {plain(case)}") for case in cases if case not in ("", effect)]
    # If its beginning was not seen, what happened then is not known. A trend has no beginning.
    since, past = None if problem.opens.only is Only.FILLING else problem.since, board.history
    setting = "throttled" * (problem.key == Check.LEAKED_THROTTLES)
    at_ms = None if since is None or since.is_least else since.at_ms
    runs = [run for run in past.incidents.runs if problem.is_of_cluster or _may_hold_up(problem, run.event)]
    if at_ms is not None and (incident_runs := runs_around(runs, past.events, at_ms, severity, setting)):
        width = max(len(run.event.kind) for run in incident_runs) + 2
        lines.append(line(("what happened then", Tone.QUIET)))
        happened = [line("  ", *run_line(run, width)) for run in incident_runs]
        lines += happened if run_width is None else [fitted(event_line, run_width) for event_line in happened]
    if problem.advice:
        # Where lines are cut for want of room, it comes first.
        lines.insert(len(lines) if run_width is None else 1, line(("what to do  ", Tone.QUIET), problem.advice))
    if registry is not None and problem.mends:
        keys = line(("on its row  ", Tone.QUIET))
        for action in map(registry.named, problem.mends):
            keys = line(*keys, (f"{action.key_text} ", Tone.ACCENT), f"{action.title.lower()}  ")
        lines.append(keys)
    return lines


def _may_hold_up(problem: Problem, event: Event) -> bool:
    """Whether an event is a reader's own, or a failure: other partitions have nothing to do with it."""
    return event.subject == problem.key or not severity(event)
