"""``klamm reassign execute``, ``verify`` and ``cancel``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.reassignment_group import (
    PlanFile,
    Plot,
    PreserveThrottles,
    Wait,
    follow,
    group,
    heat_of,
    read_plan,
    rollback_path,
)
from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.new_file import write_new_file
from cli.framework.options import Needs
from cli.output.format import OutputFormat
from cli.output.report import Report, Section

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.reassignment.execute import PreparedReassignment
    from engine.admin.reassignment.moves import PartitionStatus
    from engine.admin.reassignment.plan_file import PartitionMove


@group.command(
    "execute",
    needs=Needs(cluster=True, changes=True, bounded=False),
    examples=(
        "klamm reassign execute --reassignment-json-file plan.json --dry-run",
        "klamm reassign execute --reassignment-json-file plan.json --throttle 50000000 --wait",
        "klamm reassign execute --reassignment-json-file plan.json --additional --throttle 80000000",
    ),
)
async def execute(
    invocation: Invocation,
    reassignment_json_file: PlanFile,
    throttle: Annotated[
        int | None, typer.Option("--throttle", metavar="BYTES/S", help="Limit of what brokers copy from each other.")
    ] = None,
    replica_alter_log_dirs_throttle: Annotated[
        int | None, typer.Option(metavar="BYTES/S", help="Limit of what a broker copies between its log dirs.")
    ] = None,
    additional: Annotated[
        bool, typer.Option("--additional", help="Although others are under way; also changes their throttle.")
    ] = False,
    rollback_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the way back is written.  [default: rollback-TIME.json]")
    ] = None,
    wait: Wait = False,
    plot: Plot = True,
) -> Report:
    """Move partitions as a file says.

    All of it is checked first, and the way back is written to a file before anything is changed. Throttles carry a
    mark, so that --wait, or later verify or cancel from any machine, takes them off again. Without --wait it ends with
    5 while partitions are still moving.
    """
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from cli.views.reassignment import planned_report, statuses_report
    from engine.admin.cluster.errors import Refused
    from engine.admin.reassignment.execute import execute_reassignment, prepare_reassignment
    from engine.admin.reassignment.throttle_settings import Throttle
    from engine.admin.reassignment.verify import verify_reassignment

    plan = read_plan(reassignment_json_file)
    limits = Throttle(throttle, replica_alter_log_dirs_throttle)
    async with open_cluster(invocation, for_change=not invocation.is_dry_run) as cluster:
        async with asyncio.timeout(invocation.timeout_s):
            prepared = await prepare_reassignment(cluster, plan, limits, is_additional=additional)
        for warning in prepared.warnings:
            invocation.talk.warn(warning)
        if not prepared.has_work:
            invocation.talk.say("nothing to move: all partitions are there already, or on their way")
            return statuses_report(await verify_reassignment(cluster, plan))
        details = () if invocation.is_dry_run else _details(prepared)
        if not invocation.confirm(_summary(prepared, cluster.target.name), details):
            return planned_report(prepared.planned, await _heat(invocation, cluster, prepared) if plot else None)
        async with asyncio.timeout(invocation.timeout_s):
            if prepared.changing or any(move.wanted_dirs for move in plan):
                _save_rollback(invocation, prepared, rollback_path(rollback_file))
            invocation.accepted(f"follow it: klamm reassign verify --reassignment-json-file {reassignment_json_file}")
            refusals = await execute_reassignment(cluster, prepared)
        code = invocation.tell_failures(
            [Refused(one.code, one.message, where=f"partition {one.name}") for one in refusals]
        )
        started = f"started {len(prepared.changing) - len(refusals)} of {len(plan)} partitions"
        invocation.talk.say(started if prepared.changing else "changed what is under way")
        statuses = await (follow(invocation, cluster, plan) if wait else verify_reassignment(cluster, plan))
        rates = limits.broker_settings if prepared.throttle is not None else {}
        report = statuses_report(statuses, await _clear(cluster, plan, statuses, rates))
    return report if code is ExitCode.DONE else _with_code(report, code)


@group.command(
    "verify",
    needs=Needs(cluster=True, changes=True, bounded=False),
    examples=(
        "klamm reassign verify --reassignment-json-file plan.json",
        "klamm reassign verify --reassignment-json-file plan.json --wait --timeout 3600",
    ),
)
async def verify(
    invocation: Invocation,
    reassignment_json_file: PlanFile,
    preserve_throttles: PreserveThrottles = False,
    wait: Wait = False,
) -> Report:
    """Tell how far a reassignment is, and take its throttle off when it is done.

    Ends with 0 when all partitions are where the file wants them, 1 when one is not and nothing is moving it, 5 while
    any is still moving. Only throttles that klamm has set are taken off.
    """
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from cli.views.reassignment import statuses_report
    from engine.admin.reassignment.verify import verify_reassignment

    plan = read_plan(reassignment_json_file)
    async with open_cluster(invocation) as cluster:
        if wait:
            statuses = await follow(invocation, cluster, plan)
        else:
            async with asyncio.timeout(invocation.timeout_s):
                statuses = await verify_reassignment(cluster, plan)
        target = cluster.target
        keeps = preserve_throttles or invocation.is_dry_run or target.is_read_only or target.snapshot is not None
        async with asyncio.timeout(invocation.timeout_s):
            return statuses_report(statuses, () if keeps else await _clear(cluster, plan, statuses))


@group.command(
    "cancel",
    needs=Needs(cluster=True, changes=True),
    examples=("klamm reassign cancel --reassignment-json-file plan.json", "klamm reassign cancel --all --yes"),
)
async def cancel(
    invocation: Invocation,
    reassignment_json_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The partitions, as they were given to execute.")
    ] = None,
    is_all: Annotated[bool, typer.Option("--all", help="Everything that is under way in the cluster.")] = False,
    preserve_throttles: PreserveThrottles = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also where no old replica is alive and in sync, and nobody could lead.")
    ] = False,
) -> Report | None:
    """Stop moving partitions: each goes back to the replicas it had.

    The old replicas' order is not known to Kafka any more; where it matters, execute the rollback file instead.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.reassignment import cancelled_report, throttle_notes
    from engine.admin.reassignment.cancel import cancel_reassignments, check_cancel, running_of, would_be_cancelled
    from engine.admin.reassignment.log_dirs import stop_log_dir_moves
    from engine.admin.reassignment.running import read_running
    from engine.admin.reassignment.throttles import clear_throttles

    if is_all == (reassignment_json_file is not None):
        raise UsageError("give --reassignment-json-file or --all")
    plan = None if reassignment_json_file is None else read_plan(reassignment_json_file)
    async with open_cluster(invocation, for_change=True) as cluster:
        running = await running_of(cluster, None if plan is None else {move.name for move in plan})
        names = sorted(running) if plan is None else [move.name for move in plan]
        if running:
            await check_cancel(cluster, running, is_forced=force)
        lines = [f"{n}: back to {_listed(p.assignment.origin_replicas)}" for n, p in list(running.items())[:20]]
        what = f"cancel {len(running)} reassignment{'' if len(running) == 1 else 's'} in {cluster.target.name}"
        if running and not invocation.confirm(what, lines):
            return cancelled_report(would_be_cancelled(names, running))
        notes = []
        results = would_be_cancelled(names, running)
        if running:
            invocation.accepted("it may be cancelled already; look with: klamm reassign list")
            results = await cancel_reassignments(cluster, names, running)
        if not invocation.is_dry_run:
            stopped = await stop_log_dir_moves(cluster, plan or ())
            notes = [f"{name} stays in its log dir on broker {broker}" for name, broker in stopped]
            if not preserve_throttles:
                moving = (await read_running(cluster)).names
                notes += throttle_notes(await clear_throttles(cluster, moving, None))
        return cancelled_report(results, notes)


