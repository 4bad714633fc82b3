"""``klamm groups``: consumer groups. Options are those of kafka-consumer-groups."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.exit_codes import ExitCode
from cli.framework.command import CommandGroup
from cli.framework.completing import complete_groups, complete_topics
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.framework.stdout import data_stream
from cli.output.format import OutputFormat
from cli.output.report import Report
from engine.common.quantities import counted
from engine.kafka.config.input_files import name_of, read_input

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.cluster.errors import AdminError
    from engine.admin.groups.reset_plan import PartitionReset
    from engine.admin.groups.reset_spec import ResetSpec, TopicScope
    from engine.admin.groups.resetting import PlannedReset
    from engine.admin.groups.scope import GroupScope


group = CommandGroup(
    "groups",
    "Consumer groups: list, describe, reset and delete, on brokers and in ZooKeeper.",
    action_flags={f"--{word}": word for word in ("list", "describe", "reset-offsets", "delete-offsets", "delete")},
)

GroupNames = Annotated[
    list[str] | None, typer.Argument(metavar="GROUP", help="Ids of groups.", autocompletion=complete_groups)
]
GroupOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="G",
        help="A group's id, or a pattern of whole ids; may be repeated.",
        autocompletion=complete_groups,
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="T[:P,…]",
        help="A topic, or these partitions of it; may be repeated.",
        autocompletion=complete_topics,
    ),
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="Every consumer group.")]


def scope(names: list[str] | None, options: list[str] | None, is_all: bool) -> GroupScope:
    """Return the groups that were named, as arguments or in Kafka's way."""
    from engine.admin.groups.scope import scope_of

    return scope_of([*(names or ()), *(options or ())], is_all=is_all)


_EVERYTHING = "all"

ReadTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="REGEX",
        help="Only groups that read these topics: names or patterns; may be repeated.",
        autocompletion=complete_topics,
    ),
]


