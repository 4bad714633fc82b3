"""Tables from the class of an event or instruction to its handler; mypy checks the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

K = TypeVar("K")
R = TypeVar("R")

Row = tuple[type, Callable[[Any], R]]


def on(kind: type[K], do: Callable[[K], R]) -> Row[R]:
    """Return a row: ``do`` handles each instance of ``kind``."""
    return kind, do


def table(*rows: Row[R]) -> Mapping[type, Callable[[Any], R]]:
    """Return the rows by class.

    Raises:
        ValueError: two rows have the same class.
    """
    by_class = dict(rows)
    if len(by_class) != len(rows):
        raise ValueError("two rows have the same class")
    return by_class
