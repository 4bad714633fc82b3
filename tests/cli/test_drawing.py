"""Bars and heat in tables: their look, where they shrink, and that a table without them is rich's table."""

from __future__ import annotations

import io

import pytest
from golden import Terminal
from hypothesis import given, settings
from hypothesis import strategies as st
from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from cli.output.drawing import BAR_WIDTH_MAX, bar, heat
from cli.output.report import Column, Drawing, Kind, Report, Table, Tone
from cli.output.terminal_tables import FOLDED_HERE_MIN, RIGHT, grid_lines, print_sections
from cli.output.values import human_text


@pytest.mark.parametrize(
    ("share", "blocks", "plain"),
    [
        (0.0, "", ""),
        (0.001, "▏", "#"),
        (0.5, "████", "####"),
        (0.55, "████▍", "####"),
        (1.0, "████████", "########"),
        (7.0, "████████", "########"),
        (-1.0, "", ""),
    ],
)
def test_a_bar_is_as_long_as_its_share(share: float, blocks: str, plain: str) -> None:
    assert bar(share, 8, has_blocks=True) == blocks
    assert bar(share, 8, has_blocks=False) == plain


@pytest.mark.parametrize(
    ("share", "shade", "plain", "tone"),
    [
        (0.0, "··", "  ", Tone.QUIET),
        (0.5, "░░", "..", Tone.COLD),
        (1.0, "▒▒", "--", Tone.GOOD),
        (1.4, "▓▓", "++", Tone.WARNING),
        (3.0, "██", "##", Tone.BAD),
    ],
)
def test_heat_tells_the_distance_from_the_mean(share: float, shade: str, plain: str, tone: Tone) -> None:
    assert heat(share, has_blocks=True) == (shade, tone)
    assert heat(share, has_blocks=False) == (plain, tone)


BARS = Table(
    (Column("id", Kind.NUMBER), Column("size", Kind.BYTES, drawing=Drawing.BAR), Column("note")),
    [(1, 4096, "a"), (22, 1024, "b"), (3, 0, "c"), (4, None, "d")],
)


def lines_of(table: Table, width: int, *, has_blocks: bool = True) -> list[str] | None:
    lines = grid_lines(table, width, has_colour=False, has_blocks=has_blocks)
    return None if lines is None else list(lines)


def test_bars_stand_beside_their_figures() -> None:
    lines = lines_of(BARS, 41)
    assert lines is not None
    assert lines[2:] == [
        " 1  4.1 kB ████████████████████████  a",
        "22  1.0 kB ██████                    b",
        " 3     0 B                           c",
        " 4       -                           d",
    ]


def test_bars_shrink_and_go_before_figures_do() -> None:
    assert lines_of(BARS, 21) == [
        "Id  Size         Note",
        "─────────────────────",
        " 1  4.1 kB ████  a",
        "22  1.0 kB █     b",
        " 3     0 B       c",
        " 4       -       d",
    ]
    narrow = lines_of(BARS, 17)
    assert narrow is not None and not any("█" in line for line in narrow)
    assert lines_of(BARS, 13) is None
    wide = lines_of(BARS, 400)
    assert wide is not None and max(line.count("█") for line in wide) == BAR_WIDTH_MAX


def test_columns_of_one_scale_can_be_compared() -> None:
    columns = tuple(Column(name, Kind.NUMBER, drawing=Drawing.HEAT, scale="n") for name in ("before", "after"))
    lines = lines_of(Table(columns, [(10, 0), (10, 20)]), 40)
    assert lines is not None
    assert [line.split() for line in lines[2:]] == [["10", "▒▒", "0", "··"], ["10", "▒▒", "20", "██"]]


