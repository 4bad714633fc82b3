"""Logs: the dashboard's own, which say why something is missing, and the brokers' about one partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from tui.drawing.cells import NO_DATA, Cell, Column, Tone, attribute, column, figure
from tui.drawing.lines import Line, line
from tui.drawing.units import clock_time, count, counted, ids, plain, size
from tui.pages.page import Page, View
from tui.state.log_ring import LogLine, LogRing
from tui.state.off_board import ShownLog
from tui.state.table_model import Rows

if TYPE_CHECKING:
    from engine.admin.state_changes.partition_log import PartitionEntry

# The dashboard's own


def _level(entry: LogLine) -> Cell:
    tone = Tone.BAD if entry.level >= logging.ERROR else Tone.WARN if entry.level >= logging.WARNING else Tone.QUIET
    return Cell(entry.level_name, tone)


COLUMNS = (
    column("time", "TIME (UTC)", "at_ms", clock_time, width=10),
    Column("level", "LEVEL", _level, lambda e: e.level, width=7),
    column("logger", "PART", "logger", tone=Tone.QUIET, rank=2),
    column("message", "MESSAGE", "message", plain, is_wide=True, width=30),
)


def rows_of(ring: LogRing) -> Rows:
    """Return the lines, the newest first."""
    return Rows(
        COLUMNS,
        list(ring.lines)[::-1],
        lambda entry: entry.number,
        lambda entry: f"{entry.level_name} {entry.logger} {entry.message}",
        "nothing has been logged yet",
    )


def summary_of(ring: LogRing) -> list[Line]:
    """Return how many lines there are, and which file keeps them."""
    kept = f"   kept in {ring.path}" if ring.path is not None else f"   {ring.why_no_file}" if ring.why_no_file else ""
    text = f"{counted(len(ring.lines), 'line')} of the dashboard's own log   / warning keeps warnings{kept}"
    return [line((text, Tone.QUIET))]


# The brokers' logs about a partition


NO_LOGS = "no log is named"
_HOW = (
    "Name the logs that this machine can read:",
    "  klamm top --logs FOLDER",
    "  or logs = [FOLDER] in the cluster's profile",
)


_WHOLE_WIDTH = 90
_BAD_LEVELS = {"ERROR": Tone.BAD, "FATAL": Tone.BAD, "WARN": Tone.WARN}


def _state(name: str, title: str, text: Callable[[Any], str] = str, *, tone: Tone = Tone.PLAIN, **how: Any) -> Column:
    """Return a column with the partition's state in an entry; most entries say nothing of it."""
    value = attribute(f"state.{name}")

    def cell(entry: PartitionEntry) -> Cell:
        figure = value(entry)
        return Cell("" if figure is None else text(figure), tone)

    return Column(name, title, cell, value, **how)


def _stamp(entry: PartitionEntry) -> str:
    """Day and time to the millisecond: the order of events within a second matters here."""
    start = (entry.row.utc_start or b"").decode("ascii", "replace").strip("[]")
    return start[5:].replace(",", ".")


PARTITION_COLUMNS = (
    Column("time", "TIME (UTC)", lambda e: NO_DATA if e.at_ms is None else Cell(_stamp(e)), lambda e: e.at_ms,
           width=18),
    figure("broker", "BROKER", "row.broker", tone=Tone.STRONG),
    Column("role", "AS", lambda e: Cell(e.row.role or "", Tone.ACCENT if e.is_by_controller else Tone.QUIET),
           lambda e: e.row.role, rank=3, width=10),
    Column("level", "LEVEL", lambda e: Cell((e.row.level or "").lower(), _BAD_LEVELS.get(e.row.level, Tone.QUIET)),
           lambda e: e.row.level, rank=4, width=5),
    _state("leader", "LEADER", rank=1, is_figure=True),
    _state("isr", "ISR", ids, rank=1),
    _state("leader_epoch", "EPOCH", rank=2, tone=Tone.QUIET, is_figure=True),
    _state("partition_epoch", "VERSION", rank=5, tone=Tone.QUIET, is_figure=True),
    column("message", "MESSAGE", "row.message", plain, is_wide=True, width=24),
    column("source", "LOG", "row.source", plain, tone=Tone.QUIET, rank=8),
)  # fmt: skip


def partition_rows(shown: ShownLog) -> Rows:
    """Return what the logs say about the partition, the newest first."""
    entries = () if shown.log is None else shown.log.entries[::-1]
    return Rows(
        PARTITION_COLUMNS,
        entries,
        lambda entry: entry.number,
        lambda entry: f"{entry.row.level} {entry.row.role or ''} broker {entry.row.broker} {entry.row.message}",
        _why_empty(shown),
    )


def _why_empty(shown: ShownLog) -> str:
    if shown.is_loading:
        return "reading the logs …"
    return plain(shown.error) or f"no line of the last day in these logs names {shown.name}"


def partition_summary(shown: ShownLog) -> list[Line]:
    """Return what was read, and what was wrong with it."""
    if shown.log is None:
        title = line((f"what brokers' state-change logs say about {shown.name}", Tone.QUIET))
        return [title, *(line((text, Tone.QUIET)) for text in _HOW if shown.error == NO_LOGS)]
    log = shown.log
    older = f", {count(log.left_out)} older ones left out" if log.left_out else ""
    files = f"{count(log.file_count)} {'log' if log.file_count == 1 else 'logs'}"
    hours = round(log.look_back.total_seconds() / 3600)
    facts = f"{count(len(log.entries))} entries about {shown.name}{older}   from {files}, the last {hours} h they cover"
    lines = [line(facts, (f"   {size(log.size_bytes)}", Tone.QUIET))]
    if log.problems:
        first = log.problems[0]
        more = f", and {len(log.problems) - 1} more" if len(log.problems) > 1 else ""
        lines.append(line((plain(f"{first.source}: {first.message}{more}"), Tone.WARN)))
    return lines


def is_trouble(item: LogLine | PartitionEntry) -> bool:
    """Whether a line reports a problem."""
    if isinstance(item, LogLine):
        return item.level >= logging.WARNING
    return item.row.level in _BAD_LEVELS


def command(view: View, items: Sequence[Any]) -> list[str]:
    """The command that shows the same for a partition; the dashboard's own log has none."""
    where, target = view.location, view.target
    if where.topic is None or where.partition is None or target is None or not target.logs:
        return []
    return ["state-changes", "merge", *target.logs, "--topic", where.topic, "--partition", str(where.partition)]


def whole(item: LogLine | PartitionEntry) -> list[Line]:
    """Return a line with all of its message, wrapped."""
    if isinstance(item, LogLine):
        head, message = f"{clock_time(item.at_ms)}  {item.level_name}  {item.logger}", item.message
    else:
        row = item.row
        head, message = f"{_stamp(item)}  {row.level or ''}  broker {row.broker}  {row.source}", row.message
    texts = [text for part in message.splitlines() for text in wrap(plain(part), _WHOLE_WIDTH) or [""]]
    return [line((plain(head), Tone.QUIET)), (), *(line(text) for text in texts)]


def page_of(ring: LogRing) -> Page:
    """Return the screen of logs: of the partition that its location names, or the dashboard's own."""

    def shown(view: View) -> ShownLog | None:
        return None if view.location.topic is None else view.off_board.partition_log

    return Page(
        "logs",
        lambda view: rows_of(ring) if (log := shown(view)) is None else partition_rows(log),
        lambda view, width: summary_of(ring) if (log := shown(view)) is None else partition_summary(log),
        is_trouble=lambda view, item: is_trouble(item),
        command=command,
    )
