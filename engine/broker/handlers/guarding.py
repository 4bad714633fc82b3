"""How a guard stands before a handler, and what guards of most kinds are made of. ``guards`` has the table of them.

A guard looks at a decoded request. It lets it pass (None), refuses it (an answer), or takes out what the peer may not
do and returns what adds the refusals to the handler's answer. ``guarded`` refuses APIs that have no guard, so a new
handler cannot be forgotten. Without an authorizer none of this runs.

A request may name very many things, and its client may not have any right. So a guard that asks about each of
them is a generator that yields after each; the same holds for what adds to an answer. What takes longer than a few
milliseconds goes on in turns with others.

Source: KafkaApis and ZkAdminManager of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import CoroutineType, GeneratorType
from typing import Any, Final

from engine.broker.fetch.reads import GuardedReads
from engine.broker.handlers.answer_lists import answer_list, digest, is_large, join, repeated_digests
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import Steps, carried_out
from engine.broker.handlers.refusals import NO_CLUSTER, NO_GROUP, NO_TXN, Partitions, element, whole
from engine.broker.network.request import Deferred, LargeAnswer
from engine.broker.security.authorizer import Authorizer
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode
from engine.common.turns import at_once
from engine.kafka.acls import CLUSTER_NAME
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import response_class
from engine.kafka.protocol.large_arrays import LazyArray, PickedArray

TOPIC, GROUP, CLUSTER, TXN = (
    ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID,
)  # fmt: skip
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER,
    AclOperation.DESCRIBE,
)  # fmt: skip

PARTED_AT_ONCE_MAX: Final = 100
"""Topics and partitions of a refused Produce that are sorted out in one go. A refusal is a line in the log, too."""

Merge = Callable[[Any], Any]
"""Adds the refusals to an answer; returns what is answered, or is a generator that does."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks the authorizer about one request."""

    context: RequestContext
    authorizer: Authorizer
    request: str
    """The API's name, for the log."""

    def may(
        self, operation: AclOperation, resource_type: ResourceType, name: str, *, count: int = 1, tells: bool = True
    ) -> bool:
        return self.authorizer.may(
            self.context.session, operation, resource_type, name, request=self.request, count=count, tells=tells
        )

    def cluster(self, operation: AclOperation, *, tells: bool = True) -> bool:
        return self.may(operation, CLUSTER, CLUSTER_NAME, tells=tells)

    def parted(
        self, items: Iterable[Any], operation: AclOperation, resource_type: ResourceType, name: str | None = "name"
    ) -> Steps[tuple[list[Any], list[Any]]]:
        """Return the items about which the peer may do this, and the others.

        Args:
            name: the attribute that names an item; None: the item is its name.
        """
        kept, keep = some_of(items)
        refused, refuse = some_of(items)
        for place, item in enumerate(items):
            named = item if name is None else getattr(item, name)
            (keep if self.may(operation, resource_type, named or "") else refuse)(place, item)
            yield
        return kept, refused

    def seen(
        self, items: Iterable[Any], operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Steps[list[Any]]:
        """Return the items of an answer that the peer may know of; ``name`` is the attribute that names an item."""
        kept = []
        for item in items:
            if self.may(operation, resource_type, getattr(item, name), tells=False):
                kept.append(item)
            yield
        return kept

    def operations(self, resource_type: ResourceType, name: str) -> int:
        return self.authorizer.operations(self.context.session, resource_type, name)


def some_of(items: Iterable[Any]) -> tuple[Any, Callable[[int, Any], object]]:
    """Return what will hold some of the items, in little memory if they are very many, and what adds one.

    It takes the item's place among all and the item; those of later places come later.
    """
    if isinstance(items, LazyArray):
        picked = PickedArray(items)
        return picked, lambda place, item: picked.add(place)
    kept: list[Any] = []
    return kept, lambda place, item: kept.append(item)


class WithReads:
    """A guard's result for Fetch: the handler reads by these reads."""

    __slots__ = ("reads",)

    def __init__(self, reads: Callable[..., GuardedReads]) -> None:
        self.reads = reads


Guard = Callable[[Ask, Any], Any]
"""None: it may pass. A function: what to do with the answer. An answer: it may not pass. Or a generator of these."""


def behind(
    guard: Guard, key: ApiKey, handler: Callable[..., Any], authorizer: Authorizer
) -> Callable[[RequestContext, Any], Any]:
    """Return the handler behind a guard."""
    name = key.name.title().replace("_", "")

    def handle(context: RequestContext, request: Any) -> Any:
        verdict = guard(Ask(context, authorizer, name), request)
        if type(verdict) is GeneratorType:
            verdict = carried_out(verdict)
            if type(verdict) is CoroutineType:
                return when_decided(context, request, verdict)
        return decided(context, request, verdict)

    def decided(context: RequestContext, request: Any, verdict: Any) -> Any:
        if verdict is None:
            return handler(context, request)
        if isinstance(verdict, WithReads):
            return handler(context, request, verdict.reads)
        if callable(verdict):
            return _after(handler(context, request), verdict)
        return verdict

    async def when_decided(
        context: RequestContext, request: Any, deciding: CoroutineType[Any, Any, LargeAnswer]
    ) -> Any:
        verdict = (await deciding).response
        answer = decided(context, request, verdict)
        if type(answer) is CoroutineType:
            answer = await answer
        # A refusal of very many things takes long to encode.
        return LargeAnswer(answer) if answer is verdict else answer

    return handle


def _after(answer: Any, merge: Merge) -> Any:
    """Return the merged answer, now or whenever it is there."""
    if type(answer) is CoroutineType:
        return _after_awaiting(answer, merge)
    if isinstance(answer, Deferred):
        outer = Deferred(answer.give_up, weight=answer.weight)
        answer.on_complete(lambda: outer.complete(_whole(merge(answer.response))))
        return outer
    if isinstance(answer, LargeAnswer):
        merged = _merged(merge, answer.response)
        return merged if type(merged) is CoroutineType else LargeAnswer(merged)
    return _merged(merge, answer)


async def _after_awaiting(answering: CoroutineType[Any, Any, Any], merge: Merge) -> Any:
    merged = _after(await answering, merge)
    return await merged if type(merged) is CoroutineType else merged


def _merged(merge: Merge, answer: Any) -> Any:
    made = merge(answer)
    return carried_out(made) if type(made) is GeneratorType else made


def _whole(made: Any) -> Any:
    return at_once(made) if type(made) is GeneratorType else made


def adds(field: str, entries: list[Any]) -> Merge:
    """Add entries to a list of the answer."""

    def merge(answer: Any) -> Any:
        return join(answer, field, entries) if hasattr(answer, field) else answer

    return merge


def then(add: Merge | None, answer: Any) -> Steps[Any]:
    """Return what is answered once ``add``, if any, has added the refusals."""
    made = answer if add is None else add(answer)
    return (yield from made) if isinstance(made, GeneratorType) else made


# -- whole requests


def everybody(ask: Ask, request: Any) -> None:
    """Everybody may."""


def refuses_all(code: ErrorCode) -> Guard:
    return lambda ask, request: whole(ask.context.api_key, code)


def needs_cluster(*operations: AclOperation, refuse: Guard | None = None) -> Guard:
    """Any of these operations on the cluster."""

    def guard(ask: Ask, request: Any) -> Any:
        if any(ask.cluster(operation, tells=operation is operations[-1]) for operation in operations):
            return None
        return (refuse or refuses_all(NO_CLUSTER))(ask, request)

    return guard


def needs_group(ask: Ask, request: Any) -> Any:
    return None if ask.may(READ, GROUP, request.group_id) else refuses_all(NO_GROUP)(ask, request)


def needs_transactional_id(ask: Ask, request: Any) -> Any:
    return None if ask.may(WRITE, TXN, request.transactional_id) else refuses_all(NO_TXN)(ask, request)


CLUSTER_ACTION = needs_cluster(AclOperation.CLUSTER_ACTION)


def needs_topics(operation: AclOperation, partitions: Partitions, name: str = "name") -> Callable[..., Steps[Any]]:
    """An operation on each topic; refused ones get entries of their own in the answer."""

    def guard(ask: Ask, request: Any) -> Steps[Any]:
        request.topics, refused = yield from ask.parted(request.topics, operation, TOPIC, name)
        if not refused:
            return None
        return adds("topics", (yield from partitions.refused(ask.context, refused)))

    return guard


def needs_each(
    operation: AclOperation, kind: ResourceType, code: ErrorCode, asked: str, answered: str, named: str, **more: Any
) -> Callable[..., Steps[Any]]:
    """An operation on each thing in a list of names; a refused one gets one entry in the answer.

    Args:
        named: the field of an entry that has the name.
        more: values of other fields of an entry.
    """

    def guard(ask: Ask, request: Any) -> Steps[Any]:
        kept, refused = yield from ask.parted(getattr(request, asked), operation, kind, None)
        if not refused:
            return None
        setattr(request, asked, kept)
        message = response_class(request.api_key)
        made = partial(element(message, answered), error_code=code, **more)
        entries = answer_list(ask.context, message, answered)
        repeated: set[int] | None = (yield from repeated_digests(refused)) if is_large(ask.context) else None
        seen: set[str] = set()
        for name in refused:
            yield
            if repeated is None or digest(name) in repeated:
                if name in seen:
                    continue
                seen.add(name)
            entries.append(made(**{named: name}))
        return adds(answered, entries)

    return guard


def cluster_operations(ask: Ask) -> int:
    return ask.operations(CLUSTER, CLUSTER_NAME) if ask.cluster(DESCRIBE, tells=False) else 0
