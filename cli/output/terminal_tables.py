"""Renders sections and tables for a terminal, with rich. Loaded only for ``--output table``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from cli.output.report import Column, Fields, Kind, Report, Section, Table
from cli.output.terminal import TerminalView, can_show_blocks
from cli.output.terminal_grid import grid_lines, without_a_dispensable
from cli.output.values import RIGHT, escape_controls, human_text


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
    # Cells are padded to the column's width; at the end of a line that is of no use to anybody.
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
