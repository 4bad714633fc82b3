"""Single values as text: for machines (exact, stable) and for people (short, with units)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from pathlib import PurePath

from cli.output.report import Kind
from engine.common.quantities import size_text, span_text

RIGHT = (Kind.NUMBER, Kind.BYTES, Kind.DURATION_MS)
"""Columns whose values are aligned right, so that digits are below each other."""

_JSON_AS_IT_IS = frozenset({type(None), bool, int, float, str})
_ESCAPES = {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"} | {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (9, 10, 13)
}
_ESCAPES_IN_LINES = {code: text for code, text in _ESCAPES.items() if chr(code) not in "\t\n"}


def json_value(value: object) -> object:
    """Return ``value`` made of what JSON knows. Dataclasses become objects with their fields' names as keys."""
    kind = type(value)
    if kind in _JSON_AS_IT_IS:
        return value
    if kind is tuple or kind is list:
        return _json_list(value)  # type: ignore[arg-type]
    if is_dataclass(kind):
        return {name: json_value(getattr(value, name)) for name in _field_names(kind)}
    return _json_of_rare(value)


def _json_list(values: Iterable[object]) -> list[object]:
    return [value if type(value) in _JSON_AS_IT_IS else json_value(value) for value in values]


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _json_of_rare(value: object) -> object:
    if isinstance(value, Enum):
        return json_value(value.value)
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (str, PurePath)):
        return str(value)
    if isinstance(value, datetime):
        return iso_time(value)
    if isinstance(value, Mapping):
        return {str(json_value(key)): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return _json_list(sorted(value) if isinstance(value, (set, frozenset)) else value)
    raise TypeError(f"no JSON for a {type(value).__name__}")


def machine_text(kind: Kind, value: object) -> str:
    """Return a cell for plain and csv: exact numbers, ISO times, lists with commas; nothing is an empty text."""
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case Enum():
            return str(value.value)
        case datetime():
            return iso_time(value)
        case list() | tuple():
            return ",".join([str(item) if type(item) is int else machine_text(Kind.TEXT, item) for item in value])
        case Mapping():
            return ",".join(f"{key}={item}" for key, item in value.items())
        case _:
            return str(value)


def human_text(kind: Kind, value: object) -> str:
    """Return a cell for eyes. Control characters are shown as escapes, so that data cannot move the cursor."""
    if value is None or value == "" or (isinstance(value, (list, tuple, Mapping)) and not value):
        return "-"
    if kind is Kind.BYTES and isinstance(value, int):
        return size_text(value)
    if kind is Kind.DURATION_MS and isinstance(value, int):
        return human_duration(value)
    if kind is Kind.FLAG and isinstance(value, bool):
        return "yes" if value else "no"
    return escape_controls(machine_text(kind, value))


def escape_controls(text: str) -> str:
    """Return ``text`` on one line and without control characters."""
    return text if text.isprintable() else text.translate(_ESCAPES)


def escape_for_terminal(text: str) -> str:
    """Return lines without control characters but their tabs and ends: others can give a terminal orders."""
    return text.translate(_ESCAPES_IN_LINES)


def iso_time(value: datetime) -> str:
    """Return an instant as ISO 8601 in UTC with milliseconds: ``2026-11-21T12:14:51.549Z``."""
    utc = value.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"


def human_duration(duration_ms: int) -> str:
    """Return a duration in its two largest units: ``7d``, ``2h 5m``, ``350ms``."""
    if abs(duration_ms) < 1000:
        return f"{duration_ms}ms"
    return ("-" if duration_ms < 0 else "") + span_text(abs(duration_ms) // 1000)
