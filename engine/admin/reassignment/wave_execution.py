"""Carries out a plan in waves: locked, journalled, throttled, watched, and every throttle removed again.

Only the cluster knows the progress: each run checks where the partitions are, adopts the moves under way and starts
the others. So anyone with the plan can continue it, from any machine, after any crash.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, Unreachable
from engine.admin.cluster.members import read_members
from engine.admin.cluster.rollback_file import new_rollback_path, write_rollback
from engine.admin.elections.running import preview_election, run_election
from engine.admin.elections.scope_and_result import ElectionResult, ElectionScope, ElectionType
from engine.admin.reassignment.access import read_partitions, reassignment_changer, reassignment_reader
from engine.admin.reassignment.adaptive_throttle import ThrottleRange
from engine.admin.reassignment.execute import says_that_nothing_began
from engine.admin.reassignment.journal import Journal, open_journal
from engine.admin.reassignment.lock import OperatorLock, operator_lock
from engine.admin.reassignment.lock_holder import Holder, LockHeld
from engine.admin.reassignment.log_dirs import (
    check_can_move,
    check_log_dirs,
    move_log_dirs,
    read_log_dirs,
    refuse_moves,
)
from engine.admin.reassignment.moves import PartitionStatus, ReassignmentState, Refusal
from engine.admin.reassignment.reassignment_file import plan_document, plan_text
from engine.admin.reassignment.throttles import ClearedThrottles, clear_throttles
from engine.admin.reassignment.verify import read_statuses
from engine.admin.reassignment.wave_progress import (
    Outcome,
    Step,
    WaveControl,
    WaveMeter,
    WaveSettings,
    WavesResult,
    WaveWatcher,
)
from engine.admin.reassignment.wave_standings import ClusterHealth, behind_since, obstacles, read_health, read_standings
from engine.admin.reassignment.wave_throttle import WaveThrottle
from engine.admin.reassignment.waves import Standing, Wave, WaveMove
from engine.common.errors import KlammError, said_by
from engine.common.listing import first_few
from engine.common.model import TopicPartition
from engine.common.quantities import rate_text

POLL_MIN_S = 0.2
POLL_MAX_S = 2.0
LOOK_AROUND_S = 5.0
"""How often the ISRs are read and the throttle is adapted while a wave moves."""

GATE_PATIENCE_S = 15.0
"""How long the gate waits for a cluster to recover before it stops the plan."""

START_TRIES = 5
"""How many times partitions are started if no answer confirms their start."""

LEAVING_LIMIT_S = 20.0
"""How long cleaning up may take."""


class _Stop(Exception):
    """Ends the execution before the next wave."""

    def __init__(self, reason: str, outcome: Outcome = Outcome.STOPPED) -> None:
        super().__init__(reason)
        self.reason = reason
        self.outcome = outcome


async def execute_waves(
    cluster: Cluster,
    waves: Sequence[Wave],
    settings: WaveSettings,
    watcher: WaveWatcher,
    control: WaveControl | None = None,
) -> WavesResult:
    """Carry out waves one after the other, and stop before the next one if the gate does not open.

    It skips what is done already and adopts what is under way. When it ends, whatever the reason, it removes throttles
    from everything that no longer moves; what still copies keeps its throttle until ``clear_leftovers``.

    Raises:
        BadRequest: the cluster is read-only, or the journal is not that of this plan; nothing was changed.
        LockHeld: another operator is carrying out a plan; nothing was changed.
        AdminError: the cluster refuses, or cannot be reached.
    """
    cluster.check_may_change()
    holder = Holder.myself(settings.what, {move.name.topic for wave in waves for move in wave})
    async with operator_lock(
        cluster, holder, session_timeout_s=settings.lock_timeout_s, on_wait=watcher.waits_for
    ) as lock:
        watcher.step(Step.LOCKED, 0)
        journal = open_journal(settings.journal, settings.plan_digest)
        moves = [move for wave in waves for move in wave]
        throttle = WaveThrottle(cluster, moves, settings.throttle, journal, watcher.says)
        try:
            execution = _Execution(cluster, waves, settings, watcher, lock, journal, throttle, control or WaveControl())
            return await execution.run(holder)
        finally:
            journal.close()
            await throttle.close()


async def clear_leftovers(cluster: Cluster, *, holds_lock: bool = False) -> ClearedThrottles:
    """Remove klamm's throttles from everything that no longer moves, those of earlier runs too."""
    running = await (await reassignment_reader(cluster)).running()
    return await clear_throttles(cluster, running.names, None, holds_lock=holds_lock)


