"""The rows that a table shows: filtered, sorted, tagged, with a cursor that stays on its row. Pure.

Items are kept as they are; only visible ones become text. So 50,000 rows cost no more than the 50 in sight.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

from tui.drawing.cells import Column

Predicate = Callable[[str], bool]


@dataclass(frozen=True)
class Filter:
    """What a user types after ``/``: which rows stay.

    ``orders`` keeps rows that contain it, ``!orders`` those that do not, ``~ordrs`` those that hold its letters in this
    order. A row must match all words; upper and lower case are the same.
    """

    text: str = ""

    @cached_property
    def _predicates(self) -> tuple[Predicate, ...]:
        return tuple(predicate for word in self.text.lower().split() if (predicate := _predicate(word)))

    @property
    def is_empty(self) -> bool:
        return not self._predicates

    def keeps(self, text: str) -> bool:
        """Whether a row with this text stays."""
        lower = text.lower()
        return all(predicate(lower) for predicate in self._predicates)


def _predicate(word: str) -> Predicate | None:
    """Return the test of one word; None for a sign that nothing follows yet."""
    if word.startswith("!"):
        inner = _predicate(word[1:])
        return None if inner is None else lambda text: not inner(text)
    if word.startswith("~"):
        pattern = re.compile(".*?".join(map(re.escape, word[1:])), re.DOTALL)
        return (lambda text: pattern.search(text) is not None) if word[1:] else None
    return (lambda text: word in text) if word else None


@dataclass(frozen=True, slots=True)
class Rows:
    """What a screen has to show at one moment.

    Attributes:
        key: identifies an item from one moment to the next.
        search: the text that a filter looks at.
        empty: what to say if there is no item, and why.
        is_kept: whether an item belongs to them at all; None keeps every one.
    """

    columns: tuple[Column, ...]
    items: Sequence[Any]
    key: Callable[[Any], Any]
    search: Callable[[Any], str]
    empty: str = "nothing here"
    is_kept: Callable[[Any], bool] | None = None


class Picked(Sequence[Any]):
    """Some items of a sequence in another order, by their places, four bytes each.

    A list would keep every item, also of a sequence that makes its items when they are looked at.
    """

    def __init__(self, items: Sequence[Any], places: Iterable[int]) -> None:
        self._items = items
        self._places = array("I", places)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        chosen = self._places[index]
        return [self._items[place] for place in chosen] if isinstance(chosen, array) else self._items[chosen]

    def __iter__(self) -> Iterator[Any]:
        return map(self._items.__getitem__, self._places)

    def among(self, items: Sequence[Any]) -> Picked:
        """Return the items at the same places of a newer sequence; itself if that has not the same length."""
        return Picked(items, self._places) if len(items) == len(self._items) else self


AT_ONCE = 5_000
"""If there are more rows, a filter or an order is worked out in turns of the event loop: it would hold that up."""
TURN = 500

NO_ROWS = Rows((), (), lambda item: item, str)


@dataclass(slots=True)
class TableModel:
    """One table as its user has arranged it. Owned by the screen that shows it.

    Attributes:
        works_in_turns: if there are very many rows, they get their order only once ``arranging`` has been exhausted.
            Until then they stay as they were, with their new values.
    """

    works_in_turns: bool = False
    rows: Rows = NO_ROWS
    filter: Filter = field(default_factory=Filter)
    sort_name: str | None = None
    is_reversed: bool = False
    tags: set[Any] = field(default_factory=set)
    skipped: int = 0
    """How many columns behind the first one are scrolled out of sight to the left."""
    cursor: int = 0
    is_opened: bool = False
    """Whether the row under the cursor is open: then it is chosen, even if it is the first."""
    shown: Sequence[Any] = ()
    """The items that pass the filter, in their order."""
    arranging: Iterator[None] | None = None
    """What is left to do until ``shown`` is right, in turns of an event loop."""
    _is_overtaken: bool = False
    """Newer rows have come while older ones are being arranged."""
    _in_order_of: tuple[Sequence[Any], object] | None = None
    """The items that ``shown`` is right for, and the basis of the column that they are sorted by, if it has one."""
    _left_key: Any | None = None
    """The row under the cursor when its screen was left."""

    def leave(self) -> None:
        """Forget the rows, which hold on to a whole frame, until they are shown again."""
        if self.rows is not NO_ROWS:
            self._left_key = self.cursor_key
            self.rows, self.shown, self.arranging, self._in_order_of = NO_ROWS, (), None, None

    def begin_at_top(self) -> None:
        """Put the cursor on the first row, even if the rows are shown only later."""
        self.cursor, self._left_key = 0, None

    def show(self, rows: Rows) -> None:
        """Take newer rows; cursor and tags stay with their rows."""
        key = self._left_key if self.rows is NO_ROWS else self.cursor_key
        asks_the_same = (rows.is_kept is None) == (self.rows.is_kept is None)
        self.rows = rows
        if self.arranging is not None and asks_the_same:
            # If each new frame started again, a slow machine would never finish.
            self._is_overtaken = True
            self._stay_as_they_are()
        elif not self._is_in_order:
            self._arrange(key)
        self.is_opened = self.is_opened and self.cursor_key == key
        if self.tags:
            self.tags &= {rows.key(item) for item in rows.items}

    def set_filter(self, new: Filter) -> None:
        key = self.cursor_key
        self.filter = new
        self._arrange(key)

    def sort_by(self, name: str | None) -> None:
        """Sort by a column; the same column again reverses the order."""
        key = self.cursor_key
        if name is not None and name == self.sort_name:
            self.is_reversed = not self.is_reversed
        else:
            column = self._column(name)
            # The largest figures matter most.
            self.sort_name, self.is_reversed = name, column is not None and column.is_figure
        self._arrange(key)

    def sort_by_next(self) -> None:
        """Sort by the next column; after the last, not at all."""
        names: list[str | None] = [None, *(column.name for column in self.rows.columns)]
        at = names.index(self.sort_name) if self.sort_name in names else 0
        self.sort_by(names[(at + 1) % len(names)])

    def reverse(self) -> None:
        key = self.cursor_key
        self.is_reversed = not self.is_reversed
        self._arrange(key)

    @property
    def cursor_item(self) -> Any | None:
        return self.shown[self.cursor] if 0 <= self.cursor < len(self.shown) else None

    @property
    def cursor_key(self) -> Any | None:
        item = self.cursor_item
        return None if item is None else self.rows.key(item)

    def toggle_tag(self) -> None:
        key = self.cursor_key
        if key is not None:
            self.tags ^= {key}

    def toggle_all_tags(self) -> None:
        """Tag all visible rows; if all are tagged, remove all tags."""
        keys = {self.rows.key(item) for item in self.shown}
        self.tags = set() if keys <= self.tags else self.tags | keys

    @property
    def tags_out_of_sight(self) -> int:
        """How many tagged rows are not shown: an operation applies to them all the same."""
        if not self.tags or len(self.shown) == len(self.rows.items):
            return 0
        return len(self.tags) - sum(self.rows.key(item) in self.tags for item in self.shown)

    @property
    def chosen(self) -> list[Any]:
        """The rows for an operation: the tagged ones, else the one under the cursor."""
        if self.tags:
            return [item for item in self.rows.items if self.rows.key(item) in self.tags]
        item = self.cursor_item
        return [] if item is None else [item]

    def put_cursor_on(self, key: Any) -> bool:
        """Move the cursor to a row; False if it is not in sight."""
        return self.put_cursor_on_first(lambda item: self.rows.key(item) == key)

    def put_cursor_on_first(self, is_wanted: Callable[[Any], bool]) -> bool:
        """Move the cursor to the first such row; False if none is in sight."""
        place = next((index for index, item in enumerate(self.shown) if is_wanted(item)), None)
        self.cursor = self.cursor if place is None else place
        return place is not None

    def place_after(self, key: str, page: int, half: int) -> int | None:
        """Return the row to which a key moves the cursor, by a page or half of one; None if it does not move it."""
        last = len(self.shown) - 1
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "home": -last, "g": -last, "end": last, "G": last}
        steps |= {"pageup": -page, "pagedown": page, "ctrl+u": -half, "ctrl+d": half}
        return max(0, min(self.cursor + steps[key], last)) if key in steps else None

    def _column(self, name: str | None) -> Column | None:
        return next((column for column in self.rows.columns if column.name == name), None)

    @property
    def _is_in_order(self) -> bool:
        """Whether the rows would get the order that they have: neither they nor what they are sorted by has changed."""
        if self._in_order_of is None or self.rows.is_kept is not None:
            return False
        items, basis = self._in_order_of
        column = self._column(self.sort_name)
        return items is self.rows.items and column is not None and basis is column.basis

    def _arrange(self, key: Any | None) -> None:
        items, self._is_overtaken, self.arranging = self.rows.items, False, None
        self._in_order_of = None
        if self.sort_name is None and self.rows.is_kept is None and self.filter.is_empty:
            self.shown = Picked(items, reversed(range(len(items)))) if self.is_reversed else items
            self._keep_cursor(key)
        elif self.works_in_turns and len(items) > AT_ONCE:
            self._stay_as_they_are()
            self.arranging = self._arranged(key)
        else:
            deque(self._arranged(key), maxlen=0)

    def _stay_as_they_are(self) -> None:
        """Show the new values of the rows, if these can be the same rows."""
        if isinstance(self.shown, Picked):
            self.shown = self.shown.among(self.rows.items)

    def _arranged(self, key: Any | None) -> Iterator[None]:
        """Find what is shown; yields after each piece of work."""
        rows, filter_, column = self.rows, self.filter, self._column(self.sort_name)
        values: dict[int, Any] = {}
        for place, item in enumerate(rows.items):
            if place % TURN == TURN - 1:
                yield
            if rows.is_kept is not None and not rows.is_kept(item):
                continue
            if filter_.is_empty or filter_.keeps(rows.search(item)):
                values[place] = None if column is None else column.value(item)
        places: Iterable[int] = values
        if column is not None:
            known = [place for place, value in values.items() if value is not None]
            known.sort(key=values.__getitem__, reverse=self.is_reversed)
            # Unknown values come last in either order.
            places = chain(known, (place for place, value in values.items() if value is None))
        elif self.is_reversed:
            places = reversed(values)
        # The cursor may have been moved meanwhile.
        key = key if self.cursor_item is None else self.cursor_key
        self.shown = Picked(rows.items, places)
        self.arranging = None
        self._keep_cursor(key)
        if column is not None and column.basis is not None and rows.is_kept is None:
            self._in_order_of = rows.items, column.basis
        if self._is_overtaken and not self._is_in_order:
            self._arrange(self.cursor_key)

    def _keep_cursor(self, key: Any | None) -> None:
        """Leave the cursor on its row; if that row is gone, at its place."""
        if key is None or self.cursor_key == key or not self.put_cursor_on(key):
            self.cursor = max(0, min(self.cursor, len(self.shown) - 1))
