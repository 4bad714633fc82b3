"""A policy: what a team allows a plan to do. TOML, read strictly, each rule with its line.

[limits]
moves = 100                # replicas that are copied
bytes = "500 GB"
leader_changes = 40
time = "4h"                # at the plan's throttle

[placement]
rack_violations = 0        # partitions of the plan with two replicas in a rack, where there are racks enough
replication_factor_min = 3
replication_factor_max = 3

[brokers]
forbidden = [7, 8]         # never receive a replica
[brokers.capacity]
7 = "2 TB"                 # bytes of replicas when the plan is done

[log_dirs.capacity]
"7:/data/a" = "500 GB"     # the same, of one log dir

[topics]
forbidden = ["payments.*"] # regular expressions; the plan must not touch them

[cluster]
unchanged = true           # nothing of the planner's input has changed, not even beside the plan
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.common.quantities import parse_duration_s, parse_size
from plans.errors import PlanError

_KEYS: Mapping[str, tuple[str, ...]] = {
    "limits": ("moves", "bytes", "leader_changes", "time"),
    "placement": ("rack_violations", "replication_factor_min", "replication_factor_max"),
    "brokers": ("forbidden", "capacity"),
    "log_dirs": ("capacity",),
    "topics": ("forbidden",),
    "cluster": ("unchanged",),
}
_HEADER = re.compile(r"\s*+\[([^\[\]]++)\]")
_KEY = re.compile(r"""\s*+("[^"]*"|'[^']*'|[\w-]++(?:\s*+\.\s*+[\w-]++)*+)\s*+=""")
_TOML_LINE = re.compile(r"\(at line (\d+), column \d+\)")


