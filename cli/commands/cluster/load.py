"""``klamm cluster load``: what each broker carries, side by side."""

from __future__ import annotations

from typing import Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.cluster.shared import group
from cli.commands.topics.shared import TopicOptions, TopicTexts
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.framework.places import MetricsUrl
from cli.output.report import Report


@group.command(
    "load",
    needs=Needs(cluster=True),
    examples=(
        "klamm cluster load",
        "klamm cluster load 'orders.*' --zookeeper 127.0.0.1:2181",
        "klamm cluster load --rates",
        "klamm cluster load -o json | jq 'sort_by(.size_bytes) | last.broker'",
    ),
)
async def load(
    invocation: Invocation,
    topics: TopicTexts = None,
    topic: TopicOptions = None,
    rates: Annotated[bool, typer.Option("--rates", help="Also messages and bytes a second.")] = False,
    metrics_url: MetricsUrl = None,
) -> Report:
    """Show what each broker carries: replicas, leaders, bytes.

    Leads is how many partitions it leads now, Preferred how many it is the preferred leader of. The brokers report
    sizes; one that does not answer has none. With --rates they also report what they measure, as for klamm brokers
    metrics: of the topics that you name, or of all.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.brokers_load import load_report
    from engine.admin.brokers.reading_load import add_rates, read_broker_load
    from engine.admin.topics.selection import select_topics

    selection = select_topics([*(topics or ()), *(topic or ())])
    async with open_cluster(invocation) as cluster:
        if rates and cluster.target.snapshot is not None:
            raise UsageError("--rates needs a running cluster: a snapshot has none")
        loads = await read_broker_load(cluster, selection)
        if not rates:
            return load_report(loads)
        from engine.local.jmx import read_jmx

        return load_report(*await add_rates(cluster, loads, selection, read_jmx, metrics_url))
