"""``klamm plan apply``, ``resume``, ``rollback``: carry a plan out; ``status``, ``verify``: show its progress."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.plan.shared import (
    JournalOption,
    LoadedPlan,
    PlanArgument,
    group,
    load_plan,
    size_option,
    throttle_options,
)
from cli.exit_codes import ExitCode
from cli.framework.failure import Failure
from cli.framework.invocation import Invocation, Stop
from cli.framework.option_values import seconds_option
from cli.framework.options import Asks, Needs
from cli.output.report import Advice, Report
from engine.common.quantities import counted
from engine.runtime.input_files import name_of

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.reassignment.journal import JournalRecord
    from engine.admin.reassignment.moves import PartitionStatus
    from engine.admin.reassignment.plan_runs import PlanRun, Verb
    from engine.admin.reassignment.waves import Standing, Wave
    from engine.common.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of every command that carries out a plan."""

    throttle: Annotated[
        str | None,
        typer.Option(
            "--throttle",
            metavar="SIZE",
            help="Bytes a second between brokers; 0 is none.  [default: what the plan says; for resume and "
            "rollback, that of the last run]",
        ),
    ] = None
    throttle_floor: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Never halve the throttle below this.  [default: a quarter of --throttle]"),
    ] = None
    throttle_ceiling: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Raise it up to this while all is calm.  [default: --throttle]")
    ] = None
    throttle_p99: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Halve the throttle while a broker's p99 latency is above this, such as 50ms."
        ),
    ] = None
    wave_replicas: Annotated[
        int, typer.Option(metavar="N", min=1, help="At most this many replicas per wave into or out of a broker.")
    ] = 10
    wave_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="At most this many bytes per wave into or out of a broker.")
    ] = None
    stall: Annotated[str, typer.Option(metavar="TIME", help="Stop if a copy makes no progress for this long.")] = "5m"
    lock_timeout: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long the lock outlives a klamm that was killed; at least 6s over the wire."
        ),
    ] = "10s"
    elect: Annotated[
        bool, typer.Option("--elect/--no-elect", help="At the end, elect the replicas that the plan puts first.")
    ] = True
    journal: JournalOption = None

    def run(self, verb: Verb, loaded: LoadedPlan, rollback_file: Path | None = None) -> PlanRun:
        from engine.admin.reassignment.journal import throttle_of_last_run
        from engine.admin.reassignment.plan_runs import PlanRun, Verb
        from engine.admin.reassignment.waves import WaveCaps

        journal = self.journal or loaded.beside(".journal")
        last = None if verb is Verb.APPLY else throttle_of_last_run(journal, loaded.digest)
        return PlanRun(
            verb,
            loaded.path,
            loaded.digest,
            loaded.moves,
            throttle_options(
                loaded.plan.klamm.throttle if last is None else last,
                self.throttle,
                self.throttle_floor,
                self.throttle_ceiling,
                self.throttle_p99,
            ),
            WaveCaps(self.wave_replicas, size_option("--wave-bytes", self.wave_bytes)),
            seconds_option("--stall", self.stall),
            seconds_option("--lock-timeout", self.lock_timeout),
            self.elect,
            journal,
            rollback_file,
        )


RollbackFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where to write the rollback.  [default: FILE.rollback.json]")
]
_NEEDS = Needs(cluster=True, changes=True, bounded=False, has_deadline=True)


@group.command(
    "apply",
    needs=_NEEDS,
    examples=(
        "klamm plan apply plan.json --dry-run",
        "klamm plan apply plan.json --throttle 50M",
        "klamm plan apply plan.json --throttle 50M --throttle-ceiling 200M --wave-replicas 4 --wave-bytes 100G",
        "klamm plan apply plan.json --throttle 50M --throttle-p99 80ms",
        "klamm plan apply plan.json --yes --timeout 14400 -o jsonl",
    ),
)
async def apply(
    invocation: Invocation, file: PlanArgument, options: RunOptions, rollback_file: RollbackFile = None
) -> Report:
    """Carry out a plan in waves.

    It writes the journal and the rollback file before it changes anything. A gate before each wave stops it if a target
    is dead or hangs, an ISR has shrunk, a copy has stalled or --timeout has passed; without --timeout there is no
    deadline. You can interrupt it at any moment, by Ctrl-C or by kill -9: klamm plan resume continues, from any machine
    that has the plan.
    """
    from engine.admin.reassignment.plan_runs import Verb

    loaded = load_plan(file)
    return await _carry_out(invocation, loaded, options.run(Verb.APPLY, loaded, rollback_file))


