"""A table that draws only the visible lines, so that 50,000 rows cost as much as 50.

It shows a ``TableModel``, which its owner arranges; it moves the cursor and reports clicks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events, work
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.drawing.cells import Cell, Column, Tone
from tui.drawing.lines import elided
from tui.drawing.units import count, plain
from tui.state.table_model import TableModel
from tui.widgets.toned import Toned

log = logging.getLogger(__name__)

GAP = 2
_MORE = 4
"""The place that says how many columns are out of sight: on the right, or behind the first column."""
_AIR = 12
"""A wide column may be this much wider than its longest text."""
_MARK = 2
"""The place on the left for a tag or the cursor."""


class LineTable(Toned, ScrollView, can_focus=True):
    """The rows of a ``TableModel``."""

    DEFAULT_CSS = """
    LineTable {
        background: $background;
        color: $foreground;
        overflow: auto;
        scrollbar-size-vertical: 1;
        scrollbar-size-horizontal: 0;
        &:focus { background-tint: $foreground 0%; }
    }
    """

    class Opened(Message):
        """The row under the cursor was clicked."""

    class Moved(Message):
        """The cursor is on another row."""

    class HeaderClicked(Message):
        """The title of a column was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.model = TableModel()
        self._widths: dict[str, int] = {}
        self._layout: list[tuple[Column, int]] = []
        self._laid_out_for = -1
        self._out_of_sight = 0
        """Columns that do not fit; ``model.skipped`` counts others, which were scrolled away."""
        self._texts: dict[Any, tuple[str, ...]] = {}
        self._changed: dict[Any, frozenset[int]] = {}
        self._is_arranging = False
        self._drawn: tuple[object, dict[int, Strip]] = None, {}
        """The lines as they were drawn last, and what they depend on besides the rows."""

    def set_model(self, model: TableModel) -> None:
        self.model = model
        self._widths, self._texts, self._changed = {}, {}, {}
        self.refresh_rows(is_new_data=False)

    def refresh_rows(self, *, is_new_data: bool) -> None:
        """Draw what the model holds now. With new data, visible cells that differ are tinted until the next data."""
        if self.model.arranging is not None and not self._is_arranging:
            self._is_arranging = True
            self._arrange()
        self.virtual_size = Size(0, len(self.model.shown) + 1)
        self._lay_out()
        if is_new_data:
            self._find_changes()
        self._show_cursor()
        if is_new_data:
            self._draw_what_differs()
        else:
            self._drawn = None, {}
            self.refresh()

    def notify_style_update(self) -> None:
        """Forget the lines with the colours: a theme may differ in one of them."""
        self._drawn = None, {}
        super().notify_style_update()

    def _draw_what_differs(self) -> None:
        """Draw the lines that new data has changed: a terminal may be slow, and most stay the same."""
        look, before = self._look, self._drawn[1] if self._drawn[0] == self._look else {}
        self._drawn = look, {y: self._strip(y) for y in range(self.size.height)}
        for y, strip in self._drawn[1].items():
            if before.get(y) != strip:
                self.refresh(Region(0, y, self.size.width, 1))

    @property
    def _look(self) -> object:
        return self.size, self.scroll_offset, self.has_focus, self.base_style

    @work(name="arrange rows")
    async def _arrange(self) -> None:
        """Do what the model has left to do, in turns of the event loop."""
        try:
            while self.model.arranging is not None:
                next(self.model.arranging, None)
                await asyncio.sleep(0)
        except Exception:
            log.exception("the rows could not be put in order")
            self.notify("the rows could not be put in order: see the logs (l)", severity="error", markup=False)
            self.model.arranging = None
        finally:
            self._is_arranging = False
        self.refresh_rows(is_new_data=False)
        self.post_message(self.Moved())

    # What is in sight

    @property
    def _page(self) -> int:
        return max(1, self.size.height - 1)

    def _in_sight(self) -> Sequence[Any]:
        top = round(self.scroll_offset.y)
        return self.model.shown[top : top + self._page]

    def _find_changes(self) -> None:
        columns, key = self.model.rows.columns, self.model.rows.key
        before, self._texts, self._changed = self._texts, {}, {}
        for item in self._in_sight():
            name = key(item)
            texts = tuple(column.cell(item).text for column in columns)
            self._texts[name] = texts
            if (old := before.get(name)) is not None and old != texts and len(old) == len(texts):
                changed = (i for i, text in enumerate(texts) if old[i] != text and not columns[i].is_age)
                self._changed[name] = frozenset(changed)

    def _lay_out(self) -> None:
        """Decide which columns fit; widths grow with the visible text and never shrink."""
        columns = self.model.rows.columns
        self._laid_out_for = self.size.width
        items = self._in_sight()
        for column in columns:
            needed = max((cell_len(column.cell(item).text) for item in items), default=0)
            title = cell_len(column.title) + (2 if column.name == self.model.sort_name else 0)
            self._widths[column.name] = max(self._widths.get(column.name, 0), column.width, needed, title)
        room = self.size.width - _MARK - 1
        self._skip_no_more_than_needed(room)
        kept = self._behind_the_skipped(room) if self.model.skipped else self._most_important(room)
        self._out_of_sight = len(columns) - len(kept) - self.model.skipped
        room -= _MORE * (bool(self._out_of_sight) + bool(self.model.skipped))
        spare = room - self._needed(kept)
        self._layout = []
        for column in kept:
            more = max(0, min(spare, self._widths[column.name] - self._width_of(column)))
            self._layout.append((column, self._width_of(column) + more))
            spare -= more
        first = next((place for place, column in enumerate(kept) if column.is_wide), None)
        if spare > 0 and first is not None:
            # A little: the eye has to be able to follow a row.
            self._layout[first] = kept[first], self._layout[first][1] + min(spare, _AIR)
        elif spare < 0:
            self._squeeze(room)

    def _skip_no_more_than_needed(self, room: int) -> None:
        """Scroll columns back into sight for which there is room: the last column has come, or the table is wider."""
        columns, model = self.model.rows.columns, self.model
        model.skipped = max(0, min(model.skipped, len(columns) - 2))
        while model.skipped:
            marks = _MORE if model.skipped > 1 else 0
            if self._needed([columns[0], *columns[model.skipped :]]) + marks > room:
                break
            model.skipped -= 1

    def _behind_the_skipped(self, room: int) -> list[Column]:
        """Return the first column, and as many as fit of those behind the skipped ones: at least one."""
        first, *others = self.model.rows.columns
        following = others[self.model.skipped :]
        fitting = len(following)
        while fitting > 1:
            marks = _MORE * (2 if fitting < len(following) else 1)
            if self._needed([first, *following[:fitting]]) + marks <= room:
                break
            fitting -= 1
        return [first, *following[:fitting]]

    def _most_important(self, room: int) -> list[Column]:
        """Return the columns that fit, without those of the highest rank."""
        columns = self.model.rows.columns
        kept = list(columns)
        while len(kept) > 1 and self._needed(kept) + (_MORE if len(kept) < len(columns) else 0) > room:
            worst = max(range(len(kept)), key=lambda index: (kept[index].rank, index))
            if kept[worst].rank == 0:
                break
            del kept[worst]
        return self._with_what_fits(kept, room - _MORE)

    def _with_what_fits(self, kept: Sequence[Column], room: int) -> list[Column]:
        """Return the columns plus those that were left out for others but are narrow enough to fit."""
        columns = self.model.rows.columns
        names = {column.name for column in kept}
        for column in sorted(columns, key=lambda other: other.rank):
            if column.name not in names and self._needed([*kept, column]) <= room:
                names.add(column.name)
                kept = [*kept, column]
        return [column for column in columns if column.name in names]

    @property
    def natural_width(self) -> int:
        """How many cells it takes to show all columns in full."""
        return sum(self._widths.get(column.name, 0) + GAP for column in self.model.rows.columns) + _MARK + 1

    def _width_of(self, column: Column) -> int:
        return min(self._widths[column.name], column.needs_max) if column.is_wide else self._widths[column.name]

    def _needed(self, columns: Sequence[Column]) -> int:
        return sum(self._width_of(column) + GAP for column in columns)

    def _squeeze(self, room: int) -> None:
        """Cut texts, the longest first, until all fit."""
        widths = [max(1, width) for _, width in self._layout]
        while sum(widths) + GAP * len(widths) > room and max(widths, default=0) > 4:
            widths[widths.index(max(widths))] -= 1
        self._layout = [(column, width) for (column, _), width in zip(self._layout, widths, strict=True)]

    # Drawing

    def render_line(self, y: int) -> Strip:
        """Draw one line: the titles, then rows."""
        if self._laid_out_for != self.size.width:
            # The table was not on the screen yet when its rows came.
            self._lay_out()
        look, drawn = self._drawn
        return drawn[y] if look == self._look and y in drawn else self._strip(y)

    def _strip(self, y: int) -> Strip:
        width = self.size.width
        if y == 0:
            return Strip(self._header()).adjust_cell_length(width, self.base_style)
        index = round(self.scroll_offset.y) + y - 1
        if index < len(self.model.shown):
            return Strip(self._row(index)).adjust_cell_length(width, self._row_style(index))
        if self.model.shown or y != 2:
            return Strip.blank(width, self.base_style)
        empty = Segment(f"  {self._why_empty()}", self.tone_style(Tone.QUIET))
        return Strip([empty]).adjust_cell_length(width, self.base_style)

    def _why_empty(self) -> str:
        if self.model.arranging is not None:
            return f"looking through {count(len(self.model.rows.items))} rows …"
        if len(self.model.rows.items) and not self.model.filter.is_empty:
            trouble = "" if self.model.rows.is_kept is None else " and has a problem"
            return f"no row of {len(self.model.rows.items)} passes the filter {self.model.filter.text!r}{trouble}"
        return self.model.rows.empty

    def _header(self) -> list[Segment]:
        segments = [Segment(" " * _MARK, self.base_style)]
        for place, (column, width) in enumerate(self._layout):
            is_sorted = column.name == self.model.sort_name
            title = f"{column.title} {'▼' if self.model.is_reversed else '▲'}" if is_sorted else column.title
            style = self.tone_style(Tone.ACCENT if is_sorted else Tone.QUIET) + Style(bold=True)
            gap = Segment(" " * GAP, self.base_style)
            segments += [Segment(_fitted(title, width, is_right=column.is_figure), style), gap]
            if place == 0 and self.model.skipped:
                segments.append(Segment(f"←{self.model.skipped}".ljust(_MORE), self.tone_style(Tone.QUIET)))
        if self._out_of_sight:
            segments.append(Segment(f"{self._out_of_sight}→", self.tone_style(Tone.QUIET)))
        return segments

    def _row(self, index: int) -> list[Segment]:
        item = self.model.shown[index]
        key = self.model.rows.key(item)
        base = self._row_style(index)
        changed = self._changed.get(key, frozenset())
        places = {column.name: place for place, column in enumerate(self.model.rows.columns)}
        is_chosen = index == self.model.cursor
        mark = self.tone_style(Tone.ACCENT) + Style(bold=True)
        signs = ("▌" if is_chosen and self.has_focus else " ") + ("•" if key in self.model.tags else " ")
        segments = [Segment(signs, mark + self.behind("selected") if is_chosen else mark)]
        gap = GAP + (_MORE if self.model.skipped else 0)
        for column, width in self._layout:
            cell: Cell = column.cell(item)
            style = self.tone_style(cell.tone)
            if is_chosen or places[column.name] in changed:
                style += self.behind("selected" if is_chosen else "changed")
            shown = plain(cell.text)
            if places[column.name] == 0:
                shown = elided(shown, width)
            text = _fitted(shown, width, is_right=column.is_figure)
            segments += [Segment(text, style), Segment(" " * gap, base)]
            gap = GAP
        return segments

    def _row_style(self, index: int) -> Style:
        return self.base_style + self.behind("selected") if index == self.model.cursor else self.base_style

    # Moving

    def on_resize(self) -> None:
        """Lay the columns out for the new width, and for the rows that have come into sight."""
        self._lay_out()
        self._show_cursor()
        self.refresh()

    def on_focus(self) -> None:
        """Draw the cursor's mark; without the focus there is none."""
        self.refresh()

    on_blur = on_focus

    def move_cursor(self, index: int) -> None:
        """Put the cursor on a row; only this row and the one it was on are drawn again, unless the table scrolls."""
        before, top = self.model.cursor, self.scroll_offset.y
        self._drawn = None, {}
        if index != before:
            self.model.cursor, self.model.is_opened = index, False
            self.post_message(self.Moved())
        self._show_cursor()
        if self.scroll_offset.y == top:
            self.refresh_line(before + 1)
            self.refresh_line(index + 1)

    def scroll_columns(self, by: int) -> bool:
        """Show other columns behind the first one, one further right or left; return whether there are any."""
        before = self.model.skipped
        self.model.skipped = max(0, before + by)
        self._drawn = None, {}
        self._lay_out()
        self.refresh()
        return self.model.skipped != before

    def take_key(self, key: str) -> bool:
        """Move the cursor by a key; return whether the key moves it."""
        page = max(1, self._page - 1)
        place = self.model.place_after(key, page, page // 2)
        if place is not None:
            self.move_cursor(place)
        return place is not None

    def _show_cursor(self) -> None:
        top, page, at = round(self.scroll_offset.y), self._page, self.model.cursor
        if at < top:
            self.scroll_to(y=at, animate=False, immediate=True)
        elif at >= top + page:
            self.scroll_to(y=at - page + 1, animate=False, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Draw again: the titles stay where they are."""
        super().watch_scroll_y(old_value, new_value)
        self._lay_out()
        self.refresh(Region(0, 0, self.size.width, self.size.height))

    def on_click(self, event: events.Click) -> None:
        """Sort by the clicked title, or put the cursor on the row; a click on the cursor's row opens it."""
        event.stop()
        if event.y == 0:
            self._click_header(event.x)
            return
        index = round(self.scroll_offset.y) + event.y - 1
        if index >= len(self.model.shown):
            return
        is_there = index == self.model.cursor
        self.move_cursor(index)
        if is_there or event.chain >= 2:
            self.post_message(self.Opened())

    def _click_header(self, x: int) -> None:
        left = _MARK
        for place, (column, width) in enumerate(self._layout):
            if left <= x < left + width + GAP:
                self.post_message(self.HeaderClicked(column.name))
                return
            left += width + GAP
            if place == 0 and self.model.skipped:
                if left <= x < left + _MORE:
                    self.scroll_columns(-1)
                    return
                left += _MORE
        if self._out_of_sight and left <= x:
            self.scroll_columns(1)


def _fitted(text: str, width: int, *, is_right: bool) -> str:
    """Return the text in exactly ``width`` cells; a text that is cut ends with an ellipsis."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, max(0, width - 1)) + "…" if width > 0 else ""
    return " " * (width - length) + text if is_right else text + " " * (width - length)
