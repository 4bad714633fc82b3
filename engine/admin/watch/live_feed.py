"""The feed of a live cluster: watches and polls run side by side, and each tick makes a frame of everything.

ZooKeeper reports brokers, controller, topics and reassignments as they change; brokers are polled, each stage as often
as its share of the time allows. The feed retries a lost side by itself; its stages keep their last good data and say
why these are not newer. A change of members makes a frame, and reads the metadata, at once; so does a broker that
falls silent, which nobody waits for any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from engine.admin.cluster.asking import FAILURES
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AnswerLost, BadRequest, Refused, Unreachable
from engine.admin.cluster.remedies import START_IT, Parameter, Phrase
from engine.admin.cluster.rights import Right
from engine.admin.cluster.target import ClusterTarget, Side
from engine.admin.groups.scope import GroupScope
from engine.admin.health.checks import has_throttles
from engine.admin.health.reading import holding_of, read_holding
from engine.admin.lag.measuring import LagMeter, LagOptions
from engine.admin.lag.traces import QueryTraces
from engine.admin.log_dirs.describing import NOT_ALLOWED, read_log_dirs
from engine.admin.reassignment.lock import plan_in_the_way
from engine.admin.topics.by_wire import read_reassignments
from engine.admin.watch import by_wire
from engine.admin.watch.board import Board, Failure, failure_of
from engine.admin.watch.by_trace import QueryReader
from engine.admin.watch.feed import FeedStatus, FrameBox, Playback, interval_within_bounds, made_in_turns
from engine.admin.watch.frame import Frame, LinkState, Stage, StageSource, WatchedGroup
from engine.admin.watch.knowledge import Knowledge
from engine.admin.watch.schedule import StageSchedule
from engine.admin.watch.shared_cluster import BROKERS_NOT_ASKED, SharedCluster
from engine.admin.watch.silence import LOOK_MS, Listener
from engine.common.clock import Clock, SystemClock
from engine.common.errors import ErrorCode
from engine.common.model import BrokerInfo, address_text
from engine.common.snapshot import ClusterSnapshot, SnapshotSource
from engine.kafka.protocol.apis.metadata import MetadataResponse
from engine.kafka.zk.errors import SessionLost, ZooKeeperError

if TYPE_CHECKING:
    from engine.admin.watch.by_znode import ZooKeeperSide
    from engine.admin.watch.old_groups import OldGroupReader
    from engine.kafka.zk.client import ZkClient

_log = logging.getLogger(__name__)

FRAME_GAP_S = 0.05
"""The shortest time after a frame with news, however much happens; news that follow a tick do not wait."""

OPERATION_S = 10.0
"""The longest time for one reading."""

_LOOKS_AFTER_S = (0.15, 0.3, 0.6)
"""This long after brokers came or went, read the metadata again, besides the usual readings."""

_DOUBT_S = 1.0
"""This long after a broker named another controller than ZooKeeper does, ask it again."""
_REASSIGNMENTS_LIMIT_S = 3.0
_NO_BROKERS = "no broker is registered in ZooKeeper"
_WAITS = "no broker is named, and ZooKeeper has not reported any yet"

_Told = tuple[int, tuple[str, ...]]
"""How many requests a reading took, and a line for each missing thing."""


@dataclass(frozen=True, slots=True)
class _PolledStage:
    """How a stage is polled."""

    stage: Stage
    interval_ms: int | None
    """None is the feed's tick."""
    share: float
    """The share of the time that reading it may take."""


_WIRE_STAGES = (
    _PolledStage(Stage.METADATA, None, 0.5),
    _PolledStage(Stage.REASSIGNMENTS, None, 0.3),
    _PolledStage(Stage.OFFSETS, None, 0.05),
    _PolledStage(Stage.LOG_DIRS, 10_000, 0.1),
    _PolledStage(Stage.GROUPS, 5_000, 0.2),
    _PolledStage(Stage.SETTINGS, 30_000, 0.05),
    _PolledStage(Stage.PROBES, 10_000, 0.2),
)
_SPARK_STAGE = _PolledStage(Stage.SPARK, 10_000, 0.1)
_TRANSACTIONS_EVERY_S = 30.0
_MOVING_LOG_DIRS_MS = 2_000
"""How often sizes are read while partitions move."""
_DENIED_MS = 60_000
"""All stages are read within this time, unless they take very long."""
_ALSO_WATCHED = (Stage.REASSIGNMENTS, Stage.SETTINGS)
"""Stages that brokers are asked for only while ZooKeeper cannot tell."""


