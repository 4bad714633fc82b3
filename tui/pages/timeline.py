"""Everything that happened while the dashboard was watching, the newest first."""

from __future__ import annotations

from heapq import nsmallest

from engine.admin.analysis.incidents import Incident, Run
from engine.admin.watch.events import Event, EventKind
from tui.drawing.cells import Cell, Column, Tone, column
from tui.drawing.lines import Line, cut, elided, folded, line, wrapped
from tui.drawing.units import clock_time, count, counted, ids, plain, span
from tui.pages.page import Page, View
from tui.state.board import Board, NumberedEvents
from tui.state.location import Location, Only
from tui.state.table_model import Rows

_CHANGE_MAX, _WHY_MAX = 80, 40
_NAME_MAX = 28
"""The path of a log dir would take the place of what happened to it."""
_NAMES = 4
_BROKER = "broker "
_NOBODY = "none"
"""What events name a leader that is none."""
_TONES = {
    EventKind.BROKER_DOWN: Tone.BAD,
    EventKind.BROKER_SILENT: Tone.BAD,
    EventKind.PARTITION_OFFLINE: Tone.BAD,
    EventKind.LOG_DIR_FAILED: Tone.BAD,
    EventKind.CONNECTION_LOST: Tone.BAD,
    EventKind.ISR_SHRANK: Tone.WARN,
    EventKind.GROUP_STALLED: Tone.WARN,
    EventKind.CONTROLLER_MOVED: Tone.WARN,
    EventKind.TOPIC_DELETED: Tone.WARN,
    EventKind.TOPIC_RECREATED: Tone.WARN,
    EventKind.BROKER_REREGISTERED: Tone.WARN,
    EventKind.BROKER_UP: Tone.GOOD,
    EventKind.BROKER_ANSWERS: Tone.GOOD,
    EventKind.ISR_GREW: Tone.GOOD,
    EventKind.GROUP_READS_AGAIN: Tone.GOOD,
    EventKind.LOG_DIR_BACK: Tone.GOOD,
    EventKind.CONNECTION_BACK: Tone.GOOD,
    EventKind.REASSIGNMENT_FINISHED: Tone.GOOD,
}
SEVERITIES = {Only.WARNINGS: 1, Only.FAILURES: 0}
"""What the timeline may be narrowed to, each with the least severe that it shows."""


def next_severity(only: Only | None) -> Only | None:
    """Return what the timeline shows after this: all, warnings and failures, failures alone."""
    return {None: Only.WARNINGS, Only.WARNINGS: Only.FAILURES}.get(only)


def severity(event: Event) -> int:
    """Return 0 for what is most severe, and more for what is less so."""
    tones = (Tone.BAD, Tone.WARN, Tone.GOOD)
    tone = _TONES.get(event.kind, Tone.PLAIN)
    return tones.index(tone) if tone in tones else len(tones)


def kind_cell(event: Event) -> Cell:
    """Return what happened, in words."""
    return Cell(event.kind.value.replace("_", " ").replace("isr", "ISR"), _TONES.get(event.kind, Tone.PLAIN))


def change_text(event: Event) -> str:
    if event.kind is EventKind.LEADER_CHANGED and event.before == _NOBODY:
        return f"{event.after} leads; nothing led before"
    if event.before and event.after:
        return f"{event.before} → {event.after}"
    return event.after or event.before


def short_kind(run: Run) -> str:
    """Return what happened, without what the subject and the change say themselves: they are cut where it is narrow."""
    event, words = run.event, kind_cell(run.event).text
    what = words.removesuffix(" changed")
    if run.count > 1:
        return what if " " in what else words
    is_told = what != words and change_text(event)
    return what.removeprefix(f"{event.subject.partition(' ')[0]} ") if is_told else words