@pytest.mark.parametrize(
    ("term", "is_terminal", "has_blocks"), [("xterm", True, True), ("dumb", True, False), ("xterm", False, False)]
)
def test_blocks_are_for_terminals_that_can_show_them(
    monkeypatch: pytest.MonkeyPatch, term: str, is_terminal: bool, has_blocks: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal() if is_terminal else io.StringIO()
    print_sections(Report((), BARS), stream)
    assert ("█" in stream.getvalue()) == has_blocks
    assert ("#" in stream.getvalue()) != has_blocks


def test_free_text_that_does_not_fit_falls_below_its_row() -> None:
    columns = (Column("topic"), Column("error", falls_below=True))
    table = Table(columns, [("orders", None), ("payments", "the broker is dead and nobody knows why")])
    assert lines_of(table, 30) == [
        "Topic",
        "────────",
        "orders",
        "payments",
        "    the broker is dead and",
        "    nobody knows why",
    ]


def test_dispensable_columns_go_where_it_is_narrow() -> None:
    columns = (Column("topic"), Column("epoch", is_dispensable=True), Column("isr"), Column("zk", is_dispensable=True))
    table = Table(columns, [("orders", "1", "0,1", "9")])
    headings = [(lines_of(table, width) or [""])[0].split() for width in (30, 20, 14, 12, 8)]
    assert headings == [
        ["Topic", "Epoch", "Isr", "Zk"], ["Topic", "Epoch", "Isr"], ["Topic", "Isr"], ["Topic", "Isr"], [],
    ]  # fmt: skip


def test_texts_of_very_many_rows_are_folded_as_well() -> None:
    columns = (Column("topic"), Column("n", Kind.NUMBER), Column("note"))
    rows = [("orders.incoming.eu", number, "x") for number in range(FOLDED_HERE_MIN)]
    assert lines_of(Table(columns, rows), 20) is None, "rich does it"
    lines = lines_of(Table(columns, [*rows, ("Ωorders", 7, None)]), 20)
    assert lines is not None
    assert lines[1] == "─" * 20
    assert [line.split() for line in lines[2:4]] == [["orders.in", "0", "x"], ["coming.eu"]]
    assert lines[-1].split() == ["Ωorders", "7", "-"]
    assert max(map(len, lines)) <= 20
    assert (
        lines_of(Table((Column("a", Kind.NUMBER), *columns), [(10**12, *row) for row in [*rows, rows[0]]]), 20) is None
    )


def test_a_row_that_is_too_wide_even_when_folded_is_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure is cut and no text left out: what a row is about must be seen on every terminal."""
    columns = (Column("group"), Column("lag", Kind.NUMBER), Column("log_end_offset", Kind.NUMBER), Column("status"))
    rows = [("orders-by-country", 12, 1_234_567_890_123, "STOP"), ("g", None, 0, "OK")]
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", "1")
    drawn = Terminal()
    print_sections(Report([], Table(columns, rows)), drawn)
    assert drawn.getvalue().splitlines() == [
        "Group           orders-by-coun", "                try", "Lag             12", "Log end offset  1234567890123",
        "Status          STOP", "", "Group           g", "Lag             -", "Log end offset  0", "Status          OK",
    ]  # fmt: skip


KINDS = st.sampled_from([Kind.TEXT, Kind.NUMBER, Kind.BYTES, Kind.LIST, Kind.FLAG])
VALUES = {
    Kind.TEXT: st.one_of(st.none(), st.text(alphabet="abc-Ωé", max_size=8)),
    Kind.NUMBER: st.one_of(st.none(), st.integers(-10, 10**9)),
    Kind.BYTES: st.integers(0, 2**50),
    Kind.LIST: st.lists(st.integers(0, 99), max_size=4).map(tuple),
    Kind.FLAG: st.booleans(),
}


@st.composite
def tables(draw: st.DrawFn) -> Table:
    kinds = draw(st.lists(KINDS, min_size=1, max_size=5))
    columns = tuple(Column(f"column{index}", kind) for index, kind in enumerate(kinds))
    rows = draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), min_size=1, max_size=5))
    return Table(columns, rows)


@settings(max_examples=60, deadline=None)
@given(tables())
def test_a_table_that_fits_is_drawn_as_rich_draws_it(table: Table) -> None:
    drawn = io.StringIO()
    grid = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in table.columns:
        grid.add_column(column.heading, justify="right" if column.kind in RIGHT else "left")
    for row in table.rows:
        grid.add_row(*(human_text(c.kind, value) for c, value in zip(table.columns, row, strict=True)))
    Console(file=drawn, width=400, color_system=None, highlight=False, markup=False, emoji=False).print(grid)
    lines = lines_of(table, 400)
    assert lines is not None
    assert [line.rstrip(" ") for line in drawn.getvalue().splitlines()] == lines
