"""JSON of znodes: written as Kafka writes it, and read with one type of error. It knows no particular znode.

Kafka writes compact UTF-8 and reads by key: extra keys are allowed, and key order means nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from engine.kafka.zk.errors import ZnodeFormatError

T = TypeVar("T")


def encode_json(value: object) -> bytes:
    """Return compact JSON; keys keep their order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def decode_text(path: str, data: bytes) -> str:
    """Return the text of a znode; raises ZnodeFormatError if it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ZnodeFormatError(path, f"not UTF-8: {data[:40]!r}") from error


def decode_number(path: str, data: bytes) -> int:
    """Return the content as a decimal number; raises ZnodeFormatError if it is not one."""
    text = decode_text(path, data)
    try:
        return int(text)
    except ValueError as error:
        raise ZnodeFormatError(path, f"not a number: {text[:40]!r}") from error


class Fields:
    """A JSON object of a znode, read field by field. Every complaint is a ZnodeFormatError that names the znode."""

    def __init__(self, path: str, values: Mapping[str, Any]) -> None:
        self.path = path
        self.values = values

    @classmethod
    def parse(cls, path: str, data: bytes) -> Fields:
        """Read a znode's content, which must be one JSON object."""
        try:
            values = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ZnodeFormatError(path, f"not JSON: {data[:40]!r}") from error
        if not isinstance(values, dict):
            raise ZnodeFormatError(path, f"not a JSON object: {data[:40]!r}")
        return cls(path, values)

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def integer(self, key: str) -> int:
        return int(self._typed(key, "a number", _is_integer))

    def text(self, key: str) -> str:
        return str(self._typed(key, "a text", lambda value: isinstance(value, str)))

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if key in self else None

    def number_in_text(self, key: str) -> int:
        """Return a number that is written as a string; bare numbers are allowed too."""
        value = self.values.get(key)
        if _is_integer(value):
            return int(value)  # type: ignore[arg-type]
        try:
            return int(self.text(key))
        except ValueError as error:
            raise self.complaint(key, "a number in a string") from error

    def integers(self, key: str) -> tuple[int, ...]:
        return tuple(self._typed(key, "a list of numbers", _is_integer_list))

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(self._typed(key, "a list of strings", lambda value: _is_list_of(value, str)))

    def text_map(self, key: str) -> dict[str, str]:
        """Return an object whose values are all strings."""
        values = self._typed(key, "an object", lambda value: isinstance(value, dict))
        if not all(isinstance(value, str) for value in values.values()):
            raise self.complaint(key, "an object of strings")
        return dict(values)

    def child(self, key: str) -> Fields:
        """Return an object within this one."""
        return Fields(self.path, self._typed(key, "an object", lambda value: isinstance(value, dict)))

    def optional_child(self, key: str) -> Fields:
        """Return an object within this one; a missing one is empty."""
        return self.child(key) if key in self else Fields(self.path, {})

    def children(self, key: str) -> list[Fields]:
        """Return a list of objects within this one."""
        values = self._typed(key, "a list of objects", lambda value: _is_list_of(value, dict))
        return [Fields(self.path, value) for value in values]

    def complaint(self, key: str, wanted: str) -> ZnodeFormatError:
        if key not in self.values:
            return ZnodeFormatError(self.path, f"no {key!r}")
        return ZnodeFormatError(self.path, f"{key!r} is not {wanted}: {str(self.values[key])[:40]!r}")

    def _typed(self, key: str, wanted: str, is_right: Callable[[Any], bool]) -> Any:
        value = self.values.get(key)
        if not is_right(value):
            raise self.complaint(key, wanted)
        return value


def _is_integer(value: object) -> bool:
    # JSON's true is an int in Python, but not in Kafka.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_integer_list(value: object) -> bool:
    return isinstance(value, list) and all(_is_integer(item) for item in value)


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)
