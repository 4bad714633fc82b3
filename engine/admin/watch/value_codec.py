"""Values of dataclasses as plain JSON values and back, derived from their type hints. Pure.

A dataclass becomes the list of its fields in their order, a mapping a list of pairs. ``lines_of`` names the fields, so
that another version of klamm finds those that it knows.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any, Union
from zlib import crc32

from engine.common.collection import shared
from engine.common.model import ReplicaAssignment

Convert = Callable[[Any], Any]

_SHARED = (ReplicaAssignment,)
"""Equal values of these types are decoded as one object."""


@cache
def encoder(hint: Any) -> Convert:
    """Return a converter of values of this type into JSON's types."""
    if not _is_record(hint):
        return _made(hint, encoder, is_encoder=True)
    converts = [(name, encoder(kind)) for name, kind in fields_of(hint).items()]
    return lambda value: [convert(getattr(value, name)) for name, convert in converts]


class Decoders:
    """Makes the converters back.

    A field that was written and is not known, or has another type now, is left out. One that was not written gets its
    default.

    Args:
        written: what ``lines_of`` returned where the values were written; None: what it returns here.
    """

    def __init__(self, written: Iterable[str] | None = None) -> None:
        self._made: dict[Any, Convert] = {}
        self._known: dict[Any, dict[str, Any]] = {}
        self._written: dict[str, dict[str, str]] | None = None if written is None else {}
        for line in written or ():
            field, is_field, kind = line.partition(":")
            if is_field and self._written is not None:
                name, _, field = field.partition(".")
                self._written.setdefault(name, {})[field] = kind

    def of(self, hint: Any) -> Convert:
        """Return the converter for a type; invalid input raises TypeError, ValueError or KeyError."""
        if hint not in self._made:
            made = self._record(hint) if _is_record(hint) else _made(hint, self.of, is_encoder=False)
            self._made[hint] = made
        return self._made[hint]

    def fields_of(self, kind: Any) -> dict[str, Any]:
        """Return the type of each field of a dataclass or named tuple that was written, and is known."""
        if kind not in self._known:
            hints, written = fields_of(kind), self._written and self._written.get(kind.__name__, {})
            self._known[kind] = {
                name: hint for name, hint in hints.items() if written is None or written.get(name) == _text_of(hint)
            }
        return self._known[kind]

    def lacking(self, hint: Any) -> list[str]:
        """Return the fields of a type, and of those inside it, that were not written and have no default."""
        lacking, seen, waiting = list[str](), set[Any](), [hint]
        while waiting:
            kind = waiting.pop()
            waiting += typing.get_args(kind)
            if not _is_record(kind) or kind in seen:
                continue
            seen.add(kind)
            known = self.fields_of(kind)
            lacking += [f"{kind.__name__}.{name}" for name in fields_of(kind) if name not in known | _defaults(kind)]
            waiting += known.values()
        return lacking

    def _record(self, kind: Any) -> Convert:
        hints, known = fields_of(kind), self.fields_of(kind)
        written = [*hints] if self._written is None else [*self._written.get(kind.__name__, {})]
        if [*known] == [*hints] == written:
            only = [self.of(hint) for hint in known.values()]

            def decode(values: Any) -> Any:
                return kind(*[convert(value) for convert, value in zip(only, values, strict=True)])

        else:
            converts = {name: self.of(hint) for name, hint in known.items()}

            def decode(values: Any) -> Any:
                pairs = zip(written, values, strict=True)
                return kind(**{name: converts[name](value) for name, value in pairs if name in converts})

        return (lambda values: shared(decode(values))) if kind in _SHARED else decode


def lines_of(hint: Any) -> list[str]:
    """Return a line for each field of a type and of all types inside it, and for each enumeration."""
    lines: list[str] = []
    _describe(hint, lines, set())
    return lines


def shape_of(hint: Any) -> str:
    """Return a short text that changes when a field of this type, or of any type inside it, changes."""
    return f"{crc32(';'.join(lines_of(hint)).encode()):08x}"


def fields_of(kind: Any) -> dict[str, Any]:
    """Return the type of each field of a dataclass or named tuple."""
    hints = typing.get_type_hints(kind)
    names = kind._fields if hasattr(kind, "_fields") else [field.name for field in dataclasses.fields(kind)]
    return {name: hints[name] for name in names}


def _is_record(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")


def _defaults(kind: Any) -> dict[str, Any]:
    if hasattr(kind, "_fields"):
        return dict(kind._field_defaults)
    missing = dataclasses.MISSING
    return {
        field.name: field
        for field in dataclasses.fields(kind)
        if field.default is not missing or field.default_factory is not missing
    }


def _made(hint: Any, make: Callable[[Any], Convert], *, is_encoder: bool) -> Convert:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _optional(make, args)
    if origin is tuple:
        return _sequence(make(args[0]), is_encoder=is_encoder)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(make(args[0]), make(args[1]), is_encoder=is_encoder)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return (lambda value: value.value) if is_encoder else hint
    if hint is bytes:
        return bytes.hex if is_encoder else bytes.fromhex
    if hint is datetime:
        return datetime.timestamp if is_encoder else (lambda value: datetime.fromtimestamp(value, UTC))
    return _same


def _optional(make: Callable[[Any], Convert], args: tuple[Any, ...]) -> Convert:
    inner = [arg for arg in args if arg is not type(None)]
    if len(inner) != 1:
        raise TypeError(f"a union of more than one type and None: {args}")
    convert = make(inner[0])
    return convert if convert is _same else lambda value: None if value is None else convert(value)


def _sequence(convert: Convert, *, is_encoder: bool) -> Convert:
    if convert is not _same:
        return lambda values: tuple(map(convert, values))
    # Brokers, most of the time: the same few tuples again and again.
    return tuple if is_encoder else lambda values: shared(tuple(values))


def _mapping(key: Convert, value: Convert, *, is_encoder: bool) -> Convert:
    if is_encoder:
        return lambda mapping: [(key(k), value(v)) for k, v in mapping.items()]
    return lambda pairs: {key(k): value(v) for k, v in pairs}


def _same(value: Any) -> Any:
    return value


def _text_of(hint: Any) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if args:
        return f"{getattr(origin, '__name__', 'Union')}[{','.join(map(_text_of, args))}]".replace("UnionType", "Union")
    return str(getattr(hint, "__name__", hint))


def _describe(hint: Any, lines: list[str], seen: set[Any]) -> None:
    """Add a line for each field of this type and of those inside it."""
    for arg in typing.get_args(hint):
        _describe(arg, lines, seen)
    if typing.get_args(hint) or hint in seen:
        return
    seen.add(hint)
    if _is_record(hint):
        for field, kind in fields_of(hint).items():
            _describe(kind, lines, seen)
            lines.append(f"{hint.__name__}.{field}:{_text_of(kind)}")
    elif isinstance(hint, type) and issubclass(hint, Enum):
        lines.append(f"{hint.__name__}={','.join(str(member.value) for member in hint)}")
