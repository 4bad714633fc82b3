"""Values of dataclasses as plain JSON values and back, derived from their type hints. Pure.

A dataclass is the list of its fields in their order, a mapping a list of pairs. So both sides need the same classes:
``shape_of`` says whether they do.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
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
    return _made(hint, is_encoder=True)


@cache
def decoder(hint: Any) -> Convert:
    """Return the converter back; invalid input raises TypeError, ValueError or KeyError."""
    return _made(hint, is_encoder=False)


def shape_of(hint: Any) -> str:
    """Return a short text that changes when a field of this type, or of any type inside it, changes."""
    lines: list[str] = []
    _describe(hint, lines, set())
    return f"{crc32(';'.join(lines).encode()):08x}"


def fields_of(kind: Any) -> dict[str, Any]:
    """Return the type of each field of a dataclass or named tuple."""
    hints = typing.get_type_hints(kind)
    names = kind._fields if hasattr(kind, "_fields") else [field.name for field in dataclasses.fields(kind)]
    return {name: hints[name] for name in names}


def _made(hint: Any, *, is_encoder: bool) -> Convert:
    make = encoder if is_encoder else decoder
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _optional(make, args)
    if origin is tuple:
        return _sequence(make(args[0]), is_encoder=is_encoder)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(make(args[0]), make(args[1]), is_encoder=is_encoder)
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        return _record(hint, make, is_encoder=is_encoder)
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


def _record(kind: Any, make: Callable[[Any], Convert], *, is_encoder: bool) -> Convert:
    hints = fields_of(kind)
    converts = [(name, make(hint)) for name, hint in hints.items()]
    if is_encoder:
        return lambda value: [convert(getattr(value, name)) for name, convert in converts]
    only = [convert for _, convert in converts]

    def decode(values: Any) -> Any:
        return kind(*[convert(value) for convert, value in zip(only, values, strict=True)])

    return (lambda values: shared(decode(values))) if kind in _SHARED else decode


def _same(value: Any) -> Any:
    return value


def _describe(hint: Any, lines: list[str], seen: set[Any]) -> str:
    """Add a line for each field of this type and of those inside it; return the type's own name."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if args:
        inner = ",".join(_describe(arg, lines, seen) for arg in args)
        return f"{getattr(origin, '__name__', 'Union')}[{inner}]".replace("UnionType", "Union")
    name = str(getattr(hint, "__name__", hint))
    if hint in seen:
        return name
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        seen.add(hint)
        for field, kind in fields_of(hint).items():
            lines.append(f"{name}.{field}:{_describe(kind, lines, seen)}")
    elif isinstance(hint, type) and issubclass(hint, Enum):
        seen.add(hint)
        lines.append(f"{name}={','.join(str(member.value) for member in hint)}")
    return name
