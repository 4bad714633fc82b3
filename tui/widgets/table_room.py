"""A table, and more about the row under the cursor: beside it, or below it where few rows leave room."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Horizontal

from tui.lines import Line
from tui.widgets.line_table import LineTable
from tui.widgets.lines_view import LinesView

WIDE = 140
"""From this many columns on, a terminal has room for two things side by side."""
ASIDE_MIN, ASIDE_MAX = 36, 76
BELOW_MIN = 8
"""Fewer lines below the rows tell too little."""
_MARGIN = 5
"""The rule between the two, and the room around the text."""


class TableRoom(Horizontal):
    """The table never gives up a column for the text beside it."""

    DEFAULT_CSS = """
    TableRoom { height: 1fr; }
    TableRoom > LineTable { width: 1fr; height: 1fr; }
    TableRoom > #aside { display: none; height: 1fr; padding: 0 2; border-left: solid $divider; }
    TableRoom > #aside.-shown { display: block; }
    TableRoom.-below { layout: vertical; }
    TableRoom.-below > #aside { border-left: none; border-top: solid $divider; width: 1fr; }
    """

    _placed = (0, 0)

    def compose(self) -> ComposeResult:
        """The table first: keys move in it."""
        yield LineTable(id="table")
        yield LinesView(id="aside")

    def show_aside(self, width: int, make: Callable[[int], list[Line]]) -> None:
        """Show what ``make`` returns for a width; ``width`` is that of the terminal."""
        aside, table = self.query_one("#aside", LinesView), self.query_one(LineTable)
        spare = min(ASIDE_MAX, width - table.natural_width)
        rows = len(table.model.shown) + 2
        is_beside = width >= WIDE and spare >= ASIDE_MIN
        is_below = not is_beside and self.size.height - rows >= BELOW_MIN
        lines = make(spare - _MARGIN) if is_beside else make(width - _MARGIN) if is_below else []
        is_below = is_below and bool(lines)
        aside.set_class(bool(lines), "-shown")
        self._place(rows if is_below else 0, spare if is_beside else 0)
        aside.set_lines(lines)

    def _place(self, rows: int, spare: int) -> None:
        """Put the text below ``rows`` lines, or beside the table in ``spare`` cells. Each change lays all out anew."""
        if (rows, spare) == self._placed:
            return
        self._placed = rows, spare
        aside, table = self.query_one("#aside", LinesView), self.query_one(LineTable)
        self.set_class(bool(rows), "-below")
        if rows:
            table.styles.height = rows
            aside.styles.clear_rule("width")
        else:
            table.styles.clear_rule("height")
            if spare:
                aside.styles.width = spare
