"""The overview: the cluster's health, what is wrong and where, what each broker carries, and the last changes. Pure.

It consists of panels that fill the screen. The problems are rows with a cursor, as on every other screen; the drawing
includes their places, so that a click finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.admin.analysis.incidents import Run
from engine.admin.health.report import HealthStatus
from engine.admin.watch.frame import Stage
from engine.common.model import NO_CONTROLLER
from tui.drawing.cells import Cell, Column, Tone
from tui.drawing.lines import Line, Span, beside, fitted, folded, line, panel, table_lines, width_of, wrapped
from tui.drawing.sparkline import ceiling_of, chart_lines, sparkline, values_in
from tui.drawing.units import at_least, count, counted, plain, short_count, span
from tui.pages import brokers, reassignments
from tui.pages.groups import status_cell, time_lag_cell, trend_cell, unknown_text
from tui.pages.page import Page, View
from tui.pages.timeline import run_line, severity, short_kind
from tui.pages.why import age_text, why_lines
from tui.state.board import Board
from tui.state.problems import Problem, problems_of
from tui.state.status import Standing, standing_of
from tui.state.table_model import Rows

WORDS = {HealthStatus.OK: "healthy", HealthStatus.WARNING: "warning", HealthStatus.CRITICAL: "critical"}
_TONES = {HealthStatus.OK: Tone.GOOD, HealthStatus.WARNING: Tone.WARN, HealthStatus.CRITICAL: Tone.BAD}
_LOUD = {HealthStatus.WARNING: Tone.ALERT, HealthStatus.CRITICAL: Tone.ALARM}
_SIGNS = {HealthStatus.OK: "●", HealthStatus.WARNING: "▲", HealthStatus.CRITICAL: "✖"}
_WIDE, _TALL = 110, 28
"""From this width on panels stand side by side; from this height on what is critical takes three lines."""
_CHARTS_WIDTH = 42
_PANEL_MIN = 50
"""Moves and groups stand one above the other if each would be narrower than this beside the other."""
_UPPER_MIN = 14
"""Two charts with a scale each need this many lines."""
_CHART_MIN = 8
"""A lower chart below the problems would say little."""
_EVENTS_MAX = 16
_ADVICE_LINES = 3
"""What to do about a problem takes at least as many lines, with its title."""
_LATE_MS = 600_000
"""What is older is no longer shown for its severity, but only where there is room."""
_SUBJECT_MAX = 30
_BAR = 10


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn, and on which line which problem stands, in which columns."""

    lines: list[Line]
    problems: Mapping[int, int] = field(default_factory=dict)
    columns: tuple[int, int] = (0, 0)


