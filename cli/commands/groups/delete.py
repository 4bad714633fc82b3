"""``klamm groups delete`` and ``delete-offsets``."""

from __future__ import annotations

from typing import Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.groups.shared import AllGroups, GroupNames, GroupOptions, Topics, group, scope
from cli.exit_codes import ExitCode
from cli.framework.completing import complete_groups
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report


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
        if names and invocation.confirm(f"delete {_counted(names)} in {cluster.target.title}", is_destructive=True):
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
    name: Annotated[
        str | None, typer.Argument(metavar="GROUP", help="The group's id.", autocompletion=complete_groups)
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="G", help="The same, as in Kafka's tool.", autocompletion=complete_groups),
    ] = None,
    topic: Topics = None,
) -> Report:
    """Delete a group's committed offsets of topics.

    The group may have members, but none may read the topic. klamm shows what was committed.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.groups_changes import deleted_offsets_report
    from engine.admin.groups.deleting_offsets import delete_offsets as delete
    from engine.admin.groups.deleting_offsets import find_offsets_to_delete
    from engine.admin.groups.reset_spec import parse_topic_scope

    named = dict.fromkeys(one for one in (name, group) if one is not None)
    if len(named) != 1 or not topic:
        raise UsageError("give one group and --topic")
    (group,) = named
    scope(None, [group], False)
    topics = parse_topic_scope(topic)
    code = ExitCode.DONE
    async with open_cluster(invocation, for_change=True) as cluster:
        found, rows = await find_offsets_to_delete(cluster, group, topics)
        change = f"delete {len(rows)} offset{'' if len(rows) == 1 else 's'} of group {group} in {cluster.target.title}"
        if invocation.confirm(change, is_destructive=True):
            invocation.accepted(
                f"some of the offsets may be deleted already; check with: klamm groups describe --group {group}"
            )
            rows, failures = await delete(cluster, found, rows)
            code = invocation.tell_failures(failures)
    return deleted_offsets_report(rows, exit_code=code, group=group, topics=topic)


def _counted(names: list[str]) -> str:
    from engine.admin.groups.scope import by_name

    return f"group {names[0]}" if len(names) == 1 else f"{len(names)} groups ({by_name(names)})"
