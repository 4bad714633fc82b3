"""Maps the first four bytes of a request to its decoder, its handler and the encoder of its answer.

The network knows handlers only as callables; ``engine.broker.server`` fills the table from the registry of handlers.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import CoroutineType, coroutine
from typing import Any, Final

from engine.broker.metrics.requests import RequestTimes, error_counter
from engine.broker.network.request import NO_RESPONSE, NOT_ENCODED, Deferred, LargeAnswer, RequestHead, RequestUse
from engine.broker.network.session import ClientSoftware
from engine.common.acl import AclOperation, Requirement
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey, request_header_version, response_header_version
from engine.kafka.protocol.codec import decoder, encoder
from engine.kafka.protocol.declaration import Struct, request_class, response_class
from engine.kafka.protocol.frames import skip_header_tags
from engine.kafka.protocol.large_arrays import EncodedList
from engine.kafka.protocol.wire import STRING_BYTES_MAX

AnswerHook = Callable[[RequestHead, Any], None]
"""Called with each answer of a handler before it is encoded, and may change it; also with ``NO_RESPONSE``. Bytes that a
handler has encoded itself come as ``Outgoing``. The request's ``use`` says how long it has kept the event loop.
"""


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """One API: its versions, its handlers, and the rights that its requests may need."""

    key: ApiKey
    min_version: int
    max_version: int
    handler: Callable[..., Any]
    is_async: bool
    large_handler: Callable[..., Any] | None = None
    """A separate handler for large requests, if any: a coroutine function that takes turns with others, and whose
    request owns its bytes.
    """
    requires: tuple[Requirement, ...] = ()
    """As Kafka's documentation lists them. Which of them a request needs depends on what it asks for, and some replace
    each other: ``handlers.guards`` decides.
    """
    plain_handler: Callable[..., Any] | None = None
    """Answers usual requests from their bytes, later; gives None for others, which ``handler`` answers."""


class Requester(Enum):
    """Who sends requests of an API. Large requests of one kind never wait for those of another."""

    BROKER = "a broker, for which requests of the others may wait"
    ADMIN = "somebody who changes the cluster, and waits for ZooKeeper and the controller"
    CLIENT = "anybody else"


def _requester(spec: HandlerSpec) -> Requester:
    operations = {need.operation for need in spec.requires}
    if AclOperation.CLUSTER_ACTION in operations:
        return Requester.BROKER
    # Metadata hardly ever creates a topic.
    return Requester.ADMIN if operations & _CHANGES and spec.key != ApiKey.METADATA else Requester.CLIENT


_CHANGES = {AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS}


VERSION_MAX: Final = 2**15 - 1

SOFTWARE_MAX: Final = 100
"""Senders of deprecated requests that are told apart, for each API and version: a client may call itself anything."""

SOFTWARE_CHARACTERS_MAX: Final = 200
"""Name and version of one that is told apart; a client's may have 65,000."""


