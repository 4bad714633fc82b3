"""The controller's channel to each broker: a queue, a connection, and a task that sends one request after the other.

The task sends requests in order, one at a time, and repeats each until it is answered or the broker is gone, as Kafka's
RequestSendThread does; the broker's epoch checks make that safe. Answers become events. The controller reaches its own
broker over the wire like any other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from engine.broker.controller.broker_requests import BrokerRequest, UpdateMetadataToBroker
from engine.broker.controller.events import ControllerEvent
from engine.broker.controller.logs import channel_manager_log, request_send_log, state_change_log
from engine.broker.controller.wire_requests import (
    RequestVersions,
    SharedStates,
    WireRequest,
    event_of,
    response_text,
    wire_requests,
)
from engine.broker.metrics.measures import Timer
from engine.common.model import BrokerInfo
from engine.kafka.client.broker_client import DEFAULT_SETUP_TIMEOUTS, BrokerClient, ChannelTotals, SetupTimeouts
from engine.kafka.client.security import Security, plaintext
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.protocol.declaration import Response
from engine.runtime.discards import Discards
from engine.runtime.offload import beside_loop
from engine.runtime.supervisor import Supervisor

PARTITIONS_AT_ONCE_MAX = 100
"""A request with more partitions is made and encoded in a thread, and its answer decoded there: 200,000 partitions take
130 ms, and a thousand for each of a hundred brokers, in one turn of the loop, 60."""

BACKOFF_MS = 100
"""The wait before a request that could not be sent is tried again."""


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    controller_id: int
    ibp: MetadataVersion
    listener_name: str
    """Listener on which brokers take the controller's requests."""
    inter_broker_listener_name: str
    """Listener on which followers reach their leaders."""
    security: Callable[[], Security] = plaintext
    """For each new connection: a certificate may change."""
    setup_timeouts: SetupTimeouts = DEFAULT_SETUP_TIMEOUTS.steady
    connect_timeout_ms: int = 30_000
    request_timeout_ms: int = 30_000


class BrokerChannel:
    """The channel to one broker.

    ``discards`` frees large requests after their answers: 6,000 partitions take 6 ms, and a hundred brokers may answer
    at once.
    """

    def __init__(
        self,
        broker: BrokerInfo,
        settings: ChannelSettings,
        controller_epoch: int,
        on_event: Callable[[ControllerEvent], None],
        discards: Discards,
    ) -> None:
        self.broker = broker
        self._settings = settings
        self._controller_epoch = controller_epoch
        self._on_event = on_event
        self._discards = discards
        self._versions = RequestVersions.of(settings.ibp)
        self.totals = ChannelTotals()
        self.times = Timer(time.monotonic())
        """How long requests took, from the queue to the answer."""
        self._queue: asyncio.Queue[WireRequest | BrokerRequest] = asyncio.Queue()
        self._unanswered: list[WireRequest] = []
        self._log = request_send_log(settings.controller_id)
        self._state_changes = state_change_log(settings.controller_id, controller_epoch)
        self._correlation_id = -1
        self._is_failing = False

    @property
    def waiting(self) -> int:
        """Requests that have not been sent yet."""
        return self._queue.qsize()

    def put(self, request: BrokerRequest, shared: SharedStates | None = None) -> None:
        """Queue a request. UpdateMetadata shares its states with those of other brokers, so it is made at once."""
        if isinstance(request, UpdateMetadataToBroker) or len(request.partitions) <= PARTITIONS_AT_ONCE_MAX:
            for wire in self._wires(request, shared):
                self._queue.put_nowait(wire)
        else:
            self._queue.put_nowait(request)

    def _wires(self, request: BrokerRequest, shared: SharedStates | None = None) -> list[WireRequest]:
        settings = self._settings
        listener = settings.inter_broker_listener_name
        return wire_requests(request, settings.controller_id, self._versions, listener, shared)

    async def run(self) -> None:
        """Send what is queued until cancelled."""
        endpoint = self.broker.endpoint_for(self._settings.listener_name)
        if endpoint is None:
            self._log.error(
                f"Controller {self._settings.controller_id} cannot reach broker {self.broker.id}, which has no "
                f"listener {self._settings.listener_name}"
            )
            return
        client = BrokerClient(
            endpoint.host,
            endpoint.port,
            client_id=str(self._settings.controller_id),
            setup_timeouts=self._settings.setup_timeouts,
            connect_timeout_ms=self._settings.connect_timeout_ms,
            request_timeout_ms=self._settings.request_timeout_ms,
            totals=self.totals,
            security=self._settings.security(),
        )
        node = f"{endpoint.host}:{endpoint.port} (id: {self.broker.id} rack: {self.broker.rack or 'null'})"
        self._log.info("Starting")
        try:
            while True:
                await self._take_next(node)
                while self._unanswered:
                    await self._exchange(client, node)
        finally:
            self._log.info("Shutting down")
            await client.close()
            self._log.info("Stopped")
            self._log.info("Shutdown completed")

    def forget(self) -> None:
        """Free the requests that will not be sent any more."""
        dropped: list[object] = [*self._unanswered]
        while not self._queue.empty():
            dropped.append(self._queue.get_nowait())
        self._unanswered = []
        self._discards.put(dropped)

    async def _take_next(self, node: str) -> None:
        queued = await self._queue.get()
        if isinstance(queued, WireRequest):
            self._unanswered = [queued]
            return
        try:
            self._unanswered = await beside_loop(self._wires, queued)
        except Exception as error:
            self._log.error(f"Error making {type(queued).__name__} for broker {node}; it is not sent", error)
        self._discards.put((queued,))

    async def _exchange(self, client: BrokerClient, node: str) -> None:
        """Send the next request until it is answered, then free it."""
        wire = self._unanswered[0]
        response = await self._send_until_answered(client, wire, node)
        try:
            await self._answered(wire, response, node)
        except Exception as error:
            # If this escaped, the channel would stop: the broker would get no more requests, and nobody would know.
            self._log.error(f"Error processing the answer of broker {node} to {type(wire.message).__name__}", error)
        del self._unanswered[0]
        if _is_large(wire):
            self._discards.put((wire, response))

    async def _send_until_answered(self, client: BrokerClient, wire: WireRequest, node: str) -> Response:
        begun_s = time.monotonic()
        while True:
            response = await self._try_to_send(client, wire, node)
            if response is not None:
                now_s = time.monotonic()
                self.times.add(1000 * (now_s - begun_s), now_s)
                return response
            await client.close()
            await asyncio.sleep(BACKOFF_MS / 1000)

    async def _try_to_send(self, client: BrokerClient, wire: WireRequest, node: str) -> Response | None:
        """Send once; None if the broker could not be reached or did not answer.

        Only the first of several failures in a row is a warning: a dead broker stays silent until its session ends. A
        fault of ours counts as a failure, as any Throwable does in Kafka's thread: a channel that ended would cut the
        broker off.
        """
        controller_id = self._settings.controller_id
        if not client.is_connected:
            try:
                await client.connect()
            except Exception as error:
                self._complain(f"Controller {controller_id}'s connection to broker {node} was unsuccessful", error)
                return None
            self._log.info(f"Controller {controller_id} connected to {node} for sending state change requests")
        self._correlation_id += 1
        try:
            response: Response = await client.send(wire.message, wire.api_version, is_large=_is_large(wire))
        except Exception as error:
            self._complain(
                f"Controller {controller_id} epoch {self._controller_epoch} fails to send request "
                f"{type(wire.message).__name__} to broker {node}. Reconnecting to broker.",
                error,
            )
            return None
        self._is_failing = False
        return response

    def _complain(self, message: str, error: Exception) -> None:
        if not self._is_failing:
            self._log.warning(message, error)
        elif self._log.is_debug_enabled:
            self._log.debug(f"{message} ({error})")
        self._is_failing = True

    async def _answered(self, wire: WireRequest, response: Response, node: str) -> None:
        if self._state_changes.is_trace_enabled:
            self._state_changes.trace(
                f"Received response {response_text(response)} for request {wire.message.api_key.name} with "
                f"correlation id {self._correlation_id} sent to broker {node}"
            )
        event = await beside_loop(event_of, wire, response) if _is_large(wire) else event_of(wire, response)
        if event is not None:
            self._on_event(event)


