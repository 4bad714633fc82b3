"""Finds the field that makes a value impossible to encode. Slow; runs only after an encoder has failed."""

from __future__ import annotations

import struct
from typing import Any

from engine.common.errors import LocalProtocolError
from engine.kafka.protocol.declaration import NEW_LIST, Field, Message, Struct
from engine.kafka.protocol.types import BYTES, RECORDS, STRING, UUID, Array, Blob, Scalar
from engine.kafka.protocol.wire import STRING_BYTES_MAX


def unencodable(cls: type[Message], version: int, value: Any, error: Exception) -> LocalProtocolError:
    """Return an exception that names the first field at fault, or ``error`` if there is none."""
    fault = find_fault(cls, version, value) or str(error)
    return LocalProtocolError(f"{cls.__name__} cannot be written in version {version}: {fault}")


def find_fault(cls: type[Struct], version: int, value: Any) -> str | None:
    """Return the first fault and its place, e.g. ``topics[3].name is None``; None if there is none."""
    if not isinstance(value, cls):
        return f"is a {type(value).__name__}, not a {cls.__name__}"
    for declared in cls.wire_fields:
        fault = _field_fault(declared, version, getattr(value, declared.name))
        if fault is not None:
            return f"{declared.name}{fault}" if fault[0] in ".[" else f"{declared.name} {fault}"
    return None


def _field_fault(declared: Field, version: int, value: Any) -> str | None:
    if not declared.is_in(version):
        default: Any = [] if declared.default is NEW_LIST else declared.default
        if declared.ignorable or value == default or (not value and default == []):
            return None
        return f"is {_short(value)}, but the version does not have it"
    if value is None:
        may_be = declared.is_nullable_in(version) or (declared.tag is not None and declared.default is None)
        return None if may_be else "is None"
    return _value_fault(declared.type, version, value)


def _value_fault(kind: Scalar | Blob | Array | type[Struct], version: int, value: Any) -> str | None:
    if isinstance(kind, Scalar):
        return _scalar_fault(kind, value)
    if isinstance(kind, Blob):
        return _blob_fault(kind, value)
    if isinstance(kind, type):
        fault = find_fault(kind, version, value)
        return None if fault is None else fault if fault.startswith("is a ") else f".{fault}"
    if not hasattr(value, "__len__"):
        return f"is {_short(value)}, not a list"
    for place, item in enumerate(value):
        fault = "is None" if item is None else _value_fault(kind.element, version, item)
        if fault is not None:
            return f"[{place}]{fault}" if fault[0] in ".[" else f"[{place}] {fault}"
    return None


def _scalar_fault(kind: Scalar, value: Any) -> str | None:
    try:
        struct.pack(">" + kind.code, value)
    except (struct.error, TypeError, OverflowError):
        return f"is {_short(value)}, not a {kind.name}"
    return f"is {_short(value)}, not 16 bytes" if kind is UUID and len(value) != 16 else None


def _blob_fault(kind: Blob, value: Any) -> str | None:
    if kind is STRING:
        if not isinstance(value, str):
            return f"is {_short(value)}, not a str"
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            return f"is not text: {error}"
        return f"takes {size} bytes, {STRING_BYTES_MAX} is the limit" if size > STRING_BYTES_MAX else None
    is_sized = kind is RECORDS and hasattr(value, "size_bytes")
    if kind in (BYTES, RECORDS) and not is_sized and not isinstance(value, bytes | bytearray | memoryview):
        return f"is {_short(value)}, not bytes"
    return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