class Route:
    """One API in one version. ``times`` has its requests; of followers' Fetches, ``follower_times``."""

    __slots__ = (
        "_spec",
        "api_key",
        "api_version",
        "count_errors",
        "counts_errors",
        "decode",
        "deprecated",
        "encode",
        "errors",
        "follower_times",
        "handler",
        "has_client_id",
        "is_async",
        "is_fetch",
        "large_handler",
        "name",
        "new_answers",
        "plain_handler",
        "request_has_tags",
        "requester",
        "response_class",
        "response_has_tags",
        "times",
    )

    def __init__(self, spec: HandlerSpec, api_version: int, before_encoding: AnswerHook | None = None) -> None:
        key = spec.key
        self.name = key.name
        self.api_key = int(key)
        self.api_version = api_version
        self._spec = spec
        self.show_answers(before_encoding)
        self.is_async = spec.is_async
        self.requester = _requester(spec)
        self.times = RequestTimes()
        self.is_fetch = key is ApiKey.FETCH
        self.new_answers = self.times.new_answers
        self.follower_times = RequestTimes() if self.is_fetch else self.times
        self.response_class = response_class(key)
        self.errors: defaultdict[int, int] = defaultdict(int)
        """Error codes in its answers. Produce and Fetch count those of partitions where they append and read, without
        a walk through the answer; of Fetch it has only the errors of whole answers.
        """
        is_counted = key in (ApiKey.PRODUCE, ApiKey.FETCH)
        self.count_errors = None if is_counted else error_counter(self.response_class, api_version)
        self.counts_errors = self.is_fetch or self.count_errors is not None
        self.deprecated: Counter[ClientSoftware] | None = (
            Counter() if API_SPECS[key].is_deprecated_in(api_version) else None
        )
        """Requests by the software that sends them, if Kafka 4.0 does not take this version."""
        self.has_client_id = request_header_version(key, api_version) >= 1
        self.request_has_tags = request_header_version(key, api_version) >= 2
        self.response_has_tags = response_header_version(key, api_version) >= 1
        self.decode: Callable[[Any, int], tuple[Any, int]] | None = decoder(request_class(key), api_version)
        self.encode = encoder(self.response_class, api_version)

    def decode_large(self, frame: memoryview, position: int) -> Any:
        """Return the body of a large request, whose memory is bounded; compiled on first use.

        Raises:
            RemoteProtocolError: it is malformed, or has too many elements for its size.
        """
        bounded = decoder(request_class(ApiKey(self.api_key)), self.api_version, is_bounded=True)
        return bounded(frame, skip_header_tags(frame, position) if self.request_has_tags else position)[0]

    def of_large_answers(self) -> Route:
        """Return a copy whose encoder does not copy what its handler has encoded; compiled on first use."""
        route = copy.copy(self)
        route.encode = encoder(self.response_class, self.api_version, is_large=True)
        if self.count_errors is not None:
            route.count_errors = error_counter(self.response_class, self.api_version, is_large=True)
        return route

    def show_answers(self, hook: AnswerHook | None) -> None:
        """Show the answers of later requests to the hook; None: to nobody."""
        spec = self._spec
        self.handler = _hooked(spec.handler, hook)
        self.plain_handler = spec.plain_handler if hook is None else None
        self.large_handler = _hooked(spec.large_handler or spec.handler, hook)

    def count_deprecated(self, sender: ClientSoftware) -> None:
        """Count a request by its sender; one beyond the limits counts as unknown software."""
        counts = self.deprecated
        if counts is not None:
            is_short = len(sender.name) + len(sender.version) <= SOFTWARE_CHARACTERS_MAX
            is_counted = sender in counts or (is_short and len(counts) < SOFTWARE_MAX)
            counts[sender if is_counted else ClientSoftware(is_follower=sender.is_follower)] += 1

    def fault_response(self) -> Any:
        """Return an answer with UNKNOWN_SERVER_ERROR, or None if the API has no error for the whole answer."""
        if "error_code" not in getattr(self.response_class, "__slots__", ()):
            return None
        return self.response_class(error_code=-1)


