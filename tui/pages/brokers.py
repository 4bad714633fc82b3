"""Brokers: which exist, what each carries, and what each one's absence costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from engine.admin.analysis.causes import missing_brokers
from engine.admin.analysis.disks import FILLS_SOON_S
from engine.admin.analysis.restart_order import RestartAdvice, Verdict, restart_board
from engine.admin.brokers.metrics import IDLE_LOW_PERCENT, BrokerFigures
from engine.admin.cluster.target import Side
from engine.admin.watch.frame import LinkState, Stage
from engine.common.model import BrokerInfo
from tui.drawing.cells import DENIED, LOADING, NO_DATA, Cell, Column, Tone, attribute, column, figure, tinted
from tui.drawing.lines import Line, fitted, folded, line, wrapped
from tui.drawing.units import byte_rate, count, milliseconds, percent, plain, short_count, size, span
from tui.pages.page import Page, View, why_empty
from tui.state.board import Board
from tui.state.location import Location, Only
from tui.state.table_model import Rows

_RESTART_LINES = 2
UNANSWERED = "it gave no answer before its session ended"
MAY_BE_FROZEN = "its process may be frozen: continue it, or kill and start it"


@dataclass(frozen=True, slots=True)
class BrokerItem:
    """One broker, alive or only named by partitions."""

    id: int
    info: BrokerInfo | None
    is_controller: bool
    leaders: int
    replicas: int
    preferred: int
    skew: float | None
    missing: int
    restart: RestartAdvice
    imbalance: int
    full_in_s: float | None
    bytes: int | None
    disk: float | None
    in_per_s: float | None
    trouble: str
    no_size: Cell = NO_DATA
    """Why its sizes are not known."""
    is_read: bool = True
    """Whether everything about it was read once."""
    figures: BrokerFigures | None = None
    has_failed_dir: bool = False

    @property
    def state(self) -> str:
        if self.info is None:
            return "down"
        return "silent" if self.trouble else "up"

    @property
    def host(self) -> str:
        return self.info.endpoints[0].host if self.info is not None and self.info.endpoints else ""

    @property
    def rack(self) -> str:
        return "" if self.info is None else self.info.rack or ""


def items_of(board: Board) -> list[BrokerItem]:
    """Return all brokers that are alive or hold replicas."""
    frame = board.frame
    if frame.cluster is None:
        return []
    total, live = board.total, {broker.id: broker for broker in board.brokers}
    # A dead broker's replicas count in the mean, so the broker counts too; otherwise the others would seem too empty.
    mean = board.replicas.total() / len(board.broker_ids) if board.broker_ids else 0
    advice = {entry.broker: entry for entry in restart_board(frame, total).brokers}
    rates = board.samples[-1].in_by_broker if board.samples else {}
    # The most urgent log dirs come first, and so last here.
    full_in = {trend.broker: trend.full_in_s for trend in reversed(board.dir_trends) if trend.full_in_s is not None}
    log_dirs = frame.stage(Stage.LOG_DIRS)
    is_asked = frame.link(Side.WIRE).state is not LinkState.UNUSED
    is_awaited = is_asked and log_dirs.read_at_ms is None and not log_dirs.error
    no_size = DENIED if board.hides_log_dirs else LOADING if is_awaited else NO_DATA
    items = []
    for broker in board.broker_ids:
        words = frame.words.get(broker)
        items.append(
            BrokerItem(
                broker,
                live.get(broker),
                broker == frame.cluster.controller_id,
                total.leaders[broker],
                board.replicas[broker],
                total.preferred[broker],
                board.replicas[broker] / mean - 1 if mean else None,
                total.missing[broker],
                advice.get(broker) or RestartAdvice(broker, Verdict.UNKNOWN, (), 0, 0, 0, None),
                total.imbalance_percent(broker),
                full_in.get(broker),
                board.broker_bytes(broker),
                board.broker_disk_share(broker),
                rates.get(broker),
                words.trouble if words is not None else "",
                no_size,
                board.was_read_whole,
                frame.figures.get(broker),
                broker in live and words is not None and bool(words.offline_log_dirs),
            )
        )
    return items


def is_trouble(item: BrokerItem) -> bool:
    """Whether a broker is away, silent, missing from an ISR, or has lost a log dir."""
    return bool(item.info is None or item.trouble or item.missing or item.has_failed_dir)


def disk_cell(item: BrokerItem) -> Cell:
    """Return how full the fullest volume is; that a log dir has failed says more than how full the others are."""
    if item.has_failed_dir:
        return Cell("failed", Tone.BAD)
    if item.disk is None:
        return item.no_size
    return tinted(item.disk, percent(item.disk), bad_from=0.85)


_VERDICTS = {Verdict.SAFE: Tone.GOOD, Verdict.LAST: Tone.GOOD, Verdict.NEEDED: Tone.WARN}


def _restart_cell(item: BrokerItem) -> Cell:
    """Return whether it may be restarted, if all was read that this needs."""
    verdict = item.restart.verdict
    is_awaited = verdict is Verdict.UNKNOWN and not item.is_read
    return LOADING if is_awaited else Cell(verdict.words, _VERDICTS.get(verdict, Tone.QUIET))


def _full_in_cell(item: BrokerItem) -> Cell:
    if item.full_in_s is None:
        return item.no_size
    return Cell(span(item.full_in_s), Tone.BAD if item.full_in_s < FILLS_SOON_S else Tone.PLAIN)


def _measured(
    name: str, title: str, of: str, text: Callable[[Any], str], *, is_bad: Callable[[Any], bool] = lambda value: False,
    **how: Any,
) -> Column:  # fmt: skip
    """Return a column of what brokers themselves measure; the text beside the table says why a figure is missing."""
    value = attribute(f"figures.{of}")

    def tone(item: BrokerItem) -> Tone:
        figure = value(item)
        return Tone.WARN if is_bad(figure) else Tone.PLAIN if figure else Tone.QUIET

    return figure(name, title, value, text, tone=tone, **how)


FIGURES = (
    _measured("bytes_in_per_s", "BYTES IN", "bytes_in.now", byte_rate, rank=4, width=9),
    _measured("bytes_out_per_s", "BYTES OUT", "bytes_out.now", byte_rate, rank=4, width=9),
    _measured("produce_p99_ms", "PROD P99", "produce_p99_ms", milliseconds, rank=5),
    _measured("fetch_p99_ms", "FETCH P99", "fetch_p99_ms", milliseconds, rank=5),
    _measured("handler_idle_percent", "IDLE", "handler_idle_percent", lambda value: percent(value / 100), rank=3,
              width=5, is_bad=lambda value: value < IDLE_LOW_PERCENT),
    _measured("throttle_ms", "THROTTLED", "throttle_ms", milliseconds, rank=3, is_bad=lambda value: value > 0),
)  # fmt: skip
COLUMNS = (
    figure("broker", "BROKER", "id", tone=Tone.STRONG),
    column("state", "STATE", "state", tone=lambda i: Tone.GOOD if i.state == "up" else Tone.BAD, width=6),
    column("is_controller", "ROLE", "is_controller", lambda is_it: "controller" if is_it else "", tone=Tone.ACCENT,
           rank=3, width=10),
    Column("rack", "RACK", lambda i: Cell(i.rack), lambda i: i.rack or None, rank=6),
    Column("host", "HOST", lambda i: Cell(i.host), lambda i: i.host or None, rank=7, is_wide=True),
    figure("leaders", "LEADERS", "leaders", count, tone=lambda i: Tone.WARN if i.leaders < i.preferred else Tone.PLAIN),
    figure("preferred", "PREFERRED", "preferred", count, tone=Tone.QUIET, rank=5),
    figure("replicas", "REPLICAS", "replicas", count),
    Column("disk", "DISK", disk_cell, lambda i: i.disk, rank=1, is_figure=True, width=5),
    Column("full_in_s", "FULL IN", _full_in_cell, lambda i: i.full_in_s, rank=7, is_figure=True, width=7),
    figure("skew", "SKEW", "skew", lambda skew: f"{skew * 100:+.0f} %", rank=5, width=6,
           tone=lambda i: Tone.WARN if abs(i.skew) > 0.1 else Tone.QUIET),
    Column("missing", "OUT OF ISR", lambda i: tinted(i.missing, count(i.missing)), lambda i: i.missing, rank=1,
           is_figure=True),
    Column("restart", "RESTART", _restart_cell, lambda i: i.restart.verdict.words, rank=2, width=10),
    Column("imbalance_percent", "IMBALANCE", lambda i: tinted(i.imbalance, f"{i.imbalance} %", bad_from=10,
           tone=Tone.WARN), lambda i: i.imbalance, rank=6, is_figure=True),
    figure("in_per_s", "IN/S", "in_per_s", short_count, rank=4, width=6),
    *FIGURES,
    Column("bytes", "ON DISK", lambda i: i.no_size if i.bytes is None else Cell(size(i.bytes)),
           lambda i: i.bytes, rank=4, is_figure=True, width=9),
    figure("registered_s", "SESSION", "restart.registered_s", span, rank=6, width=7, is_age=True),
)  # fmt: skip


_UNTOLD = tuple(column for column in COLUMNS if column not in FIGURES)
"""The columns where no broker reports its own figures."""


def _rows(view: View) -> Rows:
    only, filling = view.location.only, {trend.broker for trend in view.board.filling}

    def belongs(item: BrokerItem) -> bool:
        """Whether a broker is one of those that a finding is about."""
        if only is Only.DIR_FAILED:
            return item.has_failed_dir
        return item.id in filling if only is Only.FILLING else item.state == only

    items = items_of(view.board)
    has_racks = any(item.rack for item in items)
    columns = COLUMNS if view.board.reports_figures else _UNTOLD
    columns = tuple(column for column in columns if has_racks or column.name != "rack")
    if any(item.full_in_s is not None for item in items):
        # Elsewhere rates are worth more than dashes.
        columns = tuple(replace(column, rank=2) if column.name == "full_in_s" else column for column in columns)
    return Rows(
        columns,
        items,
        lambda item: item.id,
        lambda item: f"{item.id} {item.state} {item.host} {item.rack}",
        why_empty(view, "brokers") if only is None else f"no broker is {only} any more",
        None if only is None else belongs,
    )


def _summary(view: View, width: int) -> list[Line]:
    board = view.board
    if not board.has_metadata:
        return []
    total = board.total
    well, known = len(board.live - board.silent), len(board.broker_ids)
    words = [(f"{well} of {known} {'answer' if board.silent else 'up'}", Tone.GOOD if well == known else Tone.BAD)]
    if elsewhere := total.led_elsewhere.total():
        share = percent(elsewhere / total.partitions)
        words.append((f"{count(elsewhere)} partitions ({share}) not led by their preferred replica", Tone.WARN))
    elif total.partitions:
        words.append(("every leader is the preferred one", Tone.QUIET))
    if moves := total.electable.total():
        words.append((f"T, then E gives back {count(moves)}", Tone.QUIET))
    return [*wrapped(map(line, words), width), *_restart_lines(board, width), *_causes(board)]


def _restart_lines(board: Board, width: int) -> list[Line]:
    """Say which broker may be restarted next, or what has to end first; where it is cut, it ends with an ellipsis."""
    advice = restart_board(board.frame, board.total)
    text, tone = f"broker {advice.next_broker} is safe to restart next", Tone.GOOD
    if advice.next_broker is None:
        first = sorted(advice.brokers, key=lambda broker: broker.verdict is not Verdict.NEEDED)
        reasons = next((broker.reasons for broker in first if broker.reasons), ())
        text, tone = f"none now: {'; '.join(reasons) or 'no broker is up'}", Tone.WARN
    lines = folded(line(("rolling restart: ", Tone.QUIET), (text, tone)), width)
    if len(lines) < _RESTART_LINES:
        return lines
    last = line(*(span for row in lines[_RESTART_LINES - 1 :] for span in row))
    return [*lines[: _RESTART_LINES - 1], fitted(last, width)]


def _causes(board: Board) -> list[Line]:
    """Say which brokers are behind the under-replication, and why."""
    causes = missing_brokers(board.frame, board.total)[:3]
    return [
        line(
            (str(partition), Tone.BAD),
            (f": {partition.cause.value}{f' ({plain(partition.detail)})' if partition.detail else ''}", Tone.PLAIN),
            (f"; {MAY_BE_FROZEN}" * (partition.broker in board.hung), Tone.PLAIN),
        )
        for partition in causes
    ]


PAGE = Page(
    "brokers",
    _rows,
    _summary,
    lambda view, item: Location("partitions", broker=item.id),
    lambda view, item: is_trouble(item),
    lambda view, items: ["brokers", "describe", *(str(item.id) for item in items)],
)
