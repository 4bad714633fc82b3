"""``klamm brokers metrics``: rates and latencies as brokers themselves tell them, klamm's and Apache Kafka's."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands.brokers.shared import group
from cli.framework.completing import complete_brokers
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.framework.places import MetricsUrl
from cli.framework.watching import Interval, Watch
from cli.output.format import OutputFormat
from cli.output.report import Report


@group.command(
    "metrics",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=(
        "klamm brokers metrics",
        "klamm brokers metrics 1 2 --requests --topics",
        "klamm brokers metrics --zookeeper zk1:2181 --watch",
        "klamm brokers metrics --metrics-url 'http://{host}:7071/metrics'",
        "klamm brokers metrics -o json | jq '.[] | [.broker, .bytes_in.one_minute, .produce_p99_ms]'",
    ),
)
async def metrics(
    invocation: Invocation,
    ids: Annotated[
        list[int] | None,
        typer.Argument(metavar="ID", help="Which brokers. All if you name none.", autocompletion=complete_brokers),
    ] = None,
    requests: Annotated[bool, typer.Option("--requests", help="Also show the slowest requests of each API.")] = False,
    topics: Annotated[bool, typer.Option("--topics", help="Also show the traffic of each topic.")] = False,
    metrics_url: MetricsUrl = None,
    watch: Watch = False,
    interval: Interval = "5s",
) -> Report:
    """Show what brokers measure: messages and bytes a second, p99 of requests, idle handlers, throttling, ISR changes.

    klamm's brokers and Apache Kafka's have the same columns. A broker of klamm says where it serves its metrics. One of
    Apache Kafka is read by JMX, for which this machine needs a JDK, by Jolokia, or from the page of a JMX exporter. A
    table of --topics or --requests shows the largest 20. Exits with 1 if a broker does not report.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.framework.watching import watch_reports
    from cli.views.brokers_metrics import metrics_report
    from engine.admin.brokers.reading_metrics import read_figures
    from engine.local.jmx import read_jmx

    async with open_cluster(invocation) as cluster:

        async def read() -> Report:
            figures = await read_figures(
                cluster, read_jmx, ids or (), pattern=metrics_url, requests=requests, topics=topics
            )
            return metrics_report(figures, is_for_people=invocation.output is OutputFormat.TABLE)

        if watch:
            await watch_reports(invocation, interval, read)
        return await read()
