"""Protocol messages: any value that one version can carry and every oracle can hold.

Fields that the version lacks keep their defaults, so that a value survives its own encoding.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from engine.kafka.protocol.api_keys import API_SPECS
from engine.kafka.protocol.declaration import Field, Message, Struct, request_class, response_class
from engine.kafka.protocol.types import (
    BOOL,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Array,
    Blob,
    Scalar,
)

# Lengths around those where a compact length needs one more byte, and the longest string there is.
_TEXTS = ("", "a", "topic-1", "größer", "数据", "\x00", "x" * 126, "y" * 127, "z" * 128, "w" * 16_383, "v" * 32_767)
_BLOBS = (b"", b"\x00", b"\xff" * 61, b"x" * 126, b"y" * 127, b"z" * 20_000)

_SECONDS_MAX = 4_102_444_800
"""2100-01-01."""

# One oracle keeps these in datetime types, which have a shorter range and lose milliseconds.
_WHOLE_SECONDS = frozenset(
    {
        "expiry_time_period_ms",
        "expiry_timestamp",
        "expiry_timestamp_ms",
        "issue_timestamp",
        "issue_timestamp_ms",
        "log_append_time_ms",
        "max_lifetime_ms",
        "max_timestamp",
        "max_timestamp_ms",
        "renew_period_ms",
        "retention_time_ms",
        "session_lifetime_ms",
        "transaction_start_time_ms",
    }
)

_BITS = {INT8: 8, INT16: 16, INT32: 32, INT64: 64}
_FLOATS = (0.0, -0.0, 1.5, -1e300, 5e-324, float("inf"), float("-inf"))
_UUIDS = (bytes(16), bytes(range(16)), b"\xff" * 16)


def all_messages() -> list[tuple[type[Message], int]]:
    """Return every request and answer with every version."""
    return [
        (cls(key), version)
        for key, spec in API_SPECS.items()
        for version in range(spec.min_version, spec.max_version + 1)
        for cls in (request_class, response_class)
    ]


def message_id(value: object) -> str:
    """Return the name of a class or version for a test's id."""
    return value.__name__ if isinstance(value, type) else f"v{value}"


def in_each_version(test: Callable[[type[Message], int], None]) -> Any:
    """Make a test of a message and a version one test per message: the run has a thousand tests less to keep count of.

    An error names the version.
    """
    versions: dict[type[Message], list[int]] = {}
    for cls, version in all_messages():
        versions.setdefault(cls, []).append(version)

    def all_versions(cls: type[Message]) -> None:
        for version in versions[cls]:
            try:
                test(cls, version)
            except BaseException as error:
                error.add_note(f"{cls.__name__} in version {version}")
                raise

    all_versions.__doc__ = test.__doc__
    return pytest.mark.parametrize("cls", versions, ids=message_id)(all_versions)


def any_of(cls: type[Struct], version: int, rng: random.Random) -> Any:
    """Return a value that ``version`` can carry, often with the least or the most that a field can hold."""
    return cls(**{f.name: _any_of_field(f, version, rng) for f in cls.wire_fields if f.is_in(version)})


def _any_of_field(declared: Field, version: int, rng: random.Random) -> Any:
    is_tagged_struct = isinstance(declared.type, type) and declared.tag is not None
    if (declared.is_nullable_in(version) or is_tagged_struct) and rng.random() < 0.5:
        return None
    value = _any_of_type(declared, declared.type, version, rng)
    # The wire leaves out a tagged struct that equals its defaults, and it reads back as None.
    return None if is_tagged_struct and value == declared.type() else value  # type: ignore[operator]


def _any_of_type(declared: Field, kind: Scalar | Blob | Array | type[Struct], version: int, rng: random.Random) -> Any:
    if isinstance(kind, Scalar):
        return _any_of_scalar(declared, kind, rng)
    if isinstance(kind, Blob):
        return rng.choice(_TEXTS if kind is STRING else _BLOBS)
    if isinstance(kind, Array):
        if not isinstance(kind.element, type) and rng.random() < 0.3:
            # Enough for a two-byte count in compact form.
            return [_any_of_type(declared, kind.element, version, rng)] * 130
        return [_any_of_type(declared, kind.element, version, rng) for _ in range(rng.randrange(3))]
    return any_of(kind, version, rng)


def _any_of_scalar(declared: Field, kind: Scalar, rng: random.Random) -> Any:
    if declared.name.endswith("error_code"):
        return rng.randint(-1, 120)
    if declared.name in _WHOLE_SECONDS:
        return rng.choice((0, 1, rng.randint(0, _SECONDS_MAX), _SECONDS_MAX)) * 1000
    if kind in _BITS:
        most = 2 ** (_BITS[kind] - 1)
        return rng.choice((-most, -1, 0, 1, rng.randrange(-most, most), most - 1))
    return rng.choice((True, False) if kind is BOOL else _FLOATS if kind is FLOAT64 else _UUIDS)


def many_of(cls: type[Message], version: int) -> Any:
    """Return a value whose arrays have 130 members at one level and one at the others, down to the innermost."""
    return cls(**{f.name: _many_of_field(f, version) for f in cls.wire_fields if f.is_in(version)})


def _many_of_field(declared: Field, version: int) -> Any:
    kind = declared.type
    if isinstance(kind, Array) and isinstance(kind.element, type):
        return [one_of(kind.element, version)] * 130
    return _one_of_field(declared, version)


def one_of(cls: type[Struct], version: int) -> Any:
    """Return a value with every field different from its default, and one member in each array."""
    return cls(**{f.name: _one_of_field(f, version) for f in cls.wire_fields if f.is_in(version)})


def _one_of_field(declared: Field, version: int) -> Any:
    return _one_of_type(declared, declared.type, version)


def _one_of_type(declared: Field, kind: Scalar | Blob | Array | type[Struct], version: int) -> Any:
    if isinstance(kind, Scalar):
        if declared.name in _WHOLE_SECONDS:
            return 7000
        return True if kind is BOOL else b"\x07" * 16 if kind is UUID else 7.5 if kind is FLOAT64 else 7
    if isinstance(kind, Blob):
        return "seven" if kind is STRING else b"seven"
    if isinstance(kind, Array):
        return [_one_of_type(declared, kind.element, version)]
    return one_of(kind, version)
