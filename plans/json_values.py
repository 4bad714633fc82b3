"""Converts frozen dataclasses to plain JSON values and back, strictly, and makes their JSON schema, by the type hints.

It knows int, float, str, bool, string enums, dataclasses, ``X | None`` and ``tuple[X, ...]``.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Union, get_args, get_origin, get_type_hints


class JsonValueError(ValueError):
    """A value does not fit; the text begins with its place."""

    def __init__(self, place: str, fault: str) -> None:
        super().__init__(f"{place}: {fault}" if place else fault)


LATER: Final = {"later": True}
"""The metadata of a field that files of earlier releases lack: it has a default."""


def to_json(value: Any) -> Any:
    """Return a value as JSON's own types; keys are in the order of the fields."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    wanted: Any = type(value)
    return {name: to_json(getattr(value, name)) for name in _fields(wanted)}


def from_json(wanted: Any, value: object, place: str = "") -> Any:
    """Return ``value`` as the type ``wanted``.

    Raises:
        JsonValueError: it does not fit, lacks a key or has one too many.
    """
    if dataclasses.is_dataclass(wanted):
        return _object(wanted, value, place)
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return None if value is None else from_json(_not_none(parts), value, place)
    if origin is tuple:
        if not isinstance(value, list):
            raise JsonValueError(place, f"must be a list, not {_shown(value)}")
        if parts[0] in (int, str) and all(type(item) is parts[0] for item in value):
            return tuple(value)
        return tuple(from_json(parts[0], item, f"{place}[{index}]") for index, item in enumerate(value))
    return _scalar(wanted, value, place)


def schema_of(wanted: Any) -> dict[str, Any]:
    """Return the JSON schema of a dataclass; those inside it are under ``$defs``."""
    defs: dict[str, Any] = {}
    _schema(wanted, defs)
    return {**defs.pop(wanted.__name__), "$defs": dict(sorted(defs.items()))}


@lru_cache(maxsize=64)
def _fields(wanted: Any) -> dict[str, Any]:
    hints = get_type_hints(wanted)
    return {field.name: hints[field.name] for field in dataclasses.fields(wanted)}


@lru_cache(maxsize=64)
def _later(wanted: Any) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(wanted) if field.metadata.get("later"))


def _object(wanted: Any, value: object, place: str) -> Any:
    if not isinstance(value, dict):
        raise JsonValueError(place, f"must be an object, not {_shown(value)}")
    fields = _fields(wanted)
    prefix = f"{place}." if place else ""
    for key in value:
        if key not in fields:
            raise JsonValueError(f"{prefix}{key}", "unknown key")
    for key in fields:
        if key not in value and key not in _later(wanted):
            raise JsonValueError(f"{prefix}{key}", "missing")
    given = {key: kind for key, kind in fields.items() if key in value}
    return wanted(**{key: from_json(kind, value[key], f"{prefix}{key}") for key, kind in given.items()})


def _scalar(wanted: Any, value: object, place: str) -> Any:
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        known = [member.value for member in wanted]
        if value not in known:
            raise JsonValueError(place, f"must be one of {', '.join(known)}, not {_shown(value)}")
        return wanted(value)
    if wanted is float and type(value) in (int, float) and math.isfinite(float(value)):  # type: ignore[arg-type]
        return float(value)  # type: ignore[arg-type]
    if type(value) is not wanted or wanted is float:
        raise JsonValueError(place, f"must be {_WORDS[wanted]}, not {_shown(value)}")
    return value


_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
_SCHEMA_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def _schema(wanted: Any, defs: dict[str, Any]) -> dict[str, Any]:
    if dataclasses.is_dataclass(wanted):
        name = wanted.__name__  # type: ignore[union-attr]
        if name not in defs:
            defs[name] = {}
            fields = _fields(wanted)  # type: ignore[arg-type]
            later = _later(wanted)  # type: ignore[arg-type]
            defs[name] = {
                "type": "object",
                "properties": {key: _schema(kind, defs) for key, kind in fields.items()},
                "required": [key for key in fields if key not in later],
                "additionalProperties": False,
            }
        return {"$ref": f"#/$defs/{name}"}
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(_not_none(parts), defs), {"type": "null"}]}
    if origin is tuple:
        return {"type": "array", "items": _schema(parts[0], defs)}
    if issubclass(wanted, Enum):
        return {"enum": [member.value for member in wanted]}
    return {"type": _SCHEMA_TYPES[wanted]}


def _not_none(parts: tuple[Any, ...]) -> Any:
    return next(part for part in parts if part is not type(None))


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
