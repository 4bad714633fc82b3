"""Figures, sparklines and lines as text. Without Textual."""

from __future__ import annotations

import pytest

from tui.drawing import units
from tui.drawing.cells import Tone
from tui.drawing.lines import fitted, folded, line, text_of, width_of, wrapped
from tui.drawing.sparkline import ceiling_of, sparkline
from tui.pages.groups import groups_text
from tui.themes import ascii_text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (0, "0"), (999, "999"), (999.6, "1.0k"), (12_345, "12.3k"), (99_960, "100k"), (1_200_000, "1.2M")],
)
def test_short_counts_fit_into_five_characters(value: float | None, text: str) -> None:
    assert units.short_count(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "—"), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (5 * 10**9, "5.0 GB")]
)
def test_sizes_have_decimal_units(value: int | None, text: str) -> None:
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "—"), (0.34, "0.3s"), (59.9, "59s"), (61, "1m 1s"), (7_260, "2h 1m"), (-5, "-5s")]
)
def test_spans_have_two_units(seconds: float | None, text: str) -> None:
    assert units.span(seconds) == text


def test_control_characters_cannot_reach_the_terminal() -> None:
    text = units.plain("a\x1b]0;title\x07\n\u202eb\tc")
    assert text.isprintable()
    assert text == "a\\x1b]0;title\\x07\\n\N{REPLACEMENT CHARACTER}b\\tc"


def test_a_sparkline_stands_on_zero() -> None:
    assert sparkline([5, 5, 5], 3) == "███", "flat at 5 is full"
    assert sparkline([0, 0, 0], 3) == "___", "flat at 0 is the floor, not full"
    assert sparkline([100, 101], 2) == "██", "a change of a percent is no swing"
    assert sparkline([1, 1000], 2) == "▁█", "what is there is never invisible"


def test_missing_values_are_gaps_and_the_newest_is_at_the_right() -> None:
    assert sparkline([4, None, 8], 5, top=8) == "  ▄ █"
    assert sparkline([1, 2, 4], 2) == "▄█"


def test_charts_with_one_scale_can_be_compared() -> None:
    assert sparkline([2], 1, top=8) == "▂"
    assert sparkline([8], 1, top=8) == "█"


def test_a_chart_has_air_above_its_line() -> None:
    assert [ceiling_of(value) for value in (None, 0, 0.2, 1, 3.4, 34, 990, 7_600)] == [
        1,
        1,
        1,
        1.5,
        5,
        50,
        1_000,
        10_000,
    ]


def test_lines_are_cut_with_an_ellipsis_in_the_width_there_is() -> None:
    cut = fitted(line("abc", ("defgh", Tone.BAD)), 5)
    assert cut == (("abc", Tone.PLAIN), ("d…", Tone.BAD))
    assert width_of(fitted(line("日本語"), 4)) == 4
    assert width_of(fitted(line("a"), 4)) == 4
    assert [text for text, _ in fitted(line("one, two"), 6)] == ["one…  "], "no comma before the ellipsis"


def test_pieces_wrap_where_the_next_would_not_fit() -> None:
    pieces = [line("aaaa"), line("bbbb"), line("cc")]
    assert [width_of(line) for line in wrapped(pieces, 11)] == [11, 2]


def test_a_terminal_without_utf8_gets_ascii_of_the_same_width() -> None:
    assert ascii_text("● live — 3 → 1 █▁") == "* live - 3 > 1 #."
    assert ascii_text("日") == "??"


def test_a_line_that_is_too_long_is_folded_at_blanks_and_loses_nothing() -> None:
    one = line(("apply plan.json ", Tone.STRONG), "in a-cluster-with-a-very-long-name: 8 partitions")
    told = ["".join(text for text, _ in part) for part in folded(one, 20)]
    assert told == ["apply plan.json in ", "a-cluster-with-a-ver", "y-long-name: 8 ", "partitions"]
    assert folded(one, 200) == [one]
    assert folded(one, 20)[0][0] == ("apply", Tone.STRONG)
    assert "".join("".join(text for text, _ in part) for part in folded(line("x" * 45), 20)) == "x" * 45
    indented = ["".join(text for text, _ in part) for part in folded(line("    topic audit: ", "x" * 30), 20)]
    assert indented == ["    topic audit: ", "    " + "x" * 16, "    " + "x" * 14]
    advice = line(("what to do  ", Tone.QUIET), "check the process")
    assert [text_of(part) for part in folded(advice, 24)] == ["what to do  check the", " " * 12 + "process"]


@pytest.mark.parametrize(("number", "told"), [(0, "0 topics"), (1, "1 topic"), (12_345, "12 345 topics")])
def test_one_thing_is_not_called_several(number: int, told: str) -> None:
    assert units.counted(number, "topic") == told


def test_groups_and_how_far_they_are_behind_are_told_in_words() -> None:
    assert groups_text(1, 1) == "1 group, 1 record behind"
    assert groups_text(2, 1200) == "2 groups, 1 200 records behind"
    assert groups_text(2, 1200, is_least=True) == "2 groups, at least 1 200 records behind"
    assert groups_text(2, None) == "2 groups, lag not known"
