"""Carries plans out, cancels and checks them, and shows their history, through ``engine.admin`` and ``plans``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.reassignment.access import list_running
from engine.admin.reassignment.adaptive_throttle import ThrottleRange
from engine.admin.reassignment.journal import NO_END, JournalRecord, past_runs, read_journals
from engine.admin.reassignment.lock import read_holder, refuse_while_held
from engine.admin.reassignment.plan_runs import PlanRun, Verb, what_is_left
from engine.admin.reassignment.waves import Standing, Wave, WaveCaps
from engine.admin.snapshots.taking import read_snapshot
from engine.common.model import TopicPartition
from engine.common.quantities import counted, parse_duration_s, parse_rate, parse_size
from plans.checking import check_drift, check_plan, what_stops
from plans.findings import Check, plan_lines
from tui.drawing.cells import Cell, Tone
from tui.drawing.units import byte_rate, ids, size
from tui.operations.operation import Operation, Outcome, Prepared, command_text, flow_text, shortened
from tui.operations.plan_commands import running_words
from tui.operations.reassignments import CancelReassignments
from tui.operations.topics import quantity, whole_number
from tui.planning.opened_plan import OpenedPlan
from tui.remedies import planner_words

_TITLES = {Verb.APPLY: "Apply the plan", Verb.RESUME: "Resume the plan", Verb.ROLLBACK: "Roll the plan back"}


def run_asked_for(verb: Verb, plan: OpenedPlan, path: Path, values: Mapping[str, str]) -> PlanRun:
    """Return the run that a form asks for; raises BadRequest if a value makes no sense."""
    throttle = quantity(parse_rate, "the throttle", values["throttle"])
    stall_s = quantity(parse_duration_s, "stall", values["stall"])
    if stall_s is None or not stall_s > 0:
        raise BadRequest("stall must be a time above 0")
    replicas = whole_number("replicas in a wave", values["wave_replicas"])
    if replicas is not None and replicas < 1:
        raise BadRequest("a wave has at least one replica into a broker")
    size_bytes = quantity(parse_size, "bytes in a wave", values["wave_bytes"])
    caps = WaveCaps(replicas or WaveCaps().replicas, size_bytes)
    limits = None if throttle is None else ThrottleRange.of(throttle)
    return PlanRun(verb, path, plan.digest, plan.moves, limits, caps, stall_s)


@dataclass(frozen=True, slots=True)
class CarryOutPlan(Operation):
    """Carries a plan out in waves, forward or back. It goes on while the dashboard shows other things.

    ``saves`` writes the plan's file first, if it has none yet; ``begins`` starts the run.
    """

    plan: OpenedPlan
    run: PlanRun
    saves: Callable[[Path], None]
    begins: Callable[[PlanRun, Sequence[Wave]], None]

    @property
    def title(self) -> str:
        return _TITLES[self.run.verb]

    async def prepare(self, cluster: Cluster) -> Prepared:
        run, file = self.run, self.plan.file
        assert file is not None
        cluster.check_may_change()
        await run.refuse_begun(cluster)
        is_fresh = run.verb is Verb.APPLY
        findings = check_drift(file, await read_snapshot(cluster))
        serious = what_stops(findings, is_fresh=is_fresh)
        is_elsewhere = any(finding.check is Check.CLUSTER for finding in serious)
        if serious and not is_elsewhere and is_fresh and await run.is_carried_out(cluster):
            return Prepared("nothing to do: the plan is carried out already")
        if serious and not is_elsewhere:
            await refuse_while_held(cluster)
        if serious:
            more = counted(len(serious), "finding")
            hint = "c shows all; plan again, or resume this plan (R) if it has begun"
            raise BadRequest(
                f"the plan does not fit the cluster: {more}: {planner_words(serious[0].message)}", hint=hint
            )
        waves = await run.waves(cluster)
        if not waves:
            return Prepared("nothing to move: the plan is empty")

        def begin() -> None:
            self.saves(run.path)
            self.begins(run, waves)

        standings = None if is_fresh else await run.standings(cluster)
        note, doubt = run.question(cluster, waves, standings), await run.doubt(cluster, standings)
        warnings = [planner_words(finding.message) for finding in findings] if is_fresh else []
        warnings += [] if doubt is None else [doubt]
        return Prepared(
            f"{note[0].upper()}{note[1:]}?",
            (plan_sum(waves, standings), *wave_lines(waves, standings)),
            tuple(warnings),
            command_text(running_words(run), cluster.target),
            begins=begin,
        )


def plan_sum(waves: Sequence[Wave], standings: Mapping[TopicPartition, Standing] | None) -> str:
    """Return what all waves still have to do: partitions, bytes, and which brokers get and lose replicas."""
    left = [move for wave in what_is_left(waves, standings) for move in wave]
    known = [move.copied_bytes for move in left]
    copied = "sizes are not known" if None in known else f"{size(sum(size_bytes or 0 for size_bytes in known))} to copy"
    gained = Counter(broker for move in left for broker in move.target)
    lost = Counter(broker for move in left for broker in move.before)
    return f"{counted(len(left), 'partition')}, {copied}; replicas: {flow_text(gained, lost, {})}"


def wave_lines(waves: Sequence[Wave], standings: Mapping[TopicPartition, Standing] | None) -> tuple[str, ...]:
    """Return what each wave copies, without the partitions that are done, and without waves that have only those."""
    numbered = enumerate(what_is_left(waves, standings), 1)
    return shortened([_wave_line(number, left) for number, left in numbered if left])


def _wave_line(number: int, wave: Wave) -> str:
    known = [move.copied_bytes for move in wave]
    copied = "sizes are not known" if None in known else size(sum(copied_bytes or 0 for copied_bytes in known))
    names = ", ".join(f"{move.name}: {ids(move.before)} → {ids(move.target)}" for move in wave[:4])
    return f"wave {number}  {copied}  {names}" + (f" and {len(wave) - 4} more" if len(wave) > 4 else "")


@dataclass(frozen=True, slots=True)
class CancelPlan(Operation):
    """Ends the run of this dashboard, and cancels the plan's moves under way.

    ``tells`` learns, beside the run, what became of those moves.
    """

    plan: OpenedPlan
    stops: Callable[[], Awaitable[None]]
    tells: Callable[[str], None]
    is_running: bool
    title: str = "Cancel the plan"

    async def prepare(self, cluster: Cluster) -> Prepared:
        mine = await self._under_way(cluster)
        if not mine and not self.is_running:
            return Prepared("nothing of this plan is under way")
        inner = await CancelReassignments(mine).prepare(cluster) if mine else Prepared("")

        async def run(cluster: Cluster) -> Outcome:
            if self.is_running:
                await self.stops()
            message = "moves under way may go on in the cluster"
            try:
                outcome = await self._cancelled(cluster)
                results = Counter(row[1].text for row in outcome.rows)
                message = ", ".join(f"{number} {word}" for word, number in results.items())
                message = f"what was moving: {message or 'nothing is under way any more'}"
            finally:
                self.tells(message)
            return outcome

        return Prepared(
            f"Cancel {self.plan.name} in {cluster.target.name}: {counted(len(mine), 'partition')} under way?",
            inner.lines,
            ("what was copied so far is discarded",) if mine else (),
            inner.command,
            run=run,
        )

    async def _under_way(self, cluster: Cluster) -> tuple[TopicPartition, ...]:
        names = {move.name for move in self.plan.targets}
        running = [TopicPartition(move.topic, move.partition) for move in await list_running(cluster)]
        return tuple(name for name in running if name in names)

    async def _cancelled(self, cluster: Cluster) -> Outcome:
        """Cancel what is under way now: some may have begun or ended since the question was asked."""
        mine = await self._under_way(cluster)
        left = await CancelReassignments(mine).prepare(cluster) if mine else Prepared("")
        if left.run is None:
            return Outcome(self.title, (), (), (), ("the plan is stopped; none of its moves is under way",))
        return await left.run(cluster)


@dataclass(frozen=True, slots=True)
class ThrottlePlan(Operation):
    """Changes the rate of this dashboard's run, in this wave and those that follow."""

    run: PlanRun
    limits: ThrottleRange
    changes: Callable[[ThrottleRange], None]
    title: str = "Change the throttle"

    async def prepare(self, cluster: Cluster) -> Prepared:
        cluster.check_may_change()
        words = running_words(replace(self.run, throttle=self.limits), self.run.goes_on_with)
        return Prepared(
            f"Let brokers copy {byte_rate(self.limits.start)} each for {self.run.path.name} in {cluster.target.name}?",
            ("from the next check on, and in the waves that follow",),
            (),
            command_text(words, cluster.target),
            begins=lambda: self.changes(self.limits),
        )


