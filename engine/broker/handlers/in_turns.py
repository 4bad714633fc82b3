"""Answers requests that name very many things, without holding up other requests.

Such a handler is a generator that yields after each thing, ``@in_steps``. What takes a few milliseconds is answered at
once, in the read's own callback; the rest of what takes longer is carried out in turns with others.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from functools import wraps
from itertools import islice
from time import perf_counter, thread_time
from typing import Any, TypeVar

from engine.broker.handlers.answer_lists import AnswerLists
from engine.broker.network.request import Deferred, LargeAnswer
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.runtime import turns

C = TypeVar("C")
Q = TypeVar("Q")
T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")
O = TypeVar("O")  # noqa: E741 - one letter as the others

Steps = Generator[None, None, R]

PER_STEP = 50
"""Items per step where an item takes less than the step itself."""

AT_ONCE_MAX = 500
"""Items per step; they take some milliseconds."""


def in_steps(handler: Callable[[C, Q], Steps[R]]) -> Callable[[C, Q], R | Coroutine[Any, Any, Any]]:
    """Make a handler of a generator: it answers at once if all steps are short, otherwise later."""

    @wraps(handler)
    def handle(context: C, request: Q) -> R | Coroutine[Any, Any, Any]:
        return carried_out(handler(context, request))

    return handle


def carried_out(steps: Steps[R]) -> R | Coroutine[Any, Any, Any]:
    """Return the result of the steps; if they take long, a coroutine that carries out the rest in turns."""
    half_s = turns.HOLD_MS_MAX / 2000
    try:
        until_s = perf_counter() + half_s
        next(steps)
        while perf_counter() < until_s:
            next(steps)
        # From here on its own work only: what other processes do must not decide how a small request is answered. That
        # clock is a call of the system, ten times as expensive.
        until_s = thread_time() + half_s
        while thread_time() < until_s:
            next(steps)
    except StopIteration as end:
        result: R = end.value
        return result
    return _later(steps)


async def _later(steps: Steps[R]) -> Any:
    """Return the result of the steps; an answer that took long to make takes long to encode."""
    result = await turns.carry_out(steps)
    if isinstance(result, Coroutine):
        return await result
    return result if isinstance(result, Deferred) else LargeAnswer(result)


def pieces(topics: Iterable[T], parts: str) -> Iterator[T]:
    """Yield the topics of a request; a topic with very many partitions comes several times, each time with some of
    them.

    Args:
        parts: the topic's attribute that holds its partitions.
    """
    for topic in topics:
        named = getattr(topic, parts)
        if len(named) <= AT_ONCE_MAX:
            yield topic
            continue
        for start in range(0, len(named), AT_ONCE_MAX):
            piece = copy.copy(topic)
            setattr(piece, parts, named[start : start + AT_ONCE_MAX])
            yield piece


def in_lists(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield as many items at a time as take some milliseconds to work on; at least one list."""
    rest = iter(items)
    yield list(islice(rest, AT_ONCE_MAX))
    while piece := list(islice(rest, AT_ONCE_MAX)):
        yield piece


def parts_in_lists(topics: Iterable[T], parts: Callable[[T], Iterable[P]]) -> Iterator[list[P]]:
    """Yield the topics' parts as ``in_lists`` does. Of very many topics without a part it yields empty lists."""
    batch: list[P] = []
    has_yielded = False
    for number, topic in enumerate(topics, start=1):
        for part in parts(topic):
            batch.append(part)
            if len(batch) == AT_ONCE_MAX:
                yield batch
                batch, has_yielded = [], True
        if number % AT_ONCE_MAX == 0:
            yield batch
            batch, has_yielded = [], True
    if batch or not has_yielded:
        yield batch


async def in_turns(items: Iterable[T], work: Callable[[T], R], into: list[R] | None = None) -> list[R]:
    """Return the result of ``work`` for each item."""
    return await turns.carry_out(each(items, work, into))


def each(items: Iterable[T], work: Callable[[T], R], into: list[R] | None = None) -> Steps[list[R]]:
    """Return the result of ``work`` for each item; a step is an item.

    Args:
        into: takes the results, as ``answer_list`` returns it.
    """
    results = [] if into is None else into
    for item in items:
        results.append(work(item))
        yield
    return results


def each_part(
    topics: Iterable[T],
    parts: Callable[[T], Iterable[P]],
    work: Callable[[T, P], R],
    finish: Callable[[T, list[R]], O],
    into: AnswerLists | None = None,
) -> Steps[list[O]]:
    """Return what ``finish`` makes of each topic and the results of ``work`` for its parts.

    A step is a part, or a topic's end.
    """
    made: list[O] = [] if into is None else into.of_topics()
    for topic in topics:
        results: list[R] = [] if into is None else into.of_parts()
        for part in parts(topic):
            results.append(work(topic, part))
            yield
        made.append(finish(topic, results if into is None else into.settled(results)))
        yield
    return made if into is None else into.settled(made)


def by_topic(
    errors: Iterable[tuple[TopicPartition, ErrorCode]], result: Callable[[int, ErrorCode], R]
) -> Steps[Iterable[tuple[str, list[R]]]]:
    """Return the partitions' results by topic, in the order in which the topics came. A step is some partitions."""
    topics: dict[str, list[R]] = {}
    for number, ((topic, index), error) in enumerate(errors, start=1):
        results = topics.get(topic)
        if results is None:
            results = topics[topic] = []
        results.append(result(index, error))
        if number % PER_STEP == 0:
            yield
    return topics.items()
