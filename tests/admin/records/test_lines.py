"""Lines of text and JSON as records."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.views.records import record_fields
from engine.admin.cluster.errors import BadRequest
from engine.admin.records.fetching import ConsumedRecord
from engine.admin.records.lines import LineFormat, parse_header, parse_json_line, parse_line, split_lines
from engine.kafka.protocol.records.attributes import TimestampType
from engine.kafka.protocol.records.record import Record

NOW = 1_700_000_000_123


def test_a_line_is_a_value() -> None:
    assert parse_line(b"hello world", 1, LineFormat(), NOW) == Record(-1, NOW, None, b"hello world")
    assert parse_line(b"", 1, LineFormat(), NOW).value == b""


def test_key_headers_and_null() -> None:
    rules = LineFormat(b":", True, b"NULL", (("fixed", b"1"),))
    record = parse_line(b"a:1,b:2\tk:NULL", 1, rules, NOW)
    assert record == Record(-1, NOW, b"k", None, [("fixed", b"1"), ("a", b"1"), ("b", b"2")])
    assert parse_line(b"\tNULL:v:w", 1, rules, NOW) == Record(-1, NOW, None, b"v:w", [("fixed", b"1")])


def test_headers_may_be_null_or_left_out() -> None:
    rules = LineFormat(has_headers=True, null_marker=b"NULL")
    assert parse_line(b"a:NULL,b:\tv", 1, rules, NOW).headers == [("a", None), ("b", b"")]
    assert parse_line(b"NULL\tv", 1, rules, NOW) == Record(-1, NOW, None, b"v", [])


def test_other_separators_as_kafkas_tool_takes_them() -> None:
    rules = LineFormat(b"->", True, headers_end=b"|", header_separator=b";", header_name_end=b"=")
    record = parse_line(b"a=1;b=2:3|k->v", 1, rules, NOW)
    assert record == Record(-1, NOW, b"k", b"v", [("a", b"1"), ("b", b"2:3")])


def test_a_line_without_separators_is_a_value_where_errors_are_ignored() -> None:
    rules = LineFormat(b":", True, takes_all=True)
    assert parse_line(b"value", 1, rules, NOW) == Record(-1, NOW, None, b"value", [])
    assert parse_line(b"a,b:1\tvalue", 1, rules, NOW).headers == [("a", None), ("b", b"1")]
    assert parse_line(b"\tvalue", 1, rules, NOW).headers == [("", None)]


@pytest.mark.parametrize(
    ("line", "rules", "message"),
    [
        (b"N:1\tv", LineFormat(has_headers=True, null_marker=b"N"), "the name of a header is the null marker"),
        (b"a:1\tv", LineFormat(has_headers=True, header_name_end=b"="), "NAME=VALUE"),
        (b"x", LineFormat(has_headers=True, headers_end=b"|"), "no '|' after"),
        (b"novalue", LineFormat(key_separator=b":"), "no key separator"),
        (b"x", LineFormat(has_headers=True), "no tab"),
        (b"x\tv", LineFormat(has_headers=True), "NAME:VALUE"),
    ],
)
def test_a_bad_line_is_named(line: bytes, rules: LineFormat, message: str) -> None:
    with pytest.raises(BadRequest, match=message) as bad:
        parse_line(line, 17, rules, NOW)
    assert bad.value.where == "line 17 of stdin"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 200_000,
        "3",
        '{"value": "v", "headers": [{}]}',
        '{"value": "!", "value_encoding": "base64"}',
        '{"value": "v", "partition": "0"}',
        '{"value": "v", "partition": true}',
        '{"value": "v", "timestamp": []}',
    ],
)
def test_bad_json_is_named(text: str) -> None:
    with pytest.raises(BadRequest, match="not a record in JSON"):
        parse_json_line(text.encode(), 2, NOW)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"key": "u1", "val": "x"}', "no field 'val'"),
        ('{"foo": 1, "value": "x"}', "no field 'foo'"),
        ("{}", "must have a value"),
        ('{"key": "u1"}', "must have a value"),
        ('{"value": "v", "headers": [{"key": "h", "val": "x"}]}', "no field 'val'"),
        ('{"value": "v", "headers": [{"key": "h"}]}', "must have a value"),
        ('{"value": "v", "value_encoding": "hex"}', "value_encoding"),
    ],
)
def test_a_misspelt_field_makes_no_tombstone(text: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message) as bad:
        parse_json_line(text.encode(), 2, NOW)
    assert bad.value.where == "line 2 of stdin"


def test_a_null_value_is_a_tombstone() -> None:
    assert parse_json_line(b'{"key": "u1", "value": null}', 1, NOW) == (Record(-1, NOW, b"u1", None), None)


def test_json_lines_have_headers_of_the_command_line_and_times_in_ms() -> None:
    line = b'{"value": {"a": 1}, "timestamp": 5, "headers": [{"key": "a", "value": null}]}'
    record, _ = parse_json_line(line, 1, NOW, (("fixed", b"1"),))
    assert record == Record(-1, 5, None, b'{"a": 1}', [("fixed", b"1"), ("a", None)])


def test_headers_of_the_command_line() -> None:
    assert parse_header("a=b=c") == ("a", b"b=c")
    assert parse_header("a") == ("a", None)


anything = st.binary(max_size=20) | st.none()
records = st.builds(
    Record,
    offset=st.integers(0, 2**40),
    timestamp_ms=st.integers(0, 4_000_000_000_000) | st.integers(0, 2**63 - 1),
    key=anything,
    value=anything,
    headers=st.lists(st.tuples(st.text(max_size=5), anything), max_size=3),
)


@given(record=records, partition=st.integers(0, 100))
def test_what_consume_prints_can_be_produced_again(record: Record, partition: int) -> None:
    fields = record_fields(ConsumedRecord("t", partition, record, TimestampType.CREATE_TIME))
    again, own_partition = parse_json_line(json.dumps(fields).encode(), 1, NOW)
    assert own_partition == partition
    assert (again.key, again.value, list(again.headers)) == (record.key, record.value, list(record.headers))
    assert again.timestamp_ms == record.timestamp_ms


@given(text=st.binary(max_size=60).map(lambda data: data.replace(b"\r", b"")), cuts=st.lists(st.integers(0, 60)))
def test_chunks_do_not_matter(text: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    lines, rest = [], b""
    for start, end in itertools.pairwise(places):
        complete, rest = split_lines(text[start:end], rest)
        lines += complete
    assert [*lines, rest] == text.split(b"\n")