@group.command(
    "resume", needs=_NEEDS, examples=("klamm plan resume plan.json", "klamm plan resume plan.json --throttle 20M")
)
async def resume(
    invocation: Invocation, file: PlanArgument, options: RunOptions, rollback_file: RollbackFile = None
) -> Report:
    """Continue a plan that was stopped, interrupted or killed, on this machine or on another.

    It needs only the plan file and the cluster: it skips what is done and waits for what is under way. It removes
    throttles that the killed run left. If the plan seems to have been rolled back since, it asks first; without a
    terminal it needs --yes.
    """
    from engine.admin.reassignment.plan_runs import Verb

    loaded = load_plan(file)
    return await _carry_out(invocation, loaded, options.run(Verb.RESUME, loaded, rollback_file))


@group.command(
    "rollback",
    needs=_NEEDS,
    examples=("klamm plan rollback plan.json --dry-run", "klamm plan rollback plan.json --throttle 50M"),
)
async def rollback(invocation: Invocation, file: PlanArgument, options: RunOptions) -> Report:
    """Move every partition of a plan back to where it was, in waves, including those that are still moving."""
    from engine.admin.reassignment.plan_runs import Verb

    loaded = load_plan(file)
    return await _carry_out(invocation, loaded, options.run(Verb.ROLLBACK, loaded))


async def _carry_out(invocation: Invocation, loaded: LoadedPlan, run: PlanRun) -> Report:
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from cli.views.plan_execution import ExecutionView, waves_report, waves_result_report
    from engine.admin.reassignment.lock import plan_in_the_way
    from engine.admin.reassignment.plan_runs import Verb, what_is_left
    from engine.admin.reassignment.wave_progress import Outcome, WavesResult
    from tui.operations.plan_commands import running_words

    async with open_cluster(invocation, for_change=not invocation.is_dry_run) as cluster:
        async with asyncio.timeout(invocation.timeout_s):
            await run.refuse_begun(cluster)
            is_done = await _refuse_drift(invocation, cluster, loaded, run)
            waves = () if is_done else await run.waves(cluster)
            standings = await run.standings(cluster) if waves and run.verb is not Verb.APPLY else None
            doubt = await run.doubt(cluster, standings)
        goes_on = invocation.pasteable(shlex.join(["klamm", *running_words(run, run.goes_on_with)]))
        if is_done:
            invocation.talk.say("nothing to do: the plan is carried out already")
            done = WavesResult(Outcome.DONE, None, 0, 0, len(run.moves), (), len(run.moves))
            return (
                waves_report(()) if invocation.is_dry_run else waves_result_report(done, goes_on, str(run.journal_file))
            )
        if not waves:
            invocation.talk.say("nothing to move: the plan is empty")
            return waves_report(waves)
        await _warn_of_room(invocation, cluster, waves, standings)
        if invocation.is_dry_run and (holder := await plan_in_the_way(cluster, None)) is not None:
            invocation.talk.warn(f"another operator is carrying out a plan: {holder.description}")
        if doubt is not None:
            invocation.talk.warn(doubt)
        if not invocation.confirm(run.question(cluster, waves, standings), is_destructive=doubt is not None):
            return waves_report(what_is_left(waves, standings))
        view = ExecutionView(invocation, goes_on, is_throttled=run.throttle is not None)
        deadline_s = invocation.timeout_s if invocation.has_timeout_given else None
        try:
            result = await run.carry_out(cluster, waves, view, deadline_s=deadline_s)
        finally:
            view.end()
    return waves_result_report(result, goes_on, str(run.journal_file), is_back=run.verb is Verb.ROLLBACK)


