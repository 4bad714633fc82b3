"""The feed of a live cluster: watches and polls run side by side, and each tick makes a frame.

ZooKeeper reports brokers, controller, topics and reassignments as they change; brokers are polled, each stage as often
as its share of the time allows. The feed retries a lost side by itself; its stages keep their last good data and say
why these are not newer. When a broker comes or goes, the feed makes a frame and reads the metadata at once. It does
the same when a broker falls silent, and no longer waits for that broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from engine.admin.cluster.asking import FAILURES
from engine.admin.cluster.errors import BadRequest, Unreachable
from engine.admin.cluster.remedies import START_IT, Parameter, Phrase
from engine.admin.cluster.rights import Right
from engine.admin.cluster.target import ClusterTarget, Side
from engine.admin.watch import by_wire
from engine.admin.watch.feed import FeedStatus, FrameBox, Playback, interval_within_bounds
from engine.admin.watch.frame import Frame, LinkState, Stage, StageSource
from engine.admin.watch.knowledge import Knowledge
from engine.admin.watch.link_states import Board, Failure, failure_of
from engine.admin.watch.schedule import StageSchedule
from engine.admin.watch.shared_cluster import BROKERS_NOT_ASKED
from engine.admin.watch.silence import LOOK_MS, Listener
from engine.admin.watch.stage_readings import OPERATION_S, StageReadings, StageResult
from engine.common.clock import Clock, SystemClock
from engine.common.errors import KlammError
from engine.common.model import BrokerInfo, address_text
from engine.common.snapshot import SnapshotSource
from engine.runtime.turns import carry_out

if TYPE_CHECKING:
    from engine.admin.brokers.metrics_sources import ReadJmx
    from engine.admin.watch.by_znode import ZooKeeperSide
    from engine.kafka.zk.client import ZkClient

_log = logging.getLogger(__name__)

FRAME_GAP_S = 0.05
"""The shortest time after a frame with news, however much happens; news that follow a tick do not wait."""

_PROBE_AFTER_S = 1.0
"""A broker is registered a moment before it answers: then it is asked what it has to say."""
_LOOKS_AFTER_S = (0.15, 0.3, 0.6)
"""This long after brokers came or went, read the metadata once more, in addition to the usual readings."""


@dataclass(frozen=True, slots=True)
class _PolledStage:
    stage: Stage
    interval_ms: int | None
    """None is the feed's tick."""
    share: float
    """The share of the time that reading it may take."""
    ticks: int = 1
    """This many of the feed's ticks are between two readings, at least."""


_WIRE_STAGES = (
    _PolledStage(Stage.METADATA, None, 0.5),
    _PolledStage(Stage.REASSIGNMENTS, None, 0.3),
    _PolledStage(Stage.OFFSETS, None, 0.05),
    _PolledStage(Stage.LOG_DIRS, 10_000, 0.1, ticks=3),
    _PolledStage(Stage.GROUPS, 5_000, 0.2),
    _PolledStage(Stage.SETTINGS, 30_000, 0.05),
    _PolledStage(Stage.PROBES, 10_000, 0.2),
)
_METRICS_STAGE = _PolledStage(Stage.METRICS, 15_000, 0.03)
"""Brokers average over a minute, so reading them sooner is of no use; a Java that starts for it costs a second."""
_SPARK_STAGE = _PolledStage(Stage.SPARK, 10_000, 0.1)
_MOVING_LOG_DIRS_MS = 2_000
"""How often sizes are read while partitions move."""
_ALSO_WATCHED = (Stage.REASSIGNMENTS, Stage.SETTINGS)
"""Stages that brokers are asked for only while ZooKeeper cannot answer."""
_OF_BROKERS = frozenset({Stage.OFFSETS, Stage.LOG_DIRS, Stage.GROUPS, Stage.PROBES, Stage.METRICS})
"""Stages that only brokers tell of."""


