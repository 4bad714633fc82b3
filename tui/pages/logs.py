"""What the dashboard itself has logged: the screen for whoever wonders why something is missing."""

from __future__ import annotations

import logging

from tui.cells import Cell, Column, Tone
from tui.lines import Line, line
from tui.log_ring import LogLine, LogRing
from tui.table_model import Rows
from tui.units import clock_time, count


def _level(one: LogLine) -> Cell:
    tone = Tone.BAD if one.level >= logging.ERROR else Tone.WARN if one.level >= logging.WARNING else Tone.QUIET
    return Cell(one.level_name, tone)


COLUMNS = (
    Column("time", "TIME (UTC)", lambda e: Cell(clock_time(e.at_ms)), lambda e: e.at_ms, width=10),
    Column("level", "LEVEL", _level, lambda e: e.level, width=7),
    Column("logger", "PART", lambda e: Cell(e.logger, Tone.QUIET), lambda e: e.logger, rank=2),
    Column("message", "MESSAGE", lambda e: Cell(e.message), lambda e: e.message, is_wide=True, width=30),
)


def rows_of(ring: LogRing) -> Rows:
    """Return the lines, the newest first."""
    return Rows(
        COLUMNS,
        list(ring.lines)[::-1],
        lambda one: one.number,
        lambda one: f"{one.level_name} {one.logger} {one.message}",
        "nothing was logged so far",
    )


def summary_of(ring: LogRing) -> list[Line]:
    """Return how many lines there are."""
    return [line((f"{count(len(ring.lines))} lines of the dashboard's own log   / warning keeps warnings", Tone.QUIET))]