@dataclass(slots=True)
class _Execution:
    """One run. It holds the lock and the journal that its caller opened."""

    cluster: Cluster
    waves: Sequence[Wave]
    settings: WaveSettings
    watcher: WaveWatcher
    lock: OperatorLock
    journal: Journal
    _throttle: WaveThrottle
    control: WaveControl
    wave: int = 0
    done: set[TopicPartition] = field(default_factory=set)
    _deadline: float | None = None
    _start: ClusterHealth | None = None
    _meter: WaveMeter | None = None
    _noted_wave: int = 0
    _seen_moving: set[TopicPartition] = field(default_factory=set)

    @property
    def moves(self) -> list[WaveMove]:
        return [move for wave in self.waves for move in wave]

    async def run(self, holder: Holder) -> WavesResult:
        if self.settings.deadline_s is not None:
            self._deadline = time.monotonic() + self.settings.deadline_s
        to_copy = {move.name: move.copied_bytes for move in self.moves}
        self._meter = WaveMeter(to_copy, len(self.waves))
        outcome = Outcome.STOPPED
        reason: str | None = "interrupted"
        left: tuple[str, ...] = ()
        try:
            await self._begin(holder)
            for wave in self.waves:
                self.wave += 1
                await self._carry_out(wave)
            await self._elect()
            outcome, reason = Outcome.DONE, None
        except _Stop as stop:
            outcome, reason = stop.outcome, stop.reason
        except LockHeld as error:
            reason = f"the lock was lost: {error.message}"
        except Exception as error:
            reason = said_by(error)
            raise
        finally:
            left = await self._leave()
            fields = {"reason": reason, "wave": self.wave, "throttles_left": list(left)}
            self.journal.write("done" if outcome is Outcome.DONE else "stopped", **fields)
            self.watcher.step(Step.ENDED, self.wave)
        standings = await read_standings(self.cluster, self.moves)
        moving = tuple(name for name, standing in standings.items() if standing is Standing.MOVING)
        done, gone = (
            sum(standing is kind for standing in standings.values()) for kind in (Standing.DONE, Standing.GONE)
        )
        return WavesResult(outcome, reason, self.wave, len(self.waves), done, moving, len(standings), left, gone)

    async def _begin(self, holder: Holder) -> None:
        """Find out where everything is, write the rollback and the journal, and remove what an earlier run has left."""
        standings = await read_standings(self.cluster, self.moves)
        self.done = {name for name, standing in standings.items() if standing is Standing.DONE}
        self._seen_moving = {name for name, standing in standings.items() if standing is Standing.MOVING}
        _stop_where_drifted(standings)
        with_dirs = [move.move for move in self.moves if move.move.wanted_dirs and move.name not in self.done]
        if with_dirs:
            await check_can_move(await self.cluster.wire(), with_dirs)
            brokers = {broker for move in with_dirs for broker in move.wanted_dirs}
            check_log_dirs(with_dirs, await read_log_dirs(self.cluster, brokers, []))
        self._start = await read_health(self.cluster)
        back = self._save_rollback((await read_members(self.cluster)).cluster_id)
        self.journal.write(
            "begun", what=holder.what, who=holder.who, waves=len(self.waves), partitions=len(standings),
            done=len(self.done), rollback=None if back is None else str(back),
            throttle=0 if self.settings.throttle is None else self.settings.throttle.start,
        )  # fmt: skip
        if back is not None:
            self.watcher.saved(back)
        self.watcher.step(Step.SAVED, 0)
        await clear_leftovers(self.cluster, holds_lock=True)
        self.watcher.step(Step.CLEARED, 0)

    def _save_rollback(self, cluster_id: str | None) -> Path | None:
        """Write the rollback; one from an earlier run is the same, because it comes from the plan."""
        path = self.settings.rollback_file
        if path is None:
            return None
        dirs = {move.name: move.dirs_before for move in self.moves}
        document = plan_document({move.name: move.before for move in self.moves}, log_dirs=dirs, cluster_id=cluster_id)
        text = f"{plan_text(document)}\n"
        if path.exists():
            if path.read_text(encoding="utf-8") == text:
                return path
            path = new_rollback_path(path.stem, path.suffix, path.parent)
        write_rollback(path, text)
        return path

    async def _carry_out(self, wave: Wave) -> None:
        """Move one wave, repeatedly until every partition of it is confirmed."""
        if all(move.name in self.done for move in wave):
            return
        await self._pass_gate(wave)
        self.journal.write("wave", wave=self.wave, of=len(self.waves), partitions=[str(move.name) for move in wave])
        self.watcher.step(Step.WAVE_BEGUN, self.wave)
        refusals: list[Refusal] = []
        for tries in range(START_TRIES + 1):
            standings = await self._standings(wave)
            waiting = [move for move in wave if standings[move.name] is Standing.WAITING]
            moving = [move for move in wave if standings[move.name] is Standing.MOVING]
            if not waiting and not moving:
                break
            back = [move.name for move in waiting if move.name in self._seen_moving]
            if back:
                raise _Stop(f"another client has cancelled {first_few(back)}")
            if tries == START_TRIES:
                names = first_few([move.name for move in waiting + moving])
                raise _Stop(f"{names}: the cluster does not start moving, although klamm has asked several times")
            refusals = await self._start_moves(waiting, moving)
            await self._follow(wave)
            if refusals:
                break
        self.watcher.step(Step.COPIED, self.wave)
        await self._throttle.take_off()
        self.journal.write("wave_done", wave=self.wave)
        self.watcher.step(Step.WAVE_DONE, self.wave)
        if refusals:
            raise _Stop(f"the cluster refuses {refusals[0]} ({refusals[0].code.name})")

    async def _standings(self, wave: Wave) -> dict[TopicPartition, Standing]:
        standings = await read_standings(self.cluster, wave)
        for name, standing in standings.items():
            if standing is Standing.DONE:
                self.done.add(name)
            elif standing is Standing.MOVING:
                self._seen_moving.add(name)
            elif standing is Standing.GONE and name not in self.done:
                self.watcher.says(f"{name} no longer exists: klamm skips it")
        _stop_where_drifted({name: standing for name, standing in standings.items() if standing is Standing.DRIFTED})
        return standings

    async def _pass_gate(self, wave: Wave) -> None:
        """Return when the wave may begin.

        Raises:
            _Stop: it must not, even after the gate has waited.
        """
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise _Stop("the deadline has passed", Outcome.DEADLINE)
        await self.lock.ensure()
        assert self._start is not None
        patience_s = min(GATE_PATIENCE_S, self.settings.stall_s)
        closes_at = time.monotonic() + patience_s
        waiting = tuple(move for move in wave if move.name not in self.done)
        reported = ""
        while reasons := obstacles(self._start, await read_health(self.cluster, waiting), waiting):
            why = "; ".join(reasons)
            if time.monotonic() >= closes_at:
                raise _Stop(why)
            if why != reported:
                self.watcher.says(f"wave {self.wave} waits, for at most {patience_s:g} s: {why}")
                reported = why
            await asyncio.sleep(POLL_MIN_S)

    async def _start_moves(self, waiting: Sequence[WaveMove], moving: Sequence[WaveMove]) -> list[Refusal]:
        """Throttle, then start; return refusals. A lost answer is not a refusal: the next look shows the outcome."""
        changer = await reassignment_changer(self.cluster)
        if moving and changer.is_znode:
            # Through the znode batches run one after the other, so wait first for what moves.
            return []
        wanted = self._asked_for()
        if wanted is not None:
            self._throttle.follow(wanted)
        await self._throttle.put_on([*waiting, *moving])
        self.watcher.step(Step.THROTTLED, self.wave)
        wanted_dirs = {
            (partition.name, broker): path
            for partition in waiting
            for broker, path in partition.move.wanted_dirs.items()
        }
        targets = {partition.name: partition.target for partition in waiting if not await self._is_there(partition)}
        refusals: list[Refusal] = []
        try:
            if wanted_dirs:
                refuse_moves(await move_log_dirs(await self.cluster.wire(), wanted_dirs))
            if targets:
                await changer.check(targets)
                refusals = await changer.alter(targets)
            if wanted_dirs or len(refusals) < len(targets):
                self._note_moving()
        except AdminError as error:
            if says_that_nothing_began(error) and not isinstance(error, Unreachable):
                raise
            self.watcher.says(f"no answer to the start of wave {self.wave}, checking the outcome: {error}")
            await asyncio.sleep(POLL_MIN_S)
        await self._throttle.renew()
        self.watcher.step(Step.STARTED, self.wave)
        return refusals

    def _note_moving(self) -> None:
        """Write once a wave that it moves: who resumes can tell that a partition at its old place was led back."""
        if self._noted_wave != self.wave:
            self._noted_wave = self.wave
            self.journal.write("moving", wave=self.wave)

    async def _is_there(self, move: WaveMove) -> bool:
        """Whether a partition already has its replicas, and only its log dirs will change."""
        if not move.move.wanted_dirs:
            return False
        partition = (await read_partitions(self.cluster, [move.name.topic])).get(move.name)
        return (
            partition is not None and not partition.assignment.is_being_reassigned and partition.replicas == move.target
        )

    async def _follow(self, wave: Wave) -> None:
        """Check until none of the wave moves, and keep adapting the throttle.

        Raises:
            _Stop: the copy has stalled, the deadline has passed, or the progress is no longer known.
        """
        pause, last_news, looked_around = POLL_MIN_S, time.monotonic(), time.monotonic()
        least: dict[TopicPartition, tuple[int, int | None]] = {}
        reason, held_up, is_silent = "nothing was copied", "", False
        while True:
            now = time.monotonic()
            try:
                statuses = await read_statuses(self.cluster, [move.move for move in wave])
                is_silent = False
                moving = [status for status in statuses if status.state is ReassignmentState.IN_PROGRESS]
                self._show(statuses)
                if not moving:
                    return
                if await self._take_throttle(wave):
                    # Who reads the new rate must still see why nothing is copied.
                    held_up = ""
                if _has_news(moving, least):
                    last_news = now
                waiting = [status for status in moving if status.reason]
                waits = f"{waiting[0].name} {waiting[0].reason}" if waiting else ""
                if waits and waits != held_up:
                    held_up = waits
                    same = sum(status.reason == waiting[0].reason for status in waiting)
                    more = (
                        f", and so do{'es' if same == 2 else ''} {same - 1} more of its partitions" if same > 1 else ""
                    )
                    self.watcher.says(f"wave {self.wave}: {waits}{more}")
                reason = waits or "nothing was copied"
                if now - looked_around >= LOOK_AROUND_S:
                    looked_around = now
                    await self._look_around(wave)
            except KlammError as error:
                # A dead controller is replaced; the copy continues without it.
                if not is_silent:
                    patience = f"at most {self.settings.stall_s:g} s without news"
                    self.watcher.says(f"the progress of wave {self.wave} is unknown: {error}; klamm waits {patience}")
                is_silent = True
                reason = f"its progress is unknown: {error}"
            if self._deadline is not None and now >= self._deadline:
                raise _Stop("the deadline has passed", Outcome.DEADLINE)
            if now - last_news >= self.settings.stall_s:
                raise _Stop(f"the copy has stalled for {self.settings.stall_s:g} s: {reason}")
            await self._throttle.wait(self._waiting(wave), pause)
            pause = min(pause * 1.5, POLL_MAX_S)

    def _show(self, statuses: Sequence[PartitionStatus]) -> None:
        assert self._meter is not None
        remaining: dict[TopicPartition, int | None] = {}
        for status in statuses:
            if status.state is ReassignmentState.COMPLETE:
                self.done.add(status.name)
            elif status.state is ReassignmentState.IN_PROGRESS:
                self._seen_moving.add(status.name)
                # The answer to its start may have been lost, or that of an earlier run.
                self._note_moving()
                remaining[status.name] = status.remaining_bytes
        now = time.monotonic()
        progress = self._meter.update(self.wave, frozenset(self.done), remaining, self._throttle.rate, now)
        if remaining and all(status.reason for status in statuses if status.name in remaining):
            # Nobody knows for how long they wait, however fast they were before.
            progress = replace(progress, left_s_min=None, left_s_max=None)
        self.watcher.show(replace(progress, p99_s=self._throttle.p99_s))

    async def _look_around(self, wave: Wave) -> None:
        """Adapt the throttle to what the cluster can bear."""
        if not self._throttle.is_wanted or self._start is None:
            return
        arrived = {move.name for move in wave if move.name in self.done}
        # The throttle may have held these back until now: they have until the next look to come back into the ISR.
        released = await self._throttle.release(arrived)
        behind = behind_since(self._start, await read_health(self.cluster))
        await self._throttle.adapt([name for name in behind if name not in released], self._waiting(wave))

    async def _take_throttle(self, wave: Wave) -> bool:
        """Continue at the rate that the user has asked for since; return whether there is one."""
        wanted = self._asked_for()
        if wanted is not None:
            rate = self._throttle.rate
            before = rate_text(rate) if rate else "none"
            self.watcher.says(f"throttle {before} → {rate_text(wanted.start)}: you asked for it")
            self._throttle.follow(wanted)
            await self._throttle.put_on(self._waiting(wave))
        return wanted is not None

    def _asked_for(self) -> ThrottleRange | None:
        wanted = self.control.take_throttle()
        if wanted is not None:
            self.journal.write("asked", throttle=wanted.start)
        return wanted

    def _waiting(self, wave: Wave) -> list[WaveMove]:
        return [move for move in wave if move.name not in self.done]

    async def _elect(self) -> None:
        """Elect the replicas that the plan has put first. Those that cannot lead yet are reported, and stop nothing."""
        names = [(move.name.topic, move.name.partition) for move in self.moves if move.changes_leader]
        wanted = [name for name in names if TopicPartition(*name) in self.done]
        if not wanted or not self.settings.elects:
            return
        await self.lock.ensure()
        previews = await preview_election(self.cluster, ElectionType.PREFERRED, ElectionScope(tuple(wanted)))
        needed = [preview for preview in previews if preview.is_needed]
        if not needed:
            return
        self.journal.write("election", partitions=[str(preview.name) for preview in needed])
        for result in await run_election(self.cluster, ElectionType.PREFERRED, needed):
            if result.result not in (ElectionResult.ELECTED, ElectionResult.NOT_NEEDED):
                why = result.error or result.result.value
                self.watcher.says(f"{result.name} stays with leader {result.after}: {why}")
        self.watcher.step(Step.ELECTED, self.wave)

    async def _leave(self) -> tuple[str, ...]:
        """Remove throttles at the end. What cannot be removed then is reported, and the next command removes it."""
        try:
            async with asyncio.timeout(LEAVING_LIMIT_S):
                return await self._throttle.take_off()
        except (KlammError, TimeoutError) as error:
            return (f"cannot tell now whether a throttle is left: {error or 'no answer in time'}",)


def _has_news(moving: Sequence[PartitionStatus], least: dict[TopicPartition, tuple[int, int | None]]) -> bool:
    """Whether a partition has arrived, or has less left to copy than ever before. A growing source is no news."""
    names = {partition.name for partition in moving}
    has_news = not least.keys() <= names
    for name in least.keys() - names:
        del least[name]
    for partition in moving:
        now = (len(partition.adding), partition.remaining_bytes)
        before = least.get(partition.name)
        if before is None or now[0] < before[0] or _is_less(now[1], before[1]):
            least[partition.name] = now
            has_news = True
    return has_news


def _is_less(now: int | None, before: int | None) -> bool:
    return now is not None and (before is None or now < before)


def _stop_where_drifted(standings: Mapping[TopicPartition, Standing]) -> None:
    drifted = [name for name, standing in standings.items() if standing is Standing.DRIFTED]
    if drifted:
        # A run that continues meets the same partitions, until they are back or another plan has other replicas for
        # them.
        them = "it" if len(drifted) == 1 else "them"
        raise _Stop(
            f"another client has moved {first_few(drifted)}, or is moving {them}: "
            f"move {them} back and go on, or plan again into another file"
        )