class BadPolicy(PlanError):
    """The policy file says something unknown; ``line`` is where."""

    def __init__(self, message: str, line: int, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.line = line


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules; None and empty rules allow everything. ``lines``: the line of each rule, such as ``limits.moves``."""

    moves: int | None = None
    bytes: int | None = None
    leader_changes: int | None = None
    time_s: float | None = None
    rack_violations: int | None = None
    replication_factor_min: int | None = None
    replication_factor_max: int | None = None
    forbidden_brokers: frozenset[int] = frozenset()
    capacities: Mapping[int, int] = field(default_factory=dict)
    log_dir_capacities: Mapping[tuple[int, str], int] = field(default_factory=dict)
    forbidden_topics: tuple[str, ...] = ()
    is_unchanged: bool = False
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def needs_sizes(self) -> bool:
        """Whether a rule is about bytes, or of the time that they take."""
        has_capacities = bool(self.capacities or self.log_dir_capacities)
        return self.bytes is not None or self.time_s is not None or has_capacities

    def line_of(self, rule: str) -> int:
        """Return the line of a rule; one within an inline table has that of the table."""
        return _line_of(self.lines, rule)


def parse_policy(text: str) -> Policy:
    """Return the policy that a file holds.

    Raises:
        BadPolicy: it is not TOML, or has an unknown key or a value of the wrong kind.
    """
    lines = _lines(text)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _TOML_LINE.search(str(error))
        line = int(match[1]) if match else len(text.splitlines())
        raise BadPolicy(f"not TOML: {_TOML_LINE.sub('', str(error)).strip()}", line) from error
    for section, values in document.items():
        if section not in _KEYS or not isinstance(values, dict):
            raise _unknown(section, section, tuple(_KEYS), lines)
        for key in values:
            if key not in _KEYS[section]:
                raise _unknown(key, f"{section}.{key}", _KEYS[section], lines)
    reader = _Reader(document, lines)
    return Policy(
        moves=reader.count("limits.moves"),
        bytes=reader.size("limits.bytes"),
        leader_changes=reader.count("limits.leader_changes"),
        time_s=reader.seconds("limits.time"),
        rack_violations=reader.count("placement.rack_violations"),
        replication_factor_min=reader.count("placement.replication_factor_min"),
        replication_factor_max=reader.count("placement.replication_factor_max"),
        forbidden_brokers=frozenset(reader.brokers("brokers.forbidden")),
        capacities=reader.capacities("brokers.capacity"),
        log_dir_capacities=reader.log_dir_capacities("log_dirs.capacity"),
        forbidden_topics=reader.patterns("topics.forbidden"),
        is_unchanged=reader.flag("cluster.unchanged"),
        lines=lines,
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the rules of a document, each by its dotted name."""

    document: Mapping[str, Any]
    lines: Mapping[str, int]

    def count(self, rule: str) -> int | None:
        value: int | None = self._value(rule)
        if value is not None and not _is_count(value):
            raise self._wrong(rule, value, "a number, 0 or more")
        return value

    def size(self, rule: str) -> int | None:
        value = self._value(rule)
        return None if value is None else self._size(rule, value)

    def seconds(self, rule: str) -> float | None:
        value = self._value(rule)
        try:
            return None if value is None else parse_duration_s(str(value))
        except ValueError as error:
            raise self._wrong(rule, value, "a duration, such as 4h") from error

    def flag(self, rule: str) -> bool:
        value = self._value(rule)
        if not isinstance(value, bool | None):
            raise self._wrong(rule, value, "true or false")
        return bool(value)

    def brokers(self, rule: str) -> list[int]:
        value = self._value(rule)
        if value is None:
            return []
        if not isinstance(value, list) or not all(_is_count(item) for item in value):
            raise self._wrong(rule, value, "a list of broker ids")
        return value

    def capacities(self, rule: str) -> dict[int, int]:
        value = self._value(rule)
        if value is None:
            return {}
        wanted = 'broker ids with sizes, such as 7 = "2 TB"'
        if not isinstance(value, dict):
            raise self._wrong(rule, value, wanted)
        for key in value:
            if not key.isdecimal():
                raise self._wrong_key(rule, key, wanted)
        return {int(key): self._size(f"{rule}.{key}", size) for key, size in value.items()}

    def log_dir_capacities(self, rule: str) -> dict[tuple[int, str], int]:
        value = self._value(rule)
        if value is None:
            return {}
        wanted = 'brokers and log dirs with sizes, such as "7:/data/a" = "500 GB"'
        if not isinstance(value, dict):
            raise self._wrong(rule, value, wanted)
        capacities = {}
        for key, size in value.items():
            broker, _, path = key.partition(":")
            if not broker.isdecimal() or not path:
                raise self._wrong_key(rule, key, wanted)
            capacities[int(broker), path] = self._size(f"{rule}.{key}", size)
        return capacities

    def patterns(self, rule: str) -> tuple[str, ...]:
        value = self._value(rule)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(rule, value, "a list of regular expressions")
        for item in value:
            try:
                re.compile(item)
            except re.error as error:
                raise self._wrong(rule, item, f"a regular expression ({error})") from error
        return tuple(value)

    def _size(self, rule: str, value: object) -> int:
        try:
            return parse_size(str(value))
        except ValueError as error:
            raise self._wrong(rule, value, "a size, such as 500 GB") from error

    def _value(self, rule: str) -> Any:
        section, _, key = rule.partition(".")
        return self.document.get(section, {}).get(key)

    def _wrong(self, rule: str, value: object, wanted: str) -> BadPolicy:
        return BadPolicy(f"{rule} must be {wanted}, not {value!r}", _line_of(self.lines, rule))

    def _wrong_key(self, rule: str, key: str, wanted: str) -> BadPolicy:
        return BadPolicy(f"{rule} must be {wanted}, not {key!r}", _line_of(self.lines, f"{rule}.{key}"))


def _line_of(lines: Mapping[str, int], rule: str) -> int:
    while rule and rule not in lines:
        rule = rule.rpartition(".")[0]
    return lines.get(rule, 1)


def _unknown(key: str, rule: str, known: tuple[str, ...], lines: Mapping[str, int]) -> BadPolicy:
    return BadPolicy(f"unknown key {key!r}", _line_of(lines, rule), hint=f"known here: {', '.join(known)}")


def _lines(text: str) -> dict[str, int]:
    """Return the line of each table and key by its dotted name. Values that span lines may hold no ``key =`` line."""
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = _dotted(header[1])
            lines.setdefault(section, number)
            lines.setdefault(section.partition(".")[0], number)
        elif key := _KEY.match(line):
            name = _dotted(key[1])
            lines.setdefault(f"{section}.{name}" if section else name, number)
            if not section:
                lines.setdefault(name.partition(".")[0], number)
    return lines


def _dotted(text: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in text.split("."))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
