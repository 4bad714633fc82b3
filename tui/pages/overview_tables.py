"""Brokers and moves on a large overview: a row each, as their own screens show them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len

from tui.board import Board
from tui.cells import Column, Tone
from tui.lines import Line, Span, fitted, line
from tui.pages import brokers, reassignments
from tui.sparkline import ceiling_of, spark_lines
from tui.units import plain, short_count

_ROWS_MAX = 12
_GAP = 2
_CHART_MIN = 12


def tables(board: Board, width: int, lines_max: int) -> list[Line]:
    """Return the brokers with a chart of what each gets, then the moves under way, in at most ``lines_max`` lines."""
    lines = _brokers(board, width, lines_max)
    return [*lines, *_moves(board, width, lines_max - len(lines))]


def _brokers(board: Board, width: int, lines_max: int) -> list[Line]:
    items = brokers.items_of(board)
    # Those with a problem come first, so that they are not among those left out.
    items.sort(key=lambda item: (not _is_trouble(item), item.id))
    shown = items[: min(_ROWS_MAX, lines_max - 3)]
    if not shown or lines_max < 4:
        return []
    rows = _rows(brokers.COLUMNS, shown)
    chart = width - sum(len(text) for text, _ in rows[0]) - 1
    if chart >= _CHART_MIN:
        _add_charts(board, rows, [item.id for item in shown], chart)
    more = len(items) - len(shown)
    rest = (
        [line((f"and {more} more, with nothing wrong", Tone.QUIET))] if more and not _is_trouble(items[-more]) else []
    )
    return [(), *(fitted(row, width) for row in rows), *rest]


def _is_trouble(item: brokers.BrokerItem) -> bool:
    return bool(item.info is None or item.trouble or item.missing)


def _add_charts(board: Board, rows: list[Line], ids: Sequence[int], width: int) -> None:
    """Draw what each broker gets, all on one scale from zero."""
    courses = [[sample.in_by_broker.get(broker) for sample in board.samples] for broker in ids]
    top = ceiling_of(max((value for course in courses for value in course if value is not None), default=None))
    rows[0] = line(*rows[0], (f"  0 to {short_count(top)} in/s", Tone.QUIET))
    for index, course in enumerate(courses):
        rows[index + 1] = line(*rows[index + 1], " ", (spark_lines(course, width, top=top)[0], Tone.ACCENT))


def _moves(board: Board, width: int, lines_max: int) -> list[Line]:
    items = reassignments.items_of(board)
    if not items or lines_max < 4:
        return []
    shown = items[: min(_ROWS_MAX, lines_max - 3)]
    more = len(items) - len(shown)
    rest = [line((f"and {more} more copies", Tone.QUIET))] if more else []
    return [(), *(fitted(row, width) for row in _rows(reassignments.COLUMNS, shown)), *rest]


def _rows(columns: Sequence[Column], items: Sequence[Any]) -> list[Line]:
    """Return titles and rows, each column as wide as its longest text."""
    cells = [[column.cell(item) for column in columns] for item in items]
    widths = [
        max(cell_len(column.title), column.width, *(cell_len(plain(row[index].text)) for row in cells))
        for index, column in enumerate(columns)
    ]

    def padded(text: str, index: int, tone: Tone) -> Span:
        blanks = " " * (widths[index] - cell_len(text))
        return (blanks + text if columns[index].is_figure else text + blanks) + " " * _GAP, tone

    head = tuple(padded(column.title, index, Tone.QUIET) for index, column in enumerate(columns))
    return [head, *(tuple(padded(plain(c.text), at, c.tone) for at, c in enumerate(row)) for row in cells)]
