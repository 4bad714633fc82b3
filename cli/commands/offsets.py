"""``klamm offsets``: where the logs of partitions begin and end. Options are those of kafka-get-offsets."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.framework.command import single_command
from cli.framework.completing import one_of
from cli.framework.invocation import Invocation
from cli.framework.option_values import TopicOptions, TopicTexts, isolation_option
from cli.framework.options import Asks, Needs
from cli.output.format import OutputFormat
from cli.output.report import Report


@single_command(
    "offsets",
    needs=Needs(cluster=True, asks=Asks.BROKERS, kafka=True),
    examples=(
        "klamm offsets orders",
        "klamm offsets orders --time earliest --partitions 0,2",
        "klamm offsets --topic-partitions 'orders:0-3,payments.*:5-' --time 2026-11-21T12:00Z -o json",
    ),
)
async def command(
    invocation: Invocation,
    topics: TopicTexts = None,
    topic: TopicOptions = None,
    partitions: Annotated[
        str | None, typer.Option("--partitions", metavar="0,1,2", help="Only these partitions of the topics.")
    ] = None,
    topic_partitions: Annotated[
        str | None,
        typer.Option(
            "--topic-partitions",
            metavar="T:0-3,…",
            help="Topics, each with a partition or a range of them: t1:1,t2:0-3,t3,t4:5-,t5:-3.",
        ),
    ] = None,
    time: Annotated[
        str,
        typer.Option(
            "--time",
            metavar="TIME",
            help="latest, earliest, max-timestamp, earliest-local, latest-tiered, milliseconds or ISO 8601: "
            "the first record from then on.",
            autocompletion=one_of("latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered"),
        ),
    ] = "latest",
    exclude_internal: Annotated[
        bool, typer.Option("--exclude-internal-topics", "--exclude-internal", help="Leave Kafka's own topics out.")
    ] = False,
    isolation: Annotated[
        str, typer.Option("--isolation", metavar="LEVEL", help="read-uncommitted or read-committed (last stable).")
    ] = "read-uncommitted",
) -> Report:
    """Show offsets of partitions: the end, the start, or the first record from a time on.

    A partition without such a record has no offset. Exits with 1 if a partition could not be looked up because it has
    no leader or its leader does not answer; the others are shown.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.offsets import offsets_report
    from engine.admin.log_dirs.describing import note_topics_left_out
    from engine.admin.offsets.listing import choose_partitions, look_up
    from engine.admin.offsets.selection import parse_offset_time, select_partitions

    level = isolation_option(isolation)
    wanted = parse_offset_time(time)
    named = [*(topics or ()), *(topic or ())]
    selection = select_partitions(named, partitions, topic_partitions, exclude_internal=exclude_internal)
    async with open_cluster(invocation) as cluster:
        wire = await cluster.wire()
        leaders = await choose_partitions(wire, selection)
        if selection.topics is None and invocation.output is not OutputFormat.KAFKA:
            listed = {partition.topic for partition in leaders}
            await note_topics_left_out(cluster, listed, selection.choose_topics)
        offsets = await look_up(wire, leaders, wanted, isolation=level)
    return offsets_report(offsets, by_time=wanted.timestamp >= 0 or wanted.name == "max-timestamp")
