"""The lines of a plan file's parts, so that a finding can point at one."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
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
