"""``klamm groups delete`` and ``delete-offsets``."""

from __future__ import annotations

from typer._click.exceptions import UsageError

from cli.commands.groups.shared import ChosenGroups, NamedGroups, Topics, group
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.format import OutputFormat
from cli.output.report import Report
from engine.common.model import TopicPartition
from engine.common.quantities import counted


@group.command(
    "delete",
    needs=Needs(cluster=True, changes=True, kafka=True),
    examples=(
        "klamm groups delete billing-test --yes",
        "klamm groups delete --group old-app --zookeeper 127.0.0.1:2181 --dry-run",
    ),
)
async def delete(invocation: Invocation, chosen: ChosenGroups) -> Report:
    """Delete groups with all their committed offsets.

    It refuses a group with members and names them; it deletes the others. For a group in ZooKeeper it deletes all
    znodes.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.groups import deleted_groups_report
    from engine.admin.groups.deleting import delete_groups, find_groups_to_delete

    meant = chosen.scope()
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
async def delete_offsets(invocation: Invocation, named: NamedGroups, topic: Topics = None) -> Report:
    """Delete groups' committed offsets of topics.

    The groups may have members, but none may subscribe to the topic. klamm shows what was committed. A pattern stands
    for the groups that have committed offsets of these topics.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.groups import deleted_offsets_report
    from engine.admin.groups.deleting import (
        DeletionResult,
        absences_of,
        doubts_of,
        existing_partitions,
        find_offsets_of_groups,
        refusals_of,
    )
    from engine.admin.groups.deleting import delete_offsets as delete
    from engine.admin.groups.reset_plan import parse_topic_scope

    if not named.names or not topic:
        raise UsageError("give a group and --topic")
    meant, topics = named.scope(), parse_topic_scope(topic)
    async with open_cluster(invocation, for_change=True) as cluster:
        absent: list[TopicPartition] = []
        if invocation.output is OutputFormat.KAFKA:
            # Kafka's tool names every partition, and succeeds where nothing was committed.
            topics, absent = await existing_partitions(cluster, topics)
        offsets = await find_offsets_of_groups(cluster, meant.names, topics)
        rows = [row for _, own in offsets for row in own]
        code = invocation.tell_failures([*refusals_of(rows), *absences_of(absent)])
        for doubt in doubts_of(offsets):
            invocation.talk.warn(doubt)
        going = [row for row in rows if row.result is DeletionResult.WOULD_BE_DELETED]
        names = list(dict.fromkeys(row.group for row in going))
        change = (
            f"delete {counted(len(going), 'offset')} of {_counted(names)} in {cluster.target.title}" if going else ""
        )
        if going and invocation.confirm(change, is_destructive=True):
            options = " ".join(f"--group {name}" for name in names)
            invocation.accepted(
                f"some of the offsets may be deleted already; check with: klamm groups describe {options}"
            )
            rows = []
            for groups_found, own in offsets:
                done, failures = await delete(cluster, groups_found, own)
                rows += done
                code = invocation.tell_failures(failures, code)
    groups = list(dict.fromkeys(row.group for row in rows)) or meant.names
    return deleted_offsets_report(rows, exit_code=code, groups=groups, topics=topic, absent=absent)


def _counted(names: list[str]) -> str:
    from engine.common.listing import first_few

    return f"group {names[0]}" if len(names) == 1 else f"{len(names)} groups ({first_few(names)})"
