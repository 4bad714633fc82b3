"""``klamm brokers log-dirs``: which replicas are on which disk. Options are those of kafka-log-dirs."""

from __future__ import annotations

from typing import Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.brokers.shared import group
from cli.framework.completing import complete_topics, one_of
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.format import OutputFormat
from cli.output.report import Report

SUMMARIES = ("dir", "broker", "topic")
ORDERS = ("name", "size", "lag")


@group.command(
    "log-dirs",
    needs=Needs(cluster=True, metrics=True, kafka=True),
    examples=(
        "klamm brokers log-dirs",
        "klamm brokers log-dirs --summary topic --sort size",
        "klamm brokers log-dirs --broker-list 0,2 --topic-list orders -o json | jq '.[].replicas[]'",
    ),
)
async def log_dirs(
    invocation: Invocation,
    broker_list: Annotated[
        str | None, typer.Option("--broker-list", metavar="0,1,2", help="Only these brokers.  [default: all]")
    ] = None,
    topic_list: Annotated[
        list[str] | None,
        typer.Option(
            "--topic-list",
            "--topic",
            metavar="A,B",
            help="Only these topics: names or patterns.",
            autocompletion=complete_topics,
        ),
    ] = None,
    summary: Annotated[
        str | None,
        typer.Option(
            "--summary", metavar="dir|broker|topic", help="Show totals instead.", autocompletion=one_of(*SUMMARIES)
        ),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort", metavar="name|size|lag", help="The largest first, or name order.", autocompletion=one_of(*ORDERS)
        ),
    ] = "name",
) -> Report:
    """Show the log dirs of brokers with the replicas in them: sizes, lags, moves under way, errors.

    A table of more than 20 replicas shows the 20 largest, unless you name topics; other formats show all. It asks
    brokers even if you name only ZooKeeper. It lists brokers that have partitions but are not alive, too. Exits with 1
    if a log dir has failed, or a broker is missing or does not answer.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.brokers_log_dirs import log_dirs_report, totals_report
    from engine.admin.brokers.access import read_selected_log_dirs
    from engine.admin.log_dirs.totals import totals_by_broker, totals_by_dir, totals_by_topic
    from engine.admin.reassignment.plan_file import parse_broker_list
    from engine.admin.topics.selection import select_topics

    if summary is not None and summary not in SUMMARIES:
        raise UsageError(f"--summary must be one of {', '.join(SUMMARIES)}, not {summary!r}")
    if sort not in ORDERS:
        raise UsageError(f"--sort must be one of {', '.join(ORDERS)}, not {sort!r}")
    brokers = None if broker_list is None else parse_broker_list(broker_list)
    async with open_cluster(invocation) as cluster:
        dirs = await read_selected_log_dirs(cluster, brokers, select_topics(topic_list) if topic_list else None)
    if summary is None:
        is_for_people = invocation.output is OutputFormat.TABLE
        return log_dirs_report(dirs, order=sort, names_topics=bool(topic_list), is_for_people=is_for_people)
    totals = {"dir": totals_by_dir, "broker": totals_by_broker, "topic": totals_by_topic}[summary]
    return totals_report(totals(dirs), summary, order=sort, failed=[total for total in dirs if total.error])