class RouteTable(dict[int, Route | None]):
    """Routes by ``api_key << 16 | api_version``, made on first use, because codecs are compiled only if needed."""

    def __init__(
        self,
        handlers: Mapping[int, HandlerSpec],
        unsupported_api_versions: Callable[..., Any],
        before_encoding: AnswerHook | None = None,
    ) -> None:
        """``unsupported_api_versions`` answers ApiVersions requests of unknown versions, in the form of version 0.

        Without ``before_encoding`` a request costs no instruction for it.
        """
        super().__init__()
        self._before_encoding = before_encoding
        self._copies: list[RouteTable] = []
        self._handlers = handlers
        self._unsupported_api_versions = unsupported_api_versions

    def show_answers(self, hook: AnswerHook | None) -> None:
        """Show the answers of later requests to the hook, before they are encoded; None: to nobody."""
        self._before_encoding = hook
        for route in self.values():
            if route is not None:
                route.show_answers(hook)
        for of_listener in self._copies:
            of_listener.show_answers(hook)

    def of_listener(self) -> RouteTable:
        """Return a table with the same handlers that counts the requests of one listener."""
        of_listener = RouteTable(self._handlers, self._unsupported_api_versions, self._before_encoding)
        self._copies.append(of_listener)
        return of_listener

    def __missing__(self, word: int) -> Route | None:
        key, version = word >> 16, word & 0xFFFF
        route = self._make(key, version)
        if route is not None or key in self._handlers:
            # It keeps only words of known APIs: a peer that sends garbage must not fill the table.
            self[word] = route
        return route

    def _make(self, key: int, version: int) -> Route | None:
        spec = self._handlers.get(key)
        if spec is None:
            return None
        if spec.min_version <= version <= spec.max_version:
            return Route(spec, version, self._before_encoding)
        if key == ApiKey.API_VERSIONS:
            return self._api_versions_of_unknown_version(spec, version)
        return None

    def _api_versions_of_unknown_version(self, spec: HandlerSpec, version: int) -> Route:
        """Answer an unknown version of ApiVersions in version 0's form, as Kafka does, so that the client can retry.

        The header of a later version has tags, as that of the last known one. Negative versions come as large numbers.
        """
        route = Route(HandlerSpec(spec.key, 0, 0, self._unsupported_api_versions, is_async=False), 0)
        route.decode = None
        route.request_has_tags = spec.max_version < version <= VERSION_MAX
        return route


def _hooked(handler: Callable[..., Any], hook: AnswerHook | None) -> Callable[..., Any]:
    """Return the handler itself, or one that shows each answer to the hook, whenever it is there."""
    if hook is None:
        return handler

    async def awaited(request: RequestHead, answering: CoroutineType[Any, Any, Any]) -> Any:
        return shown(request, await _timed(request.use or RequestUse(), answering))

    def deferred(request: RequestHead, answer: Deferred) -> Deferred:
        outer = Deferred(answer.give_up, weight=answer.weight)
        answer.on_complete(lambda: outer.complete(shown(request, answer.response)))
        return outer

    def shown(request: RequestHead, answer: Any) -> Any:
        if type(answer) is CoroutineType:
            return awaited(request, answer)
        if isinstance(answer, Deferred):
            return deferred(request, answer)
        if answer is NO_RESPONSE or answer not in NOT_ENCODED:
            hook(request, answer.response if isinstance(answer, LargeAnswer) else answer)
        return answer

    def handle(request: RequestHead, body: Any) -> Any:
        request.use = use = RequestUse()
        use.begin()
        answer = handler(request, body)
        use.pause()
        return shown(request, answer)

    return handle


@coroutine
def _timed(use: RequestUse, answering: CoroutineType[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run a handler's coroutine, and count the time of its steps, not that between them."""
    failure: BaseException | None = None
    while True:
        use.begin()
        try:
            waits_for = answering.send(None) if failure is None else answering.throw(failure)
        except StopIteration as done:
            return done.value
        finally:
            use.pause()
        failure = None
        try:
            yield waits_for
        except BaseException as error:
            failure = error


def drop_long_texts(answer: Any) -> bool:
    """Make errors whose text is too long for the protocol UNKNOWN_SERVER_ERROR without a text; return if there are any.

    Kafka then gives this error to everything that the request names, klamm only to what has the long text.
    """
    has_dropped = False
    for name in answer.__slots__:
        value = getattr(answer, name)
        if isinstance(value, list | EncodedList):
            for element in value if isinstance(value, list) else value.objects:
                has_dropped |= isinstance(element, Struct) and drop_long_texts(element)
        elif name == "error_message" and value is not None and len(value.encode()) > STRING_BYTES_MAX:
            answer.error_code, answer.error_message = -1, None
            has_dropped = True
    return has_dropped
