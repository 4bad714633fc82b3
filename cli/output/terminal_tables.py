"""Renders sections and tables for a terminal. Loaded only for ``--output table``.

A table that fits is drawn without rich: the same lines, a hundred times faster for very many rows. If a table does not
fit, rich folds its cells. If its figures alone are too wide, each row becomes a block of lines.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import TextIO

from rich import box
from rich.cells import cell_len, chop_cells
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from cli.output.drawing import HEAT_WIDTH, Scales, bar_width
from cli.output.format import TerminalView, can_show_blocks
from cli.output.report import Column, Drawing, Fields, Kind, Report, Section, Table, Tone
from cli.output.values import RIGHT, escape_controls, human_text

_GAP = 2
_RULE = "─"
_HEADING_LINES = 2
FOLDED_HERE_MIN = 200
"""From this many rows on, rich takes too long."""
_FOLDED_WIDTH_MIN = 8
_INDENT = "    "


def print_sections(report: Report, stream: TextIO) -> None:
    """Write a report's sections, or its table if it has none, to ``stream``."""
    view = TerminalView.of(stream)
    drawn = io.StringIO()
    console = Console(
        file=drawn,
        width=view.width,
        color_system="standard" if view.has_colour else None,
        force_terminal=view.has_colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    sections = report.sections or (Section(body=report.table),)
    for index, section in enumerate(sections):
        if index:
            console.print()
        _print_section(console, section, view, has_blocks=can_show_blocks(stream))
    # Cells are padded to the column's width; at the end of a line that is of no use.
    stream.writelines(f"{line.rstrip(' ')}\n" for line in drawn.getvalue().splitlines())


def _print_section(console: Console, section: Section, view: TerminalView, *, has_blocks: bool) -> None:
    if section.title is not None:
        console.print(Text(escape_controls(section.title), style="bold"))
    for line in section.text:
        console.print(Text(escape_controls(line)))
    if isinstance(section.body, Table):
        _print_table(console, section.body, view, has_blocks=has_blocks)
    elif section.body is not None:
        _print_fields(console, section.body)


def _print_table(console: Console, table: Table, view: TerminalView, *, has_blocks: bool) -> None:
    if not table.rows:
        return
    lines = grid_lines(table, view.width, has_colour=view.has_colour, has_blocks=has_blocks)
    if lines is not None:
        console.file.writelines(f"{line}\n" for line in lines)
        return
    while (shorter := without_a_dispensable(table)) is not None:
        table = shorter
    if folded_lines(table, view.width, has_colour=False) is None:
        # rich would cut figures, and leave out texts.
        console.file.writelines(f"{line}\n" for line in block_lines(table, view.width, has_colour=view.has_colour))
        return
    grid = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for column in table.columns:
        right = column.kind in RIGHT
        grid.add_column(column.heading, justify="right" if right else "left", overflow="fold", no_wrap=right)
    for row in table.rows:
        grid.add_row(*(_cell(column, row, index) for index, column in enumerate(table.columns)))
    console.print(grid)


def _print_fields(console: Console, fields: Fields) -> None:
    grid = RichTable(box=None, show_header=False, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in fields.pairs:
        grid.add_row(name, Text(human_text(Kind.TEXT, value)))
    console.print(grid)


def _cell(column: Column, row: Sequence[object], index: int) -> Text:
    tone = column.tone_in(row, index)
    return Text(human_text(column.kind, row[index]), style="" if tone is None else tone.value)


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    tone: Tone | None


def grid_lines(table: Table, width: int, *, has_colour: bool, has_blocks: bool) -> Iterator[str] | None:
    """Return the lines of a table; None if it is wider than ``width``.

    Drawings shrink, figures do not; dispensable columns go, the last one first; a last column of free text moves below
    its rows. With very many rows, texts are folded here too.
    """
    lines = _fitting_lines(table, width, has_colour=has_colour, has_blocks=has_blocks)
    while lines is None and (shorter := without_a_dispensable(table)) is not None:
        table = shorter
        lines = _fitting_lines(table, width, has_colour=has_colour, has_blocks=has_blocks)
    if lines is None and table.columns[-1].falls_below:
        shorter = Table(table.columns[:-1], [row[:-1] for row in table.rows])
        above = _fitting_lines(shorter, width, has_colour=has_colour, has_blocks=has_blocks)
        lines = None if above is None else _with_texts_below(above, table, width)
    if lines is None and len(table.rows) > FOLDED_HERE_MIN:
        lines = folded_lines(table, width, has_colour=has_colour)
    return lines


def without_a_dispensable(table: Table) -> Table | None:
    """Return a table without the last of its dispensable columns; None if it has none."""
    last = max((i for i, column in enumerate(table.columns) if column.is_dispensable), default=None)
    if last is None:
        return None
    kept = [index for index in range(len(table.columns)) if index != last]
    return Table(tuple(table.columns[i] for i in kept), [tuple(row[i] for i in kept) for row in table.rows])


def folded_lines(table: Table, width: int, *, has_colour: bool) -> Iterator[str] | None:
    """Return the lines of a table with texts folded to fit, without drawings; None if figures alone are too wide."""
    rows = [
        [
            _Cell(human_text(column.kind, row[index]), column.tone_in(row, index))
            for index, column in enumerate(table.columns)
        ]
        for row in table.rows
    ]
    headings = [_Cell(column.heading, Tone.STRONG) for column in table.columns]
    widths = [max(_length(cell.text) for cell in cells) for cells in zip(headings, *rows, strict=True)]
    texts = [index for index, column in enumerate(table.columns) if column.kind not in RIGHT]
    for _ in range(sum(widths) + _GAP * (len(widths) - 1) - width):
        widest = max(texts, key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= _FOLDED_WIDTH_MIN:
            return None
        widths[widest] -= 1
    rights = [column.kind in RIGHT for column in table.columns]
    return _folded(headings, rows, widths, rights, has_colour=has_colour)


def block_lines(table: Table, width: int, *, has_colour: bool) -> Iterator[str]:
    """Return the lines of a table whose rows are too wide: a block for each row, with a line for each value."""
    name_width = max(_length(column.heading) for column in table.columns)
    widths = [name_width, max(1, width - name_width - _GAP)]
    for number, row in enumerate(table.rows):
        if number:
            yield ""
        for index, column in enumerate(table.columns):
            value = _Cell(human_text(column.kind, row[index]), column.tone_in(row, index))
            for line in _folded_row([_Cell(column.heading, Tone.QUIET), value], widths):
                yield _line(line, widths, [False, False], has_colour=has_colour)


def _folded(
    headings: list[_Cell], rows: list[list[_Cell]], widths: list[int], rights: list[bool], *, has_colour: bool
) -> Iterator[str]:
    for number, row in enumerate([headings, *rows]):
        for line in _folded_row(row, widths):
            yield _line(line, widths, rights, has_colour=has_colour)
        if not number:
            yield _RULE * (sum(widths) + _GAP * (len(widths) - 1))


def _folded_row(row: list[_Cell], widths: list[int]) -> Iterator[list[_Cell]]:
    if all(_length(cell.text) <= width for cell, width in zip(row, widths, strict=True)):
        yield row
        return
    pieces = [_chopped(cell.text, width) for cell, width in zip(row, widths, strict=True)]
    for texts in zip_longest(*pieces, fillvalue=""):
        yield [_Cell(text, cell.tone) for text, cell in zip(texts, row, strict=True)]


def _chopped(text: str, width: int) -> list[str]:
    if not text.isascii():
        return chop_cells(text, width)
    return [text[at : at + width] for at in range(0, max(len(text), 1), width)]


def _with_texts_below(lines: Iterator[str], table: Table, width: int) -> Iterator[str]:
    yield from islice(lines, _HEADING_LINES)
    for line, row in zip(lines, table.rows, strict=True):
        yield line
        if row[-1]:
            text = human_text(table.columns[-1].kind, row[-1])
            yield from textwrap.wrap(text, width, initial_indent=_INDENT, subsequent_indent=_INDENT)


def _fitting_lines(table: Table, width: int, *, has_colour: bool, has_blocks: bool) -> Iterator[str] | None:
    figures = [[human_text(column.kind, row[i]) for row in table.rows] for i, column in enumerate(table.columns)]
    widths = [max(map(_length, cells), default=0) for cells in figures]
    drawn = _drawn_widths(table.columns, widths, width)
    whole = [
        max(_length(column.heading), figure + (1 + extra if extra else 0))
        for column, figure, extra in zip(table.columns, widths, drawn, strict=True)
    ]
    if sum(whole) + _GAP * (len(whole) - 1) > width:
        return None
    cells = _cells(table, figures, widths, drawn, has_blocks=has_blocks)
    return _lines(table.columns, cells, whole, drawn, has_colour=has_colour)


def _drawn_widths(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    heats = sum(HEAT_WIDTH + 1 for column in columns if column.drawing is Drawing.HEAT)
    needed = sum(max(figure, _length(column.heading)) for figure, column in zip(widths, columns, strict=True))
    bars = bar_width(columns, width - needed - heats - _GAP * (len(columns) - 1))
    return [
        HEAT_WIDTH if column.drawing is Drawing.HEAT else bars if column.drawing is Drawing.BAR else 0
        for column in columns
    ]


def _cells(
    table: Table, figures: Sequence[Sequence[str]], widths: Sequence[int], drawn: Sequence[int], *, has_blocks: bool
) -> Iterator[list[_Cell]]:
    scales = Scales(table)
    for number, row in enumerate(table.rows):
        line = []
        for index, column in enumerate(table.columns):
            text, tone = figures[index][number], column.tone_in(row, index)
            if drawn[index]:
                drawing, heat_tone = scales.drawn(column, row[index], drawn[index], has_blocks=has_blocks)
                text = f"{' ' * (widths[index] - _length(text))}{text} {drawing}"
                tone = tone or heat_tone
            line.append(_Cell(text, tone))
        yield line


def _lines(
    columns: Sequence[Column],
    rows: Iterator[list[_Cell]],
    widths: Sequence[int],
    drawn: Sequence[int],
    *,
    has_colour: bool,
) -> Iterator[str]:
    rights = [column.kind in RIGHT and not extra for column, extra in zip(columns, drawn, strict=True)]
    headings = [_Cell(column.heading, Tone.STRONG) for column in columns]
    yield _line(headings, widths, rights, has_colour=has_colour)
    yield _RULE * (sum(widths) + _GAP * (len(widths) - 1))
    for row in rows:
        yield _line(row, widths, rights, has_colour=has_colour)


def _line(cells: Sequence[_Cell], widths: Sequence[int], rights: Sequence[bool], *, has_colour: bool) -> str:
    padded = []
    for cell, width, is_right in zip(cells, widths, rights, strict=True):
        space = " " * (width - _length(cell.text))
        text = _styled(cell) if has_colour else cell.text
        padded.append(space + text if is_right else text + space)
    return (" " * _GAP).join(padded).rstrip(" ")


def _styled(cell: _Cell) -> str:
    return cell.text if cell.tone is None else _STYLES[cell.tone].render(cell.text, color_system=ColorSystem.STANDARD)


def _length(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


_STYLES = {tone: Style.parse(tone.value) for tone in Tone}
