"""``klamm plan status`` and ``verify``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from cli.commands.plan_files import JournalOption, PlanArgument, load_plan
from cli.commands.plan_group import group
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.output.report import Report
from engine.config.input_files import name_of

if TYPE_CHECKING:
    from engine.admin.reassignment.journal import JournalRecord


@group.command(
    "status",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=("klamm plan status plan.json", "klamm plan status plan.json -o json | jq .lock"),
)
async def status(invocation: Invocation, file: PlanArgument, journal: JournalOption = None) -> Report:
    """Show how far a plan or its rollback has got, who holds the lock, and what the journal says. Changes nothing."""
    from cli.framework.cluster_session import open_cluster
    from cli.views.plan_status import plan_status_report
    from engine.admin.reassignment.lock import read_holder
    from engine.admin.reassignment.plan_runs import is_led_back
    from engine.admin.reassignment.running import check_planned_for
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

    Exits with 0 when all are there, 1 when one is not and nothing moves it, 5 while any is still under way. For a plan
    that has not begun it says so, and exits with 1.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.reassignment import statuses_report, throttle_notes
    from engine.admin.reassignment.moves import ReassignmentState
    from engine.admin.reassignment.running import check_planned_for
    from engine.admin.reassignment.throttles import ClearedThrottles
    from engine.admin.reassignment.verify import read_statuses
    from engine.admin.reassignment.wave_execution import clear_leftovers
    from engine.admin.reassignment.wave_standings import seen_as_not_begun

    loaded = load_plan(file)
    async with open_cluster(invocation) as cluster:
        await check_planned_for(cluster, loaded.plan.klamm.cluster_id, name_of(file))
        statuses = await read_statuses(cluster, [move.move for move in loaded.moves])
        cleared = ClearedThrottles()
        if cluster.target.may_be_changed and not invocation.is_dry_run:
            cleared = await clear_leftovers(cluster)
    notes = throttle_notes(cleared)
    if str(file) == "-" or not loaded.beside(".journal").exists():
        statuses = seen_as_not_begun(statuses, loaded.moves)
    if any(status.state is ReassignmentState.NOT_BEGUN for status in statuses):
        name = "FILE" if str(file) == "-" else str(file)
        notes.append(f"the plan has not begun; to begin it: {shlex.join(['klamm', 'plan', 'apply', name])}")
    return statuses_report(statuses, notes)


def _journal_of(path: Path) -> JournalRecord | None:
    from engine.admin.reassignment.journal import read_journal

    return read_journal(path) if path.exists() else None
