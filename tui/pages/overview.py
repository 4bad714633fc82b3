"""The overview: is the cluster well, and why not; its figures, their course, and what happened last. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.admin.health.report import Check, HealthReason, HealthStatus, Severity
from engine.admin.watch.events import Event, EventKind
from engine.admin.watch.frame import Stage
from engine.common.model import NO_CONTROLLER
from tui.board import Board, Sample
from tui.cells import Tone
from tui.lines import Line, beside, fitted, line
from tui.pages.groups import status_cell, trend_of, unknown_told
from tui.pages.overview_tables import tables
from tui.pages.timeline import change_text, kind_cell
from tui.remedies import spelled
from tui.sparkline import ceiling_of, spark_lines
from tui.units import NOTHING, at_least, clock_time, count, plain, short_count

WORDS = {HealthStatus.OK: "healthy", HealthStatus.WARNING: "warning", HealthStatus.CRITICAL: "critical"}
_TONES = {HealthStatus.OK: Tone.GOOD, HealthStatus.WARNING: Tone.WARN, HealthStatus.CRITICAL: Tone.BAD}
_SIGNS = {HealthStatus.OK: "●", HealthStatus.WARNING: "▲", HealthStatus.CRITICAL: "✖"}
_WIDE = 120
_HUGE = (170, 44)
"""From this size on, there is room for brokers and moves, too."""
_EVENTS_OF_TABLES = 8
EVENTS_MIN = 3
"""This many lines of the last changes, heading included, are worth more than a chart of each broker."""
_NAMES = 4
_LABEL = 17
_FIGURE = 7
_KIND = max(len(kind) for kind in EventKind) + 2
"""What happened, and a gap before what it happened to."""


def overview_lines(board: Board, width: int, height: int, *, is_seen: bool = True) -> list[Line]:
    """Return the screen's lines for a room of ``width`` by ``height``."""
    inner = width - 2
    # What is wrong has the whole row: half of it would cut the names.
    health = _health(board, inner, 8 if width >= _WIDE else 4, is_seen=is_seen)
    if width >= _WIDE:
        half, room = (inner - 3) // 2, height - len(health) - 1
        has_tables = width >= _HUGE[0] and height >= _HUGE[1]
        left = _figures(board, half, columns=2)
        left += _lists(board, half, room - len(left) - 8)
        chart_height = min(6, max(2, (room - 10) // 6))
        right = _charts(board, inner - half - 3, chart_height=chart_height, gap=1, with_brokers=not has_tables)
        top = [*health, (), *beside(left, right, left_width=half)]
        if has_tables:
            top += tables(board, inner, height - len(top) - _EVENTS_OF_TABLES)
    else:
        top = [*health, (), *_figures(board, inner, columns=3), ()]
        top += _charts(board, inner, chart_height=1, lines_max=max(0, height - len(top) - EVENTS_MIN - 2))
    lines = [*top, (), *_events(board, inner, max(0, height - len(top) - 2))]
    return [((" ", Tone.PLAIN), *one) for one in lines[:height]]


def health_word(board: Board, *, is_seen: bool = True) -> tuple[str, Tone]:
    """Return how the cluster is in a word, with a sign for terminals without colour; or how it was when last seen."""
    health = board.frame.health if board.frame is not None else None
    if health is None:
        return "not known yet", Tone.QUIET
    if not is_seen:
        return f"? was {WORDS[health.status]} when last seen", Tone.QUIET
    return f"{_SIGNS[health.status]} {WORDS[health.status]}", _TONES[health.status]


def _health(board: Board, width: int, lines_max: int, *, is_seen: bool) -> list[Line]:
    health = board.frame.health if board.frame is not None else None
    if health is None:
        return [line(("the cluster's health is not known yet: topics and partitions have not been read", Tone.QUIET))]
    word, tone = health_word(board, is_seen=is_seen)
    readers = _readers(board, width)
    if not health.reasons and not board.findings:
        told = "" if readers or not is_seen else f"   {_nothing_wrong(board)}"
        return [line((word.upper() if is_seen else word, tone), (told, Tone.QUIET)), *readers]
    lines: list[Line] = [line((word.upper() if is_seen else word, tone))]
    # Every reason is worth more than the advice for one; the remaining room goes to the advice for the gravest.
    room = lines_max - 1 - len(readers)
    shown = list(health.reasons)[: room if len(health.reasons) <= room else room - 1]
    advised = room - len(shown) if len(shown) == len(health.reasons) else 0
    for index, reason in enumerate(shown):
        lines += _reason(reason, width)[: 2 if index < advised else 1]
    for finding in board.findings[:2]:
        words = finding.doubt.value.replace("_", " ")
        doubt = line((f"   ? {words}", Tone.BAD), f"  {plain(finding.subject)}: {plain(finding.evidence)}")
        lines.append(fitted(doubt, width))
    hidden = len(health.reasons) - len(shown)
    lines += [line((f"  and {hidden} more", Tone.QUIET))] if hidden else []
    return [*lines, *readers]


def _nothing_wrong(board: Board) -> str:
    frame = board.frame
    if frame is None or frame.stage(Stage.GROUPS).read_at_ms is None:
        return "nothing is wrong with the brokers; groups have not been read"
    return "nothing is wrong"


def _readers(board: Board, width: int) -> list[Line]:
    """Return a line that names the groups and queries in trouble, the worst first, if there are any."""
    frame = board.frame
    if frame is None:
        return []
    found = [(group.lag.status, group.name) for group in frame.groups]
    found += [(query.job.status, query.job.name or query.job.path) for query in frame.queries]
    found = sorted((one for one in found if one[0].is_trouble), key=lambda one: (-one[0].rank, one[1]))
    if not found:
        return []
    tone = Tone.BAD if found[0][0].is_bad else Tone.WARN
    named = ", ".join(f"{plain(name)} {status.value}" for status, name in found[:_NAMES])
    more = ", …" if len(found) > _NAMES else ""
    what = "reader in trouble" if len(found) == 1 else "readers in trouble"
    return [fitted(line((f"{count(len(found)):>4} {what}", tone), (f"  {named}{more}", Tone.PLAIN)), width)]


def _reason(reason: HealthReason, width: int) -> list[Line]:
    tone = Tone.BAD if reason.severity is Severity.CRITICAL else Tone.WARN
    examples = ", ".join(plain(example) for example in reason.examples[:3])
    more = ", …" if reason.count > min(3, len(reason.examples)) else ""
    name = reason.check.value.replace("_", " ").replace("under replicated ", "under-replicated: ")
    if reason.count == 1 and reason.check is not Check.SEVERAL_CONTROLLERS:
        name = name.removesuffix("s")
    told = line(
        (f"{count(reason.count):>4} ", tone),
        (name, tone),
        (f"  {examples}{more}", Tone.PLAIN),
    )
    advice = line((f"     {spelled(reason.check.advice)}", Tone.QUIET))
    return [fitted(told, width), fitted(advice, width)]


def _figures(board: Board, width: int, *, columns: int) -> list[Line]:
    pairs = _pairs(board)
    rows = -(-len(pairs) // columns)
    cell = width // columns
    lines = []
    for row in range(rows):
        spans: list[tuple[str, Tone]] = []
        for column in range(columns):
            index = column * rows + row
            if index < len(pairs):
                label, (text, tone) = pairs[index]
                # Numbers are aligned right, so that one can compare them down the column.
                piece = line((f"{label:<{_LABEL}}", Tone.QUIET), (f"{text:>{_FIGURE}}", tone))
                spans += fitted(piece, cell)
        lines.append(tuple(spans))
    return lines


def _pairs(board: Board) -> list[tuple[str, tuple[str, Tone]]]:
    frame = board.frame
    cluster = frame.cluster if frame is not None else None
    is_known = board.has_metadata
    total = board.total

    def number(value: int | None, tone: Tone = Tone.STRONG) -> tuple[str, Tone]:
        if not is_known or value is None:
            return NOTHING, Tone.QUIET
        return count(value), Tone.QUIET if value == 0 and tone is not Tone.STRONG else tone

    controller = NOTHING if cluster is None or cluster.controller_id == NO_CONTROLLER else str(cluster.controller_id)
    answering, silent = len(board.live - board.silent), bool(board.silent)
    brokers = f"{answering} of {len(board.broker_ids)}" if cluster is not None else NOTHING
    missing = answering < len(board.broker_ids)
    min_isr_known = frame is not None and frame.stage(Stage.SETTINGS).read_at_ms is not None
    in_per_s = board.in_per_s
    lag = at_least(short_count(board.lag), is_least=board.has_unknown_lag)
    return [
        ("Controller", (controller, Tone.STRONG if controller != NOTHING else Tone.BAD)),
        ("Brokers answer" if silent else "Brokers up", (brokers, Tone.BAD if missing else Tone.STRONG)),
        ("Topics", number(len(board.topics))),
        ("Partitions", number(total.partitions)),
        ("Offline", number(total.leaderless, Tone.BAD)),
        ("Under-replicated", number(total.under_replicated, Tone.BAD)),
        ("Under min ISR", number(total.below_min if min_isr_known else None, Tone.BAD)),
        ("At min ISR", number(total.at_min if min_isr_known else None, Tone.WARN)),
        ("Not preferred", number(total.led_elsewhere.total(), Tone.WARN)),
        ("Moving", number(total.moving, Tone.ACCENT)),
        ("Records in/s", (short_count(in_per_s), Tone.STRONG if in_per_s is not None else Tone.QUIET)),
        ("Lag of groups", (lag, Tone.QUIET if lag == NOTHING else Tone.STRONG)),
    ]


def _lists(board: Board, width: int, lines_max: int) -> list[Line]:
    """Return the groups furthest behind and the busiest topics, as far as there is room."""
    # A group whose lag is not known may be the furthest of all.
    groups = sorted(
        (one.lag for one in (board.frame.groups if board.frame is not None else ())
         if one.lag.lag or one.lag.has_unknown_lag),
        key=lambda lag: (not lag.has_unknown_lag, -(lag.lag or 0)),
    )  # fmt: skip
    lines: list[Line] = []
    if groups and lines_max >= 4:
        lines += [(), line(("groups furthest behind", Tone.QUIET))]
        for lag in groups[: min(5, lines_max - 2)]:
            status, trend = status_cell(lag.status), trend_of(lag)
            more = (unknown_told(lag), Tone.QUIET) if lag.has_unknown_lag else (trend.text, trend.tone)
            name = fitted(line((plain(lag.group), Tone.STRONG)), max(10, width - 34))
            figure = at_least(short_count(lag.lag), is_least=lag.has_unknown_lag)
            row = line(*name, f"{figure:>8}  ", (f"{status.text:<8}", status.tone), more)
            lines.append(fitted(row, width))
    busiest = board.busiest_topics(min(5, lines_max - len(lines) - 2))
    if busiest:
        lines += [(), line(("busiest topics, records in/s", Tone.QUIET))]
        for topic, rate in busiest:
            name = fitted(line((plain(topic.name), Tone.STRONG)), max(10, width - 34))
            lines.append(line(*name, f"{short_count(rate):>8}"))
    return lines


_CHARTS: tuple[tuple[str, Callable[[Sample], float | None], Tone], ...] = (
    ("records in/s", lambda s: s.in_per_s, Tone.ACCENT),
    ("under-replicated", lambda s: s.under_replicated, Tone.BAD),
    ("lag of groups", lambda s: s.lag, Tone.WARN),
)
_BROKERS_MAX = 12


def _charts(
    board: Board,
    width: int,
    *,
    chart_height: int,
    gap: int = 0,
    lines_max: int | None = None,
    with_brokers: bool = True,
) -> list[Line]:
    """Draw what the cluster does, then each broker's share of it on one scale: for all brokers or for none."""
    samples = list(board.samples)
    chart = max(8, width - _LABEL - _FIGURE - 2)
    lines: list[Line] = []
    for label, value, tone in _CHARTS:
        values = [value(sample) for sample in samples]
        top = ceiling_of(max((one for one in values if one is not None), default=None))
        lines += [*_chart(label, values, chart, chart_height, tone, top=top), *[()] * gap]
    if not with_brokers:
        return lines
    brokers = sorted(board.live)[:_BROKERS_MAX]
    by_broker = {broker: [sample.in_by_broker.get(broker) for sample in samples] for broker in brokers}
    most = max((value for values in by_broker.values() for value in values if value is not None), default=None)
    if lines_max is not None and len(lines) + 1 + len(brokers) > lines_max:
        return lines[:lines_max]
    if most is not None:
        top = ceiling_of(most)
        lines.append(line((f"records in/s by broker, one scale: 0 to {short_count(top)}", Tone.QUIET)))
        for broker, values in by_broker.items():
            lines += _chart(f"  broker {broker}", values, chart, 1, Tone.ACCENT, top=top)
    return lines


def _chart(
    label: str, values: Sequence[float | None], width: int, height: int, tone: Tone, *, top: float
) -> list[Line]:
    drawn = spark_lines(values, width, height, top=top)
    last = values[-1] if values else None
    lines = []
    for row, text in enumerate(drawn):
        is_last = row == height - 1
        name = label if is_last else f"{'to ' + short_count(top):>{_LABEL - 1}}" if row == 0 else ""
        figure = short_count(last) if is_last else ""
        lines.append(line((f"{name:<{_LABEL}}", Tone.QUIET), (text, tone), (f" {figure:>{_FIGURE - 1}}", Tone.STRONG)))
    return lines


def _events(board: Board, width: int, lines_max: int) -> list[Line]:
    if lines_max < 2:
        return []
    lines = [line(("last changes", Tone.QUIET))]
    runs = _runs(board.events, lines_max - 1)
    if not runs:
        return [*lines, line(("none since the dashboard started", Tone.QUIET))]
    return [*lines, *(fitted(_run_line(run), width) for run in runs)]


def _runs(events: Sequence[Event], runs_max: int) -> list[list[Event]]:
    """Return the newest events. Those of one kind in one frame share a line: one lost broker causes hundreds."""
    runs: list[list[Event]] = []
    by_kind: dict[tuple[int, str], list[Event]] = {}
    for event in reversed(events):
        key = event.at_ms, event.kind.value
        if key in by_kind:
            by_kind[key].append(event)
        elif len(runs) == runs_max:
            # More events of the shown runs may have come in the same frame.
            if event.at_ms != runs[-1][0].at_ms:
                break
        else:
            by_kind[key] = [event]
            runs.append(by_kind[key])
    return runs


def _run_line(run: list[Event]) -> Line:
    event = run[-1]
    kind = kind_cell(event)
    head = ((f"{clock_time(event.at_ms)}  ", Tone.QUIET), (f"{kind.text:<{_KIND}}", kind.tone))
    if len(run) == 1:
        subject = (f"{plain(event.subject):<20}  ", Tone.STRONG)
        return line(*head, subject, f"{plain(change_text(event))}  ", (plain(event.reason), Tone.QUIET))
    reasons = {one.reason for one in run}
    why = plain(event.reason) if len(reasons) == 1 else ""
    names = ", ".join(plain(one.subject) for one in run[::-1][:_NAMES]) + (", …" if len(run) > _NAMES else "")
    # The reason comes before the names: there are many names, and they are cut first.
    return line(*head, (f"{count(len(run))} times  ", Tone.STRONG), f"{why}  " if why else "", (names, Tone.QUIET))
