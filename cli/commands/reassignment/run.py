"""``klamm reassign execute``, ``verify`` and ``cancel``."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.reassignment.shared import (
    PlanFile,
    Plot,
    PreserveThrottles,
    ReadPlan,
    Wait,
    follow_limit_s,
    group,
    heat_of,
    read_plan,
)
from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.option_values import RollbackFile
from cli.framework.options import Needs
from cli.framework.plan_guard import BesidePlan, minds_plan
from cli.output.format import OutputFormat
from cli.output.report import Report, Section
from engine.common.quantities import counted

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.reassignment.prepare import PreparedReassignment
    from engine.admin.reassignment.reassignment_file import PartitionMove
    from engine.admin.reassignment.throttle_settings import Throttle
    from engine.common.model import TopicPartition

AnyPlanFile = Annotated[
    Path | None, typer.Option(metavar="FILE", allow_dash=True, help="The file that was given to execute.")
]
BrokerRate = Annotated[
    int | None, typer.Option("--throttle", metavar="BYTES/S", help="Limit for what brokers copy from each other.")
]
LogDirRate = Annotated[
    int | None, typer.Option(metavar="BYTES/S", help="Limit for what a broker copies between its log dirs.")
]
Everything = Annotated[bool, typer.Option("--all", help="All reassignments in the cluster.")]


Additional = Annotated[
    bool, typer.Option("--additional", help="Start even if other reassignments are running, and change their throttle.")
]
FactorChange = Annotated[
    bool,
    typer.Option(
        "--allow-replication-factor-change/--disallow-replication-factor-change",
        help="Start even if partitions get more or fewer replicas.",
    ),
]
StartedIsDone = Annotated[
    bool, typer.Option("--started-is-done", help="Exit with 0 once all moves have started, as Kafka's tool does.")
]


@group.command(
    "execute",
    needs=Needs(cluster=True, changes=True, bounded=False, kafka=True),
    examples=(
        "klamm reassign execute --reassignment-json-file plan.json --dry-run",
        "klamm reassign execute --reassignment-json-file plan.json --throttle 50000000 --wait",
        "klamm reassign execute --reassignment-json-file plan.json --additional --throttle 80000000",
    ),
)
async def execute(
    invocation: Invocation,
    reassignment_json_file: PlanFile,
    throttle: BrokerRate = None,
    replica_alter_log_dirs_throttle: LogDirRate = None,
    additional: Additional = False,
    allow_replication_factor_change: FactorChange = False,
    started_is_done: StartedIsDone = False,
    rollback_file: RollbackFile = None,
    wait: Wait = False,
    plot: Plot = True,
    force: BesidePlan = False,
) -> Report:
    """Move partitions as a file describes.

    It first checks everything, warns if brokers have too little room for what they copy, and writes a rollback file
    before it changes anything. It marks its throttles, so that --wait, or a later verify or cancel on any machine,
    removes them. Without --wait or --started-is-done it exits with 5 while partitions are still moving.
    """
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from cli.views.reassignment import ExecutionView, statuses_report, throttle_notes
    from engine.admin.cluster.rollback_file import new_rollback_path
    from engine.admin.reassignment.execute import execute_reassignment
    from engine.admin.reassignment.prepare import prepare_reassignment
    from engine.admin.reassignment.throttle_settings import Throttle

    plan = read_plan(reassignment_json_file)
    limits = Throttle(throttle, replica_alter_log_dirs_throttle)
    async with open_cluster(invocation, for_change=not invocation.is_dry_run) as cluster:
        async with asyncio.timeout(invocation.timeout_s):
            await plan.check_cluster(cluster)
            prepared = await prepare_reassignment(
                cluster, plan.moves, limits, is_additional=additional, may_change_factor=allow_replication_factor_change
            )
        for warning in prepared.warnings:
            invocation.talk.warn(warning)
        if not prepared.has_work:
            invocation.talk.say("nothing to move: all partitions are there already, or on their way")
            report = await _followed(
                invocation, cluster, plan.moves, reassignment_json_file, waits=wait and not invocation.is_dry_run
            )
            return _started(report, prepared, Throttle(), is_done=started_is_done and not wait)
        async with asyncio.timeout(invocation.timeout_s):
            sizes = await _sizes_with_warnings(invocation, cluster, prepared)
        details = () if invocation.is_dry_run else [str(move) for move in prepared.planned]
        # Brokers have one throttle for all that they copy.
        topics = None if prepared.throttle else {move.name.topic for move in prepared.plan}
        is_risky = await minds_plan(invocation, cluster, topics, is_forced=force)
        if not invocation.confirm(_summary(prepared, cluster.target.title), details, is_destructive=is_risky):
            async with asyncio.timeout(invocation.timeout_s):
                return await _planned(invocation, cluster, prepared, sizes, plot=plot)
        view = ExecutionView(invocation, prepared)
        executed = await execute_reassignment(
            cluster,
            prepared,
            view,
            rollback_file=rollback_file or new_rollback_path("rollback", ".json"),
            goes_on=_how_to_go_on(invocation, reassignment_json_file, is_throttled=prepared.throttle is not None),
            waits=wait,
            limit_s=follow_limit_s(invocation),
        )
    stop = _cancel(reassignment_json_file)
    report = statuses_report(executed.statuses, throttle_notes(executed.cleared), stop=stop).ending(view.code)
    limits = Throttle() if prepared.throttle is None else limits
    return _started(report, prepared, None if executed.refusals else limits, is_done=started_is_done and not wait)


def _scope(path: Path | None) -> str:
    if path is None:
        return "--all"
    # What was piped in cannot be read once more.
    return f"--reassignment-json-file {'FILE' if str(path) == '-' else shlex.quote(str(path))}"


def _cancel(path: Path | None) -> str:
    return f"klamm reassign cancel {_scope(path)}"


def _how_to_go_on(invocation: Invocation, path: Path | None, *, is_throttled: bool) -> str:
    """Return what to do with what continues without us; a throttle would outlive it, too."""
    follow = f"klamm reassign verify {_scope(path)}"
    if not is_throttled:
        return f"follow it: {follow}"
    lift, cancel = invocation.pasteable(f"{follow} --wait"), invocation.pasteable(_cancel(path))
    return (
        f"it goes on under the throttle; to follow it, and lift the throttle at the end: {lift}; to undo it: {cancel}"
    )


async def _followed(
    invocation: Invocation, cluster: Cluster, moves: Sequence[PartitionMove], path: Path | None, *, waits: bool
) -> Report:
    """Report on a plan that is there already or on its way; ``waits`` until it has arrived."""
    from cli.views.reassignment import ProgressView, statuses_report, throttle_notes
    from engine.admin.reassignment.verify import verify_reassignment

    verified = await verify_reassignment(
        cluster,
        moves,
        watcher=ProgressView(invocation.talk) if waits else None,
        limit_s=follow_limit_s(invocation),
        keeps_throttles=not waits,
    )
    return statuses_report(verified.statuses, throttle_notes(verified.cleared), stop=_cancel(path))


def _started(report: Report, prepared: PreparedReassignment, limits: Throttle | None, *, is_done: bool) -> Report:
    """Return the report with what Kafka's tool prints, unless ``limits`` is None: then something was refused.

    ``is_done``: what is under way counts as done, because the user only wants to start it.
    """
    from cli.views.kafka.reassignment import started_text

    if limits is not None:
        rates = limits.replication_rate, limits.log_dirs_rate
        report = replace(report, as_kafka=partial(started_text, prepared.plan, prepared.origins, *rates))
    is_started = is_done and report.exit_code == ExitCode.UNDER_WAY
    return replace(report, exit_code=ExitCode.DONE) if is_started else report


@group.command(
    "verify",
    needs=Needs(cluster=True, changes=True, bounded=False, kafka=True),
    examples=(
        "klamm reassign verify --reassignment-json-file plan.json",
        "klamm reassign verify --reassignment-json-file plan.json --wait --timeout 3600",
        "klamm reassign verify --all",
    ),
)
async def verify(
    invocation: Invocation,
    reassignment_json_file: AnyPlanFile = None,
    is_all: Everything = False,
    preserve_throttles: PreserveThrottles = False,
    wait: Wait = False,
) -> Report:
    """Show the progress of a reassignment, and remove its throttle when it is done.

    With --all it needs no file: it shows all reassignments of the cluster and removes throttles that no move needs.

    Exits with 0 if all partitions are where the file wants them, 1 if one is not and nothing is moving it, 5 while any
    is still moving. It removes only throttles that klamm has set.
    """
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from cli.views.kafka.reassignment import verified_text
    from cli.views.reassignment import ProgressView, statuses_report, throttle_notes
    from engine.admin.reassignment.verify import verify_reassignment

    plan = _plan_or_all(reassignment_json_file, is_all=is_all)
    async with open_cluster(invocation) as cluster:
        if plan is not None:
            async with asyncio.timeout(invocation.timeout_s):
                await plan.check_cluster(cluster)
        verified = await verify_reassignment(
            cluster,
            None if plan is None else plan.moves,
            watcher=ProgressView(invocation.talk) if wait else None,
            limit_s=follow_limit_s(invocation),
            keeps_throttles=preserve_throttles or invocation.is_dry_run,
        )
        stop = _cancel(reassignment_json_file)
        report = statuses_report(verified.statuses, throttle_notes(verified.cleared), stop=stop)
        if plan is None or invocation.output is not OutputFormat.KAFKA:
            return report
        left = None if preserve_throttles else verified.cleared.left
        live = await _live_brokers(cluster)
    return replace(report, as_kafka=partial(verified_text, verified.statuses, plan.moves, live, left=left))


async def _live_brokers(cluster: Cluster) -> Collection[int]:
    from engine.admin.topics.access import topic_reader

    return await (await topic_reader(cluster)).live_brokers()


@group.command(
    "cancel",
    needs=Needs(cluster=True, changes=True, kafka=True),
    examples=("klamm reassign cancel --reassignment-json-file plan.json", "klamm reassign cancel --all --yes"),
)
async def cancel(
    invocation: Invocation,
    reassignment_json_file: AnyPlanFile = None,
    is_all: Everything = False,
    preserve_throttles: PreserveThrottles = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Cancel even if no old replica is alive and in sync, so that no replica could lead, and even while "
            "another operator carries out a plan that relies on it.",
        ),
    ] = False,
) -> Report | None:
    """Stop moving partitions; each goes back to the replicas it had.

    Kafka no longer knows the order of the old replicas. If the order matters, execute the rollback file instead.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.kafka.reassignment import cancelled_text
    from cli.views.reassignment import cancelled_notes, cancelled_report
    from engine.admin.reassignment.cancel import cancel_reassignments, prepare_cancellation
    from engine.admin.reassignment.log_dirs import find_log_dir_moves

    plan = _plan_or_all(reassignment_json_file, is_all=is_all)
    async with open_cluster(invocation, for_change=True) as cluster:
        if plan is not None:
            await plan.check_cluster(cluster)
        prepared = await prepare_cancellation(cluster, None if plan is None else plan.moves, is_forced=force)
        running = prepared.running
        lines = [f"{n}: back to {_listed(p.assignment.origin_replicas)}" for n, p in running.items()]
        change = f"cancel {counted(len(running), 'reassignment')} in {cluster.target.title}"
        is_risky = is_all
        if running:
            topics = {name.topic for name in running}
            is_risky |= await minds_plan(invocation, cluster, topics, is_forced=force)
        if running:
            invocation.confirm(change, lines, is_destructive=is_risky)
        if invocation.is_dry_run:
            if moving := await find_log_dir_moves(cluster, prepared.plan):
                invocation.goes_ahead(f"stop {counted(len(moving), 'move')} between log dirs")
            return cancelled_report(prepared.preview)
        goes_on = "it may be cancelled already; check with: klamm reassign list"
        cancelled = await cancel_reassignments(cluster, prepared, goes_on=goes_on, keeps_throttles=preserve_throttles)
        report = cancelled_report(cancelled.results, cancelled_notes(cancelled))
        if plan is None or invocation.output is not OutputFormat.KAFKA:
            return report
        left = None if preserve_throttles else cancelled.cleared.left
        live = await _live_brokers(cluster)
        return replace(report, as_kafka=partial(cancelled_text, cancelled.results, plan.moves, live, left=left))


