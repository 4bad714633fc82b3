"""``klamm cluster load``: what each broker carries, side by side."""

from __future__ import annotations

from cli.commands.cluster_group import group
from cli.commands.topics_group import TopicOptions, TopicTexts
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report


@group.command(
    "load",
    needs=Needs(cluster=True),
    examples=(
        "klamm cluster load",
        "klamm cluster load 'orders.*' --zookeeper 127.0.0.1:2181",
        "klamm cluster load -o json | jq 'sort_by(.size_bytes) | last.broker'",
    ),
)
async def load(invocation: Invocation, topics: TopicTexts = None, topic: TopicOptions = None) -> Report:
    """Show what each broker carries: replicas, leaders, bytes.

    Leads is how many partitions it leads now, Preferred how many it is the preferred leader of. The brokers report
    sizes; one that does not answer has none.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.brokers_load import load_report
    from engine.admin.brokers.reading_load import read_broker_load
    from engine.admin.topics.selection import select_topics

    async with open_cluster(invocation) as cluster:
        return load_report(await read_broker_load(cluster, select_topics([*(topics or ()), *(topic or ())])))
