"""What a setting's value may be: ranges, closed lists of words and the like, with Kafka's error texts.

``str()`` of a validator gives the valid values as Kafka's documentation shows them, e.g. ``[14,...]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.common.errors import ConfigError
from engine.kafka.config.values import Value, double_text, invalid_value


class Validator(Protocol):
    """Checks one value; its ``str()`` says what is allowed."""

    def ensure_valid(self, name: str, value: Value) -> None:
        """Raise ConfigError if the value is not allowed."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``minimum`` to ``maximum``, both included; None leaves a side open."""

    minimum: int | float | None
    maximum: int | float | None = None

    def ensure_valid(self, name: str, value: Value) -> None:
        if not isinstance(value, (int, float)):
            raise invalid_value(name, value, "Value must be non-null")
        if self.minimum is not None and value < self.minimum:
            raise invalid_value(name, value, f"Value must be at least {_number_text(self.minimum)}")
        if self.maximum is not None and value > self.maximum:
            raise invalid_value(name, value, f"Value must be no more than {_number_text(self.maximum)}")

    def __str__(self) -> str:
        low = "..." if self.minimum is None else _number_text(self.minimum)
        if self.maximum is None:
            return f"[{low},...]"
        middle = "" if self.minimum is None else ",..."
        return f"[{low}{middle},{_number_text(self.maximum)}]"


def at_least(minimum: int | float) -> Range:
    """Return a range with a lower bound only."""
    return Range(minimum)


def between(minimum: int | float, maximum: int | float) -> Range:
    """Return a range with both bounds."""
    return Range(minimum, maximum)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several words, in this spelling."""

    words: tuple[str, ...]

    def ensure_valid(self, name: str, value: Value) -> None:
        if value not in self.words:
            raise invalid_value(name, value, f"String must be one of: {', '.join(self.words)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]"


@dataclass(frozen=True, slots=True)
class OneOfAnyCase:
    """One of several words in any spelling."""

    words: tuple[str, ...]

    def ensure_valid(self, name: str, value: Value) -> None:
        if not isinstance(value, str) or value.upper() not in {word.upper() for word in self.words}:
            raise invalid_value(name, value, f"String must be one of (case insensitive): {', '.join(self.words)}")

    def __str__(self) -> str:
        return f"(case insensitive) [{', '.join(self.words)}]"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list whose entries are all among several words."""

    words: tuple[str, ...]

    def ensure_valid(self, name: str, value: Value) -> None:
        for entry in value if isinstance(value, tuple) else ():
            OneOf(self.words).ensure_valid(name, entry)

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]"


@dataclass(frozen=True, slots=True)
class NonNull:
    """Any text, but there must be one."""

    def ensure_valid(self, name: str, value: Value) -> None:
        if value is None:
            raise invalid_value(name, value, "entry must be non null")

    def __str__(self) -> str:
        return "non-null string"


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """A text that is either left out or has characters."""

    def ensure_valid(self, name: str, value: Value) -> None:
        if value == "":
            raise invalid_value(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


@dataclass(frozen=True, slots=True)
class GzipLevel:
    """Gzip's levels 1 to 9, or -1 for the library's own choice (KIP-390)."""

    def ensure_valid(self, name: str, value: Value) -> None:
        if not isinstance(value, int) or value > 9 or (value < 1 and value != -1):
            raise invalid_value(name, value, "Value must be between 1 and 9 or equal to -1")

    def __str__(self) -> str:
        return "[1,...,9] or -1"


_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+")


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """``*`` for all replicas, or pairs ``partition:broker`` (KIP-73)."""

    def ensure_valid(self, name: str, value: Value) -> None:
        entries = value if isinstance(value, tuple) else ()
        is_all = len(entries) == 1 and entries[0].strip() == "*"
        if not is_all and not all(_THROTTLED_REPLICA.fullmatch(entry.strip()) for entry in entries):
            raise invalid_value(
                name,
                value,
                f"{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
            )

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text that some parser accepts; ``allowed`` says in words what that is. The parser raises ValueError."""

    parser: Callable[[str], object]
    allowed: str

    def ensure_valid(self, name: str, value: Value) -> None:
        try:
            self.parser(str(value))
        except (ValueError, ConfigError) as error:
            raise invalid_value(name, value, str(error)) from error

    def __str__(self) -> str:
        return self.allowed


def _number_text(number: int | float) -> str:
    return double_text(number) if isinstance(number, float) else str(number)