def _is_large(wire: WireRequest) -> bool:
    return wire.partition_count > PARTITIONS_AT_ONCE_MAX


class ControllerChannels:
    """The channels to all live brokers, for one term as controller."""

    def __init__(
        self, settings: ChannelSettings, controller_epoch: int, on_event: Callable[[ControllerEvent], None]
    ) -> None:
        self._settings = settings
        self._controller_epoch = controller_epoch
        self._on_event = on_event
        self._channels: dict[int, BrokerChannel] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._versions = RequestVersions.of(settings.ibp)
        self._discards = Discards(beside_lasting=True)
        self._supervisor = Supervisor(f"controller-{settings.controller_id}-channels")
        self._log = channel_manager_log(settings.controller_id)

    @property
    def waiting(self) -> int:
        """Requests to all brokers that have not been sent yet."""
        return sum(channel.waiting for channel in self._channels.values())

    @property
    def by_broker(self) -> Mapping[int, BrokerChannel]:
        return self._channels

    def connect(self, broker: BrokerInfo) -> None:
        """Open the channel to a broker unless there is one."""
        if broker.id in self._channels:
            return
        self._log.debug(f"Controller {self._settings.controller_id} trying to connect to broker {broker.id}")
        channel = BrokerChannel(broker, self._settings, self._controller_epoch, self._on_event, self._discards)
        self._channels[broker.id] = channel
        self._tasks[broker.id] = self._supervisor.start(channel.run(), f"to-broker-{broker.id}")

    def disconnect(self, broker_id: int) -> None:
        """Close the channel to a broker; requests that wait in it are dropped."""
        task = self._tasks.pop(broker_id, None)
        if task is not None:
            task.cancel()
            self._channels.pop(broker_id).forget()

    def shared_states(self) -> SharedStates:
        """Return what the UpdateMetadata requests of one step may share."""
        return SharedStates(self._versions.update_metadata, on_unused=self._discards.put)

    def let_go(self, requests: Iterable[BrokerRequest]) -> None:
        """Free requests, one after the other, that were sent here."""
        self._discards.put(requests)

    def send(self, request: BrokerRequest, shared: SharedStates | None = None) -> None:
        """Queue a request to a broker; a request to a broker without a channel is dropped."""
        channel = self._channels.get(request.broker_id)
        if channel is None:
            self._log.warning(
                f"Not sending request {type(request).__name__} with controllerId={self._settings.controller_id}, "
                f"controllerEpoch={request.controller_epoch}, brokerEpoch={request.broker_epoch} to broker "
                f"{request.broker_id}, since it is offline."
            )
            return
        channel.put(request, shared)

    async def close(self) -> None:
        """Close every channel and wait until all tasks have ended."""
        channels = list(self._channels.values())
        self._channels.clear()
        self._tasks.clear()
        await self._supervisor.stop()
        for channel in channels:
            channel.forget()
