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


def parsed(text: str) -> dict[str, str] | str:
    try:
        return parse_properties(text)
    except ConfigError as error:
        assert "Line 1: Malformed" in str(error)
        return "error"


def test_reads_as_java() -> None:
    expected = {case["text"]: case.get("properties", "error") for case in CASES}
    assert {text: parsed(text) for text in expected} == expected


def test_names_the_line_of_an_error() -> None:
    with pytest.raises(ConfigError, match="Line 3"):
        parse_properties("a=1\n\nb=\\u12")


def test_writes_escapes() -> None:
    assert format_properties({"a b": " x", "c": "ü=1"}) == "a\\ b=\\ x\nc=\\u00FC\\=1\n"


# Half of a surrogate pair is not a character. Java would keep it, we replace it.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_reads_back_what_it_writes(properties: dict[str, str]) -> None:
    written = format_properties(properties)
    assert written.isascii()
    assert parse_properties(written) == properties
