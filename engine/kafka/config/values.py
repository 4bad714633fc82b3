"""The types of settings: reading a value's text and writing it back. Not the settings themselves.

Source of the rules: ConfigDef of Kafka 3.9. The texts of the errors are Kafka's, because clients and operators know
them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import Final

from engine.common.errors import ConfigError


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