@group.command(
    "list",
    needs=Needs(cluster=True, asks=Asks.CLUSTER, kafka=True),
    examples=(
        "klamm groups list",
        "klamm groups list --state Stable,Empty --bootstrap-server 127.0.0.1:9092",
        "klamm groups list --topic orders",
        "klamm groups list --type zookeeper --zookeeper 127.0.0.1:2181",
    ),
    # Kafka's tool takes both options without a value, too.
    bare_values={"--state": _EVERYTHING, "--type": _EVERYTHING},
)
async def list_groups(
    invocation: Invocation,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="[S,…]", help="Only groups in these states; without a value, show the state."),
    ] = None,
    type: Annotated[
        str | None,
        typer.Option("--type", metavar="[T,…]", help="Only groups of these types; without a value, show the type."),
    ] = None,
    topic: ReadTopics = None,
) -> Report:
    """List the consumer groups by name.

    It asks all brokers. With --zookeeper it also lists the groups of old consumers, which live below /consumers; their
    type is zookeeper. Share and streams groups of Kafka 4 are listed, not described. Exits with 3 or 4 if a broker does
    not report its groups; it still shows the groups of the others.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.groups import group_list_report
    from engine.admin.groups.listing import list_consumer_groups, parse_filter
    from engine.admin.topics.selection import select_topics

    wanted = parse_filter(state, type)
    async with open_cluster(invocation) as cluster:
        listed = await list_consumer_groups(cluster, wanted, select_topics(topic or []))
    code = invocation.tell_failures_but_hidden(listed.failures)
    return group_list_report(listed, with_state=state is not None, with_type=type is not None, exit_code=code)


@group.command(
    "describe",
    needs=Needs(cluster=True, asks=Asks.CLUSTER, kafka=True),
    examples=(
        "klamm groups describe billing",
        "klamm groups describe billing --members --verbose",
        "klamm groups describe --all-groups --topic 'orders.*'",
        "klamm groups describe --all-groups --state --zookeeper 127.0.0.1:2181",
        "klamm groups describe --all-groups -o json | jq '.[].partitions[] | select(.lag > 1000)'",
    ),
)
async def describe(
    invocation: Invocation,
    groups: GroupNames = None,
    group: GroupOptions = None,
    all_groups: AllGroups = False,
    topic: ReadTopics = None,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Partitions with committed offset, end and lag: the default.")
    ] = False,
    members: Annotated[
        bool, typer.Option("--members", help="Members; with --verbose also which partitions each has.")
    ] = False,
    state: Annotated[bool, typer.Option("--state", help="Coordinator, assignment strategy, state, members.")] = False,
) -> Report:
    """Show who is in a group and how far it has read.

    An unknown value is shown as a dash (null in JSON) with the reason beside it: a deleted topic, a partition without a
    leader, a group without a coordinator. If a group that you name does not exist, it shows the others and exits with
    2.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.framework.talk import Verbosity
    from cli.views.groups import members_report, offsets_report, states_report
    from engine.admin.groups.describing import Wanted, describe, describe_readers
    from engine.admin.groups.scope import by_name
    from engine.admin.topics.selection import select_topics

    if offsets + members + state > 1:
        raise UsageError("give at most one of --offsets, --members and --state")
    wanted = Wanted.MEMBERS if members else Wanted.STATE if state else Wanted.OFFSETS
    meant = scope(groups, group, all_groups)
    async with open_cluster(invocation) as cluster:
        topics = select_topics(topic or [])
        described = await (
            describe_readers(cluster, meant, topics, wanted) if topic else describe(cluster, meant, wanted)
        )
    tell = invocation.tell_failures_but_hidden if meant.is_all else invocation.tell_failures
    code = tell(described.failures)
    if described.others and not topic:
        others = by_name(described.others)
        invocation.talk.say(f"groups of other protocols are not described, unless named: {others}")
    if wanted is Wanted.MEMBERS:
        is_verbose = invocation.talk.verbosity >= Verbosity.VERBOSE
        return members_report(described.groups, is_verbose=is_verbose, exit_code=code)
    report = states_report if wanted is Wanted.STATE else offsets_report
    return report(described.groups, exit_code=code)


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
    groups: GroupNames = None,
    group: GroupOptions = None,
    all_groups: AllGroups = False,
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
    from cli.views.groups_changes import planned_lines, reset_report
    from engine.admin.groups.resetting import plan_reset

    if execute and invocation.is_dry_run:
        raise UsageError("give one of --execute and --dry-run")
    is_implicit = not execute and not invocation.is_dry_run
    # Kafka's rule: a change needs an explicit option.
    invocation.is_dry_run = not execute
    named = [*(groups or ()), *(group or ())]
    meant = scope(groups, group, all_groups)
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
        change = f"reset {_counted_offsets(plan)} in {cluster.target.title}"
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
    from engine.admin.groups.reset_spec import parse_topic_scope

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
    from engine.admin.groups.reset_spec import (
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
        from engine.admin.groups.scope import by_name

        invocation.talk.warn(f"left out, because they are not consumer groups: {by_name(plan.others)}")
    return invocation.tell_failures(plan.refusals)


def _counted_offsets(plan: PlannedReset) -> str:
    from engine.admin.groups.scope import by_name

    count = sum(len(planned.resets) for planned in plan.able)
    names = [planned.group for planned in plan.able]
    groups = f"group{'' if len(names) == 1 else 's'} {by_name(names)}"
    return f"{count} offset{'' if count == 1 else 's'} of {groups}"


def _way_back(invocation: Invocation, plan: PlannedReset, path: Path, *, with_group: bool) -> str:
    """Return the command that restores the current offsets; warn about those that it cannot restore."""
    blank = plan.uncommitted_count
    if blank:
        hint = "to go back, delete what is set now: klamm groups delete-offsets"
        invocation.talk.warn(f"{blank} partition{'' if blank == 1 else 's'} had no offset before; {hint}")
    if blank == sum(len(planned.resets) for planned in plan.able):
        return "klamm groups delete-offsets"
    which = "--all-groups" if with_group else f"--group {shlex.quote(plan.able[0].group)}"
    return f"klamm groups reset-offsets {which} --from-file {shlex.quote(str(path))} --execute"


def _exported(plan: PlannedReset, named: Sequence[str]) -> str:
    from engine.admin.groups.reset_spec import offsets_text
    from engine.admin.groups.resetting import offsets_after

    return offsets_text(offsets_after(plan.able), with_group=len(named) != 1)


@group.command(
    "delete",
    needs=Needs(cluster=True, changes=True, kafka=True),
    examples=(
        "klamm groups delete billing-test --yes",
        "klamm groups delete --group old-app --zookeeper 127.0.0.1:2181 --dry-run",
    ),
)
async def delete(
    invocation: Invocation,
    groups: GroupNames = None,
    group: GroupOptions = None,
    all_groups: AllGroups = False,
) -> Report:
    """Delete groups with all their committed offsets.

    It refuses a group with members and names them; it deletes the others. For a group in ZooKeeper it deletes all
    znodes.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.groups_changes import deleted_groups_report
    from engine.admin.groups.deleting import delete_groups, find_groups_to_delete

    meant = scope(groups, group, all_groups)
    async with open_cluster(invocation, for_change=True) as cluster:
        wanted = await find_groups_to_delete(cluster, meant)
        code = invocation.tell_failures(wanted.all_failures)
        rows = wanted.planned()
        names = wanted.names
        if names and invocation.confirm(
            f"delete {_counted_groups(names)} in {cluster.target.title}", is_destructive=True
        ):
            invocation.accepted("some of the groups may be deleted already; check with: klamm groups list")
            rows, failures = await delete_groups(cluster, wanted)
            code = invocation.tell_failures(failures, code)
    return deleted_groups_report(rows, exit_code=code)


@group.command(
    "delete-offsets",
    needs=Needs(cluster=True, changes=True, kafka=True),
    examples=(
        "klamm groups delete-offsets billing --topic old-orders --yes",
        "klamm groups delete-offsets --group billing --topic orders:0,1 --dry-run",
    ),
)
async def delete_offsets(
    invocation: Invocation,
    groups: GroupNames = None,
    group: GroupOptions = None,
    topic: Topics = None,
) -> Report:
    """Delete groups' committed offsets of topics.

    The groups may have members, but none may read the topic. klamm shows what was committed. A pattern stands for the
    groups that have committed offsets of these topics.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.groups_changes import deleted_offsets_report
    from engine.admin.groups.deleting_offsets import delete_offsets as delete
    from engine.admin.groups.deleting_offsets import find_offsets_of_groups
    from engine.admin.groups.reset_spec import parse_topic_scope

    named = [*(groups or ()), *(group or ())]
    if not named or not topic:
        raise UsageError("give a group and --topic")
    meant, topics = scope(named, None, False), parse_topic_scope(topic)
    code = ExitCode.DONE
    async with open_cluster(invocation, for_change=True) as cluster:
        offsets = await find_offsets_of_groups(cluster, meant.names, topics)
        rows = [row for _, own in offsets for row in own]
        names = list(dict.fromkeys(row.group for row in rows))
        change = f"delete {counted(len(rows), 'offset')} of {_counted_groups(names)} in {cluster.target.title}"
        if invocation.confirm(change, is_destructive=True):
            options = " ".join(f"--group {name}" for name in names)
            invocation.accepted(
                f"some of the offsets may be deleted already; check with: klamm groups describe {options}"
            )
            rows = []
            for groups_found, own in offsets:
                done, failures = await delete(cluster, groups_found, own)
                rows += done
                code = invocation.tell_failures(failures, code)
    return deleted_offsets_report(rows, exit_code=code, groups=names, topics=topic)


def _counted_groups(names: list[str]) -> str:
    from engine.admin.groups.scope import by_name

    return f"group {names[0]}" if len(names) == 1 else f"{len(names)} groups ({by_name(names)})"


group.put_in_order("list", "describe", "reset-offsets", "delete-offsets", "delete")