async def _warn_of_room(
    invocation: Invocation, cluster: Cluster, waves: Sequence[Wave], standings: Mapping[TopicPartition, Standing] | None
) -> None:
    """Warn of brokers that have too little room for what is not copied yet, as far as sizes are known."""
    from cli.views.reassignment import shortage_text
    from engine.admin.brokers.reading_load import read_volumes
    from engine.admin.reassignment.prepare import of_wave, room_shortages
    from engine.admin.reassignment.waves import Standing

    ahead = [
        move
        for wave in waves
        for move in wave
        if standings is None or standings.get(move.name, Standing.WAITING) is Standing.WAITING
    ]
    sizes = {move.name: move.size_bytes for move in ahead if move.size_bytes is not None}
    for shortage in room_shortages(map(of_wave, ahead), sizes, await read_volumes(cluster)):
        invocation.talk.warn(shortage_text(shortage))


async def _refuse_drift(invocation: Invocation, cluster: Cluster, loaded: LoadedPlan, run: PlanRun) -> bool:
    """Stop if the plan is for another cluster, or if a plan to apply no longer fits the cluster.

    Returns:
        Whether a plan to apply is already carried out in every partition.

    Raises:
        LockHeld: it does not fit while another operator carries out a plan, maybe this one.
        Stop: code 1, the gate before the first wave.
    """
    from engine.admin.reassignment.lock import refuse_while_held
    from engine.admin.reassignment.plan_runs import Verb
    from engine.admin.snapshots.taking import read_snapshot, take_snapshot
    from plans.checking import check_drift, what_stops
    from plans.findings import Check

    is_fresh = run.verb is Verb.APPLY
    if is_fresh and loaded.plan.names_log_dirs:
        snapshot = (await take_snapshot(cluster, has_sizes=True)).snapshot
    else:
        snapshot = await read_snapshot(cluster)
    findings = check_drift(loaded.plan, snapshot)
    serious = what_stops(findings, is_fresh=is_fresh)
    if not serious:
        for note in findings if is_fresh else ():
            invocation.talk.warn(note.message)
        return False
    is_elsewhere = any(finding.check is Check.CLUSTER for finding in serious)
    if is_fresh and not is_elsewhere and await run.is_carried_out(cluster):
        return True
    if not is_elsewhere:
        await refuse_while_held(cluster)
    path = run.path
    for finding in serious:
        invocation.talk.say(finding.message)
    message = f"the plan does not fit the cluster: {counted(len(serious), 'finding')}"
    if is_elsewhere:
        hint = "name the cluster that the plan was made for, or plan again for this one"
    else:
        hint = f"klamm plan check {path} shows all; plan again, or, if this plan has begun: klamm plan resume {path}"
    raise Stop(Failure(ExitCode.BAD_ANSWER, "stopped", message, str(path), hint))


@group.command(
    "status",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=("klamm plan status plan.json", "klamm plan status plan.json -o json | jq .lock"),
)
async def status(invocation: Invocation, file: PlanArgument, journal: JournalOption = None) -> Report:
    """Show how far a plan or its rollback has got, who holds the lock, and what the journal says. Changes nothing."""
    from cli.framework.cluster_session import open_cluster
    from cli.views.plan_execution import plan_status_report
    from engine.admin.reassignment.access import check_planned_for
    from engine.admin.reassignment.lock import read_holder
    from engine.admin.reassignment.plan_runs import is_led_back
    from engine.admin.reassignment.wave_standings import read_standings
    from engine.admin.reassignment.waves import turned_round

    loaded = load_plan(file)
    record = _journal_of(journal or loaded.beside(".journal"))
    async with open_cluster(invocation) as cluster:
        await check_planned_for(cluster, loaded.plan.klamm.cluster_id, name_of(file))
        forward = await read_standings(cluster, loaded.moves)
        back = await read_standings(cluster, turned_round(loaded.moves))
        holder = await read_holder(cluster)
    is_back = is_led_back(loaded.path, forward, back, holder, record)
    return plan_status_report(back if is_back else forward, holder, record, is_back=is_back)


