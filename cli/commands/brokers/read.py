"""``klamm brokers list`` and ``describe``."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands.brokers.shared import group
from cli.framework.completing import complete_brokers
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.output.format import OutputFormat
from cli.output.report import Report


@group.command(
    "list",
    needs=Needs(cluster=True),
    examples=("klamm brokers list", "klamm brokers list --zookeeper 127.0.0.1:2181 -o json"),
)
async def list_brokers(invocation: Invocation) -> Report:
    """List the live brokers with address and rack, and say which one is the controller."""
    from cli.framework.cluster_session import open_cluster
    from cli.views.brokers import brokers_report
    from engine.admin.brokers.cluster_description import list_brokers

    async with open_cluster(invocation) as cluster:
        return brokers_report(await list_brokers(cluster))


@group.command(
    "describe",
    needs=Needs(cluster=True, kafka=True),
    examples=(
        "klamm brokers describe",
        "klamm brokers describe 2 --zookeeper 127.0.0.1:2181",
        "klamm brokers describe -o json | jq '.[] | select(.alive | not) | .id'",
        "klamm brokers describe 0 --api-versions -o json",
    ),
)
async def describe(
    invocation: Invocation,
    ids: Annotated[
        list[int] | None,
        typer.Argument(metavar="ID", help="Which brokers. All if you name none.", autocompletion=complete_brokers),
    ] = None,
    api_versions: Annotated[
        bool,
        typer.Option("--api-versions", help="Also show the APIs that each offers, like kafka-broker-api-versions."),
    ] = False,
) -> Report:
    """Show everything about brokers: listeners, release, partitions, what lags because of them, settings, log dirs.

    A broker that has partitions but is not alive is shown as missing. klamm guesses the release from the APIs that a
    broker offers. Exits with 1 if a broker is missing, silent or has a failed log dir.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.brokers_description import broker_details_report
    from engine.admin.brokers.description import describe_brokers

    async with open_cluster(invocation) as cluster:
        notes_hidden = invocation.output is not OutputFormat.KAFKA
        descriptions = await describe_brokers(cluster, ids or (), notes_hidden=notes_hidden)
    return broker_details_report(descriptions, with_apis=api_versions)


@group.command(
    "restart-order",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=("klamm brokers restart-order", "klamm brokers restart-order --cluster prod -o json"),
)
async def restart_order(invocation: Invocation) -> Report:
    """Say which broker can be restarted next without harm, and why the others cannot.

    A broker is safe if no partition loses its leader for good or refuses writes with acks=all while it is away. The one
    that has been registered longest comes first, the controller last. None is safe while a broker is down, partitions
    are under-replicated or move, or ZooKeeper does not answer. Exits with 1 if no broker can be restarted now.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.restart_order import restart_order_report
    from engine.admin.analysis.restart_order import read_restart_order

    async with open_cluster(invocation) as cluster:
        return restart_order_report(await read_restart_order(cluster))
