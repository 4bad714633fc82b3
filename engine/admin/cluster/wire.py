"""Sends requests to the brokers of one cluster: finds the brokers, chooses one, and retries if that is safe.

It never sends a change again if the answer is lost, because the change may have been carried out.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any, Protocol, cast

from engine.admin.cluster.broker_connections import (
    CONNECT_TIMEOUT_MAX_S,
    GREETING_PATIENCE_S,
    BrokerConnections,
    FindAddresses,
)
from engine.admin.cluster.client_properties import ClientProperties
from engine.admin.cluster.errors import LoginRefused, Unreachable, no_live_broker
from engine.admin.cluster.remedies import GIVE_TIME, Operation, Parameter, Phrase
from engine.admin.cluster.rights import Right, missing_rights
from engine.admin.cluster.settings_silence import UNKNOWN_SETTINGS_HINT, SettingsSilence
from engine.admin.cluster.waits import Complain, Observer, Waits, ignore_line
from engine.admin.cluster.wire_failures import LOSSES, outcome_unknown, unreachable, where_to_look
from engine.common.errors import ErrorCode
from engine.common.model import NO_CONTROLLER, Node, address_text
from engine.kafka.client.broker_client import CLOSED, BrokerClient, LastAnswer
from engine.kafka.client.errors import NetworkError, RequestTimedOut
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from engine.kafka.protocol.declaration import Request

ErrorsOf = Callable[[Any], Iterable[int]]
"""The error codes that an answer carries."""

LookAtZooKeeper = Callable[[], Awaitable[None]]
"""Notes in the ``SettingsSilence`` whether ZooKeeper is away."""


class Confirm(Protocol):
    """Confirms that the brokers, whose cluster has this id, are those of the cluster that was named."""

    async def __call__(self, brokers: str | None, *, for_change: bool) -> None: ...


RETRY_PAUSE_S = 0.1

NO_CONTROLLER_HINT = Phrase(
    "another is elected once its session with ZooKeeper has ended: try again, or use ", Parameter.ZOOKEEPER
)

_METADATA_WITH_RIGHTS = 8
"""The first version of Metadata that tells what a principal may do with a topic."""
_ELECTION_PATIENCE_S, _ELECTION_SHARE = 60.0, 0.8
_CHECK_LIMIT_S, _CHECK_SHARE = 8.0, 0.4
"""How long an answer may take to a request that changes nothing, and its largest share of the time."""


class WireCluster:
    """Asks any broker, a certain one, or the controller. Use it from one event loop, close it at the end."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        *,
        properties: ClientProperties | None = None,
        observe: Observer = ignore_line,
        complain: Complain = ignore_line,
        find_more: FindAddresses | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_MAX_S,
        request_timeout_s: float | None = None,
        waits: Waits | None = None,
        settings: SettingsSilence | None = None,
        look_at_zookeeper: LookAtZooKeeper | None = None,
        confirm: Confirm | None = None,
        is_dry_run: bool = False,
        denied: dict[Right, None] | None = None,
    ) -> None:
        """Prepare to talk to the cluster's brokers; nothing is opened yet.

        Args:
            find_more: called once, when no broker of ``bootstrap`` answers.
            complain: called with those of ``bootstrap`` that gave no answer.
            waits: records which brokers are being waited for.
            settings: what is known about brokers that wait for ZooKeeper.
            look_at_zookeeper: called once, before the first question that a broker answers from ZooKeeper.
            confirm: called with the cluster's id when a broker says it, and before a change is sent or checked.
            denied: gets the rights that were missing.
            is_dry_run: a change is only tried, so waits are shorter than for a broker that may be carrying it out.
        """
        self._bootstrap = tuple(bootstrap)
        self._is_dry_run = is_dry_run
        self._observe = observe
        self.denied: dict[Right, None] = {} if denied is None else denied
        self._any: BrokerClient | None = None
        self._nodes: dict[int, Node] = {}
        self._controller_id = NO_CONTROLLER
        self.cluster_id: str | None = None
        self.operation_s = math.inf if request_timeout_s is None else request_timeout_s
        """How long the operation that asks may take."""
        properties = properties or ClientProperties()
        self._request_timeout_ms = _request_timeout_ms(properties, request_timeout_s)
        if is_dry_run:
            self._request_timeout_ms = min(self._request_timeout_ms, self._check_limit_ms)
        self.silent: dict[int, str] = {}
        """Brokers that gave no answer within a limit, and what to report: the next question gives them less time, or
        none."""
        self.lacks_moves = False
        """Which reassignments are under way could not be read: nobody said it, or klamm may not see it."""
        self.unanswered: Counter[Operation] = Counter()
        """What shows the outcome of changes without an answer so far."""
        self.waits = waits or Waits()
        self._connections = BrokerConnections(
            client_id=properties.client_id,
            security=properties.security,
            connect_timeout_s=connect_timeout_s,
            request_timeout_ms=self._request_timeout_ms,
            observe=observe,
            complain=complain,
            find_more=find_more,
            waits=self.waits,
        )
        self.change_count = 0
        """How many changes were sent, answered or not."""
        self._settings = settings or SettingsSilence()
        self._look_at_zookeeper = look_at_zookeeper
        self._confirm = confirm
        self._looks = asyncio.Lock()
        self._asks_settings = asyncio.Lock()

    @property
    def _check_limit_ms(self) -> int:
        return int(min(_CHECK_LIMIT_S, self.operation_s * _CHECK_SHARE) * 1000)

    async def metadata(
        self,
        topics: Sequence[str] | None,
        *,
        broker_id: int | None = None,
        last: LastAnswer | None = None,
        with_rights: bool = False,
    ) -> MetadataResponse:
        """Ask any broker, or a certain one, for these topics, none of them or (None) all. Never creates a topic.

        Args:
            with_rights: also ask what this principal may do with each topic; brokers before 2.3 do not say.

        Raises:
            Unreachable: no broker answers.
            Unchanged: the answer is the ``last`` one.
        """
        client = await self._any_client() if broker_id is None else await self.client_of(broker_id)
        version = await self.version(client, ApiKey.METADATA)
        # Before version 4 a broker may create the topics it is asked for, so ask for all topics.
        wanted = topics if version >= 4 or not topics else None
        asked = None if wanted is None else [MetadataRequestTopic(name=name) for name in wanted]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=version < 4)
        if version == 0:
            request.topics = asked or []
        request.include_topic_authorized_operations = with_rights and version >= _METADATA_WITH_RIGHTS
        response = cast("MetadataResponse", await self._ask(client, request, last=last))
        self._remember(response, names_any_controller=_is_of_kraft(await client.api_versions()))
        if self._confirm is not None:
            await self._confirm(self.cluster_id, for_change=False)
        if wanted is None and topics is not None:
            response.topics = [topic for topic in response.topics if topic.name in topics]
        return response

    async def nodes(self) -> dict[int, Node]:
        """Return the brokers by id that lived when a broker last said who lives."""
        if not self._nodes:
            await self.metadata([])
        return self._nodes

    async def live_brokers(self) -> frozenset[int]:
        """Ask who lives now."""
        await self.metadata([])
        return frozenset(self._nodes)

    async def is_kraft(self) -> bool:
        """Whether the cluster has no ZooKeeper.

        Raises:
            Unreachable: no broker answers.
        """
        client = await self._any_client()
        # Asked once per connection; a broken connection becomes an error of this layer.
        await self.version(client, ApiKey.METADATA)
        return _is_of_kraft(await client.api_versions())

    async def call_any(self, request: Request, *, limit_s: float | None = None) -> Any:
        """Ask whichever broker answers.

        Raises:
            Unreachable: none does, or not within ``limit_s``.
        """
        client = await self._any_client()
        try:
            async with asyncio.timeout(limit_s) as limit:
                return await self._ask(client, request)
        except TimeoutError as error:
            if not limit.expired():
                raise
            # Answers come in the order of the questions: this connection would carry no other answer.
            await client.close(silence := f"no answer within {limit_s:g} s")
            raise Unreachable(silence, where=client.address) from error

    async def ask_what_zookeeper_keeps(self, request: Request, *, limit_s: float) -> Any:
        """Ask any broker for what it reads from ZooKeeper, unless ZooKeeper is dead or gave no answer a moment ago.

        Raises:
            Unreachable: no broker answers within ``limit_s``, or it is too soon to ask again.
        """
        # One after the other: if the first gets no answer, the second is not sent.
        async with self._asks_settings:
            await self._check_zookeeper()
            limit_s = min(limit_s, self.operation_s * 0.8, self._settings.limit_s)
            try:
                response = await self.call_any(request, limit_s=limit_s)
            except Unreachable as error:
                self._settings.not_answered(str(error))
                raise Unreachable(error.message, where=error.where, hint=error.hint or UNKNOWN_SETTINGS_HINT) from error
            self._settings.answered()
        return response

    async def _check_zookeeper(self) -> None:
        """Raise Unreachable if a broker that has to ask ZooKeeper would most likely give no answer."""
        async with self._looks:
            await self._settings.check()
            look, self._look_at_zookeeper = self._look_at_zookeeper, None
            if look is not None:
                await look()
                await self._settings.check()

    async def call_broker(
        self, broker_id: int, request: Request, *, version_max: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Ask one broker.

        Raises:
            NotFound: no live broker has this id.
            Unreachable: it does not answer.
        """
        client = await self.client_of(broker_id)
        return await self._ask(client, request, version_max=version_max, timeout_ms=timeout_ms)

    async def call_controller(self, request: Request, errors_of: ErrorsOf, *, timeout_ms: int | None = None) -> Any:
        """Ask the controller, and ask again if it has moved, until the caller's deadline."""
        while True:
            controller_id = await self.reachable_controller_id()
            response = await self.call_broker(controller_id, request, timeout_ms=timeout_ms)
            if ErrorCode.NOT_CONTROLLER not in errors_of(response):
                return response
            self._observe(f"broker {controller_id} is no longer the controller, asking for the new one")
            self._controller_id = NO_CONTROLLER
            await asyncio.sleep(RETRY_PAUSE_S)

    async def ask_controller(
        self,
        request: Request,
        errors_of: ErrorsOf,
        *,
        limit_s: float,
        is_patient: bool = True,
        silence_s: float = math.inf,
    ) -> Any:
        """Ask the controller something that changes nothing. If another takes over, ask that one.

        A controller that is frozen or has just died stays the controller until its session with ZooKeeper ends.
        A caller without patience does not wait for the next one if this one is gone.

        Raises:
            Unreachable: no broker answered within ``limit_s``, or a live controller did not within ``silence_s``.
        """
        asked = self._controller_id
        if self._is_dry_run:
            silence_s = min(silence_s, self._check_limit_ms / 1000)
        if asked in self.silent and not is_patient:
            limit_s = min(limit_s, GREETING_PATIENCE_S)
        try:
            async with asyncio.timeout(None if math.isinf(limit_s) else limit_s) as limit:
                while True:
                    asked = await self.controller_id()
                    response = await self._unless_replaced(asked, request, is_patient=is_patient, silence_s=silence_s)
                    if response is not None and ErrorCode.NOT_CONTROLLER not in errors_of(response):
                        self.silent.pop(asked, None)
                        return response
                    self._controller_id = asked = NO_CONTROLLER
                    await asyncio.sleep(RETRY_PAUSE_S)
        except TimeoutError as error:
            if not limit.expired():
                raise
            if not self._nodes:
                asked_all = ", ".join(address_text(*address) for address in self._bootstrap)
                raise Unreachable(f"no answer within {limit_s:g} s", where=asked_all, hint=GIVE_TIME) from error
            if asked == NO_CONTROLLER:
                raise Unreachable("no controller answers", hint=NO_CONTROLLER_HINT) from error
            raise self._silent_controller(asked, limit_s) from error

    def _silent_controller(self, controller_id: int, limit_s: float) -> Unreachable:
        silence = f"no answer within {limit_s:g} s"
        self.silent.setdefault(controller_id, silence)
        return Unreachable(silence, where=f"broker {controller_id}, the controller", hint=NO_CONTROLLER_HINT)

    async def _unless_replaced(
        self, controller_id: int, request: Request, *, is_patient: bool, silence_s: float = math.inf
    ) -> Any:
        """Return the controller's answer; None if it is gone, or another takes over before it answers."""
        asking = asyncio.create_task(self.call_broker(controller_id, request), name=f"ask-controller-{controller_id}")
        deadline = time.monotonic() + silence_s
        others = cycle([broker for broker in self._nodes if broker != controller_id and broker not in self.silent])
        try:
            while not (await asyncio.wait({asking}, timeout=min(GREETING_PATIENCE_S, silence_s)))[0]:
                if time.monotonic() >= deadline:
                    raise self._silent_controller(controller_id, silence_s)
                await self._look_for_controller(next(others, None))
                if self._controller_id != controller_id:
                    self._observe(f"broker {controller_id} is no longer the controller, and gave no answer")
                    return None
            return asking.result()
        except Unreachable as error:
            if not is_patient or not asking.done():
                raise
            if time.monotonic() >= deadline:
                raise self._silent_controller(controller_id, silence_s) from error
            self._observe(f"controller {controller_id} cannot be reached: {error}")
            return None
        finally:
            was_answered = asking.done()
            asking.cancel()
            # Retrieve its error even if this ends for another reason.
            await asyncio.gather(asking, return_exceptions=True)
            if not was_answered:
                await self._hang_up(controller_id)

    async def _look_for_controller(self, broker_id: int | None) -> None:
        """Ask a broker who the controller is now; do not wait long for the answer.

        Do not ask the controller itself: a broker answers the questions of one connection in order.
        """
        if broker_id is None:
            return
        try:
            async with asyncio.timeout(GREETING_PATIENCE_S):
                await self.metadata([], broker_id=broker_id)
        except (TimeoutError, Unreachable):
            await self._hang_up(broker_id)

    async def _hang_up(self, broker_id: int) -> None:
        """Close the connection to a broker: answers come in order, and one is missing."""
        client = self._connection_to(broker_id)
        if client is not None:
            await client.close("it did not answer in time")

    async def fell_silent(self, broker_id: int, why: str) -> None:
        """A broker has turned out not to answer: requests that wait for it fail now, and later waits are short.

        A bootstrap address may be the same broker by another name, so connections to unknown brokers are closed as
        well.
        """
        self.silent.setdefault(broker_id, why)
        others = {address_text(node.host, node.port) for node in self._nodes.values() if node.id != broker_id}
        if self._any is not None and self._any.address not in others:
            await self._any.close("it did not answer in time")
        await self._hang_up(broker_id)

    @property
    def controller_address(self) -> str | None:
        """The address of the broker that was the controller when a broker last said who is; None if nobody did."""
        node = self._nodes.get(self._controller_id)
        return None if node is None else address_text(node.host, node.port)

    async def controller_id(self) -> int:
        """Return the controller's id; wait for an election under way until the caller's deadline."""
        while self._controller_id == NO_CONTROLLER or self._controller_id not in self._nodes:
            await self.metadata([])
            if self._controller_id == NO_CONTROLLER or self._controller_id not in self._nodes:
                self._observe("no controller at the moment, waiting for one")
                await asyncio.sleep(RETRY_PAUSE_S)
        return self._controller_id

    async def reachable_controller_id(self) -> int:
        """Return the id of a controller that answers, so that a change can be sent to it.

        A dead controller stays the controller until its session with ZooKeeper ends; this waits for the next one.

        Raises:
            Unreachable: there was none for most of the operation's time. Nothing was sent.
        """
        deadline = time.monotonic() + min(self.operation_s, _ELECTION_PATIENCE_S) * _ELECTION_SHARE
        while True:
            controller_id = await self.controller_id()
            try:
                # A frozen one accepts connections too; only one that greets will receive what is sent.
                await self.version(await self.client_of(controller_id), ApiKey.METADATA)
            except LoginRefused:
                raise
            except Unreachable as error:
                is_silent = isinstance(error.__cause__, RequestTimedOut)
                if time.monotonic() >= deadline or (is_silent and self._is_dry_run):
                    where = f"broker {controller_id}, the controller"
                    raise Unreachable(error.message, where=where, hint=NO_CONTROLLER_HINT) from error
                self._observe(f"controller {controller_id} cannot be reached, waiting for the next: {error}")
                self._controller_id = NO_CONTROLLER
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                return controller_id

    async def client_of(self, broker_id: int) -> BrokerClient:
        """Return an open connection to a broker, for callers that pipeline requests."""
        node = self._nodes.get(broker_id)
        if node is None:
            await self.metadata([])
            node = self._nodes.get(broker_id)
        if node is None:
            raise no_live_broker(broker_id, self._nodes)
        return await self._connections.client((node.host, node.port))

    async def version(self, client: BrokerClient, key: ApiKey) -> int:
        """Return the version that a request to this broker will have."""
        return await self._connections.version(client, key)

    def principal_by(self, named: str | None) -> str | None:
        """Return who asks, whom the properties call ``named``; None if only the brokers know."""
        return self._connections.seen_as.get(named, named)

    def has_connection(self, broker_id: int) -> bool:
        """Whether a connection to the broker is open; a frozen broker usually has none."""
        client = self._connection_to(broker_id)
        return client is not None and client.is_connected

    def _connection_to(self, broker_id: int) -> BrokerClient | None:
        """Return the connection to a broker, open or broken, if there was ever one."""
        node = self._nodes.get(broker_id)
        return None if node is None else self._connections.get((node.host, node.port))

    async def close(self, reason: str = CLOSED) -> None:
        """Close all connections; requests that wait for an answer fail with the reason."""
        self._any = None
        await self._connections.close(reason)

    async def _any_client(self) -> BrokerClient:
        if self._any is not None and self._any.is_connected:
            return self._any
        known = {(node.host, node.port): node.id for node in self._nodes.values()}
        addresses = dict.fromkeys((*self._bootstrap, *known))
        # Each silent one would be waited for before the next is tried.
        self._any = await self._connections.first_to_greet(sorted(addresses, key=lambda a: known.get(a) in self.silent))
        return self._any

    async def _ask(
        self,
        client: BrokerClient,
        request: Request,
        *,
        version_max: int | None = None,
        timeout_ms: int | None = None,
        last: LastAnswer | None = None,
    ) -> Any:
        is_check = getattr(request, "validate_only", False)
        look = where_to_look(request)
        if is_check:
            await self._check_zookeeper()
        if (look is not None or is_check) and self._confirm is not None:
            await self._confirm(self.cluster_id, for_change=True)
        if is_check or self._is_dry_run:
            timeout_ms = min(timeout_ms or self._request_timeout_ms, self._check_limit_ms)
        started = time.monotonic()
        is_sent = False
        try:
            with self.waits.on(client.address):
                version = await client.version_for(request.api_key, version_max=version_max)
            is_sent = True
            with self.waits.on(client.address), self._noted_until_answered(look):
                response = await client.send(request, version, timeout_ms=timeout_ms, last=last)
        except NetworkError as error:
            if look is not None and is_sent and isinstance(error, LOSSES):
                raise outcome_unknown(error, look) from error
            raise unreachable(await self._connections.explained(error, client)) from error
        except asyncio.CancelledError:
            waited_s = time.monotonic() - started
            self._observe(f"{client.address} had not answered {_name(request)} after {waited_s:.1f} s")
            raise
        took_ms = (time.monotonic() - started) * 1000
        self._connections.served.add((client.host, client.port))
        self._observe(f"{client.address} answered {_name(request)} in {took_ms:.0f} ms")
        self.denied.update(dict.fromkeys(missing_rights(request, response)))
        return response

    @contextmanager
    def _noted_until_answered(self, look: Operation | None) -> Iterator[None]:
        """Count a change while its outcome is unknown, which may be forever."""
        if look is None:
            yield
            return
        self.change_count += 1
        self.unanswered[look] += 1
        try:
            yield
        except NetworkError as error:
            self.unanswered[look] -= not isinstance(error, LOSSES)
            raise
        self.unanswered[look] -= 1

    def _remember(self, response: MetadataResponse, *, names_any_controller: bool) -> None:
        """Remember the live brokers. On a cluster whose answers each name another controller, keep the first one named.

        On KRaft any broker forwards requests for the controller. A slow one has not been replaced.
        """
        self._nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        if names_any_controller and self._controller_id in self._nodes:
            response.controller_id = self._controller_id
        self._controller_id = response.controller_id
        self.cluster_id = response.cluster_id


def _name(request: Request) -> str:
    return type(request).__name__.removesuffix("Request")


def _request_timeout_ms(properties: ClientProperties, operation_s: float | None) -> int:
    """Return how long to wait for one answer: as long as the operation has, but no longer than a file says."""
    if operation_s is None:
        return properties.request_timeout_ms
    operation_ms = int(operation_s * 1000)
    is_said = "request.timeout.ms" in properties.entries
    return min(properties.request_timeout_ms, operation_ms) if is_said else operation_ms


def _is_of_kraft(offered: Mapping[int, tuple[int, int]]) -> bool:
    """Whether a broker that offers these APIs belongs to a cluster without ZooKeeper."""
    return ApiKey.DESCRIBE_QUORUM in offered


def answer_limit_ms(timeout_ms: int) -> int:
    """Return how long to wait for a controller's answer if it has ``timeout_ms`` to carry out a change."""
    return timeout_ms + max(timeout_ms // 8, 100)
