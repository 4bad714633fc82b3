"""What a check of a plan finds, and the lines of a plan file's parts that a finding points at. Pure."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from engine.common.model import TopicPartition

_BLANK = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class PlanLines:
    """Lines, counted from 1: of each partition's entry, and of the keys of the envelope; 1 for a missing part."""

    partitions: dict[TopicPartition, int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)

    def of_partition(self, name: TopicPartition) -> int:
        return self.partitions.get(name, 1)

    def of_key(self, key: str) -> int:
        return self.keys.get(key, 1)


def plan_lines(text: str) -> PlanLines:
    """Return the lines of a well-formed plan file's parts, however it is laid out."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    lines = PlanLines()
    for key, _, value_at in _members(text, _BLANK.match(text).end()):  # type: ignore[union-attr]
        if key == "klamm":
            lines.keys.update({name: bisect_right(starts, at) for name, at, _ in _members(text, value_at)})
        elif key == "partitions":
            for entry, at in _elements(text, value_at):
                lines.partitions[TopicPartition(entry["topic"], entry["partition"])] = bisect_right(starts, at)
    return lines


def _members(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    """Yield the keys of the object at ``at``, each with its offset and that of its value."""
    at += 1
    while text[at := _after(_BLANK, text, at)] != "}":
        key, end = _DECODER.raw_decode(text, at)
        value_at = _after(_COLON, text, end)
        yield key, at, value_at
        _, at = _DECODER.raw_decode(text, value_at)


def _elements(text: str, at: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the elements of the list at ``at``, each with its offset."""
    at += 1
    while text[at := _after(_BLANK, text, at)] != "]":
        element, end = _DECODER.raw_decode(text, at)
        yield element, at
        at = end


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()


class Check(StrEnum):
    CLUSTER = "cluster"
    DIGEST = "digest"
    DRIFT = "drift"
    TARGETS = "targets"
    FIGURES = "figures"
    RACKS = "racks"
    FACTOR = "factor"
    CAPACITY = "capacity"
    MOVES = "moves"
    BYTES = "bytes"
    LEADER_CHANGES = "leader_changes"
    TIME = "time"
    BROKERS = "brokers"
    TOPICS = "topics"


OF_CLUSTER = (Check.CLUSTER, Check.DIGEST, Check.DRIFT, Check.TARGETS, Check.FIGURES)
"""What is always looked at; the others are those of a policy."""


class Lack(StrEnum):
    """What is missing, so that a rule of a policy cannot be checked."""

    SIZES = "sizes"
    THROTTLE = "throttle"
    LOG_DIR = "log dir"
    """The broker has no log dir of the rule's name."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or (not ``is_error``) worth a look; ``line`` is that of the plan file."""

    check: Check
    message: str
    line: int = 1
    is_error: bool = True
    partition: TopicPartition | None = None
    rule: str | None = None
    """The policy's rule, such as ``limits.moves``."""
    lacks: Lack | None = None
    """What has to be known to judge whether the rule is kept."""


def cannot_tell(check: Check, rule: str, why: str, line: int, lacks: Lack = Lack.SIZES) -> Finding:
    return Finding(check, f"whether {rule} is kept is unknown: {why}", line, rule=rule, lacks=lacks)