class LiveFeed:
    """Watches one cluster. See ``Feed`` for how to use it.

    Args:
        target: the cluster; its ZooKeeper, its brokers or both are asked, as far as it names them and allows it.
        groups_per_reading: how many groups are measured at once; a reading of many may hold the event loop longer.

    Raises:
        BadRequest: the target is a snapshot, which never changes.
    """

    def __init__(
        self,
        target: ClusterTarget,
        *,
        interval_s: float = 1.0,
        groups_per_reading: int = by_wire.GROUPS_PER_READING,
        clock: Clock | None = None,
    ) -> None:
        if target.snapshot is not None:
            hint = Phrase("name a live cluster with ", Parameter.BOOTSTRAP_SERVERS, " or ", Parameter.ZOOKEEPER)
            raise BadRequest("a snapshot cannot be watched", hint=hint)
        self._target = target
        self._clock = clock or SystemClock()
        self._interval_s = interval_within_bounds(interval_s)
        self._groups_per_reading = groups_per_reading
        self._box = FrameBox()
        self._urgent = asyncio.Event()
        self._go = asyncio.Event()
        self._go.set()
        self._has_ended = False
        self._seen_brokers: tuple[BrokerInfo, ...] = ()
        self._elections_until_s = 0.0
        self._transactions_due_s = 0.0
        self._misses_ends = False
        self._tasks: list[asyncio.Task[None]] = []
        self._uses_wire = target.may_ask_brokers
        source = SnapshotSource.WIRE if self._uses_wire else SnapshotSource.ZOOKEEPER
        self._knowledge = Knowledge(source, target.client_properties.security_protocol)
        self._knowledge.states_by_wire = self._uses_wire
        self._board = Board(self._clock, _addresses(target))
        self._wire = _wire_of(target)
        shared = self._wire.target if self._uses_wire else target
        self._knowledge.principal = self._wire.principal if self._uses_wire else None
        self._denied_before: tuple[Right, ...] = ()
        self._denied_until_ms = self._clock.monotonic_ms() + _DENIED_MS
        self._slow = SharedCluster(shared, self._zk_client, timeout_s=OPERATION_S)
        """Separate connections for slow requests: brokers answer in the order of the questions."""
        self._groups: by_wire.GroupReader | None = None
        self._old_groups: OldGroupReader | None = None
        traces = QueryTraces(target.checkpoints, target.event_logs)
        self._queries = None if traces.is_empty else QueryReader(traces)
        self._zookeeper: ZooKeeperSide | None = None
        polled = (*_WIRE_STAGES, _SPARK_STAGE)
        self._schedules = {one.stage: StageSchedule(one.interval_ms, one.share) for one in polled}
        self._wakes = {one.stage: asyncio.Event() for one in polled}

    @property
    def status(self) -> FeedStatus:
        is_paused = not self._go.is_set()
        name, box = self._target.name, self._box
        return FeedStatus(name, self._interval_s, is_paused, self._has_ended, box.made, box.left_out)

    @property
    def principal(self) -> str | None:
        """Who asks the brokers; None if only they know."""
        return self._wire.principal

    @property
    def denied(self) -> list[Right]:
        """The rights that have been missing in the last minutes."""
        return list(dict.fromkeys((*self._denied_before, *self._wire.denied, *self._slow.denied)))

    def _note_denied(self) -> None:
        """Tell the frames; a right that was given is missing no longer once everything has been read again, twice."""
        self._knowledge.denied = tuple(self.denied)
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._denied_until_ms:
            self._denied_until_ms = now_ms + _DENIED_MS
            self._denied_before = tuple(dict.fromkeys((*self._wire.denied, *self._slow.denied)))
            self._wire.forget_denied()
            self._slow.forget_denied()

    @property
    def latest(self) -> Frame | None:
        return self._box.latest

    @property
    def playback(self) -> Playback | None:
        return None

    @property
    def zookeeper_requests(self) -> int:
        """How many requests were sent to ZooKeeper so far."""
        return 0 if self._zookeeper is None else self._zookeeper.requests

    async def start(self) -> None:
        if self._target.may_ask_zookeeper and self._target.zookeeper is not None:
            from engine.admin.watch.by_znode import ZooKeeperSide
            from engine.admin.watch.old_groups import OldGroupReader

            self._old_groups = OldGroupReader(self._slow)
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
            for one in _WIRE_STAGES:
                self._spawn(one.stage, partial(self._run_stage, one.stage))
            self._spawn("silence", self._listen)
        else:
            for stage in (Stage.OFFSETS, Stage.LOG_DIRS, Stage.PROBES):
                self._board.unreadable(stage, BROKERS_NOT_ASKED)
            # Old groups keep themselves in ZooKeeper.
            self._spawn(Stage.GROUPS, partial(self._run_stage, Stage.GROUPS))
        if self._queries is not None:
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
        await self._wire.close()
        await self._slow.close()
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
            self._note_denied()
            now_ms, links, stages = self._clock.now_ms(), dict(self._board.links), self._board.told()
            self._box.put(await made_in_turns(self._knowledge.frame_in_turns(now_ms, links, stages)))
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
        """Tell at once, and free the readings that wait for a silent broker."""
        self._urgent.set()
        for cluster in (self._wire, self._slow):
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
            return self._slow.has_zookeeper
        if stage is Stage.PROBES and (self._box.latest is None or self._box.latest.cluster is None):
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
        board.begun(stage)
        if stage is Stage.METADATA:
            board.trying(Side.WIRE)
        try:
            requests, missing = await _READERS[stage](self)
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
                next_at_ms=self._wall(schedule.next_ms), missing=missing,
            )  # fmt: skip

    def _is_overtaken(self, stage: Stage) -> bool:
        """Whether ZooKeeper's watches reported this stage while the brokers were still asked: their answer is older."""
        return stage in _ALSO_WATCHED and self._knowledge.assignments_by_znode

    def _fail(self, stage: Stage, schedule: StageSchedule, failure: Failure) -> None:
        schedule.fail(self._clock.monotonic_ms(), round(self._interval_s * 1000))
        if self._is_overtaken(stage):
            return
        next_ms = self._wall(schedule.next_ms)
        if stage is not Stage.METADATA or not self._board.is_connected(Side.ZOOKEEPER):
            self._board.failed(stage, failure, next_at_ms=next_ms)
        if stage is Stage.METADATA:
            was_by_wire = self._knowledge.states_by_wire
            self._knowledge.states_by_wire = False
            self._board.lost(Side.WIRE, failure, next_ms)
            if was_by_wire:
                self._urgent.set()
                if self._zookeeper is not None:
                    # From now on the partition states come from there.
                    self._zookeeper.refresh()

    async def _read_metadata(self) -> _Told:
        self._find_brokers()
        try:
            answer = await self._ask_metadata()
        except FAILURES:
            await self._wire.close_wire()
            await self._slow.close_wire()
            raise
        before, is_first = self._knowledge.brokers, self._board.stages[Stage.METADATA].read_at_ms is None
        self._knowledge.states_by_wire = True
        has_changed = self._knowledge.take_metadata(answer)
        is_electing = asyncio.get_running_loop().time() < self._elections_until_s
        if not self._knowledge.members_by_znode:
            # They are as old as the metadata may be.
            interval_ms = max(round(self._interval_s * 1000), self._schedules[Stage.METADATA].interval_ms)
            self._board.read(Stage.MEMBERS, StageSource.POLL, cost_ms=0.0, requests=0, interval_ms=interval_ms)
        if is_first or before is not self._knowledge.brokers or (has_changed and is_electing):
            self._urgent.set()
        return 1, ()

    async def _ask_metadata(self) -> MetadataResponse:
        try:
            return await by_wire.read_metadata(await self._wire.wire())
        except AnswerLost:
            # The broker that was asked has ended, or fell silent: another one answers.
            return await by_wire.read_metadata(await self._wire.wire())

    async def _read_reassignments(self) -> _Told:
        wire = await self._wire.wire()
        running = await read_reassignments(wire, limit_s=_REASSIGNMENTS_LIMIT_S, is_patient=False)
        if not self._knowledge.assignments_by_znode:
            self._knowledge.take_reassignments(running)
        return 1, ()

    async def _read_offsets(self) -> _Told:
        live = frozenset(broker.id for broker in self._knowledge.brokers)
        wire = await self._wire.wire()
        ends, missing, requests = await by_wire.read_ends(
            wire, self._knowledge.topics.values(), live, self._knowledge.silent_ms
        )
        self._knowledge.take_ends(ends, self._clock.now_ms())
        if bool(missing) != self._misses_ends:
            # A broker has fallen silent, or is back: the probes say which, long before its session ends.
            self._misses_ends = bool(missing)
            self._trigger(Stage.PROBES)
        return requests, missing

    async def _read_log_dirs(self) -> _Told:
        dirs = await read_log_dirs(self._slow)
        self._knowledge.take_log_dirs(dirs)
        silent = tuple(f"broker {one.broker}: {one.error}" for one in dirs if one.log_dir is None)
        if dirs and all(one.error == NOT_ALLOWED for one in dirs):
            raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, where="log dirs")
        if silent and len(silent) == len(dirs):
            raise Unreachable("; ".join(silent))
        return len({one.broker for one in dirs}), silent

    async def _read_groups(self) -> _Told:
        old, missing = await self._read_old_groups()
        if not self._uses_wire or not self._knowledge.coordinators_may_be_asked():
            self._knowledge.groups = old
            return 0, missing
        wire = await self._slow.wire()
        if self._groups is None:
            options = LagOptions(looks_max=1)
            meter = LagMeter(self._slow, GroupScope(), lambda topic: True, options)
            self._groups = by_wire.GroupReader(meter, self._groups_per_reading)
        read = await self._groups.read(wire, self._clock.now_ms())
        self._knowledge.groups = tuple(sorted((*read.groups, *old), key=lambda one: (one.name, one.lag.type or "")))
        return read.requests, (*read.missing, *missing)

    async def _read_old_groups(self) -> tuple[tuple[WatchedGroup, ...], tuple[str, ...]]:
        """Return the groups in ZooKeeper, and why they are stale; while it is lost, its link says that."""
        reader = self._old_groups
        if reader is None:
            return (), ()
        missing: tuple[str, ...] = ()
        if self._slow.has_zookeeper:
            try:
                await reader.read(self._clock.now_ms())
            except SessionLost as error:
                missing = (f"groups in ZooKeeper: {error}; klamm reads them in the next session",)
            except (*FAILURES, ZooKeeperError) as error:
                missing = (f"groups in ZooKeeper: {error}",)
        return tuple(reader.known.values()), missing

    def _zk_client(self) -> ZkClient | None:
        return None if self._zookeeper is None else self._zookeeper.client

    async def _read_spark(self) -> _Told:
        assert self._queries is not None
        wire = await self._slow.wire() if self._board.is_connected(Side.WIRE) else None
        read = await self._queries.read(wire)
        self._knowledge.queries = read.queries
        return read.requests, read.missing

    async def _read_settings(self) -> _Told:
        topics = list(self._knowledge.topics.values())
        wire = await self._slow.wire()
        configs, brokers, min_isr, missing = await by_wire.read_wire_settings(wire, topics)
        if not self._knowledge.assignments_by_znode:
            self._knowledge.take_settings(configs, brokers, min_isr)
            self._knowledge.forget_settings_but(self._knowledge.topics)
        return len(topics) // 250 + len(brokers) + 2, missing

    async def _read_probes(self) -> _Told:
        frame = self._box.latest
        assert frame is not None and frame.cluster is not None
        words = await by_wire.read_words(self._slow, frame.cluster, self._knowledge.silent_ms)
        if self._knowledge.take_words(words):
            asyncio.get_running_loop().call_later(_DOUBT_S, self._trigger, Stage.PROBES)
        await self._read_plan_lock(frame.cluster)
        missing = await self._read_transactions(frame.cluster)
        silent = [f"broker {broker}: {said.trouble}" for broker, said in self._knowledge.words.items() if said.trouble]
        if silent and len(silent) == len(self._knowledge.words):
            raise Unreachable("; ".join(silent))
        return 2 * len(self._knowledge.words), missing

    async def _read_plan_lock(self, cluster: ClusterSnapshot) -> None:
        """Find out who carries out a plan, while there are throttles that it may need."""
        if not has_throttles(cluster):
            self._knowledge.plan = None
            return
        holder = await plan_in_the_way(self._slow, None)
        self._knowledge.plan = "" if holder is None else holder.told

    async def _read_transactions(self, cluster: ClusterSnapshot) -> tuple[str, ...]:
        """Find out which transactions hold readers up; return what could not be read."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._transactions_due_s:
            return ()
        self._transactions_due_s = now_s + _TRANSACTIONS_EVERY_S
        try:
            found = await read_holding(await self._slow.wire(), cluster)
        except FAILURES as error:
            return (f"open transactions: {error}",)
        self._knowledge.holding = tuple(map(holding_of, found.transactions))
        return tuple(f"open transactions: {failure}" for failure in found.failures)

    # Inside

    def _find_brokers(self) -> None:
        """Direct connections to the named brokers, and to all known live ones.

        Raises:
            Unreachable: none is named or known.
        """
        known = tuple(
            (endpoint.host, endpoint.port)
            for broker in self._knowledge.brokers
            for endpoint in broker.endpoints_for(self._target.client_properties.security_protocol)
        )
        addresses = tuple(dict.fromkeys((*self._target.bootstrap, *known)))
        if not addresses:
            raise Unreachable(_NO_BROKERS if self._knowledge.members_by_znode else _WAITS)
        for cluster in (self._wire, self._slow):
            cluster.target = replace(cluster.target, bootstrap=addresses)

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
        """Run one part of the feed. If it fails, it starts over, and the others go on."""
        while True:
            try:
                await work()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                _log.exception("A part of the feed failed and starts over. part=%s", name)
                if name in self._schedules:
                    self._fail(Stage(name), self._schedules[Stage(name)], Failure(f"{type(error).__name__}: {error}"))
                await asyncio.sleep(1.0)


async def first_frame_with(
    target: ClusterTarget,
    stages: Collection[Stage],
    *,
    note_denied: Callable[[Iterable[Right]], None] = lambda _: None,
) -> Frame:
    """Watch a cluster until each of these stages was read once, or could not be. The caller bounds the time.

    ``note_denied`` learns which rights were missing.

    Raises:
        Unreachable: no side of the cluster that the target names answers, or lets klamm in.
    """
    feed = LiveFeed(target)
    await feed.start()
    try:
        async for frame in feed.frames():
            _check_links(frame, target)
            if frame.cluster is not None and frame.is_settled(stages):
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


_READERS: Mapping[Stage, Callable[[LiveFeed], Awaitable[_Told]]] = {
    Stage.METADATA: LiveFeed._read_metadata,
    Stage.REASSIGNMENTS: LiveFeed._read_reassignments,
    Stage.OFFSETS: LiveFeed._read_offsets,
    Stage.LOG_DIRS: LiveFeed._read_log_dirs,
    Stage.GROUPS: LiveFeed._read_groups,
    Stage.SETTINGS: LiveFeed._read_settings,
    Stage.PROBES: LiveFeed._read_probes,
    Stage.SPARK: LiveFeed._read_spark,
}


def _addresses(target: ClusterTarget) -> dict[Side, str]:
    """Return the addresses of the sides that may be asked."""
    found = {}
    if target.may_ask_zookeeper and target.zookeeper is not None:
        found[Side.ZOOKEEPER] = target.zookeeper
    if target.may_ask_brokers:
        found[Side.WIRE] = ",".join(address_text(host, port) for host, port in target.bootstrap)
    return found


def _wire_of(target: ClusterTarget) -> Cluster:
    """Return only the cluster's wire side: the feed keeps the only session with ZooKeeper."""
    return Cluster(replace(target, zookeeper=None, via=Side.WIRE), timeout_s=OPERATION_S)


async def _wait(event: asyncio.Event, limit_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, limit_s)):
            await event.wait()
    event.clear()