def run_line(run: Run, kind_width: int, *, is_short: bool = False, ended: str = "") -> Line:
    """Return the events of one kind in one moment as a line; a short one has no tenths of seconds, and few words.

    ``ended`` says that what failed is well again.
    """
    event, kind = run.event, kind_cell(run.event)
    words = short_kind(run) if is_short else kind.text
    at = clock_time(event.at_ms)
    head = ((f"{at.partition('.')[0] if is_short else at}  ", Tone.QUIET), (f"{words:<{kind_width}}", kind.tone))
    over = ((f"{ended}  ", Tone.GOOD),) if ended else ()
    if run.count == 1:
        subject = (f"{plain(event.subject)}  ", Tone.STRONG)
        return line(*head, subject, *over, f"{plain(change_text(event))}  ", (plain(event.reason), Tone.QUIET))
    names = plain(_named(run))
    # The reason comes before the names: there are many names, and they are cut first.
    why = run.reason or change_text(event) * (run.is_alike and event.kind is EventKind.BROKER_CONFIG_CHANGED)
    why = f"{plain(why)}  " if why else ""
    return line(*head, (f"{count(run.count)} times  ", Tone.STRONG), *over, why, (names, Tone.QUIET))


def _named(run: Run) -> str:
    return ", ".join(run.subjects[:_NAMES]) + (", …" if run.count > _NAMES else "")


def _within(event: Event) -> Cell:
    return Cell("" if event.within_ms is None else f"≤ {span(event.within_ms / 1000)}", Tone.QUIET)


def columns_of(board: Board, *, is_folded: bool = True, is_incident: bool = False) -> tuple[Column, ...]:
    """Return the columns; an incident says what followed from it, and how it ended.

    Args:
        is_folded: a row stands for all events of its kind and moment.
        is_incident: the rows are those of one incident, so its cause need not say what followed.
    """

    def run_of(numbered: tuple[int, Event]) -> Run | None:
        return board.run_of(numbered[0]) if is_folded else None

    def subject(numbered: tuple[int, Event]) -> str:
        run = run_of(numbered)
        return numbered[1].subject if run is None else _subjects(run)

    def change(numbered: tuple[int, Event]) -> str:
        if (incident := board.incident_of(numbered)) is not None:
            return "" if is_incident else effects_text(incident)
        run = run_of(numbered)
        return change_text(numbered[1]) if run is None or run.is_alike else _named(run)

    def why(numbered: tuple[int, Event]) -> Cell:
        incident = board.incident_of(numbered)
        if incident is None:
            run = run_of(numbered)
            return Cell(numbered[1].reason if run is None else run.reason, Tone.QUIET)
        lasted = span(incident.lasted_s(board.frame.at_ms))
        if incident.ended_ms is not None:
            return Cell(f"over after {lasted}", Tone.GOOD)
        left = f", {count(len(incident.out))} out of sync" if incident.out else ""
        return Cell(f"ongoing for {lasted}{left}", Tone.BAD)

    return (
        column("time", "TIME (UTC)", lambda e: e[1].at_ms, clock_time, width=10),
        Column("within_ms", "SEEN IN", lambda e: _within(e[1]), lambda e: e[1].within_ms, rank=4, is_figure=True),
        Column("kind", "WHAT", lambda e: kind_cell(e[1]), lambda e: e[1].kind, width=20),
        column("subject", "OF", subject, lambda name: elided(name, _NAME_MAX), tone=Tone.STRONG,
               width=16),
        # A list of throttled replicas would need more than the whole row.
        column("change", "CHANGE", change, lambda text: cut(text, _CHANGE_MAX), rank=2, is_wide=True, needs_max=16,
               width=12),
        Column("reason", "WHY", lambda e: Cell(cut(why(e).text, _WHY_MAX), why(e).tone), lambda e: why(e).text, rank=1,
               width=12),
    )  # fmt: skip


def _subjects(run: Run) -> str:
    """Return what the events of a run are of, as far as it fits into the column."""
    if run.event.topic_partition is not None:
        return counted(run.count, "partition")
    names = run.subjects
    if all(name.startswith(_BROKER) for name in names):
        names = [f"brokers {names[0].removeprefix(_BROKER)}", *(name.removeprefix(_BROKER) for name in names[1:])]
    text = ", ".join(names)
    if len(text) <= _NAME_MAX and len(names) == run.count:
        return text
    return f"{cut(names[0], _NAME_MAX - 14)} and {counted(run.count - 1, 'other')}"