async def _heat(invocation: Invocation, cluster: Cluster, prepared: PreparedReassignment) -> Section | None:
    if invocation.output is not OutputFormat.TABLE or not prepared.changing:
        return None
    before = {move.name: prepared.origins[move.name] for move in prepared.changing}
    return await heat_of(cluster, before, {move.name: move.replicas for move in prepared.changing})


async def _clear(
    cluster: Cluster,
    plan: Sequence[PartitionMove],
    statuses: Sequence[PartitionStatus],
    own_rates: Mapping[str, str] | None = None,
) -> Sequence[str]:
    from cli.views.reassignment import throttle_notes
    from engine.admin.reassignment.verify import clear_finished

    return throttle_notes(await clear_finished(cluster, plan, statuses, own_rates))


def _save_rollback(invocation: Invocation, prepared: PreparedReassignment, path: Path) -> None:
    from engine.admin.reassignment.plan_file import plan_text

    write_new_file(path, f"{plan_text(prepared.rollback)}\n")
    invocation.talk.say(f"the way back is in {path}: klamm reassign execute --reassignment-json-file {path}")


def _summary(prepared: PreparedReassignment, cluster: str) -> str:
    count = len(prepared.changing)
    if not count:
        return f"change throttles and log dirs of {len(prepared.plan)} partitions in {cluster}"
    copies = sum(len(prepared.flows[move.name].destinations) for move in prepared.changing)
    return (
        f"move {count} partition{'' if count == 1 else 's'} in {cluster} "
        f"({copies} new replica{'' if copies == 1 else 's'})"
    )


def _details(prepared: PreparedReassignment) -> list[str]:
    lines = [str(move) for move in prepared.planned[:20]]
    more = len(prepared.changing) - len(lines)
    return [*lines, f"… and {more} more"] if more else lines


def _listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def _with_code(report: Report, code: ExitCode) -> Report:
    return Report(report.data, report.table, report.sections, report.notes, exit_code=code)
