"""``klamm zk``: look at the znodes."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.output.report import Report

group = CommandGroup("zk", "Look at the znodes, decoded.")

Path = Annotated[str, typer.Argument(metavar="PATH", help="Path of the znode, relative to the chroot.")]
Raw = Annotated[bool, typer.Option("--raw", help="Show the data as it is stored.")]


@group.command(
    "tree",
    needs=Needs(cluster=True, asks=Asks.ZOOKEEPER),
    examples=("klamm zk tree --depth 2", "klamm zk tree /brokers/topics/orders", "klamm zk tree /config -o json"),
)
async def tree(
    invocation: Invocation,
    path: Path = "/",
    depth: Annotated[int | None, typer.Option("--depth", metavar="N", min=0, help="How many levels to show.")] = None,
    raw: Raw = False,
) -> Report:
    """Show a znode and everything below it."""
    from cli.framework.cluster_session import open_cluster
    from cli.views.znodes import tree_report
    from engine.admin.znodes.tree import get_tree

    async with open_cluster(invocation) as cluster:
        return tree_report(await get_tree(await cluster.zookeeper(), path, depth_max=depth, raw=raw))


@group.command(
    "get",
    needs=Needs(cluster=True, asks=Asks.ZOOKEEPER),
    examples=("klamm zk get /controller", "klamm zk get /brokers/topics/orders --raw"),
)
async def get(invocation: Invocation, path: Path = "/", raw: Raw = False) -> Report:
    """Show one znode: what it says, its version, owner and times."""
    from cli.framework.cluster_session import open_cluster
    from cli.views.znodes import znode_report
    from engine.admin.znodes.tree import get_znode

    async with open_cluster(invocation) as cluster:
        return znode_report(await get_znode(await cluster.zookeeper(), path, raw=raw))
