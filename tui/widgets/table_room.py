"""A table, and beside it more about the row under the cursor, if the terminal is wide enough."""

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
_MARGIN = 5
"""The rule between the two, and the room around the text."""


class TableRoom(Horizontal):
    """The table never gives up a column for the text beside it."""

    DEFAULT_CSS = """
    TableRoom { height: 1fr; }
    TableRoom > LineTable { width: 1fr; height: 1fr; }
    TableRoom > #aside { display: none; height: 1fr; padding: 0 2; border-left: solid $divider; }
    TableRoom > #aside.-shown { display: block; }
    """

    def compose(self) -> ComposeResult:
        """The table first: keys move in it."""
        yield LineTable(id="table")
        yield LinesView(id="aside")

    def show_aside(self, width: int, make: Callable[[int], list[Line]]) -> None:
        """Show what ``make`` returns for a width; ``width`` is that of the terminal."""
        aside = self.query_one("#aside", LinesView)
        spare = min(ASIDE_MAX, width - self.query_one(LineTable).natural_width)
        lines = make(spare - _MARGIN) if width >= WIDE and spare >= ASIDE_MIN else []
        aside.set_class(bool(lines), "-shown")
        if lines:
            aside.styles.width = spare
        aside.set_lines(lines)
