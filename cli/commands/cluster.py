"""``klamm cluster``: the cluster as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.commands import cluster_health
from cli.commands.cluster_group import group
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report

__all__ = ["cluster_health", "group"]


@group.command(
    "describe",
    needs=Needs(cluster=True),
    examples=("klamm cluster describe", "klamm cluster describe -b 127.0.0.1:9092 -o json | jq -r .cluster_id"),
)
async def describe(invocation: Invocation) -> Report:
    """Show cluster id, controller, brokers and how many topics there are."""
    from cli.framework.cluster_session import open_cluster
    from cli.views.brokers import cluster_report
    from engine.admin.brokers import describe_cluster

    async with open_cluster(invocation) as cluster:
        return cluster_report(await describe_cluster(cluster))


@group.command(
    "snapshot",
    needs=Needs(cluster=True),
    examples=("klamm cluster snapshot before.json", "klamm topics describe --snapshot before.json"),
)
async def snapshot(
    invocation: Invocation,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; replaced if it exists.")],
) -> None:
    """Write the whole cluster's metadata to a file that other commands can read offline."""
    from cli.framework.cluster_session import open_cluster
    from engine.admin.snapshot import read_snapshot
    from engine.admin.snapshot_file import save_snapshot

    async with open_cluster(invocation) as cluster:
        taken = await read_snapshot(cluster)
    save_snapshot(taken, file)
    partitions = sum(len(topic.partitions) for topic in taken.topics)
    counted = f"{len(taken.brokers)} brokers, {len(taken.topics)} topics, {partitions} partitions"
    invocation.talk.say(f"wrote {file}: {counted}")


group.put_in_order("describe", "health", "snapshot")
