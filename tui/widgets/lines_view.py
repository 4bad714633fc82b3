"""Draws lines of text with tones, a bar of keys that can be clicked, and a table with a text beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip

from tui.drawing.cells import Tone
from tui.drawing.lines import Line, folded, text_of
from tui.widgets.line_table import LineTable
from tui.widgets.toned import Toned

_GAP = 2
"""Blanks between two keys of a bar."""


class LinesView(Toned):
    """Lines of text, as many as fit. A function can make them for the available room."""

    DEFAULT_CSS = "LinesView { height: auto; }"

    def __init__(
        self, lines: Sequence[Line] = (), *, id: str | None = None, classes: str | None = None, folds: bool = False
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._lines = list(lines)
        self._folds = folds
        self._folded: tuple[int, list[Line]] | None = None
        self._make: Callable[[int, int], list[Line]] | None = None

    def set_lines(self, lines: Sequence[Line]) -> None:
        self._show(list(lines))

    def _show(self, lines: list[Line]) -> None:
        """Take other lines, and draw those that differ: a terminal may be slow, and most stay the same."""
        before, self._lines = self._lines, lines
        if self._folds or len(lines) != len(before):
            self._folded = None
            if lines != before:
                self.refresh(layout=True)
            return
        for y, (old, new) in enumerate(zip(before, lines, strict=True)):
            if old != new:
                self._draw_line(y)

    def _draw_line(self, y: int) -> None:
        self.refresh(Region(0, y, self.size.width, 1))

    def set_maker(self, make: Callable[[int, int], list[Line]]) -> None:
        """Show the lines that ``make`` returns for a width and a height, and again after each resize."""
        self._make = make
        self.remake()

    def remake(self) -> None:
        if self._make is not None:
            # Without a room it is hidden: what it showed last is old once it is seen again.
            self._show(self._make(self.size.width, self.size.height) if self.size.width else [])

    def on_resize(self) -> None:
        self.remake()
        self.refresh()

    @property
    def text(self) -> str:
        return "\n".join(map(text_of, self._lines))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._shown(width))

    def _shown(self, width: int) -> list[Line]:
        """Return the lines for a width; those that are too long are folded if the view folds, else cut."""
        if not self._folds:
            return self._lines
        if self._folded is None or self._folded[0] != width:
            self._folded = width, [part for line in self._lines for part in folded(line, width)]
        return self._folded[1]

    def render_line(self, y: int) -> Strip:
        lines = self._shown(self.size.width)
        if y < len(lines):
            return self.strip_of(lines[y], self.size.width)
        return Strip.blank(self.size.width, self.base_style)


class RowsView(LinesView):
    """Lines of text, some of which are rows: one of them is chosen, and a click chooses another."""

    class Clicked(Message):
        """A row was clicked."""

        def __init__(self, row: int) -> None:
            super().__init__()
            self.row = row

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: Mapping[int, int] = {}
        self._columns = (0, 0)
        self._chosen: int | None = None

    def set_rows(self, rows: Mapping[int, int], columns: tuple[int, int], chosen: int) -> None:
        """Say which line is which row, in which columns, and which row is chosen."""
        before = self._chosen, self._columns
        self._rows, self._columns = rows, columns
        self._chosen = next((line for line, row in rows.items() if row == chosen), None)
        if (self._chosen, columns) != before:
            for y in (before[0], self._chosen):
                if y is not None:
                    self._draw_line(y)

    def render_line(self, y: int) -> Strip:
        """Draw one line; the chosen row has another background."""
        strip = super().render_line(y)
        if y != self._chosen:
            return strip
        # The columns may be those of a wider terminal still.
        left, right = (min(column, strip.cell_length) for column in self._columns)
        row = strip.crop(left, right)
        chosen = Strip(Segment(text, (style or Style()) + self.behind("selected")) for text, style, _ in row)
        return Strip.join([strip.crop(0, left), chosen, strip.crop(right)])

    def on_click(self, event: events.Click) -> None:
        left, right = self._columns
        row = self._rows.get(event.y)
        if row is not None and left <= event.x < right:
            event.stop()
            self.post_message(self.Clicked(row))


class LinesScroll(VerticalScroll):
    """Lines that can be scrolled through. One column is always left for the scrollbar."""

    DEFAULT_CSS = """
    LinesScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("g", "scroll_home", show=False),
        Binding("G", "scroll_end", show=False),
        Binding("ctrl+d", "page_down", show=False),
        Binding("ctrl+u", "page_up", show=False),
    ]

    def __init__(self, lines: Sequence[Line], *, id: str | None = None, folds: bool = False) -> None:
        self.view = LinesView(lines, folds=folds)
        super().__init__(self.view, id=id)


@dataclass(frozen=True, slots=True)
class KeyItem:
    key: str
    title: str
    action_id: str
    is_enabled: bool = True
    is_current: bool = False
    short: str = ""
    """Replaces the title if not all titles fit."""
    stays: bool = False
    """Other keys make room for it."""


