"""Values as text, reports in every format; without a cluster."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import yaml
from golden import printed
from hypothesis import given
from hypothesis import strategies as st

from cli.framework.progress import progress_line
from cli.output.format import OutputFormat
from cli.output.printer import json_text
from cli.output.report import Column, Fields, Kind, Report, Section, Table, Tone
from cli.output.values import escape_controls, human_duration, human_text, iso_time, json_value


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Thing:
    name: str
    sizes: tuple[int, ...]
    colour: Colour
    seen: datetime
    nothing: None = None


MOMENT = datetime(2026, 11, 21, 13, 14, 51, 549_999, timezone(timedelta(hours=1)))
THING = Thing("a\tb", (1, 2), Colour.RED, MOMENT)
TABLE = Table(
    (Column("name"), Column("sizes", Kind.LIST), Column("seen", Kind.TIME), Column("hidden", in_plain=False)),
    [("a\tb", (1, 2), MOMENT, "x"), ("c", (), None, "x")],
)


def test_times_are_utc_with_milliseconds() -> None:
    assert iso_time(MOMENT) == "2026-11-21T12:14:51.549Z"
    assert iso_time(datetime(1970, 1, 1, tzinfo=UTC)) == "1970-01-01T00:00:00.000Z"


def test_json_of_a_value() -> None:
    expected = {"name": "a\tb", "sizes": [1, 2], "colour": "red", "seen": "2026-11-21T12:14:51.549Z", "nothing": None}
    assert json_value(THING) == expected
    assert json_value({"set": {3, 1}, Path("p"): Path("q")}) == {"set": [1, 3], "p": "q"}
    with pytest.raises(TypeError):
        json_value(object())


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


@given(value=values)
def test_indented_json_is_json(value: object) -> None:
    assert json.loads(json_text(value)) == value
    assert json.loads(json_text(value, is_indented=False)) == value


def test_lists_of_plain_values_stay_on_a_line() -> None:
    assert json_text({"isr": [1, 2], "more": [{"a": 1}]}) == (
        '{\n  "isr": [1, 2],\n  "more": [\n    {\n      "a": 1\n    }\n  ]\n}'
    )


def test_plain_has_a_line_per_row_whatever_is_in_it() -> None:
    assert printed(Report([THING], TABLE), OutputFormat.PLAIN) == ("a\\tb\t1,2\t2026-11-21T12:14:51.549Z\nc\t-\t-\n")


def test_csv_can_be_read_back() -> None:
    rows = list(csv.reader(io.StringIO(printed(Report([THING], TABLE), OutputFormat.CSV))))
    assert rows[0] == ["name", "sizes", "seen", "hidden"]
    assert rows[1] == ["a\tb", "1,2", "2026-11-21T12:14:51.549Z", "x"]
    assert rows[2] == ["c", "", "", "x"]


def test_jsonl_has_a_line_per_item() -> None:
    assert len(printed(Report([THING, THING], TABLE), OutputFormat.JSONL).splitlines()) == 2
    assert len(printed(Report(THING, TABLE), OutputFormat.JSONL).splitlines()) == 1


def test_yaml_is_the_same_value() -> None:
    assert yaml.safe_load(printed(Report([THING], TABLE), OutputFormat.YAML)) == [
        json.loads(json.dumps(json_value(THING)))
    ]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["no", "1", "~", "a b"])
TREES = st.recursive(
    SCALARS, lambda below: st.lists(below) | st.dictionaries(st.text(max_size=20), below), max_leaves=20
)


@given(tree=TREES)
def test_any_value_is_read_back_from_json(tree: object) -> None:
    assert repr(json.loads(json_text(tree))) == repr(tree)


def test_what_a_person_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    sections = (
        Section("Title", TABLE, ["a line [not markup]"]),
        Section(body=Fields([("size", 3), ("none", None)])),
    )
    text = printed(Report([THING], TABLE, sections), OutputFormat.TABLE)
    lines = text.splitlines()
    assert lines[:3] == ["Title", "a line [not markup]", "Name  Sizes  Seen                      Hidden"]
    assert "a\\tb" in text
    assert lines[-2:] == ["size  3", "none  -"]
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    ("duration", "text"),
    [(0, "0ms"), (350, "350ms"), (61_000, "1m 1s"), (604_800_000, "7d"), (90_061_000, "1d 1h"), (-5000, "-5s")],
)
def test_durations(duration: int, text: str) -> None:
    assert human_duration(duration) == text


def test_cells_for_people() -> None:
    assert human_text(Kind.FLAG, True) == "yes"
    assert human_text(Kind.LIST, []) == "-"
    assert human_text(Kind.BYTES, 2048) == "2.0 kB"
    assert human_text(Kind.TEXT, {"a": "1"}) == "a=1"


@given(text=st.text())
def test_no_text_moves_the_cursor(text: str) -> None:
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in escape_controls(text))


def test_progress() -> None:
    assert progress_line("sent", "records", 10, None, 2.0) == "sent 10 records (5/s)"
    line = progress_line("moved", "MB", 25, 100, 5.0)
    assert line == "moved 25 of 100 MB [######------------------] 5/s, 15 s left"
    assert progress_line("moved", "MB", 0, 100, 0.0).endswith("0/s")


def test_markdown_has_what_a_person_sees_and_no_markup_of_the_data() -> None:
    shown = Table((Column("topic_name"), Column("size", Kind.BYTES)), [("a_b|c*", 2048), (None, None)])
    sections = (Section("Of `t`", shown, ("two lines", "of text")), Section(body=Fields([("a_b", 3)])))
    text = printed(Report([], TABLE, sections), OutputFormat.MARKDOWN)
    assert text.splitlines() == [
        "### Of \\`t\\`",
        "",
        "two lines  ",
        "of text",
        "",
        "| Topic name   |   Size |",
        "|:-------------|-------:|",
        "| a\\_b\\|c\\*    | 2.0 kB |",
        "| -            |      - |",
        "",
        "|      |    |",
        "|:-----|:---|",
        "| a\\_b | 3  |",
    ]
    assert printed(Report([], TABLE), OutputFormat.MARKDOWN).splitlines()[0].startswith("| Name")


def test_a_table_takes_the_attributes_that_its_columns_name() -> None:
    table = Table.of((Column("name"), Column("colour"), Column("nothing"), Column("sizes", Kind.LIST)), [THING])
    assert table.records() == [{"name": "a\tb", "colour": Colour.RED, "nothing": None, "sizes": (1, 2)}]
    with pytest.raises(AttributeError, match="size_bytes"):
        Table.of((Column("size_bytes"),), [THING])


def test_a_table_leaves_out_only_the_empty_columns_that_may_go() -> None:
    columns = tuple(map(Column, ("name", "flag", "flags", "none", "zero", "list")))
    table = Table(columns, [("a", False, False, None, 0, ()), ("b", False, True, None, 0, [])])
    shown = table.unless_empty("flag", "flags", "none", "zero", "name")
    assert list(shown.records()[0]) == ["name", "flags", "zero", "list"]
    assert list(table.without_empty(keeps=("none",)).records()[0]) == ["name", "flags", "none", "zero"]
    assert table.with_only({"zero", "name"}).rows == [("a", 0), ("b", 0)]


@pytest.mark.parametrize(
    ("tone", "tones"),
    [
        (None, [None, None, None]),
        (Tone.BAD, [Tone.BAD, None, None]),
        ({Colour.RED: Tone.GOOD, None: Tone.QUIET}, [Tone.GOOD, Tone.QUIET, None]),
        (lambda value: Tone.COLD if value == 0 else None, [None, None, Tone.COLD]),
    ],
)
def test_a_value_has_the_tone_of_its_column(tone: Any, tones: list[Tone | None]) -> None:
    column = Column("value", tone=tone)
    assert [column.tone_in((value,), 0) for value in (Colour.RED, None, 0)] == tones
