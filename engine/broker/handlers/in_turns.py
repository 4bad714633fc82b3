"""Answers requests that name very many things, without holding up other requests.

A request for a few is answered at once, in the read's own callback. A request for more takes turns with others.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from engine.broker.replication.state_changes import Breather

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")
O = TypeVar("O")  # noqa: E741 - one letter as the others

AT_ONCE_MAX = 500
"""Items per turn; they take some milliseconds."""


def answered(items: Sequence[T], work: Callable[[T], R], finish: Callable[[list[R]], O]) -> O | Coroutine[Any, Any, O]:
    """Apply ``work`` to each item and return ``finish`` of the results, or a coroutine that does so."""
    if len(items) <= AT_ONCE_MAX:
        return finish([work(item) for item in items])
    return _later(items, work, finish)


async def _later(items: Sequence[T], work: Callable[[T], R], finish: Callable[[list[R]], O]) -> O:
    return finish(await in_turns(items, work))


def pieces(topics: Iterable[T], parts: str) -> Iterator[T]:
    """Yield the topics of a request; a topic with very many partitions comes several times, each time with some of
    them.

    Args:
        parts: the topic's attribute that holds its partitions.
    """
    for topic in topics:
        named = getattr(topic, parts)
        for start in range(0, len(named), AT_ONCE_MAX):
            piece = copy.copy(topic)
            setattr(piece, parts, named[start : start + AT_ONCE_MAX])
            yield piece


async def in_turns(items: Iterable[T], work: Callable[[T], R]) -> list[R]:
    """Return the result of ``work`` for each item."""
    breather, results = Breather(), []
    for item in items:
        results.append(work(item))
        await breather.give_way()
    return results


async def steps_in_turns(steps: Generator[None, None, R]) -> R:
    """Carry out all steps of a generator and return its result. ``engine.common.turns.at_once`` does so in one go."""
    breather = Breather()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result
        await breather.give_way()


def topics_answered(
    topics: Sequence[T],
    parts: Callable[[T], Sequence[P]],
    work: Callable[[T, P], R],
    finish: Callable[[list[tuple[T, list[R]]]], O],
) -> O | Coroutine[Any, Any, O]:
    """Do the same for topics and their partitions: ``finish`` receives each topic with the results of its parts."""
    if sum(len(parts(topic)) for topic in topics) + len(topics) <= AT_ONCE_MAX:
        return finish([(topic, [work(topic, part) for part in parts(topic)]) for topic in topics])
    return _topics_later(topics, parts, work, finish)


async def _topics_later(
    topics: Sequence[T],
    parts: Callable[[T], Sequence[P]],
    work: Callable[[T, P], R],
    finish: Callable[[list[tuple[T, list[R]]]], O],
) -> O:
    breather, made = Breather(), []
    for topic in topics:
        results = []
        for part in parts(topic):
            results.append(work(topic, part))
            await breather.give_way()
        made.append((topic, results))
    return finish(made)
