"""``klamm groups list`` and ``describe``."""

from __future__ import annotations

from typing import Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.groups.shared import ChosenGroups, group
from cli.framework.completing import complete_topics
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.output.format import OutputFormat
from cli.output.report import Report

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
    from engine.admin.groups.describing import list_consumer_groups, parse_filter
    from engine.admin.groups.scope import GroupScope, note_hidden_groups
    from engine.admin.topics.selection import select_topics

    wanted = parse_filter(state, type)
    async with open_cluster(invocation) as cluster:
        listed = await list_consumer_groups(cluster, wanted, select_topics(topic or []))
        if invocation.output is not OutputFormat.KAFKA:
            await note_hidden_groups(cluster, GroupScope())
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
    chosen: ChosenGroups,
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
    from engine.admin.groups.scope import note_hidden_groups
    from engine.admin.log_dirs.describing import note_topics_left_out
    from engine.admin.topics.selection import select_topics
    from engine.common.listing import first_few

    if offsets + members + state > 1:
        raise UsageError("give at most one of --offsets, --members and --state")
    wanted = Wanted.MEMBERS if members else Wanted.STATE if state else Wanted.OFFSETS
    meant = chosen.scope()
    async with open_cluster(invocation) as cluster:
        topics = select_topics(topic or [])
        described = await (
            describe_readers(cluster, meant, topics, wanted) if topic else describe(cluster, meant, wanted)
        )
        if invocation.output is not OutputFormat.KAFKA:
            await note_hidden_groups(cluster, meant)
            if wanted is Wanted.OFFSETS and any(not (group.partitions or group.error) for group in described.groups):
                # It may read topics that are hidden: brokers leave out its offsets.
                await note_topics_left_out(cluster, ())
    tell = invocation.tell_failures_but_hidden if meant.is_all else invocation.tell_failures
    code = tell(described.failures)
    if described.others and not topic:
        others = first_few(described.others)
        invocation.talk.say(f"groups of other protocols are not described, unless named: {others}")
    if wanted is Wanted.MEMBERS:
        is_verbose = invocation.talk.verbosity >= Verbosity.VERBOSE
        return members_report(described.groups, is_verbose=is_verbose, exit_code=code)
    report = states_report if wanted is Wanted.STATE else offsets_report
    return report(described.groups, exit_code=code)
