"""What a user types after ``/``: which rows stay. Pure.

``orders`` keeps rows that contain it, ``!orders`` those that do not, ``~ordrs`` those that hold its letters in this
order. A row must match all words; upper and lower case are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

Predicate = Callable[[str], bool]


@dataclass(frozen=True)
class Filter:
    """A filter as typed."""

    text: str = ""

    @cached_property
    def _predicates(self) -> tuple[Predicate, ...]:
        return tuple(predicate for word in self.text.lower().split() if (predicate := _predicate(word)))

    @property
    def is_empty(self) -> bool:
        return not self._predicates

    def keeps(self, text: str) -> bool:
        """Whether a row with this text stays."""
        lower = text.lower()
        return all(predicate(lower) for predicate in self._predicates)


def _predicate(word: str) -> Predicate | None:
    """Return the test of one word; None for a sign that nothing follows yet."""
    if word.startswith("!"):
        inner = _predicate(word[1:])
        return None if inner is None else lambda text: not inner(text)
    if word.startswith("~"):
        pattern = re.compile(".*?".join(map(re.escape, word[1:])), re.DOTALL)
        return (lambda text: pattern.search(text) is not None) if word[1:] else None
    return (lambda text: word in text) if word else None
