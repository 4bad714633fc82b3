"""Cuts work on very many partitions into turns, so that an event loop can do other work in between. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from engine.common.snapshot import TopicSnapshot

T = TypeVar("T")

SLICE = 5_000
"""This many partitions are looked at in one turn: some ten milliseconds."""


def topics_in_turns(topics: Iterable[TopicSnapshot], look: Callable[[TopicSnapshot], bool]) -> Iterator[None]:
    """Look at each topic, and yield after this many partitions. ``look`` returns whether there was anything to do."""
    count = 0
    for topic in topics:
        if look(topic):
            count += len(topic.partitions)
            if count >= SLICE:
                yield
                count = 0


def pieces_of(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most ``size``."""
    rest = iter(items)
    while piece := list(islice(rest, size)):
        yield piece


def at_once(turns: Generator[None, None, T]) -> T:
    """Do all turns one after the other; return their result."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            result: T = end.value
            return result