@group.command(
    "verify",
    needs=Needs(cluster=True, asks=Asks.CLUSTER, changes=True),
    examples=("klamm plan verify plan.json", "klamm plan verify plan.json -o json"),
)
async def verify(invocation: Invocation, file: PlanArgument) -> Report:
    """Say whether every partition is where the plan wants it, and remove throttles that klamm has left behind.

    Exits with 0 when all are there, 1 when one is not and nothing moves it, 5 while any is under way or waits for its
    wave in a run of somebody else. For a plan that has not begun, or was rolled back, it says so, and exits with 1.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.reassignment import statuses_report, throttle_notes
    from engine.admin.reassignment.access import check_planned_for
    from engine.admin.reassignment.lock import read_holder
    from engine.admin.reassignment.throttles import ClearedThrottles
    from engine.admin.reassignment.verify import read_statuses
    from engine.admin.reassignment.wave_execution import clear_leftovers
    from engine.admin.reassignment.wave_standings import seen_from_before

    loaded = load_plan(file)
    async with open_cluster(invocation) as cluster:
        await check_planned_for(cluster, loaded.plan.klamm.cluster_id, name_of(file))
        statuses = await read_statuses(cluster, [move.move for move in loaded.moves])
        holder = await read_holder(cluster)
        cleared = ClearedThrottles()
        if cluster.target.may_be_changed and not invocation.is_dry_run:
            cleared = await clear_leftovers(cluster)
    notes = throttle_notes(cleared)
    record = None if str(file) == "-" else _journal_of(loaded.beside(".journal"))
    statuses = seen_from_before(statuses, loaded.moves, record, holder)
    is_begun = record is not None and record.is_under_way
    name = "FILE" if str(file) == "-" else str(file)
    notes += _what_it_means(statuses, name, is_begun=is_begun)
    if record is not None and record.is_under_way and holder is None:
        notes += _ended_early(statuses, record, str(file))
    back = "resume" if record is not None and record.is_of_rollback else "rollback"
    # Until its run ends, every other is refused.
    end = "" if holder is None else f"end the run of {holder.who}, then: "
    return statuses_report(statuses, notes, stop=f"{end}{shlex.join(['klamm', 'plan', back, name])}")


def _ended_early(statuses: Sequence[PartitionStatus], record: JournalRecord, file: str) -> list[str]:
    """Say how to go on with a plan whose last run ended early: in the direction of that run."""
    from engine.admin.reassignment.moves import ReassignmentState

    if all(status.state is ReassignmentState.COMPLETE for status in statuses):
        return []
    verb = "rollback" if record.is_of_rollback else "resume"
    return [Advice(f"the last run of the plan ended early; to go on: {shlex.join(['klamm', 'plan', verb, file])}")]


def _what_it_means(statuses: Sequence[PartitionStatus], file: str, *, is_begun: bool) -> list[str]:
    """Say what the states mean for the plan, if it is not carried out and nothing moves.

    ``is_begun``: its journal tells of a run that has begun a wave and did not end well.
    """
    from engine.admin.reassignment.moves import ReassignmentState
    from engine.admin.reassignment.wave_standings import AS_BEFORE, ELSEWHERE

    states = {status.state for status in statuses}
    if states == {ReassignmentState.NOT_BEGUN} and not is_begun:
        return [Advice(f"the plan has not begun; to begin it: {shlex.join(['klamm', 'plan', 'apply', file])}")]
    if states == {ReassignmentState.NOT_BEGUN, ReassignmentState.COMPLETE} and not is_begun:
        left = sum(status.state is ReassignmentState.NOT_BEGUN for status in statuses)
        where = f"of {counted(len(statuses), 'partition')}, {left} where it was before"
        go_on = shlex.join(["klamm", "plan", "resume", file])
        return [Advice(f"a part of the plan is carried out: {where}; to go on: {go_on}")]
    if states == {ReassignmentState.ROLLED_BACK}:
        return ["the plan was rolled back: every partition is where it was before"]
    if ReassignmentState.FAILED not in states or states & {ReassignmentState.IN_PROGRESS, ReassignmentState.WAITING}:
        return []
    reasons = [status.reason for status in statuses if status.state is ReassignmentState.FAILED]
    counts = ((AS_BEFORE, "where it was before"), (ELSEWHERE, "at neither place"))
    parts = [f"{reasons.count(reason)} {where}" for reason, where in counts if reason in reasons]
    return [f"the plan is not carried out: of {counted(len(statuses), 'partition')}, {', '.join(parts)}"]


def _journal_of(path: Path) -> JournalRecord | None:
    from engine.admin.reassignment.journal import read_journal

    return read_journal(path) if path.exists() else None
