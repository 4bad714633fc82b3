"""Lists in log lines: names the first of very many things and counts the others.

Kafka names all. A line about 200,000 partitions is 20 MB and blocks the event loop for half a second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

LISTED_MAX = 1000


def listed(values: Collection[T], text: Callable[[T], str] = str) -> list[str]:
    """Return the texts of the first values; if there are more, the last one says how many."""
    texts = [text(value) for value in islice(values, LISTED_MAX)]
    if len(values) > LISTED_MAX:
        texts.append(f"and {len(values) - LISTED_MAX} more")
    return texts
