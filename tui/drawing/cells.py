"""What a table shows: columns, and cells with a tone. Pure; no widget and no colour is named here.

A tone is the meaning of a cell. A theme gives it a colour; the text says the same, for terminals without colour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from tui.drawing.units import NOTHING


class Tone(StrEnum):
    """What a text means to its reader."""

    PLAIN = "plain"
    STRONG = "strong"
    QUIET = "quiet"
    ACCENT = "accent"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    FRAME = "frame"
    """Around something, never a text that anybody must read."""
    ALARM = "alarm"
    """The one text on the screen that must be seen."""
    ALERT = "alert"
    """As loud, about something less grave."""


class Cell(NamedTuple):
    """One text of a row."""

    text: str
    tone: Tone = Tone.PLAIN


NO_DATA = Cell(NOTHING, Tone.QUIET)
"""It is not reported."""
DENIED = Cell("⊘", Tone.WARN)
"""The cluster does not let this user see it."""
LOADING = Cell("…", Tone.QUIET)
"""It has been asked for and is not there yet."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column over items of one kind.

    Attributes:
        name: in exports, in snake case. title: above the column. cell: makes the text of an item. value: what the item
            is sorted and exported by; None is "not known" and sorts last.
        rank: the higher, the earlier a narrow terminal drops the column; 0 always stays. width: in characters at least.
        is_figure: aligned to the right. is_age: changes with time alone, which is no news: it is never tinted.
        is_wide: takes the room that is left over, and needs no more than ``needs_max`` characters.
        basis: what its values depend on, apart from the item. While that is the same object, and the items too, very
            many rows keep their order without a look at them. None: not known, or more than one thing.
    """

    name: str
    title: str
    cell: Callable[[Any], Cell]
    value: Callable[[Any], Any]
    rank: int = 0
    width: int = 0
    is_figure: bool = False
    is_wide: bool = False
    needs_max: int = 40
    is_age: bool = False
    basis: object = field(default=None, compare=False)


def attribute(path: str) -> Callable[[Any], Any]:
    """Return what gets an attribute, or an attribute of one: ``lag.in_per_sec``; None where there is none."""

    names = [name for name in path.split(".") if name]

    def of(item: Any) -> Any:
        for name in names:
            item = getattr(item, name, None)
        return item

    return of


def column(
    name: str, title: str, value: Callable[[Any], Any] | str, text: Callable[[Any], str] = str, *,
    tone: Tone | Callable[[Any], Tone] = Tone.PLAIN, **how: Any,
) -> Column:  # fmt: skip
    """Return a column that shows what it is sorted by: an attribute, or what a function of the item returns.

    What is not known has no data.
    """
    of = attribute(value) if isinstance(value, str) else value

    def cell(item: Any) -> Cell:
        figure = of(item)
        return NO_DATA if figure is None else Cell(text(figure), tone if isinstance(tone, Tone) else tone(item))

    return Column(name, title, cell, of, **how)


figure = partial(column, is_figure=True)
ITEM_ALONE = object()
"""The ``basis`` of a column whose values are parts of the item."""


def tinted(value: float | None, text: str, *, bad_from: float = 1, tone: Tone = Tone.BAD) -> Cell:
    """Return a figure that is quiet at zero and of ``tone`` from ``bad_from`` on."""
    if value is None:
        return NO_DATA
    if value >= bad_from:
        return Cell(text, tone)
    return Cell(text, Tone.QUIET if value == 0 else Tone.PLAIN)
