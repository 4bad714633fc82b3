"""``klamm groups reset-offsets``: a dry run unless ``--execute``, with the rollback written first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.groups.shared import ChosenGroups, Topics, group
from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.framework.stdout import data_stream
from cli.output.format import OutputFormat
from cli.output.report import Report
from engine.common.quantities import counted, plural
from engine.runtime.input_files import name_of, read_input

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.cluster.errors import AdminError
    from engine.admin.groups.reset_plan import PartitionReset, ResetSpec, TopicScope
    from engine.admin.groups.resetting import PlannedReset

AllTopics = Annotated[bool, typer.Option("--all-topics", help="Every partition with a committed offset.")]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the first record that still exists.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="After the last record.")]
ToCurrent = Annotated[
    bool, typer.Option("--to-current", help="Keep the offset; if none is committed, go after the last record.")
]
ToOffset = Annotated[int | None, typer.Option("--to-offset", metavar="N", help="To this offset.")]
ShiftBy = Annotated[int | None, typer.Option("--shift-by", metavar="N", help="Forward by N records, or back by -N.")]
ToDatetime = Annotated[
    str | None,
    typer.Option(
        "--to-datetime", metavar="TIME", help="To the first record from this time on (UTC): 2026-11-21T12:23:04.866."
    ),
]
ByDuration = Annotated[
    str | None,
    typer.Option("--by-duration", metavar="TIME", help="To the first record no older than this: 30m, 2h, PT30M."),
]
FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from-file", metavar="CSV", allow_dash=True, help="topic,partition,offset; or group,topic,partition,offset."
    ),
]
Execute = Annotated[bool, typer.Option("--execute", help="Do it; without this nothing is changed.")]
Export = Annotated[bool, typer.Option("--export", help="Print the new offsets as CSV for --from-file.")]
RollbackFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where to write the rollback.  [default: offsets-TIME.csv]")
]


@group.command(
    "reset-offsets",
    needs=Needs(cluster=True, changes=True, asks=Asks.CLUSTER, kafka=True),
    examples=(
        "klamm groups reset-offsets --group billing --all-topics --to-earliest",
        "klamm groups reset-offsets --group billing --topic orders:0,2 --shift-by -100 --execute --yes",
        "klamm groups reset-offsets --group billing --topic orders --to-datetime 2026-11-21T08:00:00.000 --execute",
        "klamm groups reset-offsets --all-groups --all-topics --to-current --export > offsets.csv",
        "klamm groups reset-offsets --group billing --from-file offsets.csv --execute --yes",
    ),
)
async def reset_offsets(
    invocation: Invocation,
    chosen: ChosenGroups,
    topic: Topics = None,
    all_topics: AllTopics = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    shift_by: ShiftBy = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    from_file: FromFile = None,
    execute: Execute = False,
    export: Export = False,
    rollback_file: RollbackFile = None,
) -> Report | ExitCode:
    """Reset a group's committed offsets. A dry run unless you give --execute.

    The group must have no members; if it has some, klamm refuses and names them. With --to-current --export it only
    reads groups, whatever their state. An offset before the first record becomes the first, one after the end becomes
    the end, with a warning. --execute first writes the current offsets to a file, which --from-file restores. A group
    that cannot be reset does not block the others.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.groups import planned_lines, reset_report
    from engine.admin.groups.resetting import plan_reset

    if execute and invocation.is_dry_run:
        raise UsageError("give one of --execute and --dry-run")
    is_implicit = not execute and not invocation.is_dry_run
    # Kafka's rule: a change needs an explicit option.
    invocation.is_dry_run = not execute
    named, meant = chosen.names, chosen.scope()
    topics = _topics(topic, all_topics, from_file)
    spec = _spec(
        {"--to-earliest": to_earliest, "--to-latest": to_latest, "--to-current": to_current},
        {"--to-offset": to_offset, "--shift-by": shift_by},
        {"--to-datetime": to_datetime, "--by-duration": by_duration},
        from_file,
        only_group=named[0] if len(named) == 1 else None,
    )
    is_backup = export and to_current and not execute
    async with open_cluster(invocation, for_change=execute) as cluster:
        plan = await plan_reset(cluster, meant, topics, spec, is_backup=is_backup)
        code = _tell(invocation, plan)
        able = plan.able
        rows = [reset for group_plan in able for reset in group_plan.resets]
        # They are for the person who is asked; the report lists them anyway.
        details = planned_lines(rows) if execute and not invocation.is_confirmed else ()
        change = f"reset {_counted(plan)} in {cluster.target.title}"
        if able and not is_backup and invocation.confirm(change, details, is_destructive=True):
            rows, failures = await _execute(invocation, cluster, plan, rollback_file, with_group=len(named) != 1)
            code = invocation.tell_failures(failures, code)
    if not export:
        return reset_report(rows, exit_code=code, is_implicit=is_implicit)
    if invocation.output is OutputFormat.KAFKA:
        return reset_report(rows, exit_code=code, is_implicit=is_implicit, exported=_exported(plan, named))
    with data_stream() as stream:
        stream.write(_exported(plan, named))
    return code


