"""The types of settings (reading a value's text and writing it back), and what a value may be. Not the settings.

Source of the rules: ConfigDef of Kafka 3.9. The texts of the errors are Kafka's, because clients and operators know
them. ``str()`` of a validator gives the valid values as Kafka's documentation shows them, e.g. ``[14,...]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import Final, Protocol

from engine.common.errors import ConfigError


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


class RequirementError(ConfigError):
    """A rule over several settings is broken. Kafka says "requirement failed: " before its text."""


class InvalidConfigurationError(ConfigError):
    """Settings that Kafka refuses with its InvalidConfigurationException: the text goes to clients as it is."""


class ReconfigurationError(ConfigError):
    """A running broker cannot change to these settings, although each of them is allowed."""


def require(condition: bool, message: str, *, key: str) -> None:
    """Raise RequirementError with that message unless the condition holds."""
    if not condition:
        raise RequirementError(message, key=key)


_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
_BLANKS: Final = " \t\n\x0b\f\r"
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DOUBLE: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?", re.ASCII)
_DOUBLE_NAMES: Final = re.compile(r"[+-]?(?:NaN|Infinity)")
_INTEGER_BITS: Final[dict[str, int]] = {"SHORT": 16, "INT": 32, "LONG": 64}

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

REDACTED: Final = "[redacted]"
"""What a secret looks like wherever it could be printed."""


class ConfigType(IntEnum):
    """The type of a setting; the numbers are those of DescribeConfigs (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True, repr=False)
class Password:
    """A secret. Only ``secret`` reveals it; printing does not."""

    secret: str

    def __repr__(self) -> str:
        return REDACTED


Value = bool | int | float | str | tuple[str, ...] | Password | None


def invalid_value(name: str, value: object, reason: str | None = None) -> ConfigError:
    """Return the error of a value that cannot be accepted, in Kafka's words."""
    text = f"Invalid value {display_text(value)} for configuration {name}"
    return ConfigError(text if reason is None else f"{text}: {reason}", key=name)


def display_text(value: object) -> str:
    """Return a value as Java prints it inside a sentence: ``null``, ``true``, ``[a, b]``; secrets stay hidden."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return str(value)


def java_trim(text: str) -> str:
    """Strip what Java's ``trim`` strips: all characters up to U+0020."""
    return text.strip(_JAVA_BLANKS)


def parse_value(name: str, text: str | None, type_: ConfigType) -> Value:
    """Read a setting's text.

    Raises:
        ConfigError: the text is not a value of that type.
    """
    if text is None:
        return None
    trimmed = java_trim(text)
    match type_:
        case ConfigType.BOOLEAN:
            return _parse_boolean(name, text, trimmed)
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return _parse_integer(name, text, trimmed, type_)
        case ConfigType.DOUBLE:
            return _parse_double(name, text, trimmed)
        case ConfigType.LIST:
            return tuple(part.strip(_BLANKS) for part in trimmed.split(",")) if trimmed else ()
        case ConfigType.PASSWORD:
            return Password(trimmed)
        case _:
            return trimmed


def value_text(value: Value, type_: ConfigType) -> str | None:
    """Return the text that ``parse_value`` reads back. A secret is returned in clear text: never log the result."""
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, Password):
        return value.secret
    if value is None:
        return None
    if type_ is ConfigType.DOUBLE and not isinstance(value, str):
        return double_text(float(value))
    return display_text(value)


def double_text(value: float) -> str:
    """Return a double as Java writes it: ``0.5``, ``1.0E7``, ``1.7976931348623157E308``."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{Decimal(repr(value)):f}" if "e" in repr(value) else repr(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) + exponent - 1
    return f"{'-' if sign else ''}{significant[0]}.{significant[1:] or '0'}E{power}"


def _parse_boolean(name: str, text: str, trimmed: str) -> bool:
    lowered = trimmed.lower()
    if lowered not in ("true", "false"):
        raise invalid_value(name, text, "Expected value to be either true or false")
    return lowered == "true"


def java_integer(text: str, type_: ConfigType = ConfigType.INT) -> int | None:
    """Return what Java's ``parseInt`` and its kin take a text for; None: for no number of this type."""
    limit = 1 << (_INTEGER_BITS[type_.name] - 1)
    # Python takes no number of thousands of digits.
    if _INTEGER.fullmatch(text) and len(text) <= 40 and -limit <= (number := int(text)) < limit:
        return number
    return None


def _parse_integer(name: str, text: str, trimmed: str, type_: ConfigType) -> int:
    number = java_integer(trimmed, type_)
    if number is None:
        raise invalid_value(name, text, f"Not a number of type {type_.name}")
    return number


def _parse_double(name: str, text: str, trimmed: str) -> float:
    if _DOUBLE_NAMES.fullmatch(trimmed):
        return float(trimmed)
    if _DOUBLE.fullmatch(trimmed):
        return float(trimmed.rstrip("fFdD"))
    raise invalid_value(name, text, "Not a number of type DOUBLE")
