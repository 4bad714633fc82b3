"""Policies: every rule is read, and everything that is not understood is reported with its line."""

from __future__ import annotations

import json
import tomllib
from contextlib import nullcontext
from pathlib import Path

import jsonschema
import pytest

from plans.policy import _KEYS, BadPolicy, parse_policy

SCHEMA_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "policy.schema.json"

WHOLE = """\
# what we allow
[limits]
moves = 100
bytes = "500 GB"
leader_changes = 40
time = "4h"

[placement]
rack_violations = 0
replication_factor_min = 2
replication_factor_max = 3

[brokers]
forbidden = [7, 8]

[brokers.capacity]
7 = "2 TB"
"8" = 10

[log_dirs.capacity]
"7:/data/a.b" = "500 GB"
"7:/data/c" = 20

[topics]
forbidden = ["payments.*"]
"""


def test_every_rule_is_read_with_its_line() -> None:
    policy = parse_policy(WHOLE)
    assert (policy.moves, policy.bytes, policy.leader_changes, policy.time_s) == (100, 5 * 10**11, 40, 14400)
    assert policy.rack_violations == 0
    assert (policy.replication_factor_min, policy.replication_factor_max) == (2, 3)
    assert policy.forbidden_brokers == {7, 8}
    assert policy.capacities == {7: 2 * 10**12, 8: 10}
    assert policy.log_dir_capacities == {(7, "/data/a.b"): 5 * 10**11, (7, "/data/c"): 20}
    assert policy.forbidden_topics == ("payments.*",)
    for rule, line in {
        "limits.moves": 3,
        "limits.time": 6,
        "brokers.capacity.8": 18,
        "log_dirs.capacity.7:/data/a.b": 21,
        "topics.forbidden": 25,
    }.items():
        assert policy.lines[rule] == policy.line_of(rule) == line


def test_a_rule_of_an_inline_table_has_the_line_of_the_table() -> None:
    policy = parse_policy('[limits]\nmoves = 1\n[log_dirs]\ncapacity = {"7:/a.b" = 1}\n')
    assert (policy.log_dir_capacities, policy.line_of("log_dirs.capacity.7:/a.b")) == ({(7, "/a.b"): 1}, 4)


def test_an_empty_one_allows_all() -> None:
    policy = parse_policy("")
    assert (policy.moves, policy.forbidden_brokers, policy.capacities, policy.needs_sizes) == (None, set(), {}, False)


@pytest.mark.parametrize(
    "line",
    ["[limits]\nbytes = 1", '[limits]\ntime = "1h"', "[brokers.capacity]\n1 = 1", '[log_dirs.capacity]\n"1:/a" = 1'],
)
def test_rules_of_bytes_need_sizes(line: str) -> None:
    assert parse_policy(line).needs_sizes


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("[limits]\nmoves = 1\nmovs = 1\n", 3, "unknown key 'movs'"),
        ("\n[limit]\nmoves = 1\n", 2, "unknown key 'limit'"),
        ("moves = 1\n", 1, "unknown key 'moves'"),
        ('[brokers]\ncapacty = "1 TB"\n', 2, "unknown key 'capacty'"),
        ("[limits]\n\nmoves = -1\n", 3, "limits.moves must be a number, 0 or more, not -1"),
        ("[limits]\nmoves = true\n", 2, "limits.moves must be a number"),
        ('[limits]\nmoves = "1"\n', 2, "limits.moves must be a number"),
        ('[limits]\nbytes = "much"\n', 2, "limits.bytes must be a size"),
        ('[limits]\ntime = "soon"\n', 2, "limits.time must be a duration"),
        ('[brokers]\nforbidden = ["a"]\n', 2, "brokers.forbidden must be a list of broker ids"),
        ('[brokers]\ncapacity = "1"\n', 2, "brokers.capacity must be broker ids with sizes"),
        ('[brokers.capacity]\n1 = 1\n2 = "x"\n', 3, "brokers.capacity.2 must be a size"),
        ('[brokers.capacity]\n1 = 1\n"\u00b2" = 1\n', 3, "brokers.capacity must be broker ids with sizes"),
        ('[log_dirs]\ncapacity = "1"\n', 2, "log_dirs.capacity must be brokers and log dirs with sizes"),
        ('[log_dirs.capacity]\n"1:/a" = 1\n"/b" = 1\n', 3, "log_dirs.capacity must be brokers and log dirs with sizes"),
        ('[log_dirs.capacity]\n"1:" = 1\n', 2, "log_dirs.capacity must be brokers and log dirs with sizes"),
        ('[log_dirs.capacity]\n"1:/a" = "x"\n', 2, "log_dirs.capacity.1:/a must be a size"),
        ("[log_dirs]\ncapacty = 1\n", 2, "unknown key 'capacty'"),
        ('[topics]\nforbidden = "a"\n', 2, "topics.forbidden must be a list"),
        ('[topics]\nforbidden = ["("]\n', 2, "topics.forbidden must be a regular expression"),
        ("[limits]\nmoves =\n", 2, "not TOML"),
        ("[limits]\nmoves = 1\nmoves = 2\n", 3, "not TOML"),
    ],
)
def test_what_nobody_understands_is_told_with_its_line(text: str, line: int, expected: str) -> None:
    with pytest.raises(BadPolicy) as raised:
        parse_policy(text)
    assert (raised.value.line, str(raised.value)[: len(expected)]) == (line, expected)


def test_an_unknown_key_comes_with_those_that_are_known() -> None:
    with pytest.raises(BadPolicy) as raised:
        parse_policy("[limits]\nmovs = 1\n")
    assert raised.value.hint == "known here: moves, bytes, leader_changes, time"


def test_the_schema_knows_the_keys_that_the_parser_knows() -> None:
    schema = json.loads(SCHEMA_PAGE.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    sections = schema["properties"]
    assert {name: tuple(section["properties"]) for name, section in sections.items()} == dict(_KEYS)
    assert not any(section["additionalProperties"] for section in (schema, *sections.values()))


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        (WHOLE, True),
        ("", True),
        ('[limits]\nbytes = 1\ntime = 90\n[cluster]\nunchanged = true\n[brokers]\ncapacity = {"7" = 1}\n', True),
        ("[limit]\nmoves = 1\n", False),
        ("moves = 1\n", False),
        ("[limits]\nmoves = -1\n", False),
        ("[limits]\nmoves = true\n", False),
        ('[limits]\nmoves = "1"\n', False),
        ('[brokers]\nforbidden = ["a"]\n', False),
        ('[brokers]\ncapacity = "1"\n', False),
        ('[brokers.capacity]\na = "1 TB"\n', False),
        ('[log_dirs.capacity]\n"/b" = 1\n', False),
        ('[log_dirs.capacity]\n"1:" = 1\n', False),
        ('[topics]\nforbidden = "a"\n', False),
        ("[cluster]\nunchanged = 1\n", False),
    ],
)
def test_the_schema_and_the_parser_agree(text: str, is_right: bool) -> None:
    schema = json.loads(SCHEMA_PAGE.read_text("utf-8"))
    assert jsonschema.Draft202012Validator(schema).is_valid(tomllib.loads(text)) == is_right
    with nullcontext() if is_right else pytest.raises(BadPolicy):
        parse_policy(text)