async def _execute(
    invocation: Invocation, cluster: Cluster, plan: PlannedReset, rollback_file: Path | None, *, with_group: bool
) -> tuple[list[PartitionReset], list[AdminError]]:
    """Carry out a plan; return the offsets that were set, and why others were not."""
    from engine.admin.cluster.rollback_file import new_rollback_path
    from engine.admin.groups.committing import execute_reset

    path = rollback_file or new_rollback_path("offsets", ".csv")
    way_back = invocation.pasteable(_way_back(invocation, plan, path, with_group=with_group))
    return await execute_reset(
        cluster,
        plan,
        rollback_file=path,
        with_group=with_group,
        goes_on=f"some offsets may be set already; to go back: {way_back}",
        on_saved=lambda: invocation.talk.remind(f"the rollback is in {path}; to go back: {way_back}"),
        on_dropped=lambda: invocation.talk.remind(f"nothing was changed, and {path} is removed again"),
    )


def _topics(texts: list[str] | None, is_all: bool, file: Path | None) -> TopicScope | None:
    from engine.admin.groups.reset_plan import parse_topic_scope

    if bool(texts) + is_all + (file is not None) != 1:
        raise UsageError("give one of --topic, --all-topics and --from-file")
    return parse_topic_scope(texts) if texts else None


def _spec(
    flags: dict[str, bool],
    numbers: dict[str, int | None],
    times: dict[str, str | None],
    file: Path | None,
    *,
    only_group: str | None,
) -> ResetSpec:
    from engine.admin.groups.reset_plan import (
        ResetSpec,
        ResetTo,
        before_now,
        parse_datetime,
        parse_iso_duration,
        parse_offsets_file,
    )

    given = [word for word, is_set in flags.items() if is_set]
    given += [word for word, value in (numbers | times).items() if value is not None]
    if len(given) + (file is not None) != 1:
        words = ", ".join([*flags, *numbers, *times])
        raise UsageError(f"give one of {words} and --from-file")
    if file is not None:
        text = read_input(file)
        return ResetSpec(ResetTo.FILE, offsets=parse_offsets_file(text, name_of(file), only_group=only_group))
    word = given[0]
    text = times.get(word) or ""
    match word:
        case "--to-datetime":
            return ResetSpec(ResetTo.TIME, parse_datetime(text))
        case "--by-duration":
            return ResetSpec(ResetTo.TIME, before_now(parse_iso_duration(text), datetime.now(UTC)))
        case "--to-offset":
            return ResetSpec(ResetTo.OFFSET, numbers[word] or 0)
        case "--shift-by":
            return ResetSpec(ResetTo.SHIFT_BY, numbers[word] or 0)
    return ResetSpec(ResetTo[word.removeprefix("--to-").upper()])


def _tell(invocation: Invocation, plan: PlannedReset) -> ExitCode:
    for planned in plan.groups:
        for warning in planned.warnings:
            invocation.talk.warn(f"group {planned.group}: {warning}")
        if planned.is_new:
            invocation.talk.warn(f"group {planned.group} does not exist yet; committing offsets creates it")
    if plan.others:
        from engine.common.listing import first_few

        invocation.talk.warn(f"left out, because they are not consumer groups: {first_few(plan.others)}")
    return invocation.tell_failures(plan.refusals)


def _counted(plan: PlannedReset) -> str:
    from engine.common.listing import first_few

    count = sum(len(planned.resets) for planned in plan.able)
    names = [planned.group for planned in plan.able]
    groups = f"{plural('group', len(names))} {first_few(names)}"
    return f"{counted(count, 'offset')} of {groups}"


def _way_back(invocation: Invocation, plan: PlannedReset, path: Path, *, with_group: bool) -> str:
    """Return the command that restores the current offsets; warn about those that it cannot restore."""
    blank = plan.uncommitted_count
    deletion = _deletion(invocation, plan)
    if blank:
        hint = f"to go back, delete what is set now: {deletion}"
        invocation.talk.warn(f"{counted(blank, 'partition')} had no offset before; {hint}")
    if blank == sum(len(planned.resets) for planned in plan.able):
        return deletion
    which = "--all-groups" if with_group else f"--group {shlex.quote(plan.able[0].group)}"
    return f"klamm groups reset-offsets {which} --from-file {shlex.quote(str(path))} --execute"


def _deletion(invocation: Invocation, plan: PlannedReset) -> str:
    """Return the commands, one for each group, that delete the offsets which were not set before."""
    commands = []
    for planned in plan.able:
        topics: dict[str, list[str]] = {}
        for reset in planned.resets:
            if reset.current_offset is None:
                topics.setdefault(reset.name.topic, []).append(str(reset.name.partition))
        if topics:
            named = " ".join(f"--topic {topic}:{','.join(partitions)}" for topic, partitions in topics.items())
            command = f"klamm groups delete-offsets --group {shlex.quote(planned.group)} {named}"
            commands.append(invocation.pasteable(command))
    return "; ".join(commands)


def _exported(plan: PlannedReset, named: Sequence[str]) -> str:
    from engine.admin.groups.reset_plan import offsets_text
    from engine.admin.groups.resetting import offsets_after

    return offsets_text(offsets_after(plan.able), with_group=len(named) != 1)
