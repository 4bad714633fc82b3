"""``klamm brokers demote`` and ``restore``: leadership away from a broker before maintenance, and back after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.brokers.shared import group
from cli.commands.reassignment.shared import follow_limit_s, read_plan
from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.framework.plan_guard import BesidePlan, minds_plan
from cli.output.report import Report
from engine.common.quantities import counted

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.reassignment.plan_file import PartitionMove
    from engine.common.model import TopicPartition

_DONE_ALREADY = "nothing to do: this is already the case"
_NEEDS = Needs(cluster=True, changes=True, bounded=False)


@group.command(
    "demote",
    needs=_NEEDS,
    examples=(
        "klamm brokers demote 2 --dry-run",
        "klamm brokers demote 2 --rollback-file demoted-2.json",
        "klamm brokers demote 4,5 --yes",
    ),
)
async def demote(
    invocation: Invocation,
    ids: Annotated[str, typer.Argument(metavar="ID,…", help="The brokers to take leadership away from.")],
    rollback_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write the rollback.  [default: demoted-TIME.json]")
    ] = None,
    force: BesidePlan = False,
) -> Report:
    """Take leadership away from brokers before you work on them.

    It puts them at the end of each replica list and elects another replica that is in sync; the other brokers share the
    leaderships evenly. No data is copied. klamm brokers restore gives the leadership back. If it is interrupted, run it
    again: it skips what is done already. Exits with 1 if a partition has no other replica that could lead, or if topics
    on the brokers are hidden from you.
    """
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from engine.admin.cluster.rollback_file import new_rollback_path
    from engine.admin.reassignment.demotion import read_demotion
    from engine.admin.reassignment.plan_file import parse_broker_list

    brokers = parse_broker_list(ids)
    path = rollback_file or new_rollback_path("demoted", ".json")
    async with open_cluster(invocation, for_change=not invocation.is_dry_run) as cluster:
        async with asyncio.timeout(invocation.timeout_s):
            wanted = await read_demotion(cluster, brokers)
        for broker in wanted.dead:
            invocation.talk.warn(f"broker {broker} is not alive")
        for name, reason in wanted.stuck.items():
            invocation.talk.warn(f"{name} stays with its leader: {reason}")
        whose = f"broker{'' if len(brokers) == 1 else 's'} {ids}"
        if wanted.hidden:
            seen_by = cluster.principal or "this login"
            named = f"{counted(len(wanted.hidden), 'topic')} hidden from {seen_by}, such as {wanted.hidden[0]}"
            invocation.talk.warn(f"{whose} may lead partitions of {named}: they stay with their leaders")
        for broker, reason in wanted.silent.items():
            invocation.talk.warn(f"broker {broker} may lead hidden topics: it does not show its log dirs: {reason}")
        what = f"demote {whose} in {cluster.target.title}"
        idle = _DONE_ALREADY if wanted.is_whole else "nothing else to do"
        report = await _reorder(
            invocation, cluster, wanted.moves, wanted.elections, path, what, is_forced=force, idle=idle
        )
    return report if wanted.is_whole else report.ending(max(report.exit_code, ExitCode.BAD_ANSWER))


@group.command(
    "restore",
    needs=_NEEDS,
    examples=("klamm brokers restore demoted-2.json --dry-run", "klamm brokers restore demoted-2.json"),
)
async def restore(
    invocation: Invocation,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", allow_dash=True, help="The file that klamm brokers demote wrote.")
    ],
    rollback_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write the rollback.  [default: rollback-TIME.json]")
    ] = None,
    force: BesidePlan = False,
) -> Report:
    """Give brokers back the leadership that klamm brokers demote took from them.

    Start them first, and wait until they are in sync: klamm cluster health --wait. It refuses a file that would copy or
    drop replicas.
    """
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from engine.admin.cluster.rollback_file import new_rollback_path
    from engine.admin.reassignment.demotion import check_restores

    plan = read_plan(file)
    async with open_cluster(invocation, for_change=not invocation.is_dry_run) as cluster:
        async with asyncio.timeout(invocation.timeout_s):
            await plan.check_cluster(cluster)
            await check_restores(cluster, plan.moves, str(file))
        what = f"restore the order of replicas of {file.name} in {cluster.target.title}"
        names = [move.name for move in plan.moves]
        path = rollback_file or new_rollback_path("rollback", ".json")
        return await _reorder(invocation, cluster, plan.moves, names, path, what, is_forced=force)


async def _reorder(
    invocation: Invocation,
    cluster: Cluster,
    moves: Sequence[PartitionMove],
    elections: Sequence[TopicPartition],
    rollback_file: Path,
    what: str,
    *,
    is_forced: bool,
    idle: str = _DONE_ALREADY,
) -> Report:
    """Reorder the replicas of partitions, then elect the first of each as leader; say ``idle`` if none needs it."""
    import asyncio

    from cli.views.elections import elections_report, preview_lines
    from cli.views.reassignment import planned_report
    from cli.views.reassignment_progress import ExecutionView
    from engine.admin.elections.running import preview_election, run_election
    from engine.admin.elections.scope_and_result import ElectionScope, ElectionType
    from engine.admin.reassignment.execute import execute_reassignment, prepare_reassignment
    from engine.admin.reassignment.throttle_settings import Throttle

    scope = ElectionScope(tuple((name.topic, name.partition) for name in elections))
    async with asyncio.timeout(invocation.timeout_s):
        prepared = await prepare_reassignment(cluster, moves, Throttle(), is_additional=True, may_change_factor=False)
        previews = await preview_election(cluster, ElectionType.PREFERRED, scope) if elections else []
    if not prepared.has_work and not any(preview.is_needed for preview in previews):
        invocation.talk.say(idle)
        report = elections_report([preview.as_result() for preview in previews])
        return report if previews else replace(report, notes=())
    lines = [str(move) for move in prepared.planned] or preview_lines(previews)
    if invocation.is_dry_run and prepared.planned:
        # The report lists them.
        lines = []
    topics = {move.name.topic for move in moves}
    is_risky = bool(topics) and await minds_plan(invocation, cluster, topics, is_forced=is_forced)
    question = f"{what}: {counted(len(elections), 'partition')}"
    if not invocation.confirm(question, lines, is_destructive=is_risky):
        return planned_report(prepared.planned, None)
    if prepared.has_work:
        view = ExecutionView(invocation, prepared, way_back="klamm brokers restore")
        goes_on = "the order of replicas is still changing; run this again to elect the leaders"
        await execute_reassignment(
            cluster,
            prepared,
            view,
            rollback_file=rollback_file,
            goes_on=goes_on,
            waits=True,
            limit_s=follow_limit_s(invocation),
        )
    async with asyncio.timeout(invocation.timeout_s):
        previews = await preview_election(cluster, ElectionType.PREFERRED, scope)
        return elections_report(await run_election(cluster, ElectionType.PREFERRED, previews))
