"""The controller of a broker: candidate at first, active once elected. One queue of events, one task that empties it.

The task processes an event to its end before the next. It awaits answers from ZooKeeper, never from a broker: it queues
requests, and answers come back as events. Otherwise a broker that is its own controller would wait for itself.

Sources: KafkaController and ControllerEventManager of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from time import monotonic
from typing import Any

from engine.broker.controller import instructions as do
from engine.broker.controller.broker_requests import BrokerRequest, UpdateMetadataToBroker
from engine.broker.controller.channels import BrokerChannel, ChannelSettings, ControllerChannels
from engine.broker.controller.context import ControllerEpoch
from engine.broker.controller.core import ControllerCore
from engine.broker.controller.events import (
    AutoPreferredReplicaLeaderElection,
    ControllerEvent,
    ControllerState,
    TopicDeletionRequested,
    UncleanLeaderElectionEnable,
)
from engine.broker.controller.instructions import Instruction, Steps
from engine.broker.controller.logs import controller_log, event_log
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.zk_instructions import ControllerWatches, ZkInstructions
from engine.broker.metrics.measures import Histogram, Timer
from engine.common.collection import leave_uncollected
from engine.common.errors import CoordinationError
from engine.common.model import NO_CONTROLLER
from engine.kafka.zk.controller import ControllerZNode
from engine.kafka.zk.errors import ControllerMoved, SessionLost
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.session_keeper import SessionEvent
from engine.kafka.zk.watches import WatchEvent, WatchEventKind
from engine.runtime.supervisor import Supervisor
from engine.runtime.turns import TURNS_BETWEEN_FREEZES, Breather

InstructionHook = Callable[[Instruction[Any]], Awaitable[None]]
"""Awaited before each instruction; for tests that lose the controller between two instructions."""


class _Own(Enum):
    """Events of the loop itself, on every broker."""

    STARTUP = "Startup"
    REELECT = "Reelect"
    CONTROLLER_CHANGE = "ControllerChange"
    EXPIRE = "Expire"
    REGISTER_BROKER_AND_REELECT = "RegisterBrokerAndReelect"


@dataclass(slots=True)
class _Queued:
    """An event in the queue, and the caller that waits for its answer."""

    event: ControllerEvent | _Own
    answer: asyncio.Future[Any] | None = None
    is_watched: bool = False
    since_s: float = field(default_factory=monotonic)

    @property
    def is_waited_for(self) -> bool:
        """A caller waits, and has no answer yet."""
        return self.answer is not None and not self.answer.done()

    def give(self, value: object) -> None:
        """Answer once; drop later answers, and answers that no caller waits for."""
        if self.answer is not None and self.is_waited_for:
            self.answer.set_result(value)


class Controller:
    """One broker's controller.

    Args:
        zk: the broker's ZooKeeper client.
        options, channel_settings: see there.
        unclean_by_default: the broker's current ``unclean.leader.election.enable``.
        register_broker: registers the broker again after its session was lost; awaited before the next election.
        on_instruction: see ``InstructionHook``.
    """

    def __init__(
        self,
        zk: KafkaZkClient,
        options: ControllerOptions,
        channel_settings: ChannelSettings,
        *,
        unclean_by_default: Callable[[], bool] = lambda: False,
        register_broker: Callable[[], Awaitable[object]] | None = None,
        on_instruction: InstructionHook | None = None,
    ) -> None:
        self.core = ControllerCore(options)
        self.controller_id = NO_CONTROLLER
        self.state = ControllerState.IDLE
        self.times: dict[ControllerState, Timer] = {}
        """How long the events of each kind took."""
        self.queue_times_ms = Histogram()
        self._zk = zk
        self._options = options
        self._channel_settings = channel_settings
        self._unclean_by_default = unclean_by_default
        self._register_broker = register_broker
        self._on_instruction = on_instruction
        self._log = controller_log(options.controller_id)
        self._event_log = event_log(options.controller_id)
        self._queue: deque[_Queued] = deque()
        self._queued_watch_events: set[ControllerEvent] = set()
        self._wake = asyncio.Event()
        self._supervisor = Supervisor(f"controller-{options.controller_id}")
        self._watches = ControllerWatches(zk.client, self._put_once)
        self._channels: ControllerChannels | None = None
        self._instructions: ZkInstructions | None = None
        self._rebalance: asyncio.TimerHandle | None = None
        self._deletion: asyncio.TimerHandle | None = None
        self._processing: _Queued | None = None
        self._breather: Breather
        """Of the event under way."""
        self._is_stopped = False

    # For other parts of the broker

    @property
    def is_active(self) -> bool:
        """This broker is the controller, as far as it knows."""
        return self.controller_id == self._options.controller_id

    @property
    def controller_epoch(self) -> int:
        """Epoch of this broker's current term as controller; 0 while it is not the controller."""
        return self.core.context.epoch.controller_epoch

    @property
    def event_queue_size(self) -> int:
        return len(self._queue)

    @property
    def is_idle(self) -> bool:
        """No event waits and none is being processed."""
        return not self._queue and self._processing is None

    @property
    def total_request_queue_size(self) -> int:
        """Requests to brokers that were not sent yet."""
        return 0 if self._channels is None else self._channels.waiting

    @property
    def channels(self) -> Mapping[int, BrokerChannel]:
        """The channels to brokers, by id; none while this is not the controller."""
        return {} if self._channels is None else self._channels.by_broker

    def is_topic_queued_for_deletion(self, topic: str) -> bool:
        return topic in self.core.context.topics_to_be_deleted

    async def ask(self, event: ControllerEvent) -> Any:
        """Process a request as the active controller; return the answer, or the refusal if this one is not active."""
        if not self.is_active or self._is_stopped:
            return event.refusal
        queued = _Queued(event, asyncio.get_running_loop().create_future())
        self._put(queued)
        return await queued.answer if queued.answer is not None else None

    def enable_unclean_election(self, topic: str | None = None) -> None:
        """``unclean.leader.election.enable`` became true, for a topic or (None) for all: elect missing leaders."""
        if self.is_active:
            self._put(_Queued(UncleanLeaderElectionEnable(topic)))

    # Start and stop

    async def start(self) -> None:
        """Become a candidate: watch ``/controller``, and stand for election if there is none. Returns at once."""
        self._zk.client.add_session_listener(self._on_session)
        self._zk.client.watch_data(ControllerZNode.path, self._on_controller_znode)
        self._put(_Queued(_Own.STARTUP))
        self._supervisor.start(self._run(), "events")

    async def stop(self) -> None:
        """Process no further event, and resign if active; ``/controller`` disappears with the session."""
        self._is_stopped = True
        self._event_log.info("Shutting down")
        self._zk.client.unwatch(ControllerZNode.path, self._on_controller_znode)
        await self._supervisor.stop()
        self._event_log.info("Stopped")
        self._event_log.info("Shutdown completed")
        self._refuse_all()
        await self._resign()

    # The queue

    def _put(self, queued: _Queued) -> None:
        self._queue.append(queued)
        self._wake.set()

    def _put_event(self, event: ControllerEvent) -> None:
        self._put(_Queued(event))

    def _put_once(self, event: ControllerEvent) -> None:
        """Queue a watch event unless the same one waits already: it will see both changes."""
        if event not in self._queued_watch_events:
            self._queued_watch_events.add(event)
            self._put(_Queued(event, is_watched=True))

    def _refuse_all(self) -> None:
        """Drop all queued events; tell their callers that this broker is not the controller."""
        waiting, self._queue = list(self._queue), deque()
        if self._processing is not None:
            waiting.append(self._processing)
        for queued in waiting:
            if isinstance(queued.event, ControllerEvent):
                queued.give(queued.event.refusal)
        self._queued_watch_events.clear()

    async def _run(self) -> None:
        self._event_log.info("Starting")
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            queued = self._queue.popleft()
            self._processing = queued
            begun_s = monotonic()
            self.queue_times_ms.add(1000 * (begun_s - queued.since_s), begun_s)
            await self._process(queued)
            self._note_time(self.state, begun_s)
            self._processing = None
            self.state = ControllerState.IDLE

    def _note_time(self, state: ControllerState, begun_s: float) -> None:
        now_s = monotonic()
        if state not in self.times:
            self.times[state] = Timer(begun_s)
        self.times[state].add(1000 * (now_s - begun_s), now_s)

    async def _process(self, queued: _Queued) -> None:
        event = queued.event
        try:
            if isinstance(event, _Own):
                self.state = ControllerState.CONTROLLER_CHANGE
                await self._process_own(event)
                return
            if queued.is_watched:
                self._queued_watch_events.discard(event)
            self.state = event.state
            if not self.is_active:
                queued.give(event.refusal)
                return
            await self._drive(self.core.process(event), queued)
        except ControllerMoved:
            await self._step_down()
        except Exception as error:
            # The queue must go on, whatever goes wrong with one event.
            self._log.error(f"Error processing event {event}", error)
        if isinstance(event, ControllerEvent) and queued.is_waited_for:
            # For an election of 200,000 partitions, the refusal alone is large.
            queued.give(event.refusal)

    async def _process_own(self, event: _Own) -> None:
        try:
            match event:
                case _Own.STARTUP:
                    await self._elect()
                case _Own.CONTROLLER_CHANGE:
                    await self._maybe_resign()
                case _Own.REELECT:
                    await self._maybe_resign()
                    await self._elect()
                case _Own.EXPIRE:
                    self.controller_id = NO_CONTROLLER
                    await self._resign()
                case _Own.REGISTER_BROKER_AND_REELECT:
                    if self._register_broker is not None:
                        await self._register_broker()
                    await self._maybe_resign()
                    await self._elect()
        except SessionLost as error:
            # The next session brings its own events.
            self._log.info(f"The ZooKeeper session ended while processing {event.value}", error)

    # Election

    async def _elect(self) -> None:
        """Become the controller unless there is one already."""
        self.controller_id = await self._read_controller_id()
        if self.controller_id != NO_CONTROLLER:
            self._log.debug(
                f"Broker {self.controller_id} has been elected as the controller, so stopping the election process."
            )
            return
        own_id = self._options.controller_id
        try:
            elected = await self._zk.controller.elect_controller(own_id)
            if elected is None:
                await self._lost_election()
                return
            self.controller_id = own_id
            self._log.info(
                f"{own_id} successfully elected as the controller. Epoch incremented to {elected.controller_epoch} "
                f"and epoch zk version is now {elected.epoch_zk_version}"
            )
            await self._take_over(elected.controller_epoch, elected.epoch_zk_version)
        except ControllerMoved as error:
            await self._maybe_resign()
            self._log.info("A controller has been elected but just resigned, or another one was elected", error)
        except SessionLost:
            raise
        except Exception as error:
            self._log.error(
                f"Error while electing or becoming controller on broker {own_id}. "
                "Trigger controller movement immediately",
                error,
            )
            await self._move_controller()

    async def _lost_election(self) -> None:
        await self._maybe_resign()
        if self.controller_id != NO_CONTROLLER:
            self._log.debug(
                f"Broker {self.controller_id} was elected as controller instead of broker {self._options.controller_id}"
            )
        else:
            self._log.warning(
                "A controller has been elected but just resigned, this will result in another round of election"
            )

    async def _take_over(self, controller_epoch: int, epoch_zk_version: int) -> None:
        self._channels = ControllerChannels(self._channel_settings, controller_epoch, self._put_event)
        epoch = ControllerEpoch(controller_epoch, epoch_zk_version)
        self._instructions = ZkInstructions(self._zk, self._options, epoch, self._unclean_by_default)
        await self._drive(self.core.take_over(controller_epoch, epoch_zk_version), _Queued(_Own.STARTUP))

    async def _read_controller_id(self) -> int:
        """Return the controller's id; arms the watch of ``/controller`` either way."""
        controller_id = await self._zk.controller.get_controller_id()
        return NO_CONTROLLER if controller_id is None else controller_id

    async def _maybe_resign(self) -> None:
        """Resign if another broker, or none, is the controller by now."""
        was_active = self.is_active
        try:
            self.controller_id = await self._read_controller_id()
        except SessionLost:
            self.controller_id = NO_CONTROLLER
        if was_active and not self.is_active:
            await self._resign()

    async def _step_down(self) -> None:
        """Resign after ZooKeeper refused a write because of another controller, even if its id cannot be read."""
        try:
            await self._maybe_resign()
        except Exception as error:
            self._log.error("Another broker is the controller, and /controller cannot be read. Resigning", error)
            self.controller_id = NO_CONTROLLER
            await self._resign()

    async def _move_controller(self) -> None:
        """Give up a term that cannot begin, so that the brokers elect another."""
        self.controller_id = await self._read_controller_id()
        if not self.is_active:
            self._log.warning("Controller has already moved when trying to trigger controller movement")
            return
        epoch_zk_version = self.core.context.epoch.zk_version
        self.controller_id = NO_CONTROLLER
        await self._resign()
        try:
            await self._zk.controller.delete_controller(epoch_zk_version)
        except ControllerMoved:
            self._log.warning("Controller has already moved when trying to trigger controller movement")

    async def _resign(self) -> None:
        """Forget everything that belongs to the controller's role. A second call does nothing."""
        if self._channels is None:
            return
        self._log.debug("Resigning")
        for timer in (self._rebalance, self._deletion):
            if timer is not None:
                timer.cancel()
        self._rebalance = self._deletion = None
        channels, self._channels = self._channels, None
        self._instructions = None
        breather = Breather()
        for _ in chain(self._watches.retire(), self.core.context.retire()):
            await breather.give_way()
        # The collector has not seen what was made while so much was freed.
        leave_uncollected()
        self.core.resign()
        await channels.close()
        self._log.info("Resigned")

    # Instructions

    async def _drive(self, steps: Steps[None], queued: _Queued) -> None:
        """Carry out a generator of the core to its end.

        Raises:
            ControllerMoved: this is not the controller any more.
        """
        result: Any = None
        error: Exception | None = None
        breather = self._breather = Breather(makes_what_lasts=True)
        try:
            while True:
                instruction = steps.send(result) if error is None else steps.throw(error)
                result, error = None, None
                try:
                    if self._on_instruction is not None:
                        await self._on_instruction(instruction)
                    result = await self._carry_out(instruction, queued)
                except SessionLost as lost:
                    error = ControllerMoved(str(lost))
                except CoordinationError as refused:
                    error = refused
        except StopIteration:
            return
        finally:
            steps.close()
            if breather.turns >= TURNS_BETWEEN_FREEZES:
                leave_uncollected()

    async def _carry_out(self, instruction: Instruction[Any], queued: _Queued) -> Any:
        channels, zk_instructions = self._channels, self._instructions
        if channels is None or zk_instructions is None:
            raise ControllerMoved("this broker resigned as controller")
        match instruction:
            case do.SendRequests(requests):
                await self._send(channels, requests)
            case do.GiveWay():
                await self._breather.give_way()
            case do.Continue(event):
                answer, queued.answer = queued.answer, None
                self._put(_Queued(event, answer))
            case do.ConnectBrokers(brokers):
                for broker in brokers:
                    channels.connect(broker)
            case do.DisconnectBrokers(broker_ids):
                for broker_id in broker_ids:
                    channels.disconnect(broker_id)
            case do.Answer(value):
                queued.give(value)
            case do.ScheduleLeaderRebalance(delay_ms):
                self._schedule_rebalance(delay_ms)
            case do.ScheduleTopicDeletion(delay_ms):
                self._schedule_deletion(delay_ms)
            case do.WatchInstruction():
                await self._watches.perform(instruction)
            case _:
                return await zk_instructions.perform(instruction)
        return None

    async def _send(self, channels: ControllerChannels, requests: Iterable[BrokerRequest]) -> None:
        shared = channels.shared_states()
        for request in requests:
            if isinstance(request, UpdateMetadataToBroker):
                for _ in shared.prepare(request):
                    await self._breather.give_way()
            channels.send(request, shared)
            await self._breather.give_way()
        # They name 600,000 replicas at a take-over, and everybody else may be done with them by now.
        channels.let_go(requests)

    def _schedule_rebalance(self, delay_ms: int) -> None:
        if self._rebalance is not None:
            self._rebalance.cancel()
        loop = asyncio.get_running_loop()
        self._rebalance = loop.call_later(delay_ms / 1000, self._put_event, AutoPreferredReplicaLeaderElection())

    def _schedule_deletion(self, delay_ms: int) -> None:
        if self._deletion is not None:
            self._deletion.cancel()
        loop = asyncio.get_running_loop()
        self._deletion = loop.call_later(delay_ms / 1000, self._put_event, TopicDeletionRequested())

    # Notifications from ZooKeeper

    def _on_controller_znode(self, notice: WatchEvent) -> None:
        match notice.kind:
            case WatchEventKind.CREATED | WatchEventKind.DATA_CHANGED:
                self._put(_Queued(_Own.CONTROLLER_CHANGE))
            case WatchEventKind.DELETED:
                self._put(_Queued(_Own.REELECT))

    def _on_session(self, event: SessionEvent) -> None:
        if self._is_stopped:
            return
        if event is SessionEvent.LOST:
            # No event that was queued under the old session may be processed under the next one.
            self.controller_id = NO_CONTROLLER
            self._refuse_all()
            self._put(_Queued(_Own.EXPIRE))
        elif event is SessionEvent.NEW_SESSION:
            self._put(_Queued(_Own.REGISTER_BROKER_AND_REELECT))
