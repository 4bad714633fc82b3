"""``klamm plan status`` and ``verify``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cli.commands.plan.shared import JournalOption, PlanArgument, group, load_plan
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.output.report import Report
from engine.common.quantities import counted
from engine.runtime.input_files import name_of

if TYPE_CHECKING:
    from engine.admin.reassignment.journal import JournalRecord
    from engine.admin.reassignment.moves import PartitionStatus


@group.command(
    "status",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=("klamm plan status plan.json", "klamm plan status plan.json -o json | jq .lock"),
)
async def status(invocation: Invocation, file: PlanArgument, journal: JournalOption = None) -> Report:
    """Show how far a plan or its rollback has got, who holds the lock, and what the journal says. Changes nothing."""
    from cli.framework.cluster_session import open_cluster
    from cli.views.plan_execution import plan_status_report
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

    Exits with 0 when all are there, 1 when one is not and nothing moves it, 5 while any is under way or waits for its
    wave in a run of somebody else. For a plan that has not begun, or was rolled back, it says so, and exits with 1.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.reassignment import statuses_report, throttle_notes
    from engine.admin.reassignment.lock import read_holder
    from engine.admin.reassignment.running import check_planned_for
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
    notes += _what_it_means(statuses, "FILE" if str(file) == "-" else str(file), is_begun=is_begun)
    if record is not None and record.is_under_way and holder is None:
        notes += _ended_early(statuses, record, str(file))
    return statuses_report(statuses, notes)


def _ended_early(statuses: Sequence[PartitionStatus], record: JournalRecord, file: str) -> list[str]:
    """Say how to go on with a plan whose last run ended early: in the direction of that run."""
    from engine.admin.reassignment.moves import ReassignmentState

    if all(status.state is ReassignmentState.COMPLETE for status in statuses):
        return []
    verb = "rollback" if record.is_of_rollback else "resume"
    return [f"the last run of the plan ended early; to go on: {shlex.join(['klamm', 'plan', verb, file])}"]


def _what_it_means(statuses: Sequence[PartitionStatus], file: str, *, is_begun: bool) -> list[str]:
    """Say what the states mean for the plan, if it is not carried out and nothing moves.

    ``is_begun``: its journal tells of a run that has begun a wave and did not end well.
    """
    from engine.admin.reassignment.moves import ReassignmentState
    from engine.admin.reassignment.wave_standings import AS_BEFORE, ELSEWHERE

    states = {status.state for status in statuses}
    if states == {ReassignmentState.NOT_BEGUN} and not is_begun:
        return [f"the plan has not begun; to begin it: {shlex.join(['klamm', 'plan', 'apply', file])}"]
    if states == {ReassignmentState.NOT_BEGUN, ReassignmentState.COMPLETE} and not is_begun:
        left = sum(status.state is ReassignmentState.NOT_BEGUN for status in statuses)
        where = f"of {counted(len(statuses), 'partition')}, {left} where it was before"
        return [
            f"a part of the plan is carried out: {where}; to go on: {shlex.join(['klamm', 'plan', 'resume', file])}"
        ]
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