def overview_of(
    board: Board, problems: Sequence[Problem], width: int, height: int, *, cursor: int = 0, is_seen: bool = True
) -> Picture:
    banner = _banner(board, problems, width, is_tall=height >= _TALL, is_seen=is_seen)
    room = height - len(banner)
    is_wide = width >= _WIDE
    charts = max(_CHARTS_WIDTH, width * 2 // 5 - 6)
    main = width - charts if is_wide else width
    all_brokers = max(len(board.broker_ids), 1) + 3
    strip = min(all_brokers, max(4, room * (2 if problems else 3) // 5))
    # How many brokers there are stands above; a panel that says no more is worth no room.
    strip = 0 if strip == 4 < all_brokers else strip
    # What to do is worth more than older changes; and what has not happened needs no room.
    spare = room - strip - (min(len(problems), 6) + 2 + _ADVICE_LINES if problems else 6)
    least = 4 if is_wide else 3
    wished = room // 4 if is_wide else max(1, sum(1 for _ in board.history.incidents.runs)) + 2
    events = max(least, min(spare, wished)) if spare >= least or not problems else 0
    upper = room - strip - events
    rows, top = _problem_lines(board, problems, main - 2, upper - 2, cursor)
    count_shown = len(rows)
    rows += _more_of_them(problems, cursor, board, main - 2, upper - 2 - len(rows))
    if is_wide and events:
        events = min(max(events, room - strip - max(len(rows) + 3, _UPPER_MIN)), _EVENTS_MAX)
        upper = room - strip - events
    elif problems and strip:
        strip = min(all_brokers, strip + upper - 2 - len(rows))
        upper = room - strip - events
    if problems or not board.has_metadata:
        title = f"Problems {len(problems)}" if len(problems) > count_shown else "Problems"
        courses = _courses(board)
        rest = upper - len(rows) - 2
        # A panel that is half empty leaves its room to a chart, if others stay beside it.
        has_chart = is_wide and rest >= _CHART_MIN and len(courses) > 1
        left = panel(title, rows, main, upper - rest * has_chart, note="enter opens  w why" if problems else "")
        if is_wide:
            left += _charts(board, courses[:1], main, rest) if has_chart else []
            left = _beside(left, _charts(board, courses[has_chart:], charts - 1, upper))
    else:
        # The banner says that nothing is wrong; an empty panel would say it once more.
        left = _charts(board, _courses(board), width, upper, across=3 if is_wide else 1)
    lines = [*banner, *left, *_brokers(board, width, strip, is_seen=is_seen), *_bottom(board, width, events)]
    places = {len(banner) + 1 + index: top + index for index in range(count_shown)} if problems else {}
    return Picture(lines[:height], places, (1, main - 1))


def status_of(board: Board) -> HealthStatus | None:
    """Return how the cluster is. That a disk fills up, or a leader is late, no check of one moment sees."""
    health = board.frame.health
    if health is not None and health.status is HealthStatus.OK and (board.filling or board.awaits_leaders):
        return HealthStatus.WARNING
    return None if health is None else health.status


def health_word(board: Board, *, is_seen: bool = True) -> tuple[str, Tone]:
    """Return how the cluster is in a word, with a sign for terminals without colour; or how it was when last seen."""
    status = status_of(board)
    if status is None:
        return "not known yet", Tone.QUIET
    if not is_seen:
        return f"? was {WORDS[status]} when last seen", Tone.QUIET
    problems = problems_of(board)
    shade = _shade(status, problems)
    # A row may be graver than the cluster's verdict: unhealthy readers, a plan that nobody carries out.
    word = WORDS[status] if shade is status else "problem" if len(problems) == 1 else "problems"
    return f"{_SIGNS[shade]} {word}", _TONES[shade]


def _shade(status: HealthStatus, problems: Sequence[Problem]) -> HealthStatus:
    """Return what sign and colour say: the verdict is about the cluster, but they are never greener than a row."""
    if any(problem.tone is Tone.BAD for problem in problems):
        return HealthStatus.CRITICAL
    return HealthStatus.WARNING if problems and status is HealthStatus.OK else status


# The banner


def _banner(board: Board, problems: Sequence[Problem], width: int, *, is_tall: bool, is_seen: bool) -> list[Line]:
    """Return the verdict: as large as the room allows if something is wrong, and one calm line if not."""
    status = status_of(board)
    word, tone = health_word(board, is_seen=is_seen)
    if status is None:
        what = f"{'settings and disks' if board.has_metadata else 'topics and partitions'} are being read"
        is_lost = standing_of(board.frame) in (Standing.DENIED, Standing.DISCONNECTED)
        text = f"the cluster's health is not known yet: {'the cause stands above' if is_lost else what}"
        return [fitted(line(f" {text}"), width), *_figures(board, width, is_seen=is_seen)]
    stakes = _stakes(problems, board)
    shade = _shade(status, problems)
    if status is HealthStatus.OK or not is_seen:
        calm = line((f" {word.upper() if is_seen else word}", tone), "  ", *stakes)
        if not stakes:
            calm = line(*calm, (_nothing_wrong(board), Tone.QUIET))
        elif is_seen:
            calm = line((f" {_SIGNS[shade]} ", _TONES[shade]), *stakes, ("   the cluster is healthy", Tone.QUIET))
        return [fitted(calm, width), *_figures(board, width, is_seen=is_seen)]
    loud = _LOUD[shade]
    verdict = fitted(line((f" {word.upper()}  {''.join(part for part, _ in stakes)}", loud)), width)
    is_large = is_tall and status is HealthStatus.CRITICAL
    air: list[Line] = [((" " * width, loud),)] if is_large else []
    return [*air, tuple((part, loud) for part, _ in verdict), *air, *_figures(board, width, is_seen=is_seen)]


def _stakes(problems: Sequence[Problem], board: Board) -> Line:
    """Say what is wrong in a few words: the cluster's worst, since when, and how many groups and queries are unwell."""
    worst = [problem for problem in problems if problem.is_of_cluster][:3]
    age = age_text(worst[0], board) if worst else ""
    parts: list[Span] = [
        (f"{problem.subject} {age}" if age and problem is worst[0] else problem.subject, problem.tone)
        for problem in worst
    ]
    for kind in ("group", "query"):
        readers = [problem for problem in problems if not problem.is_of_cluster and problem.key.startswith(kind)]
        if readers:
            parts.append((counted(len(readers), f"unhealthy {kind}"), readers[0].tone))
    parts.sort(key=lambda part: part[1] is not Tone.BAD)
    return tuple(piece for part in parts for piece in ((" · ", Tone.QUIET), part))[1:]


def _nothing_wrong(board: Board) -> str:
    frame = board.frame
    if frame.stage(Stage.GROUPS).read_at_ms is None:
        return "nothing is wrong with the brokers; groups have not been read"
    return f"nothing is wrong that {frame.principal or 'this login'} may see" if frame.denied else "nothing is wrong"


def _figures(board: Board, width: int, *, is_seen: bool) -> list[Line]:
    """Return the cluster's figures in a line or two; what is zero and should be is left out."""
    frame, total = board.frame, board.total
    cluster = frame.cluster
    if cluster is None or not board.has_metadata:
        return []
    well, known = len(board.live - board.silent), len(board.broker_ids)
    has_controller = cluster.controller_id != NO_CONTROLLER
    min_isr = frame.stage(Stage.SETTINGS).read_at_ms is not None
    offline = total.leaderless - board.awaits_leaders
    does = ("answer" if is_seen else "answered") if board.silent else "up" if is_seen else "were up"
    pieces: list[tuple[str, str, Tone, bool]] = [
        (f"{well} of {known}", f"brokers {does}",
         Tone.BAD if well < known else Tone.STRONG, True),
        ("controller", str(cluster.controller_id) if has_controller else "none",
         Tone.QUIET if has_controller else Tone.BAD, True),
        (count(len(board.topics)), "topic" + "s" * (len(board.topics) != 1), Tone.STRONG, True),
        (count(total.partitions), "partition" + "s" * (total.partitions != 1), Tone.STRONG, True),
        (count(offline), "offline", Tone.BAD, bool(offline)),
        (count(total.under_replicated), "under-replicated", Tone.BAD, bool(total.under_replicated)),
        (count(total.below_min), "under min ISR", Tone.BAD, min_isr and bool(total.below_min)),
        (count(total.led_elsewhere.total()), "not preferred", Tone.STRONG, bool(total.led_elsewhere.total())),
        (count(total.moving), "moving", Tone.ACCENT, bool(total.moving)),
        (short_count(board.rates.in_per_s), "records in/s", Tone.STRONG, board.rates.in_per_s is not None),
        (at_least(short_count(board.lag), is_least=board.has_unknown_lag), "lag", Tone.STRONG, board.lag is not None),
    ]  # fmt: skip
    words = [line((f"{value} ", tone), (label, Tone.QUIET)) for value, label, tone, shown in pieces if shown]
    return [line(" ", *row) for row in wrapped(words, width - 2)]


# The panels


def _beside(left: Sequence[Line], right: Sequence[Line]) -> list[Line]:
    return beside(left, right, left_width=width_of(left[0]), gap=1) if left else list(right)


def _problem_lines(
    board: Board, problems: Sequence[Problem], width: int, height: int, cursor: int
) -> tuple[list[Line], int]:
    """Return the problems in sight, and which is the first of them."""
    if not problems:
        return [line((f"  {_nothing_wrong(board)}" if board.has_metadata else "  not known yet", Tone.QUIET))], 0
    if height <= 0:
        return [], 0
    top = max(0, min(cursor - height + 1, len(problems) - height)) if cursor >= height else 0
    seen = problems[top : top + height]
    subject = min(max(width_of(line(problem.subject)) for problem in seen), _SUBJECT_MAX, width // 2)
    ages = [age_text(problem, board) for problem in seen]
    age = max((len(age_shown) for age_shown in ages), default=0)
    lines = []
    for index, problem in enumerate(seen):
        mark = ("▌", Tone.ACCENT) if top + index == cursor else (" ", Tone.PLAIN)
        name = fitted(line((problem.subject, problem.tone if problem.tone is Tone.BAD else Tone.STRONG)), subject)
        effect = fitted(line(problem.effect), max(1, width - subject - age - 9))
        sign, since = (f"{problem.sign} ", problem.tone), (f"{ages[index]:>{age}} ", Tone.QUIET)
        lines.append(line(mark, sign, *name, "  ", *effect, "  ", since))
    return lines, top


def _more_of_them(problems: Sequence[Problem], cursor: int, board: Board, width: int, lines_max: int) -> list[Line]:
    """Return more of the problem under the cursor in the room that is left, and of others as far as they fit whole."""
    if not problems or lines_max < 2:
        return []
    at = min(cursor, len(problems) - 1)
    lines = _more_of(problems[at], board, width)
    if len(lines) > lines_max:
        lines[lines_max - 1 :] = [line(*lines[lines_max - 1], ("…", Tone.QUIET))]
    for other in (*problems[at + 1 :], *problems[:at]):
        more = _more_of(other, board, width)
        if 1 < len(more) <= lines_max - len(lines):
            lines += more
    return lines


def _more_of(problem: Problem, board: Board, width: int) -> list[Line]:
    """Return what else is known of a problem, as the window that ``w`` opens shows it."""
    reasons = why_lines(problem, board, run_width=width - 4)[1:]
    lines = [line("  ", *part) for row in reasons for part in folded(row, width - 4)]
    title = f" {problem.subject} "
    rule = "─" * max(0, width - 4 - width_of(line(title)))
    return [line((" ─", Tone.FRAME), (title, Tone.QUIET), (f"{rule} ", Tone.FRAME)), *lines]


_CHARTS: tuple[tuple[str, Callable[[Any], float | None], Tone], ...] = (
    ("Records in/s", lambda sample: sample.in_per_s, Tone.ACCENT),
    ("Lag of groups", lambda sample: sample.lag, Tone.ACCENT),
    ("Under-replicated", lambda sample: sample.under_replicated, Tone.BAD),
)


def _courses(board: Board) -> list[tuple[str, list[float | None], Tone]]:
    """Return the course of the main figures, each with its title and tone, as far as there is anything to see."""
    every = [(title, [value(sample) for sample in board.samples], tone) for title, value, tone in _CHARTS]
    # A curve of zeros needs no eye, and a chart without a figure is a hole.
    return [chart for chart in every if any(chart[1])] or every[:1]


def _charts(
    board: Board, courses: Sequence[tuple[str, list[float | None], Tone]], width: int, height: int, *, across: int = 1
) -> list[Line]:
    """Return courses as charts, one below the other, or up to ``across`` side by side."""
    shown = courses[: across if across > 1 else max(1, height // 4)]
    lines: list[Line] = []
    for index, (title, values, tone) in enumerate(shown):
        rest = len(shown) - index
        high = height if across > 1 else (height - len(lines)) // rest
        taken = width_of(lines[0]) + 1 if lines and across > 1 else 0
        wide = (width - taken + 1) // rest - 1 if across > 1 else width
        is_known = any(value is not None for value in values)
        curve = chart_lines(values, wide - 2, high - 2, short_count, tone=tone) if is_known else []
        heading = f"{title}{_span_of(board, wide - 2)}" if is_known else title
        note = short_count(values[-1]) if is_known else "measuring"
        block = panel(heading, curve, wide, high, note=note, tone=Tone.STRONG if is_known else Tone.QUIET)
        lines = _beside(lines, block) if across > 1 else [*lines, *block]
    return lines


def _span_of(board: Board, width: int) -> str:
    """Return how far back a chart of this width goes, as it stands behind its title."""
    shown = list(board.samples)[-values_in(width) or None :]
    seconds = (shown[-1].at_ms - shown[0].at_ms) // 1000 if shown else 0
    step = 10 if seconds < 60 else 60
    return f", last {span(seconds // step * step)}" if seconds >= step else ""


def _brokers(board: Board, width: int, height: int, *, is_seen: bool) -> list[Line]:
    """Return a row for each broker, those with a problem first, so that they are not among those left out."""

    def severity_of(item: brokers.BrokerItem) -> int:
        return 0 if brokers.is_trouble(item) else 1 if item.leaders < item.preferred else 2

    items = sorted(brokers.items_of(board), key=lambda item: (severity_of(item), item.id))
    room = height - 3
    shown = items if len(items) <= room else items[: room - 1]
    names = [column for column in (*_STRIP, *_WIDER) if width >= _WIDE or column not in _WIDER]
    state = Column("state", "STATE", _state if is_seen else _last_state, lambda i: i.state)
    rows = _rows([names[0], state, *_lead_columns(), *names[1:]], shown)
    if width >= _WIDE and rows[1:]:
        _add_courses(board, rows, [item.id for item in shown], width - 4 - width_of(rows[0]))
    rest = items[len(shown) :]
    if rest:
        ending = "" if any(severity_of(item) < 2 for item in rest) else ", with nothing wrong"
        rows.append(line((f"  and {len(rest)} more{ending}", Tone.QUIET)))
    return panel("Brokers", rows if items else [line(("  none is known yet", Tone.QUIET))], width, height)


def _state(item: brokers.BrokerItem) -> Cell:
    sign, tone = ("●", Tone.GOOD) if item.state == "up" else ("✖", Tone.BAD)
    return Cell(f"{sign} {item.state}{' ctrl' if item.is_controller else ''}", tone)


def _last_state(item: brokers.BrokerItem) -> Cell:
    """Return a broker's state as it was when the cluster was last seen."""
    return Cell(f"? {_state(item).text.partition(' ')[2]}", Tone.QUIET)


def _lead_columns() -> tuple[Column, Column]:
    """Leaders against those that it should lead, as figures and as a bar of its own scale."""

    def cell(item: brokers.BrokerItem, text: str, well: Tone) -> Cell:
        return Cell(text, Tone.WARN if item.leaders < item.preferred else well)

    def bar(item: brokers.BrokerItem) -> str:
        if not item.preferred:
            return ""
        full = min(_BAR, item.leaders * _BAR // item.preferred)
        return "▇" * full + "░" * (_BAR - full)

    return (
        Column("leaders", "LEADS", lambda i: cell(i, f"{i.leaders}/{i.preferred}", Tone.PLAIN), lambda i: i.leaders,
               is_figure=True),
        Column("preferred", "OF PREFERRED", lambda i: cell(i, bar(i), Tone.QUIET), lambda i: i.preferred),
    )  # fmt: skip


_OF_BROKERS = {column.name: column for column in brokers.COLUMNS}
_STRIP = tuple(_OF_BROKERS[name] for name in ("broker", "replicas", "disk", "restart"))
_WIDER = (_OF_BROKERS["missing"], _OF_BROKERS["in_per_s"])


def _add_courses(board: Board, rows: list[Line], ids: Sequence[int], width: int) -> None:
    """Draw what each broker gets, all on one scale from zero."""
    if width < 12:
        return
    courses = [[sample.in_by_broker.get(broker) for sample in board.samples] for broker in ids]
    most = max((value for course in courses for value in course if value is not None), default=None)
    if most is None:
        return
    top = ceiling_of(most)
    rows[0] = line(*rows[0], (f" 0 to {short_count(top)} in/s", Tone.QUIET))
    for index, course in enumerate(courses, 1):
        rows[index] = line(*rows[index], " ", (sparkline(course, width, top=top), Tone.QUIET))


def _bottom(board: Board, width: int, height: int) -> list[Line]:
    """Return what moves, who reads, and what happened: side by side where there is room."""
    if width < _WIDE or not height:
        return _changes(board, width, height)
    moving = bool(board.total.moving)
    left = width * 21 // 40
    has_groups = bool(board.frame.groups)
    each = (left + 1) // 2 - 1 if moving and has_groups else left
    is_stacked = each < min(left, _PANEL_MIN)
    wide = left if is_stacked else each
    moves = _moves(board, wide - 2, (height // 2 if is_stacked else height) - 2) if moving else []
    high = len(moves) + 2 if is_stacked else height
    lines = panel("Moves", moves, wide, high, note=_moving(board)) if moving else []
    if has_groups or not moving:
        rows = height - high if is_stacked else height
        readers = panel("Groups" if has_groups else "Busiest topics", _groups(board, wide - 2, rows - 2), wide, rows)
        lines = [*lines, *readers] if is_stacked else _beside(lines, readers)
    rest = width - width_of(lines[0]) - 1
    return _beside(lines, _changes(board, rest, height))


def _groups(board: Board, width: int, lines_max: int) -> list[Line]:
    """Return the groups furthest behind; where there is room, then the busiest topics."""
    # A group whose lag is not known may be the furthest of all.
    lags = [group.lag for group in board.frame.groups]
    shown = sorted(lags, key=lambda lag: (not lag.has_unknown_lag, -(lag.lag or 0)))[:lines_max]
    most = max((group.lag or 0 for group in shown), default=0)
    bar = max(0, min(12, width - 56))
    more_width = max((len(unknown_text(group)) + 1 if group.has_unknown_lag else 10 for group in shown), default=0)
    lines = []
    for lag in shown:
        status, behind, trend = status_cell(lag.status, lag.reason), time_lag_cell(lag), trend_cell(lag)
        # Lag that rises needs no eye as long as its reader is well.
        course = Tone.QUIET if trend.tone is Tone.BAD and lag.status.is_fine else trend.tone
        more = (unknown_text(lag), Tone.QUIET) if lag.has_unknown_lag else (trend.text, course)
        figure = at_least(short_count(lag.lag), is_least=lag.has_unknown_lag)
        length = max(round(lag.lag / most * bar), bar > 0) if lag.lag else 0
        name = fitted(line((plain(lag.group), Tone.STRONG)), max(8, width - 31 - bar - more_width))
        late = behind.text if lag.lag else ""
        lines.append(fitted(line("  ", (f"{status.text:<9}", status.tone), " ", *name, f" {figure:>6} ",
                     ("▇" * length + " " * (bar - length), Tone.QUIET), f" {late:>8}  ", more), width))  # fmt: skip
    if len(lines) < lines_max - 2 and (
        busiest := board.rates.busiest_topics(lines_max - (len(lines) and len(lines) + 2))
    ):
        lines += [(), line(("  busiest topics, records in/s", Tone.QUIET))] if lines else []
        bar = max(0, min(20, width - 46))
        for topic, rate in busiest:
            name = fitted(line(plain(topic.name)), min(30, width - 12))
            lines.append(
                line("  ", *name, f"{short_count(rate):>8} ", ("▇" * round(rate / busiest[0][1] * bar), Tone.QUIET))
            )
    why_empty = "measuring" if board.rates.in_per_s is None else "nothing is written, as far as is known"
    return lines or [line((f"  {why_empty}", Tone.QUIET))]


def _moving(board: Board) -> str:
    left = reassignments.left_text(board)
    return f"{counted(board.total.moving, 'partition')}{f', {left}' if left else ''}"


def _moves(board: Board, width: int, lines_max: int) -> list[Line]:
    lines = []
    for item in reassignments.items_of(board)[:lines_max]:
        share = reassignments.bar(item.share, 10)
        name = fitted(line((plain(str(item.name)), Tone.STRONG)), max(8, width - 38))
        to = f"→ {item.broker}" if item.broker is not None else ""
        lines.append(fitted(line("  ", *name, f" {to:<6}", (share or " " * 10, Tone.ACCENT), f" {item.state}"), width))
    return lines


def _rows(columns: Sequence[Column], items: Sequence[Any]) -> list[Line]:
    """Return titles and rows, each column as wide as its longest text."""
    figures = {at for at, column in enumerate(columns) if column.is_figure}
    titles = [f"{column.title:{'>' if column.is_figure else '<'}{column.width}}" for column in columns]
    rows = [[Cell(plain(cell.text), cell.tone) for cell in (column.cell(item) for column in columns)] for item in items]
    return [line(" ", *row) for row in table_lines(titles, rows, figures)]


# What happened


def _changes(board: Board, width: int, height: int) -> list[Line]:
    is_all = sum(1 for _ in board.history.incidents.runs) <= height - 2
    note = "" if is_all else "8 shows all"
    return panel("Last changes", _events(board, width - 2, height - 2), width, height, note=note)


def _events(board: Board, width: int, lines_max: int) -> list[Line]:
    """Return the newest changes, and in the other half of the lines the gravest before them; all in order of time.

    So neither a moment ago is missing nor, because much came after it, what was grave.
    """
    late_ms = board.frame.at_ms - _LATE_MS
    newest = sorted(board.history.incidents.runs, key=lambda run: (-run.event.at_ms, severity(run.event)))
    half = (max(0, lines_max) + 1) // 2
    before = sorted(newest[half:], key=lambda run: (run.event.at_ms < late_ms, severity(run.event)))
    kept = sorted(
        [*newest[:half], *before[: max(0, lines_max) - half]], key=lambda run: (-run.event.at_ms, severity(run.event))
    )
    if not kept:
        return [line(("  none since the dashboard started", Tone.QUIET))]
    kind = max(len(short_kind(run)) for run in kept) + 2
    return [fitted(line(" ", *run_line(run, kind, is_short=True, ended=_ended(board, run))), width) for run in kept]


def _ended(board: Board, run: Run) -> str:
    """Say that a failure is over: its end may be among the changes that are left out."""
    incidents, number = board.history.incidents, abs(run.fold)
    if severity(run.event) or number not in incidents or incidents[number].ended_ms is None:
        return ""
    return f"over after {span(incidents[number].lasted_s(board.frame.at_ms))}"


def _page_rows(view: View) -> Rows:
    """Return the problems. They are drawn in a panel, so they have no columns."""
    return Rows(
        (), problems_of(view.board), lambda problem: problem.key, lambda problem: f"{problem.subject} {problem.effect}"
    )


PAGE = Page(
    "overview",
    _page_rows,
    opens=lambda view, problem: problem.opens,
    command=lambda view, items: ["cluster", "health"],
)
