"""The rules of kafka-get-offsets, as values: which partitions, and which points of their logs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.cluster.errors import BadRequest
from engine.admin.offsets.selection import parse_offset_time, select_partitions
from engine.common.model import TopicPartition

KNOWN = {"ct": [0, 1, 2], "foo": [0, 1, 2], "t1": [0, 1, 2], "__consumer_offsets": [0]}


def chosen(*topics: str, partitions: str | None = None, rules: str | None = None, internal: bool = True) -> list[str]:
    selection = select_partitions(topics, partitions, rules, exclude_internal=not internal)
    return [str(name) for name in selection.choose(KNOWN)]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        # The answer of kafka-get-offsets 3.9.1 to this is recorded.
        ("ct:0,foo:1-,t.*:-2", ["ct-0", "foo-1", "foo-2", "t1-0", "t1-1"]),
        ("ct", ["ct-0", "ct-1", "ct-2"]),
        ("ct:1-2", ["ct-1"]),
        ("ct:", ["ct-0", "ct-1", "ct-2"]),
        (":2", ["ct-2", "foo-2", "t1-2"]),
        ("ct:-", ["ct-0", "ct-1", "ct-2"]),
        ("ct:2-1", []),
        ("c", []),
        ("ct:0,ct:0", ["ct-0"]),
    ],
)
def test_rules(rules: str, expected: list[str]) -> None:
    assert chosen(rules=rules) == expected


def test_topics_with_partitions() -> None:
    assert chosen("ct", partitions="0,2") == ["ct-0", "ct-2"]
    assert chosen("c.*|foo", partitions="2") == ["ct-2", "foo-2"]
    assert chosen(partitions="1") == ["ct-1", "foo-1", "t1-1"]
    assert len(chosen()) == 10
    assert len(chosen(internal=False)) == 9
    assert chosen("__consumer_offsets", internal=False) == []


@pytest.mark.parametrize(
    ("topics", "partitions", "rules", "message"),
    [
        (["ct"], None, "ct:0", "topic partitions cannot be used with topic or partitions"),
        ([], "0", "ct:0", "topic partitions cannot be used with topic or partitions"),
        ([], None, "ct:x", "invalid rule: 'ct:x'"),
        ([], None, "ct:0:1", "invalid rule"),
        ([], None, "ct:1--2", "invalid rule"),
        ([], None, "(:1", "not a regular expression"),
        (["("], None, None, "not a regular expression"),
        (["ct"], "0,x", None, "not a list of partitions"),
        (["ct"], "-1", None, "counted from 0"),
        (["ct"], "", None, "not a list of partitions"),
    ],
)
def test_what_is_not_well_formed(topics: list[str], partitions: str | None, rules: str | None, message: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(message)):
        select_partitions(topics, partitions, rules)


def test_rules_that_match_nothing_are_named() -> None:
    selection = select_partitions([], None, "ct:0,absent,foo:7-9,foo:5-,t1:9")
    choice = selection.choose(KNOWN)
    assert list(map(str, selection.unmatched(choice))) == ["absent", "foo:7-9", "foo:5-", "t1:9"]


@given(st.integers(0, 9), st.integers(0, 9))
def test_the_end_of_a_range_is_not_in_it(low: int, high: int) -> None:
    selection = select_partitions([], None, f"t:{low}-{high}")
    assert selection.choose({"t": range(10)}) == [TopicPartition("t", index) for index in range(low, high)]


@pytest.mark.parametrize(
    ("text", "timestamp", "version"),
    [
        ("latest", -1, 0),
        ("-1", -1, 0),
        ("earliest", -2, 0),
        ("max-timestamp", -3, 7),
        ("-4", -4, 8),
        ("latest-tiered", -5, 9),
        ("0", 0, 1),
        ("1700000000000", 1_700_000_000_000, 1),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000, 1),
        ("2023-11-14T22:13:20", 1_700_000_000_000, 1),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000, 1),
        (" latest ", -1, 0),
    ],
)
def test_times(text: str, timestamp: int, version: int) -> None:
    moment = parse_offset_time(text)
    assert (moment.timestamp, moment.version_min) == (timestamp, version)


@pytest.mark.parametrize("text", ["noon", "-6", "", "1.5", "9223372036854775808", "2023-13-01", "Latest"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(BadRequest, match="not a time"):
        parse_offset_time(text)