class LiveFeed:
    """Watches one cluster. See ``Feed`` for how to use it.

    Args:
        target: the cluster; its ZooKeeper, its brokers or both are asked, as far as it names them and allows it.
        groups_per_reading: how many groups are measured at once; a reading of many may hold the event loop longer.
        read_jmx: reads brokers' metrics by JMX, where they serve them that way; None: leave out the metrics of brokers.
        has_ends: read where the logs end, each time; without them there are no rates.

    Raises:
        BadRequest: the target is a snapshot, which never changes.
    """

    def __init__(
        self,
        target: ClusterTarget,
        *,
        interval_s: float = 1.0,
        groups_per_reading: int = by_wire.GROUPS_PER_READING,
        read_jmx: ReadJmx | None = None,
        has_ends: bool = True,
        clock: Clock | None = None,
    ) -> None:
        if target.snapshot is not None:
            hint = Phrase("name a live cluster with ", Parameter.BOOTSTRAP_SERVERS, " or ", Parameter.ZOOKEEPER)
            raise BadRequest("a snapshot cannot be watched", hint=hint)
        self._target = target
        self._clock = clock or SystemClock()
        self._interval_s = interval_within_bounds(interval_s)
        self._box = FrameBox()
        self._urgent = asyncio.Event()
        self._go = asyncio.Event()
        self._go.set()
        self._has_ended = False
        self._seen_brokers: tuple[BrokerInfo, ...] = ()
        self._knew_brokers = False
        """Whether the last reading of the metadata could ask those that are registered."""
        self._elections_until_s = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._uses_wire = target.may_ask_brokers
        self._has_ends = has_ends
        source = SnapshotSource.WIRE if self._uses_wire else SnapshotSource.ZOOKEEPER
        self._knowledge = Knowledge(source, target.client_properties.security_protocol)
        self._knowledge.states_by_wire = self._uses_wire
        self._board = Board(self._clock, _addresses(target))
        self._readings = StageReadings(
            target,
            self._knowledge,
            self._board,
            self._clock,
            client=self._zk_client,
            newest=lambda: None if self._box.latest is None else self._box.latest.cluster,
            trigger=self._trigger,
            groups_per_reading=groups_per_reading,
            read_jmx=read_jmx,
        )
        self._knowledge.principal = self.principal if self._uses_wire else None
        self._zookeeper: ZooKeeperSide | None = None
        polled = (*_WIRE_STAGES, _METRICS_STAGE, _SPARK_STAGE)
        self._schedules = {
            reading.stage: StageSchedule(reading.interval_ms, reading.share, reading.ticks) for reading in polled
        }
        self._wakes = {reading.stage: asyncio.Event() for reading in polled}

    @property
    def status(self) -> FeedStatus:
        is_paused = not self._go.is_set()
        name, box = self._target.name, self._box
        return FeedStatus(name, self._interval_s, is_paused, self._has_ended, box.made)

    @property
    def principal(self) -> str | None:
        """The principal that brokers see; None if only they know it."""
        return self._readings.wire.principal

    @property
    def denied(self) -> list[Right]:
        """The rights that have been missing in the last minutes."""
        return self._readings.denied

    @property
    def latest(self) -> Frame | None:
        return self._box.latest

    @property
    def playback(self) -> Playback | None:
        return None

    async def start(self) -> None:
        if self._target.may_ask_zookeeper and self._target.zookeeper is not None:
            from engine.admin.watch.by_znode import ZooKeeperSide

            self._readings.read_old_groups()
            self._zookeeper = ZooKeeperSide(
                self._target.zookeeper,
                self._knowledge,
                self._board,
                self._clock,
                self._on_news,
                security=self._target.zookeeper_security,
            )
            self._spawn("zookeeper", self._zookeeper.run)
        if self._uses_wire:
            left_out = {Stage.OFFSETS: not self._has_ends, Stage.METRICS: not self._readings.wants_metrics}
            for reading in (*_WIRE_STAGES, _METRICS_STAGE):
                if left_out.get(reading.stage):
                    self._board.unreadable(reading.stage, "it was not asked for")
                else:
                    self._spawn(reading.stage, partial(self._run_stage, reading.stage))
            self._spawn("silence", self._listen)
        else:
            for stage in (Stage.OFFSETS, Stage.LOG_DIRS, Stage.PROBES, Stage.METRICS):
                self._board.unreadable(stage, BROKERS_NOT_ASKED)
            # Old groups keep themselves in ZooKeeper.
            self._spawn(Stage.GROUPS, partial(self._run_stage, Stage.GROUPS))
        if self._readings.has_queries:
            self._spawn(Stage.SPARK, partial(self._run_stage, Stage.SPARK))
        else:
            self._board.unreadable(Stage.SPARK, "no checkpoint and no event log is named")
        self._spawn("frames", self._make_frames)

    def frames(self) -> AsyncIterator[Frame]:
        return self._box.frames()

    def pause(self) -> None:
        self._go.clear()
        if self._zookeeper is not None:
            self._zookeeper.pause(True)

    def resume(self) -> None:
        self._go.set()
        if self._zookeeper is not None:
            self._zookeeper.pause(False)

    def refresh(self, stages: Collection[Stage] = ()) -> None:
        for stage in self._schedules:
            if not stages or stage in stages:
                self._trigger(stage)
        if self._zookeeper is not None and (not stages or {Stage.MEMBERS, Stage.METADATA, Stage.SETTINGS} & {*stages}):
            self._zookeeper.refresh()

    def set_interval(self, interval_s: float) -> None:
        self._interval_s = interval_within_bounds(interval_s)
        # The wait for the next tick was as long as the interval before.
        self._urgent.set()
        self._trigger(Stage.METADATA)

    async def close(self) -> None:
        self._has_ended = True
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._readings.close()
        self._box.close()

    # Frames

    async def _make_frames(self) -> None:
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, next_s - loop.time())):
                    await self._urgent.wait()
            is_urgent = self._urgent.is_set()
            self._urgent.clear()
            await self._go.wait()
            next_s = loop.time() + self._interval_s
            self._readings.note_denied()
            now_ms, links, stages = self._clock.now_ms(), dict(self._board.links), self._board.statuses()
            self._box.put(await carry_out(self._knowledge.frame_in_turns(now_ms, links, stages)))
            if is_urgent:
                await asyncio.sleep(FRAME_GAP_S)

    def _on_news(self, is_urgent: bool) -> None:
        """ZooKeeper has reported something; if members or topics came or went, ask brokers at once."""
        if is_urgent:
            self._urgent.set()
            self._trigger(Stage.METADATA)
        if self._knowledge.brokers is not self._seen_brokers:
            # Elections follow, and usually end within a tick.
            self._seen_brokers = self._knowledge.brokers
            loop = asyncio.get_running_loop()
            loop.call_later(_PROBE_AFTER_S, self._trigger, Stage.PROBES)
            self._elections_until_s = loop.time() + sum(_LOOKS_AFTER_S)
            for after_s in _LOOKS_AFTER_S:
                loop.call_later(after_s, self._trigger, Stage.METADATA)

    # Brokers that do not answer

    async def _listen(self) -> None:
        listener = Listener(self._target.client_properties, self._clock)
        try:
            while True:
                await self._go.wait()
                before, now = self._knowledge.silent_ms, await listener.look(self._knowledge.brokers)
                self._knowledge.silent_ms = now
                if before.keys() != now.keys():
                    await self._silence_changed(now.keys() - before.keys(), before.keys() - now.keys())
                await asyncio.sleep(LOOK_MS / 1000)
        finally:
            await listener.close()

    async def _silence_changed(self, fallen: Collection[int], back: Collection[int]) -> None:
        """Make a frame at once, and free the readings that wait for a silent broker."""
        self._urgent.set()
        for cluster in (self._readings.wire, self._readings.slow):
            wire = await cluster.wire()
            for broker in back:
                wire.silent.pop(broker, None)
            for broker in fallen:
                await wire.fell_silent(broker, "no answer")
        self._trigger(Stage.PROBES)

    # Stages at brokers

    async def _run_stage(self, stage: Stage) -> None:
        schedule, wake = self._schedules[stage], self._wakes[stage]
        while True:
            await self._go.wait()
            now_ms = self._clock.monotonic_ms()
            if not schedule.is_due(now_ms):
                await _wait(wake, ((schedule.next_ms or now_ms) - now_ms) / 1000)
            elif not self._may_read(stage):
                await _wait(wake, 0.2)
            else:
                await self._read(stage, schedule)

    def _may_read(self, stage: Stage) -> bool:
        if stage is Stage.METADATA:
            return not self._awaits_brokers()
        if stage is Stage.SPARK:
            return True
        if stage in _ALSO_WATCHED and self._zookeeper_tells():
            return False
        if not self._uses_wire:
            return self._readings.slow.has_zookeeper
        if stage in (Stage.PROBES, Stage.METRICS) and (self._box.latest is None or self._box.latest.cluster is None):
            return False
        metadata = self._board.stages[Stage.METADATA]
        return self._board.is_connected(Side.WIRE) and metadata.read_at_ms is not None

    def _awaits_brokers(self) -> bool:
        """Whether ZooKeeper, which has not failed so far, is about to say for the first time who the brokers are."""
        if self._target.bootstrap or self._knowledge.brokers or self._knowledge.members_by_znode:
            return False
        return self._board.links[Side.ZOOKEEPER].state in (LinkState.CONNECTING, LinkState.CONNECTED)

    def _zookeeper_tells(self) -> bool:
        """Whether its watches' data are known, or will be in a moment."""
        is_connecting = self._board.links[Side.ZOOKEEPER].state is LinkState.CONNECTING
        return self._knowledge.assignments_by_znode or is_connecting or self._board.is_connected(Side.ZOOKEEPER)

    async def _read(self, stage: Stage, schedule: StageSchedule) -> None:
        clock, board = self._clock, self._board
        schedule.start(clock.monotonic_ms())
        if stage is Stage.METADATA:
            board.trying(Side.WIRE)
        try:
            requests, missing = await (self._read_metadata() if stage is Stage.METADATA else self._readings.read(stage))
        except FAILURES as error:
            self._fail(stage, schedule, failure_of(error))
        except (TimeoutError, OSError) as error:
            self._fail(stage, schedule, Failure(str(error) or f"no answer within {OPERATION_S:g} s"))
        else:
            tick_ms = round(self._interval_s * 1000)
            cost_ms = schedule.succeed(clock.monotonic_ms(), tick_ms, is_partial=bool(missing))
            if self._is_overtaken(stage):
                return
            if stage is Stage.LOG_DIRS and self._is_moving():
                schedule.hasten(_MOVING_LOG_DIRS_MS, cost_ms)
            if stage is not Stage.SPARK and self._uses_wire:
                board.answered(Side.WIRE)
            board.read(
                stage, StageSource.POLL, cost_ms=cost_ms, requests=requests, interval_ms=schedule.interval_ms,
                missing=missing,
            )  # fmt: skip

    def _is_overtaken(self, stage: Stage) -> bool:
        """Whether ZooKeeper's watches reported this stage while the brokers were still asked: their answer is older."""
        return stage in _ALSO_WATCHED and self._knowledge.assignments_by_znode

    def _fail(self, stage: Stage, schedule: StageSchedule, failure: Failure) -> None:
        schedule.fail(self._clock.monotonic_ms(), round(self._interval_s * 1000))
        if self._is_overtaken(stage):
            return
        if stage is not Stage.METADATA or not self._board.is_connected(Side.ZOOKEEPER):
            self._board.failed(stage, failure)
        if stage is Stage.METADATA:
            was_by_wire = self._knowledge.states_by_wire
            self._knowledge.states_by_wire = False
            self._board.lost(Side.WIRE, failure, self._wall(schedule.next_ms))
            if self._knew_brokers:
                self._give_up_unread(failure)
            if was_by_wire:
                self._urgent.set()
                if self._zookeeper is not None:
                    # From now on the partition states come from there.
                    self._zookeeper.refresh()

    def _give_up_unread(self, failure: Failure) -> None:
        """Say that no registered broker answers, of what only brokers tell: somebody may wait for a first reading."""
        for stage in _OF_BROKERS:
            status = self._board.stages[stage]
            if status.read_at_ms is None and not status.error:
                self._board.failed(stage, failure)

    async def _read_metadata(self) -> StageResult:
        self._knew_brokers = bool(self._knowledge.brokers)
        self._readings.find_brokers()
        try:
            answer = await self._readings.metadata()
            self._knowledge.check_is_one(answer)
        except FAILURES:
            await self._readings.close_wire()
            raise
        before, is_first = self._knowledge.brokers, self._board.stages[Stage.METADATA].read_at_ms is None
        self._knowledge.states_by_wire = True
        has_changed = answer is not None and self._knowledge.take_metadata(answer)
        if answer is not None:
            self._readings.metadata_taken()
        is_electing = asyncio.get_running_loop().time() < self._elections_until_s
        if not self._knowledge.members_by_znode:
            # They are as old as the metadata may be.
            interval_ms = max(round(self._interval_s * 1000), self._schedules[Stage.METADATA].interval_ms)
            self._board.read(Stage.MEMBERS, StageSource.POLL, cost_ms=0.0, requests=0, interval_ms=interval_ms)
        if not is_first and before is not self._knowledge.brokers:
            asyncio.get_running_loop().call_later(_PROBE_AFTER_S, self._trigger, Stage.PROBES)
        if is_first or before is not self._knowledge.brokers or (has_changed and is_electing):
            self._urgent.set()
        return 1, ()

    def _zk_client(self) -> ZkClient | None:
        return None if self._zookeeper is None else self._zookeeper.client

    # Inside

    def _is_moving(self) -> bool:
        topics = self._knowledge.topics.values()
        return any(p.assignment.is_being_reassigned for topic in topics for p in topic.partitions)

    def _trigger(self, stage: Stage) -> None:
        self._schedules[stage].trigger(self._clock.monotonic_ms())
        self._wakes[stage].set()

    def _wall(self, monotonic_ms: int | None) -> int | None:
        if monotonic_ms is None:
            return None
        return self._clock.now_ms() + monotonic_ms - self._clock.monotonic_ms()

    def _spawn(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.create_task(self._kept_going(name, work), name=f"watch-{name}"))

    async def _kept_going(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run one part of the feed. If it fails, it starts over, and the others continue."""
        while True:
            try:
                await work()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # What the engine raises on purpose, such as a store that has gone, is for the operator.
                is_fault = not isinstance(error, KlammError)
                _log.error("A part of the feed failed and starts over. part=%s %s", name, error, exc_info=is_fault)
                if name in self._schedules:
                    failure = Failure(f"{type(error).__name__}: {error}") if is_fault else failure_of(error)
                    self._fail(Stage(name), self._schedules[Stage(name)], failure)
                await asyncio.sleep(1.0)


async def first_frame_with(
    target: ClusterTarget, stages: Collection[Stage], *, note_denied: Callable[[Iterable[Right]], None] = lambda _: None
) -> Frame:
    """Watch a cluster until each of these stages was read once, or could not be. The caller bounds the time.

    Where no broker is registered, or none of them answers, nothing that only brokers tell is waited for.
    ``note_denied`` learns which rights were missing.

    Raises:
        Unreachable: no side of the cluster that the target names answers, or lets klamm in.
    """
    feed = LiveFeed(target)
    await feed.start()
    try:
        async for frame in feed.frames():
            _check_links(frame, target)
            if frame.cluster is None:
                continue
            has_brokers = bool(frame.cluster.live_broker_ids) or not frame.is_settled({Stage.MEMBERS})
            if frame.is_settled(set(stages) - (frozenset() if has_brokers else _OF_BROKERS)):
                return frame
    finally:
        note_denied(feed.denied)
        await feed.close()
    raise Unreachable(f"the watch of {target.name} ended before the cluster was read")


def _check_links(frame: Frame, target: ClusterTarget) -> None:
    used = [link for link in frame.links.values() if link.state is not LinkState.UNUSED]
    gone = [link for link in used if link.state in (LinkState.LOST, LinkState.DENIED)]
    if not used or len(gone) < len(used) or frame.cluster is not None:
        return
    causes = "; ".join(f"{link.address}: {link.cause}" for link in gone)
    raise Unreachable(f"{target.name} cannot be read: {causes}", hint=START_IT)


def _addresses(target: ClusterTarget) -> dict[Side, str]:
    """Return the addresses of the sides that may be asked."""
    addresses = {}
    if target.may_ask_zookeeper and target.zookeeper is not None:
        addresses[Side.ZOOKEEPER] = target.zookeeper
    if target.may_ask_brokers:
        addresses[Side.WIRE] = ",".join(address_text(host, port) for host, port in target.bootstrap)
    return addresses


async def _wait(event: asyncio.Event, limit_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, limit_s)):
            await event.wait()
    event.clear()
