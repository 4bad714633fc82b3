"""``klamm plan apply``, ``resume`` and ``rollback``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.plan_files import (
    Elect,
    JournalOption,
    LoadedPlan,
    LockTimeout,
    PlanArgument,
    Stall,
    ThrottleCeiling,
    ThrottleFloor,
    ThrottleOption,
    WaveBytes,
    WaveReplicas,
    load_plan,
    seconds_option,
    size_option,
    throttle_options,
)
from cli.commands.plan_group import group
from cli.exit_codes import ExitCode
from cli.framework.failure import Failure
from cli.framework.invocation import Invocation, Stop
from cli.framework.options import Needs
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.reassignment.adaptive_throttle import ThrottleRange
    from engine.admin.reassignment.waves import WaveCaps, WaveMove

RollbackFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where the way back is written.  [default: FILE.rollback.json]")
]
_NEEDS = Needs(cluster=True, changes=True, bounded=False)


@dataclass(frozen=True, slots=True)
class _Run:
    """How a plan is carried out, as options say it."""

    verb: str
    loaded: LoadedPlan
    throttle: ThrottleRange | None
    caps: WaveCaps
    stall_s: float
    lock_timeout_s: float
    elects: bool
    journal: Path
    rollback_file: Path | None = None
    goes_on: str = "resume"
    """The command that goes on after it was broken off."""


@group.command(
    "apply",
    needs=_NEEDS,
    examples=(
        "klamm plan apply plan.json --dry-run",
        "klamm plan apply plan.json --throttle 50M",
        "klamm plan apply plan.json --throttle 50M --throttle-ceiling 200M --wave-replicas 4 --wave-bytes 100G",
        "klamm plan apply plan.json --yes --timeout 14400 -o jsonl",
    ),
)
async def apply(
    invocation: Invocation,
    file: PlanArgument,
    throttle: ThrottleOption = None,
    throttle_floor: ThrottleFloor = None,
    throttle_ceiling: ThrottleCeiling = None,
    wave_replicas: WaveReplicas = 10,
    wave_bytes: WaveBytes = None,
    stall: Stall = "5m",
    lock_timeout: LockTimeout = "10s",
    elect: Elect = True,
    journal: JournalOption = None,
    rollback_file: RollbackFile = None,
) -> Report:
    """Carry out a plan in waves.

    Journal and way back are on the disk before anything changes. A gate before each wave stops it where a target is
    dead, an ISR has shrunk, a copy has stalled or --timeout has passed. It may be broken off at any moment, by Ctrl-C
    or by kill -9: klamm plan resume goes on, from any machine that has the plan.
    """
    loaded = load_plan(file)
    run = _Run(
        "apply",
        loaded,
        throttle_options(loaded.plan.klamm.throttle, throttle, throttle_floor, throttle_ceiling),
        _caps(wave_replicas, wave_bytes),
        seconds_option("--stall", stall),
        seconds_option("--lock-timeout", lock_timeout),
        elect,
        journal or loaded.beside(".journal"),
        rollback_file or loaded.beside(".rollback.json"),
    )
    _refuse_begun(run)
    return await _carry_out(invocation, run, loaded.moves, is_fresh=True)


@group.command(
    "resume",
    needs=_NEEDS,
    examples=("klamm plan resume plan.json", "klamm plan resume plan.json --throttle 20M"),
)
async def resume(
    invocation: Invocation,
    file: PlanArgument,
    throttle: ThrottleOption = None,
    throttle_floor: ThrottleFloor = None,
    throttle_ceiling: ThrottleCeiling = None,
    wave_replicas: WaveReplicas = 10,
    wave_bytes: WaveBytes = None,
    stall: Stall = "5m",
    lock_timeout: LockTimeout = "10s",
    elect: Elect = True,
    journal: JournalOption = None,
    rollback_file: RollbackFile = None,
) -> Report:
    """Go on with a plan that was stopped, interrupted or killed, on this machine or on another.

    It needs the plan file and the cluster, nothing else: what is done is passed over, what is under way is waited for.
    Throttles that the killed run has left are taken off.
    """
    loaded = load_plan(file)
    run = _Run(
        "resume",
        loaded,
        throttle_options(loaded.plan.klamm.throttle, throttle, throttle_floor, throttle_ceiling),
        _caps(wave_replicas, wave_bytes),
        seconds_option("--stall", stall),
        seconds_option("--lock-timeout", lock_timeout),
        elect,
        journal or loaded.beside(".journal"),
        rollback_file or loaded.beside(".rollback.json"),
    )
    return await _carry_out(invocation, run, loaded.moves)


@group.command(
    "rollback",
    needs=_NEEDS,
    examples=("klamm plan rollback plan.json --dry-run", "klamm plan rollback plan.json --throttle 50M"),
)
async def rollback(
    invocation: Invocation,
    file: PlanArgument,
    throttle: ThrottleOption = None,
    throttle_floor: ThrottleFloor = None,
    throttle_ceiling: ThrottleCeiling = None,
    wave_replicas: WaveReplicas = 10,
    wave_bytes: WaveBytes = None,
    stall: Stall = "5m",
    lock_timeout: LockTimeout = "10s",
    elect: Elect = True,
    journal: JournalOption = None,
) -> Report:
    """Lead every partition of a plan back to where it was, in waves: also those that are under way."""
    from engine.admin.reassignment.waves import turned_round

    loaded = load_plan(file)
    run = _Run(
        "rollback",
        loaded,
        throttle_options(loaded.plan.klamm.throttle, throttle, throttle_floor, throttle_ceiling),
        _caps(wave_replicas, wave_bytes),
        seconds_option("--stall", stall),
        seconds_option("--lock-timeout", lock_timeout),
        elect,
        journal or loaded.beside(".journal"),
        goes_on="rollback",
    )
    return await _carry_out(invocation, run, turned_round(loaded.moves))


async def _carry_out(invocation: Invocation, run: _Run, moves: Sequence[WaveMove], *, is_fresh: bool = False) -> Report:
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from cli.views.plan_execution import ExecutionView, waves_report, waves_result_report
    from engine.admin.reassignment.wave_execution import WaveSettings, execute_waves
    from engine.admin.reassignment.wave_moves import plan_waves

    async with open_cluster(invocation, for_change=not invocation.is_dry_run) as cluster:
        async with asyncio.timeout(invocation.timeout_s):
            await _refuse_drift(invocation, cluster, run, is_fresh=is_fresh)
            waves = await plan_waves(cluster, moves, run.caps)
        if not waves:
            invocation.talk.say("nothing to move: the plan is empty")
            return waves_report(waves)
        what = f"{run.verb} {run.loaded.path.name} in {cluster.target.name}: {_counted(moves)} in {_waves(len(waves))}"
        if not invocation.confirm(what):
            return waves_report(waves)
        path = run.loaded.path
        view = ExecutionView(invocation, f"klamm plan {run.goes_on} {path}")
        settings = WaveSettings(
            plan_digest=run.loaded.digest,
            what=f"{run.verb} {path.name}",
            journal=run.journal,
            rollback_file=run.rollback_file,
            throttle=run.throttle,
            deadline_s=invocation.timeout_s if invocation.has_timeout_given else None,
            stall_s=run.stall_s,
            lock_timeout_s=run.lock_timeout_s,
            elects=run.elects,
        )
        try:
            result = await execute_waves(cluster, waves, settings, view)
        finally:
            view.end()
    return waves_result_report(result, f"klamm plan {run.goes_on} {path}", str(run.journal))


def _refuse_begun(run: _Run) -> None:
    """Raise where a journal says that the plan was begun and not ended well: going on is another command."""
    from engine.admin.reassignment.journal import read_journal

    if not run.journal.exists():
        return
    record = read_journal(run.journal)
    if record.events and record.events[0]["plan"] == run.loaded.digest and record.is_under_way:
        hint = f"go on with: klamm plan resume {run.loaded.path}"
        raise Stop(
            Failure(ExitCode.USAGE, "usage", "this plan was begun already and is not done", str(run.journal), hint)
        )


async def _refuse_drift(invocation: Invocation, cluster: Cluster, run: _Run, *, is_fresh: bool) -> None:
    """Stop where the plan is one of another cluster, or (``is_fresh``) the cluster is not as the plan found it.

    Raises:
        Stop: code 1, the gate before the first wave.
    """
    from engine.admin.snapshots.taking import read_snapshot
    from plans.checking import Check, check_drift

    findings = check_drift(run.loaded.plan, await read_snapshot(cluster))
    stops = (Check.CLUSTER, Check.DRIFT, Check.TARGETS) if is_fresh else (Check.CLUSTER,)
    serious = [one for one in findings if one.check in stops]
    if not serious:
        for note in findings if is_fresh else ():
            invocation.talk.warn(note.message)
        return
    path = run.loaded.path
    for one in serious:
        invocation.talk.say(one.message)
    told = f"the plan does not fit the cluster: {len(serious)} finding{'' if len(serious) == 1 else 's'}"
    hint = f"klamm plan check {path} shows all; plan again, or where it was begun already: klamm plan resume {path}"
    raise Stop(Failure(ExitCode.BAD_ANSWER, "stopped", told, str(path), hint))


def _caps(replicas: int, size: str | None) -> WaveCaps:
    from engine.admin.reassignment.waves import WaveCaps

    return WaveCaps(replicas, size_option("--wave-bytes", size))


def _counted(moves: Sequence[WaveMove]) -> str:
    copies = sum(len(move.adding) + len(move.changing_dirs) for move in moves)
    partitions = f"{len(moves)} partition{'' if len(moves) == 1 else 's'}"
    return f"{partitions} ({copies} replica{'' if copies == 1 else 's'} to copy)"


def _waves(count: int) -> str:
    return f"{count} wave{'' if count == 1 else 's'}"
