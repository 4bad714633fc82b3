"""The arrays of an answer while a handler fills them: usual lists, or for a large request lists of encoded pieces."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator
from functools import partial, reduce
from typing import Any, TypeVar, cast

from engine.broker.handlers.context import RequestContext
from engine.broker.metrics.requests import error_counter
from engine.broker.network.connection import LARGE_FRAME_BYTES
from engine.broker.network.routes import drop_long_texts
from engine.common.errors import LocalProtocolError
from engine.kafka.protocol.codec import Outgoing, decoder, encoder
from engine.kafka.protocol.declaration import Response, Struct
from engine.kafka.protocol.large_arrays import EncodedList, EncodedPiece, Portion
from engine.kafka.protocol.types import Array

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class AnswerLists:
    """Makes the lists of a large request's answer."""

    def __init__(self, message: type[Response], version: int, path: str) -> None:
        """``path``: fields that are arrays, from the message down to the parts of a topic, or of whatever else."""
        self._encode, self._decode = encoder(message, version, is_large=True), decoder(message, version)
        self._path, self._version = path.split("."), version
        self._structs: list[Any] = [message]
        for field in self._path:
            self._structs.append(_element(self._structs[-1], field))

    def of_topics(self) -> list[Any]:
        """Return an empty list of topics, or of whatever else the answer is about."""
        return self.at(max(0, len(self._path) - 2))

    def of_parts(self) -> list[Any]:
        """Return an empty list of what one topic has."""
        return self.at(len(self._path) - 1)

    def at(self, depth: int) -> list[Any]:
        """Return an empty list for an array of the path; the message's own has the depth 0."""
        path, structs = self._path[: depth + 1], self._structs

        def wrapped(elements: Any) -> Any:
            for place in range(depth, 0, -1):
                elements = [structs[place](**{path[place]: elements})]
            return structs[0](**{path[0]: elements})

        def encoded(elements: list[Any]) -> EncodedPiece:
            out, portion = Outgoing(), Portion(elements)
            try:
                self._encode(out, wrapped(portion))
            except LocalProtocolError:
                if not sum(map(drop_long_texts, elements)):
                    raise
                return encoded(elements)
            return portion.piece_of(out)

        def decoded(data: bytes) -> list[Any]:
            message = self._decode(data, 0)[0]
            for field in path[:-1]:
                message = getattr(message, field)[0]
            return cast("list[Any]", getattr(message, path[-1]))

        element = structs[depth + 1]
        if not hasattr(element, "wire_fields"):
            return cast("list[Any]", EncodedList(encoded, decoded))
        arrays = [field.name for field in element.wire_fields if isinstance(field.type, Array)]
        counter = error_counter(element, self._version, is_large=True)
        return cast("list[Any]", EncodedList(encoded, decoded, arrays, counter))

    def repeated(self, keys: Callable[[], Iterable[K | None]]) -> Generator[None, None, set[K]]:
        """Return the keys that appear more than once; see the function of this name."""
        return repeated(keys)

    def settled(self, parts: list[Any]) -> list[Any]:
        """Return a list of parts that is complete."""
        return cast("EncodedList", parts).settled  # type: ignore[return-value]


def _element(message: type[Struct], field: str) -> Any:
    return next(f.type.element for f in message.wire_fields if f.name == field and isinstance(f.type, Array))


def is_large(context: RequestContext) -> bool:
    """Return whether the request is so large that what is made of each element must take little memory."""
    return context.size_bytes >= LARGE_FRAME_BYTES


def answer_lists(context: RequestContext, message: type[Response], path: str) -> AnswerLists | None:
    """Return what makes the lists of a large request's answer, so that they take little more than their bytes.

    None: the request is not large, and usual lists will do.

    Args:
        path: as for ``AnswerLists``.
    """
    if context.size_bytes < LARGE_FRAME_BYTES:
        return None
    return AnswerLists(message, context.api_version, path)


class ByTopic:
    """The topics of an answer with their parts, in the order in which they came."""

    def __init__(
        self, lists: AnswerLists | None, message: type[Response], path: str, name: str, again: Collection[Hashable]
    ) -> None:
        """``again``: topics of a large request that come more than once."""
        *outer, self._parts = path.split(".")
        self._topic, self._name, self._again = reduce(_element, outer, cast("Any", message)), name, {*again}
        self._lists = lists
        self._topics: list[Any] = [] if self._lists is None else self._lists.of_topics()
        self._open: dict[Hashable, list[Any]] = {}
        self._last: Hashable | None = None

    @classmethod
    def of(
        cls,
        context: RequestContext,
        message: type[Response],
        path: str,
        name: str,
        topics: Callable[[], Iterable[Hashable | None]],
        version: int | None = None,
    ) -> Generator[None, None, ByTopic]:
        """Return an empty one. A step is a topic.

        Args:
            path: as for ``answer_lists``.
            name: the field with a topic's name or id.
            topics: yields those of the request, each time that it is called.
            version: a version of the answer that has the path, if that of the request has not.
        """
        if not is_large(context):
            return cls(None, message, path, name, ())
        lists = AnswerLists(message, context.api_version if version is None else version, path)
        return cls(lists, message, path, name, (yield from repeated(topics)))

    def add(self, topic: Hashable, part: T, *, may_change: bool = False) -> T:
        """Add a part, and its topic if it is new; return the part."""
        if topic != self._last:
            self._close_last()
            self._last = topic
        parts = self._open.get(topic)
        if parts is None:
            parts = self._open[topic] = [] if self._lists is None else self._lists.of_parts()
            if self._lists is None or topic in self._again:
                kept(self._topics, self._made(topic, parts))
        if not may_change:
            parts.append(part)
            return part
        if self._lists is not None and topic not in self._again:
            # What may change must not be encoded yet.
            self._again.add(topic)
            kept(self._topics, self._made(topic, parts))
        kept(parts, part)
        return part

    def topics(self) -> list[Any]:
        """Return the topics once all are there."""
        self._close_last()
        return self._topics

    def _close_last(self) -> None:
        if self._lists is not None and self._last is not None and self._last not in self._again:
            self._topics.append(self._made(self._last, self._lists.settled(self._open.pop(self._last))))
        self._last = None

    def _made(self, topic: Hashable, parts: list[Any]) -> Any:
        return self._topic(**{self._name: topic, self._parts: parts})


