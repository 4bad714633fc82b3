"""Java's properties files, compared with what java.util.Properties read from the same texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.common.errors import ConfigError
from engine.kafka.config.properties import format_properties, parse_properties

CASES = json.loads((Path(__file__).parents[3] / "fixtures" / "config" / "java-properties.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case["text"]))
def test_reads_as_java(case: dict[str, object]) -> None:
    if "error" in case:
        with pytest.raises(ConfigError, match="Line 1: Malformed"):
            parse_properties(str(case["text"]))
    else:
        assert parse_properties(str(case["text"])) == case["properties"]


def test_names_the_line_of_an_error() -> None:
    with pytest.raises(ConfigError, match="Line 3"):
        parse_properties("a=1\n\nb=\\u12")


def test_writes_comment_and_escapes() -> None:
    assert (
        format_properties({"a b": " x", "c": "ü=1"}, "first\nsecond") == "#first\n#second\na\\ b=\\ x\nc=\\u00FC\\=1\n"
    )


# Half of a surrogate pair is not a character. Java would keep it, we replace it.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_reads_back_what_it_writes(properties: dict[str, str]) -> None:
    written = format_properties(properties, "a comment")
    assert written.isascii()
    assert parse_properties(written) == properties
