"""What refuses a part of a request: the entries of an answer for what a peer may not do. ``guards`` decides about that.

A step is one entry, because a request may name very many things. Source: ``getErrorResponse`` of Kafka 3.9's requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

from engine.broker.handlers.answer_lists import answer_list, answer_lists
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, each, each_part
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Struct, request_class, response_class
from engine.kafka.protocol.types import INT32, STRING, Array

NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TXN = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)  # fmt: skip
MESSAGES: Final = {
    NO_TOPIC: "Topic authorization failed.",
    NO_GROUP: "Group authorization failed.",
    NO_CLUSTER: "Cluster authorization failed.",
    NO_TXN: "Transactional Id authorization failed.",
}


def said(code: ErrorCode) -> dict[str, Any]:
    """Return the fields of an error with its text."""
    return {"error_code": code, "error_message": MESSAGES[code]}


def element(message: type[Struct], path: str) -> Any:
    """Return the class of what an array holds; ``path`` names arrays within each other, with dots between."""
    for name in path.split("."):
        (message,) = (f.type.element for f in message.wire_fields if f.name == name and isinstance(f.type, Array))  # type: ignore[assignment]
    return message


class Partitions:
    """Refuses topics of a request, partition by partition."""

    def __init__(self, key: ApiKey, asked: str, answered: str, **more: Any) -> None:
        """Args:
        asked: where in the request the topics are.
        answered: where in the answer.
        more: values of the fields of a refused partition that are neither its number nor its error.
        """
        self._key, self._asked, self._answered, self._more = key, asked, answered, more

    @cached_property
    def _entry(self) -> tuple[Callable[[Any], Iterable[Any]], Callable[..., Any], Callable[..., Any]]:
        """Return what finds a topic's partitions, makes the entry of one, and that of its topic."""
        asked, answered = (
            element(request_class(self._key), self._asked),
            element(response_class(self._key), self._answered),
        )
        parts, held = _first(asked, Array), _first(answered, Array)
        part, more = held.type.element, self._more
        number = _first(part, INT32).name
        code_name = next(f.name for f in part.wire_fields if f.name.endswith("error_code"))
        are_numbers = parts.type.element is INT32
        number_of = None if are_numbers else attrgetter(_first(parts.type.element, INT32).name)
        names = {"topic_id": attrgetter("topic_id")} if any(f.name == "topic_id" for f in answered.wire_fields) else {}
        if any(f.type is STRING for f in answered.wire_fields):
            names[_first(answered, STRING).name] = attrgetter(_first(asked, STRING).name)

        def refused(named: Any, code: ErrorCode) -> Any:
            return part(**{number: named if number_of is None else number_of(named), code_name: code}, **more)

        def finished(topic: Any, entries: list[Any]) -> Any:
            return answered(**{name: of(topic) for name, of in names.items()}, **{held.name: entries})

        return attrgetter(parts.name), refused, finished

    def refused(
        self, context: RequestContext, topics: Iterable[Any], code: ErrorCode | Callable[[Any], ErrorCode] = NO_TOPIC
    ) -> Steps[list[Any]]:
        """Return the entries of topics; ``code`` may depend on the topic. Those of a large request are encoded."""
        parts, refused, finished = self._entry
        code_of = code if callable(code) else lambda topic: code
        held = _first(element(response_class(self._key), self._answered), Array).name
        lists = answer_lists(context, response_class(self._key), f"{self._answered}.{held}")
        return each_part(topics, parts, lambda topic, named: refused(named, code_of(topic)), finished, lists)


def _first(struct: type[Struct], kind: Any) -> Any:
    """Return the first field of a type."""
    return next(f for f in struct.wire_fields if f.type is kind or (kind is Array and isinstance(f.type, Array)))


def whole(key: int, code: ErrorCode) -> Any:
    """Return an answer with an error for the whole request, where the API has a field for it."""
    made: Any = response_class(ApiKey(key))()
    made.error_code = code
    if hasattr(made, "error_message"):
        made.error_message = MESSAGES[code]
    return made


def with_each(
    context: RequestContext,
    field: str,
    items: Iterable[Any],
    entry: Callable[[Any], dict[str, Any]] = lambda _: {},
    *,
    tops: bool = False,
) -> Steps[Any]:
    """Return an answer with an entry for each item that the request names, refused for want of a right on the cluster.

    Args:
        entry: returns the fields of an entry beside the error.
        tops: the answer has the error, too.
    """
    key = ApiKey(context.api_key)
    answered, refusal = element(response_class(key), field), said(NO_CLUSTER)
    answer = whole(key, NO_CLUSTER) if tops else response_class(key)()
    into = answer_list(context, response_class(key), field)
    entries = yield from each(items, lambda item: answered(**refusal, **entry(item)), into)
    setattr(answer, field, entries)
    return answer


def with_partitions(
    context: RequestContext, partitions: Partitions, answer: Any, field: str, topics: Iterable[Any]
) -> Steps[Any]:
    """Return the answer with each named partition refused for want of a right on the cluster."""
    entries = yield from partitions.refused(context, topics, NO_CLUSTER)
    setattr(answer, field, entries)
    return answer