def effects_text(incident: Incident) -> str:
    return ", ".join(effects_of(incident))


def effects_of(incident: Incident) -> list[str]:
    """Return what followed from a failure, each with how long after it: ``+0.4s 12 leaders moved → 1,3``."""
    lines = []
    for kind, effect in incident.effects.items():
        words = _EFFECTS.get(kind, kind.value.replace("_", " "))
        to = f" → {ids(tuple(sorted(incident.new_leaders)))}" if kind is EventKind.LEADER_CHANGED else ""
        lines.append(f"+{span((effect.first_ms - incident.cause.at_ms) / 1000)} {count(effect.count)} {words}{to}")
    return lines


_EFFECTS = {
    EventKind.LEADER_CHANGED: "leaders moved",
    EventKind.PARTITION_OFFLINE: "offline",
    EventKind.ISR_SHRANK: "left the ISR",
    EventKind.ISR_GREW: "caught up",
}


def _rows(view: View) -> Rows:
    board, only = view.board, view.location.only
    is_folded = _is_folded(view)
    if view.location.run is not None:
        events = board.events_of_run(view.location.run)
    else:
        events = board.folded_events(view.location.incident) if is_folded else NumberedEvents(board)
    return Rows(
        columns_of(board, is_folded=is_folded, is_incident=view.location.incident is not None),
        events,
        lambda numbered: numbered[0],
        lambda numbered: f"{numbered[1].kind.replace('_', ' ')} {numbered[1].subject} {numbered[1].reason}",
        f"{'nothing has happened' if only is None else f'no {only}'} since the dashboard started",
        None if only is None else lambda numbered: severity(numbered[1]) <= SEVERITIES[only],
    )


def _is_folded(view: View) -> bool:
    """Whether rows hide events: not where a filter looks for them."""
    where = view.location
    return where.run is None and (where.incident is not None or not view.is_filtered)


def run_of(view: View, numbered: tuple[int, Event]) -> Run | None:
    """Return the events that a row stands for, if it is not one alone."""
    return view.board.run_of(numbered[0]) if _is_folded(view) else None


def _summary(view: View, width: int) -> list[Line]:
    board = view.board
    hidden = len(board.events) - len(board.folded_events()) if _is_folded(view) else 0
    facts = f"{counted(len(board.events), 'event')}{f', {count(hidden)} of them folded' * bool(hidden)}"
    words = [line((text, Tone.QUIET)) for text in (facts, "what comes and goes between two looks is not seen")]
    number, incidents = view.location.incident, view.board.history.incidents
    if number is not None and number in incidents:
        cause = incidents[number].cause
        head = f"what followed when {plain(cause.subject)} was {kind_cell(cause).text.rpartition(' ')[2]}: "
        return folded(line((head, Tone.QUIET), effects_text(incidents[number])), width)
    return [*wrapped(words, width), *_absent(view)]


def _absent(view: View) -> list[Line]:
    """Say which replicas have been out of sync the longest."""
    out = list(view.board.history.absences.present(view.board.topics))
    if not out:
        return []
    now_ms, longest = view.board.frame.at_ms, nsmallest(3, out)
    shown = ", ".join(f"{name} without {id_} for {span((now_ms - since) / 1000)}" for since, name, id_ in longest)
    return [line((f"{counted(len(out), 'replica')} out of sync: {shown}", Tone.BAD))]


def _opens(view: View, numbered: tuple[int, Event]) -> Location | None:
    event, incident = numbered[1], view.board.incident_of(numbered)
    if incident is not None and view.location.incident is None and incident.effects:
        return Location("timeline", incident=incident.number)
    if run_of(view, numbered) is not None:
        return Location("timeline", incident=view.location.incident, run=numbered[0])
    if event.topic is not None:
        row = None if event.partition is None else f"{event.topic}-{event.partition}"
        return Location("partitions", topic=event.topic, row=row)
    return None if event.broker is None else Location("partitions", broker=event.broker)


PAGE = Page(
    "timeline",
    _rows,
    _summary,
    _opens,
    command=lambda view, items: ["state-changes", "merge", *(() if view.target is None else view.target.logs)],
)
