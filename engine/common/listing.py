"""The first of very many things, and how many more there are; and which occur more than once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

LISTED_MAX = 1000
"""Kafka's log lines name all. A line about 200,000 partitions is 20 MB and blocks the event loop for half a second."""


def first_few(names: Iterable[object], shown_max: int = 5) -> str:
    """Return names for a sentence: ``a, b, c and 7 more``."""
    texts = [str(name) for name in names]
    more = len(texts) - shown_max
    return ", ".join(texts[:shown_max]) + (f" and {more} more" if more > 0 else "")


def listed(values: Collection[T], text: Callable[[T], str] = str) -> list[str]:
    """Return the texts of the first values; if there are more, the last one says how many."""
    texts = [text(value) for value in islice(values, LISTED_MAX)]
    if len(values) > LISTED_MAX:
        texts.append(f"and {len(values) - LISTED_MAX} more")
    return texts


def repeated(values: Iterable[Any]) -> list[Any]:
    """Return the values that occur more than once, each once, sorted."""
    seen: set[Any] = set()
    twice: set[Any] = set()
    for value in values:
        (twice if value in seen else seen).add(value)
    return sorted(twice)