class KeyBar(Toned):
    """Keys in one line; a click is the same as the key. If they do not fit, titles are shortened or left out."""

    DEFAULT_CSS = """
    KeyBar { height: 1; }
    KeyBar.-empty { height: 0; }
    """

    class Pressed(Message):
        """A key of the bar was clicked."""

        def __init__(self, action_id: str) -> None:
            super().__init__()
            self.action_id = action_id

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._items: tuple[KeyItem, ...] = ()

    def set_items(self, items: Sequence[KeyItem]) -> None:
        new = tuple(items)
        self.set_class(not new, "-empty")
        if new != self._items:
            self._items = new
            self.refresh()

    def _pieces(self) -> tuple[list[tuple[KeyItem, str]], int]:
        """Return each key's title, as far as there is room, and how many blanks separate two."""
        full = [(item, item.title) for item in self._items]
        short = [(item, item.short) for item in self._items]
        for pieces, gap in ((full, _GAP), (short, _GAP), (short, 1)):
            if all(title for _, title in pieces) and self._width_of(pieces, gap) <= self.size.width:
                return pieces, gap
        if any(item.is_current for item in self._items):
            return [(item, item.title if item.is_current else "") for item in self._items], _GAP
        used, shown = 0, set[KeyItem]()
        for item, title in sorted(short, key=lambda piece: not piece[0].stays):
            used += cell_len(item.key) + cell_len(title) + 2
            if used > self.size.width:
                break
            shown.add(item)
        return [(item, title) for item, title in short if item in shown], 1

    @staticmethod
    def _width_of(pieces: Sequence[tuple[KeyItem, str]], gap: int) -> int:
        return sum(cell_len(item.key) + 1 + cell_len(title) + gap for item, title in pieces) + 1 - gap

    def render_line(self, y: int) -> Strip:
        segments: list[Segment] = [Segment(" ", self.base_style)]
        pieces, gap = self._pieces()
        for item, title in pieces:
            tone = Tone.ACCENT if item.is_enabled else Tone.QUIET
            name = Tone.STRONG if item.is_current else Tone.QUIET
            segments.append(Segment(item.key, self.tone_style(tone) + Style(bold=True)))
            if title:
                style = self.tone_style(name)
                segments.append(Segment(" ", self.base_style))
                segments.append(Segment(title, style + Style(underline=True) if item.is_current else style))
            segments.append(Segment(" " * gap, self.base_style))
        return Strip(segments).adjust_cell_length(self.size.width, self.base_style)

    def on_click(self, event: events.Click) -> None:
        left = 1
        pieces, gap = self._pieces()
        for item, title in pieces:
            width = cell_len(item.key) + (cell_len(title) + 1 if title else 0)
            if left <= event.x < left + width:
                event.stop()
                self.post_message(self.Pressed(item.action_id))
                return
            left += width + gap


WIDE = 140
"""From this many columns on, a terminal has room for two things side by side."""
ASIDE_MIN, ASIDE_MAX = 36, 76
BELOW_MIN = 8
"""Fewer lines below the rows say too little."""
_MARGIN = 5
"""The rule between the two, and the room around the text."""


class TableRoom(Horizontal):
    """A table, and more about the row under the cursor: beside it, or below it where few rows leave room.

    The table never gives up a column for the text beside it.
    """

    DEFAULT_CSS = """
    TableRoom { height: 1fr; }
    TableRoom > LineTable { width: 1fr; height: 1fr; }
    TableRoom > #aside { display: none; height: 1fr; padding: 0 2; border-left: solid $divider; }
    TableRoom > #aside.-shown { display: block; }
    TableRoom.-below { layout: vertical; }
    TableRoom.-below > #aside { border-left: none; border-top: solid $divider; width: 1fr; }
    """

    class Resized(Message):
        """It has another size than before."""

    _placed = (0, 0)

    def compose(self) -> ComposeResult:
        """The table first: keys move in it."""
        yield LineTable(id="table")
        yield LinesView(id="aside")

    def show_aside(self, width: int, make: Callable[[int, int], list[Line]]) -> None:
        """Show what ``make`` returns for a width and a height; ``width`` is that of the terminal."""
        aside, table = self.query_one("#aside", LinesView), self.query_one(LineTable)
        spare = min(ASIDE_MAX, width - table.natural_width)
        rows = len(table.model.shown) + 2
        is_beside = width >= WIDE and spare >= ASIDE_MIN
        below = self.size.height - rows
        is_below = not is_beside and below >= BELOW_MIN
        lines = make(spare - _MARGIN, self.size.height) if is_beside else []
        lines = make(width - _MARGIN, below - 1) if is_below else lines
        is_below = is_below and bool(lines)
        aside.set_class(bool(lines), "-shown")
        self._place(rows if is_below else 0, spare if is_beside else 0)
        aside.set_lines(lines)

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    def _place(self, rows: int, spare: int) -> None:
        """Put the text below ``rows`` lines, or beside the table in ``spare`` cells. Each change lays out everything
        again."""
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