@dataclass(frozen=True, slots=True)
class CheckPlan(Operation):
    """Compares the plan with the cluster as it is."""

    plan: OpenedPlan
    title: str = "Check the plan"
    asks: ClassVar[bool] = False

    async def prepare(self, cluster: Cluster) -> Prepared:
        file, path = self.plan.file, self.plan.path
        assert file is not None

        async def run(cluster: Cluster) -> Outcome:
            findings = check_plan(file, await read_snapshot(cluster), None, plan_lines(self.plan.text))
            rows = []
            for finding in findings:
                message = Cell(planner_words(finding.message), Tone.BAD if finding.is_error else Tone.WARN)
                rows.append((Cell(str(finding.line)), Cell(finding.check.value), message))
            verdict = counted(len(rows), "finding") if rows else "it fits the cluster"
            return Outcome(self.title, ("line", "check", "finding"), tuple(rows), verdict=verdict)

        command = "" if path is None else command_text(["plan", "check", str(path)], cluster.target)
        return Prepared(self.title, command=command, run=run)


@dataclass(frozen=True, slots=True)
class PlanHistory(Operation):
    """What was done with plans, when and by whom, from the journals in these folders; and who holds the lock now."""

    folders: tuple[Path, ...]
    title: str = "History of plans"
    asks: ClassVar[bool] = False

    async def prepare(self, cluster: Cluster) -> Prepared:
        return Prepared(self.title, run=self._read)

    async def _read(self, cluster: Cluster) -> Outcome:
        journals, errors = read_journals(self.folders)
        holder = await read_holder(cluster)
        now = f"now: {holder}, for {holder.what}" if holder else "no plan is being carried out"
        return history_outcome(self.title, journals, errors, now)


def history_outcome(
    title: str, journals: Sequence[tuple[Path, JournalRecord]], errors: Sequence[str], *notes: str
) -> Outcome:
    rows = []
    for run in past_runs(journals):
        tone = Tone.GOOD if run.outcome == "done" else Tone.QUIET if run.outcome == NO_END else Tone.WARN
        cells = run.began, run.who, run.what, f"{run.waves_done} of {run.waves}", run.ended
        rows.append((*map(Cell, cells), Cell(run.outcome, tone)))
    lines = notes if rows else (*notes, "there is no journal in the working folder or beside the open plan")
    columns = ("began", "by", "what", "waves done", "ended", "outcome")
    return Outcome(title, columns, tuple(rows), tuple(errors), lines, counted(len(rows), "run"))
