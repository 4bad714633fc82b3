"""Values in time as blocks of text: the floor is zero, the top is the caller's, missing values are gaps. Pure.

A flat line at 5 and a flat line at 0 look different, and so do two lines that share a scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, isfinite, log10

from tui.drawing.cells import Tone
from tui.drawing.lines import Line, line

Series = Sequence[float | None]
"""A value per step, the newest last; None is a missing one."""
FigureText = Callable[[float | None], str]

BLOCKS = "_▁▂▃▄▅▆▇█"
_BRAILLE = 0x2800
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of a character's dots, from top to bottom: the left column, and the right one."""
_LABEL = 5


def sparkline(values: Series, width: int, *, top: float | None = None) -> str:
    """Return a line of ``width`` blocks, the newest value at the right.

    ``top`` is the value of a full block; without it the largest value. Lines with the same top can be compared.
    """
    points = _fitted(values, width)
    ceiling = top if top is not None else max((point for point in points if point is not None), default=0.0)
    return "".join(_block(point, ceiling) for point in points)


def line_chart(values: Series, width: int, height: int, *, top: float) -> list[str]:
    """Return a curve of braille dots between zero and ``top``, two values to a character; missing values are gaps."""
    if height <= 0 or width <= 0:
        return []
    rows = height * 4
    cells = [[0] * width for _ in range(height)]
    before: int | None = None
    for x, value in enumerate(_fitted(values, width * 2)):
        if value is None:
            before = None
            continue
        share = 0.0 if top <= 0 else min(max(value / top, 0.0), 1.0)
        y = round((1 - share) * (rows - 1))
        begin = y if before is None else before + (y > before) - (y < before)
        for dot in range(min(begin, y), max(begin, y) + 1):
            cells[dot // 4][x // 2] |= _DOTS[x % 2][dot % 4]
        before = y
    return ["".join(chr(_BRAILLE + bits) if bits else " " for bits in row) for row in cells]


def values_in(width: int) -> int:
    """Return how many values a chart of this width shows, if its labels are no longer than usual."""
    return 2 * max(0, width - _LABEL - 2)


def chart_lines(
    values: Series, width: int, height: int, text: FigureText, *, top: float | None = None, tone: Tone = Tone.ACCENT
) -> list[Line]:
    """Return a curve beside its scale, from zero to ``top``, or to a round number above all values."""
    top = top or ceiling_of(max((value for value in values if value is not None and isfinite(value)), default=None))
    labels = {0: text(top), height - 1: "0"}
    wide = max(_LABEL, len(labels[0]))
    return [
        line((f"{labels.get(row, ''):>{wide}}", Tone.QUIET), ("┤" if row in labels else "│", Tone.FRAME), (drawn, tone))
        for row, drawn in enumerate(line_chart(values, width - wide - 2, height, top=top))
    ]


def ceiling_of(value: float | None) -> float:
    """Return a round number above a value, as the top of a chart, so that the line has room above it.

    It is never below one: labels are whole numbers, and little would look like much.
    """
    if value is None or value < 1:
        return 1.0
    step = 10.0 ** floor(log10(value))
    return next(step * factor for factor in (1.5, 2, 3, 5, 7.5, 10, 15) if step * factor > value)


def _fitted(values: Series, width: int) -> list[float | None]:
    """Return the last ``width`` values; before the first there is nothing."""
    last = [value if value is not None and isfinite(value) else None for value in list(values)[-width:]]
    return [None] * (width - len(last)) + last


def _block(value: float | None, ceiling: float) -> str:
    """Return one block. A value above 0 is never invisible; a known zero is on the floor, a missing value is blank."""
    if value is None:
        return " "
    share = 0.0 if ceiling <= 0 else min(max(value / ceiling, 0.0), 1.0)
    return BLOCKS[max(round(share * 8), 1 if value > 0 else 0)]