def answer_list(context: RequestContext, message: type[Response], field: str) -> list[Any]:
    """Return an empty list for an array of an answer; that of a large request takes little more than its bytes."""
    if context.size_bytes < LARGE_FRAME_BYTES:
        return []
    return AnswerLists(message, context.api_version, field).of_topics()


def kept(entries: list[T], entry: T) -> T:
    """Add an entry that may still change; return it."""
    if isinstance(entries, EncodedList):
        entries.keep(entry)
    else:
        entries.append(entry)
    return entry


def join(answer: Any, field: str, entries: list[Any]) -> Any:
    """Add entries to a list of an answer; return the answer, or for very many entries a generator that does."""
    first = getattr(answer, field)
    if isinstance(first, EncodedList) or isinstance(entries, EncodedList):
        return _join_in_steps(answer, field, first, entries)
    setattr(answer, field, [*first, *entries])
    return answer


def _join_in_steps(answer: Any, field: str, first: Any, entries: Any) -> Generator[None, None, Any]:
    whole = first
    if not isinstance(first, EncodedList):
        whole = entries.empty()
        yield from whole.extend(first)
    yield from whole.extend(entries)
    setattr(answer, field, whole)
    return answer


def another(entries: list[Any]) -> list[Any]:
    """Return an empty list of the same kind."""
    return cast("list[Any]", entries.empty()) if isinstance(entries, EncodedList) else []


def digest(key: Hashable) -> int:
    """Return a number of 39 bits, which different keys hardly ever share."""
    return hash(key) & (1 << 39) - 1


def repeated_digests(keys: Iterable[Hashable | None]) -> Generator[None, None, set[int]]:
    """Return the digests that several of the keys have: a set of very many keys would take many times their bytes.

    None is no key. A step is a key.
    """
    # The last 8 bits say in which array the others are, so a key takes 4 bytes.
    buckets: defaultdict[int, array[int]] = defaultdict(partial(array, "i"))
    for key in keys:
        if key is not None:
            number = digest(key)
            buckets[number & 255].append(number >> 8)
        yield
    repeated: set[int] = set()
    for last, bucket in buckets.items():
        seen: set[int] = set()
        for number in bucket:
            if number in seen:
                repeated.add(number << 8 | last)
            else:
                seen.add(number)
            yield
    return repeated


def repeated(keys: Callable[[], Iterable[K | None]]) -> Generator[None, None, set[K]]:
    """Return the keys that appear more than once. None is no key. A step is a key.

    Args:
        keys: yields the keys, each time that it is called.
    """
    digests = yield from repeated_digests(keys())
    counts: Counter[K] = Counter()
    for key in keys() if digests else ():
        if key is not None and digest(key) in digests:
            counts[key] += 1
        yield
    return {key for key, count in counts.items() if count > 1}


def each_once(
    context: RequestContext, items: Callable[[], Iterable[tuple[K | None, T]]]
) -> Generator[None, None, Iterable[tuple[K | None, T]]]:
    """Return the items as a dict has them: in the place of a key's first item, its last value. A step is an item.

    Args:
        items: yields the items, each time that it is called. An item with the key None is only a step.
    """
    if not is_large(context):
        first_named: dict[K, T] = {}
        for key, value in items():
            if key is not None:
                first_named[key] = value
            yield
        return first_named.items()
    again = yield from repeated(lambda: (key for key, _ in items()))
    last: dict[K, T] = {}
    for key, value in items() if again else ():
        if key in again:
            last[key] = value
        yield

    def found() -> Iterator[tuple[K | None, T]]:
        for key, value in items():
            if key not in again:
                yield key, value
            elif key in last:
                yield key, last.pop(key)
            else:
                yield None, value

    return found()


class ErrorCodes:
    """The error codes of partitions by topic, in the order in which they came. A partition takes six bytes."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[array[int], array[int]]] = {}

    def add(self, topic: str, index: int, code: int) -> None:
        """Note an outcome; the last of a partition counts."""
        codes = self._topics.get(topic)
        if codes is None:
            codes = self._topics[topic] = array("i"), array("h")
        codes[0].append(index)
        codes[1].append(code)

    def topics(
        self,
        context: RequestContext,
        lists: AnswerLists | None,
        part: Callable[[int, int], Any],
        finish: Callable[[str, list[Any]], Any],
    ) -> Generator[None, None, list[Any]]:
        """Return what ``finish`` makes of each topic and its parts. A step is a partition.

        Args:
            lists: makes the lists of a large request's answer.
        """
        topics: list[Any] = [] if lists is None else lists.of_topics()
        for name, (indexes, codes) in self._topics.items():
            parts: list[Any] = [] if lists is None else lists.of_parts()
            for index, code in (yield from each_once(context, partial(zip, indexes, codes))):
                if index is not None:
                    parts.append(part(index, code))
                yield
            topics.append(finish(name, parts if lists is None else lists.settled(parts)))
        return topics if lists is None else lists.settled(topics)