def _plan_or_all(path: Path | None, *, is_all: bool) -> ReadPlan | None:
    if is_all == (path is not None):
        raise UsageError("give --reassignment-json-file or --all")
    return None if path is None else read_plan(path)


async def _sizes_with_warnings(
    invocation: Invocation, cluster: Cluster, prepared: PreparedReassignment
) -> Mapping[TopicPartition, int]:
    """Return the sizes of what moves, as far as they are known; warn of brokers that have too little room for it."""
    import asyncio

    from cli.views.reassignment import shortage_text
    from engine.admin.brokers.reading_load import read_sizes, read_volumes
    from engine.admin.reassignment.prepare import room_shortages

    planned = prepared.planned
    # Each may wait for a silent broker up to its limit, so they run side by side.
    sizes, volumes = await asyncio.gather(read_sizes(cluster, [move.name for move in planned]), read_volumes(cluster))
    for shortage in room_shortages(planned, sizes, volumes):
        invocation.talk.warn(shortage_text(shortage))
    return sizes


async def _planned(
    invocation: Invocation,
    cluster: Cluster,
    prepared: PreparedReassignment,
    sizes: Mapping[TopicPartition, int],
    *,
    plot: bool,
) -> Report:
    """Return what would be moved, with sizes."""
    from cli.views.reassignment import planned_report

    heat = await _heat(invocation, cluster, prepared) if plot else None
    return planned_report(prepared.planned_with(sizes), heat)


async def _heat(invocation: Invocation, cluster: Cluster, prepared: PreparedReassignment) -> Section | None:
    if invocation.output is not OutputFormat.TABLE or not prepared.changing:
        return None
    before = {move.name: prepared.origins[move.name] for move in prepared.changing}
    return await heat_of(cluster, before, {move.name: move.replicas for move in prepared.changing})


def _summary(prepared: PreparedReassignment, cluster: str) -> str:
    count = len(prepared.changing)
    dirs = prepared.dir_move_count
    if not count and dirs:
        return f"move {counted(dirs, 'replica')} to other log dirs in {cluster}"
    if not count:
        return f"change throttles and log dirs of {counted(len(prepared.plan), 'partition')} in {cluster}"
    copies = sum(len(prepared.flows[move.name].destinations) for move in prepared.changing)
    return f"move {counted(count, 'partition')} in {cluster} ({counted(copies, 'new replica')})"


def _listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values))
