"""The rows that a table shows: filtered, sorted, tagged, with a cursor that stays on its row. Pure.

Items are kept as they are; only visible ones become text. So 50,000 rows cost no more than the 50 in sight.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tui.cells import Column
from tui.filters import Filter


@dataclass(frozen=True, slots=True)
class Rows:
    """What a screen has to show at one moment.

    Attributes:
        key: identifies an item from one moment to the next.
        search: the text that a filter looks at.
        empty: what to say if there is no item, and why.
    """

    columns: tuple[Column, ...]
    items: Sequence[Any]
    key: Callable[[Any], Any]
    search: Callable[[Any], str]
    empty: str = "nothing here"


class Picked(Sequence[Any]):
    """Some items of a sequence in another order, by their places, four bytes each.

    A list would keep every item, also of a sequence that makes its items when they are looked at.
    """

    def __init__(self, items: Sequence[Any], places: Iterable[int]) -> None:
        if isinstance(items, Picked):
            places, items = map(items._places.__getitem__, places), items._items
        self._items: Sequence[Any] = items
        self._places: array[int] = array("I", places)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        chosen = self._places[index]
        return [self._items[place] for place in chosen] if isinstance(chosen, array) else self._items[chosen]

    def __iter__(self) -> Iterator[Any]:
        return map(self._items.__getitem__, self._places)

    @classmethod
    def of(cls, items: Sequence[Any], keeps: Callable[[Any], bool]) -> Picked:
        """Pick the items that a test keeps, in their order."""
        return cls(items, (place for place, item in enumerate(items) if keeps(item)))


NO_ROWS = Rows((), (), lambda item: item, str)


@dataclass(slots=True)
class TableModel:
    """One table as its user has arranged it. Owned by the screen that shows it."""

    rows: Rows = NO_ROWS
    filter: Filter = field(default_factory=Filter)
    sort_name: str | None = None
    is_reversed: bool = False
    tags: set[Any] = field(default_factory=set)
    cursor: int = 0
    shown: Sequence[Any] = ()
    """The items that pass the filter, in their order."""
    _left_key: Any | None = None
    """The row under the cursor when its screen was left."""

    def leave(self) -> None:
        """Forget the rows, which hold on to a whole frame, until they are shown again."""
        if self.rows is not NO_ROWS:
            self._left_key = self.cursor_key
            self.rows, self.shown = NO_ROWS, ()

    def show(self, rows: Rows) -> None:
        """Take newer rows; cursor and tags stay with their rows."""
        key = self._left_key if self.rows is NO_ROWS else self.cursor_key
        self.rows = rows
        self._arrange(key)
        if self.tags:
            self.tags &= {rows.key(item) for item in rows.items}

    def set_filter(self, new: Filter) -> None:
        """Show the items that another filter keeps."""
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
        """Reverse the order."""
        key = self.cursor_key
        self.is_reversed = not self.is_reversed
        self._arrange(key)

    @property
    def cursor_item(self) -> Any | None:
        """The item under the cursor."""
        return self.shown[self.cursor] if 0 <= self.cursor < len(self.shown) else None

    @property
    def cursor_key(self) -> Any | None:
        item = self.cursor_item
        return None if item is None else self.rows.key(item)

    def toggle_tag(self) -> None:
        """Tag the row under the cursor, or remove its tag."""
        key = self.cursor_key
        if key is not None:
            self.tags ^= {key}

    def toggle_all_tags(self) -> None:
        """Tag all visible rows; if all are tagged, remove all tags."""
        keys = {self.rows.key(item) for item in self.shown}
        self.tags = set() if keys <= self.tags else self.tags | keys

    @property
    def chosen(self) -> list[Any]:
        """The rows for an operation: the tagged ones, else the one under the cursor."""
        if self.tags:
            return [item for item in self.rows.items if self.rows.key(item) in self.tags]
        item = self.cursor_item
        return [] if item is None else [item]

    def put_cursor_on(self, key: Any) -> bool:
        """Move the cursor to a row; False if it is not in sight."""
        for index, item in enumerate(self.shown):
            if self.rows.key(item) == key:
                self.cursor = index
                return True
        return False

    def put_cursor_on_named(self, name: str) -> None:
        """Move the cursor to the row with this name, if it is in sight."""
        self.cursor = next((i for i, item in enumerate(self.shown) if str(self.rows.key(item)) == name), self.cursor)

    def _column(self, name: str | None) -> Column | None:
        return next((column for column in self.rows.columns if column.name == name), None)

    def _arrange(self, key: Any | None) -> None:
        rows, column = self.rows, self._column(self.sort_name)
        shown: Sequence[Any] = rows.items
        keeps = None if self.filter.is_empty else lambda item: self.filter.keeps(rows.search(item))
        if column is not None:
            shown = _ordered(shown, keeps, column.value, is_reversed=self.is_reversed)
        else:
            if keeps is not None:
                shown = Picked.of(shown, keeps)
            if self.is_reversed:
                shown = Picked(shown, range(len(shown) - 1, -1, -1))
        self.shown = shown
        self._keep_cursor(key)

    def _keep_cursor(self, key: Any | None) -> None:
        """Leave the cursor on its row; if that row is gone, at its place."""
        here = self.cursor_item
        if key is None or (here is not None and self.rows.key(here) == key) or not self.put_cursor_on(key):
            self.cursor = max(0, min(self.cursor, len(self.shown) - 1))


def _ordered(
    items: Sequence[Any], keeps: Callable[[Any], bool] | None, value: Callable[[Any], Any], *, is_reversed: bool
) -> Picked:
    """Sort the items that a test keeps by value; unknown values come last in either order."""
    values = {place: value(item) for place, item in enumerate(items) if keeps is None or keeps(item)}
    places = [place for place, one in values.items() if one is not None]
    places.sort(key=values.__getitem__, reverse=is_reversed)
    return Picked(items, chain(places, (place for place, one in values.items() if one is None)))
