"""Numbers as bars and as heat, in characters. Pure. If blocks cannot be shown, plain characters replace them.

A bar is as long as its share of the largest value of its scale. Heat shows how far a value is from the mean of its
scale: cold, even, warm or hot; without colour, the shade shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cli.output.report import Column, Drawing, Table, Tone

BAR_WIDTH_MAX = 32
BAR_WIDTH_MIN = 4
HEAT_WIDTH = 2
COLD, WARM, HOT = 0.75, 1.25, 1.5
"""The shares of the mean from which a value is no longer cold, is warm, is hot."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(share: float, width: int, *, has_blocks: bool) -> str:
    """Return a bar of at most ``width`` characters for a share of 0 to 1; a value above 0 is never invisible."""
    share = min(max(share, 0.0), 1.0)
    if not has_blocks:
        return "#" * max(round(share * width), int(share > 0))
    eighths = max(round(share * width * 8), int(share > 0))
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def gauge(share: float, width: int, *, has_blocks: bool) -> str:
    """Return a progress bar in brackets; it is full only if all is done."""
    share = min(max(share, 0.0), 1.0)
    if not has_blocks:
        return f"[{'#' * int(share * width):-<{width}}]"
    full, rest = divmod(int(share * width * 8), 8)
    return f"[{'█' * full + (_EIGHTHS[rest] if rest else ''):<{width}}]"


def heat(share_of_mean: float, *, has_blocks: bool) -> tuple[str, Tone | None]:
    """Return shade and tone of a value that is this many times the mean."""
    if share_of_mean <= 0:
        return ("··" if has_blocks else "  "), Tone.QUIET
    if share_of_mean < COLD:
        return ("░░" if has_blocks else ".."), Tone.COLD
    if share_of_mean <= WARM:
        return ("▒▒" if has_blocks else "--"), Tone.GOOD
    if share_of_mean <= HOT:
        return ("▓▓" if has_blocks else "++"), Tone.WARNING
    return ("██" if has_blocks else "##"), Tone.BAD


class Scales:
    """The largest value and the mean of each scale of a table."""

    def __init__(self, table: Table) -> None:
        values: dict[str, list[float]] = {}
        for index, column in enumerate(table.columns):
            if column.drawing is not None:
                values.setdefault(_scale(column), []).extend(_numbers(row[index] for row in table.rows))
        self._largest: Mapping[str, float] = {scale: max(numbers, default=0.0) for scale, numbers in values.items()}
        self._means: Mapping[str, float] = {
            scale: sum(numbers) / len(numbers) if numbers else 0.0 for scale, numbers in values.items()
        }

    def drawn(self, column: Column, value: object, width: int, *, has_blocks: bool) -> tuple[str, Tone | None]:
        """Return what is drawn beside a figure, and its tone if the drawing has one."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return "", None
        scale = _scale(column)
        if column.drawing is Drawing.HEAT:
            mean = self._means[scale]
            return heat(value / mean if mean else 0.0, has_blocks=has_blocks)
        largest = self._largest[scale]
        return bar(value / largest if largest else 0.0, width, has_blocks=has_blocks), None


def bar_width(columns: Sequence[Column], spare: int) -> int:
    """Return how wide each bar of a table may be if ``spare`` characters are left; 0 if none fits."""
    count = sum(column.drawing is Drawing.BAR for column in columns)
    width = min(BAR_WIDTH_MAX, spare // count - 1) if count else 0
    return width if width >= BAR_WIDTH_MIN else 0


def _scale(column: Column) -> str:
    return column.scale or column.name


def _numbers(values: object) -> list[float]:
    assert hasattr(values, "__iter__")
    return [float(v) for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
