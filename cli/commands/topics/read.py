"""``klamm topics list`` and ``describe``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.topics.shared import ExcludeInternal, IfExists, TopicOptions, TopicTexts, group
from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.framework.watching import Interval, Watch, watch_reports
from cli.output.format import OutputFormat
from cli.output.report import Report
from engine.common.topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from cli.views.kafka.topics import Settings
    from engine.admin.cluster.connection import Cluster
    from engine.admin.topics.describing import TopicDescription
    from engine.admin.topics.selection import TopicSelection


@group.command(
    "list",
    needs=Needs(cluster=True, kafka=True),
    examples=(
        "klamm topics list",
        "klamm topics list 'orders.*' --exclude-internal --bootstrap-server 127.0.0.1:9092",
    ),
)
async def list_topics(
    invocation: Invocation,
    topics: TopicTexts = None,
    topic: TopicOptions = None,
    exclude_internal: ExcludeInternal = False,
) -> Report:
    """List the topics by name, with partitions, replication factor and bytes on disk over all replicas.

    In a pipe it prints only the names; -o csv and the other formats have everything. The brokers report sizes.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.topics import topic_list_report
    from engine.admin.log_dirs.describing import note_topics_left_out
    from engine.admin.snapshots.topic_list import with_shapes
    from engine.admin.topics.access import topic_reader
    from engine.admin.topics.describing import list_topics as read_list
    from engine.admin.topics.selection import select_topics

    selection = select_topics([*(topics or ()), *(topic or ())])
    async with open_cluster(invocation) as cluster:
        reader = await topic_reader(cluster, on_unreadable=cluster.complain)
        listed = await read_list(reader, selection, exclude_internal=exclude_internal)
        choose = _choice(selection, exclude_internal)
        if invocation.output is OutputFormat.PLAIN:
            await note_topics_left_out(cluster, [entry.topic for entry in listed], choose)
        elif invocation.output is not OutputFormat.KAFKA:
            listed = await with_shapes(cluster, reader, listed, choose)
    return topic_list_report(listed)


@group.command(
    "describe",
    needs=Needs(cluster=True, kafka=True),
    examples=(
        "klamm topics describe orders",
        "klamm topics describe orders --watch",
        "klamm topics describe --under-replicated-partitions --zookeeper 127.0.0.1:2181",
        "klamm topics describe -o json | jq '.[].partitions[] | select(.leader == -1)'",
    ),
)
async def describe(
    invocation: Invocation,
    topics: TopicTexts = None,
    topic: TopicOptions = None,
    topic_id: Annotated[str | None, typer.Option("--topic-id", metavar="ID", help="The topic with this id.")] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated-partitions", help="Only partitions with replicas out of sync.")
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only partitions without a live leader.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr-partitions", help="Only partitions below their min.insync.replicas.")
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr-partitions", help="Only partitions exactly at their min.insync.replicas.")
    ] = False,
    topics_with_overrides: Annotated[
        bool, typer.Option("--topics-with-overrides", help="Only topics with settings of their own, no partitions.")
    ] = False,
    exclude_internal: ExcludeInternal = False,
    if_exists: IfExists = False,
    watch: Watch = False,
    interval: Interval = "2s",
) -> Report:
    """Show partitions with leader, replicas and in-sync replicas.

    With several filters it shows partitions that match any of them.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.topics import topic_overrides_report, topics_as_kafka, topics_report
    from engine.admin.cluster.target import Source
    from engine.admin.log_dirs.describing import note_topics_left_out
    from engine.admin.topics.access import topic_reader
    from engine.admin.topics.describing import DescribeOptions, describe_topics
    from engine.admin.topics.selection import PartitionFilter, select_topics

    wanted = {
        PartitionFilter.UNDER_REPLICATED: under_replicated,
        PartitionFilter.UNAVAILABLE: unavailable,
        PartitionFilter.UNDER_MIN_ISR: under_min_isr,
        PartitionFilter.AT_MIN_ISR: at_min_isr,
    }
    filters = tuple(kind for kind, is_wanted in wanted.items() if is_wanted)
    if filters and topics_with_overrides:
        raise UsageError("--topics-with-overrides cannot be used with a filter of partitions")
    options = DescribeOptions(
        filters, topics_with_overrides, exclude_internal, if_exists, _topic_id(topic_id) if topic_id else None
    )
    selection = select_topics([*(topics or ()), *(topic or ())])
    async with open_cluster(invocation) as cluster:
        unknown: list[str] = []

        def unknown_settings(text: str) -> None:
            unknown.append(text)
            cluster.complain(text)

        # A named topic must be shown or refused. When all are listed, a damaged one does not hide the others.
        complain = cluster.complain if selection.wants_list else None
        reader = await topic_reader(cluster, on_unreadable=complain, on_unknown_settings=unknown_settings)
        if selection.wants_list and cluster.may_hide_topics and invocation.output is not OutputFormat.KAFKA:
            # Once: what is left out of one look is left out of the next.
            listed = [entry.topic for entry in await reader.names()]
            await note_topics_left_out(cluster, listed, _choice(selection, exclude_internal))

        async def read() -> Report:
            described = await describe_topics(reader, selection, options)
            if invocation.output is OutputFormat.KAFKA:
                settings = {} if filters else await _shown_settings(cluster, described)
                return topics_as_kafka(
                    described, settings, is_filtered=bool(filters), with_partitions=not topics_with_overrides
                )
            if topics_with_overrides:
                return topic_overrides_report(described)
            is_damaged = unknown and cluster.source is Source.ZOOKEEPER
            return topics_report(described, is_filtered=bool(filters)).ending(
                ExitCode.BAD_ANSWER if is_damaged else ExitCode.DONE
            )

        return await (watch_reports(invocation, interval, read) if watch else read())


def _choice(selection: TopicSelection, exclude_internal: bool) -> Callable[[Iterable[str]], list[str]]:
    """Return what picks the topics of a list from the names of all."""
    left_out = INTERNAL_TOPICS if exclude_internal else ()
    return lambda names: [name for name in selection.choose(names) if name not in left_out]


async def _shown_settings(cluster: Cluster, topics: Sequence[TopicDescription]) -> dict[str, Settings]:
    """Return what kafka-topics shows of topics: settings from anywhere but the defaults, as the brokers know them.

    Where ZooKeeper alone is named, the topics' own.
    """
    from cli.views.kafka.topics import settings_shown
    from engine.admin.cluster.target import Side
    from engine.admin.configs.by_wire import read_set_anywhere

    names = [topic.topic for topic in topics]
    if cluster.changes_by is not Side.WIRE or cluster.target.snapshot is not None:
        return {topic.topic: list((topic.configs or {}).items()) for topic in topics}
    settings = await read_set_anywhere(await cluster.wire(), names)
    return {name: settings_shown(entries) for name, entries in settings.items()}


def _topic_id(text: str) -> bytes:
    from engine.common.topic_id import parse_topic_id

    try:
        return parse_topic_id(text)
    except ValueError as error:
        raise UsageError(f"--topic-id: {error}") from None
