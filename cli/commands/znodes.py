"""``klamm zk``: look at the znodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.output.format import OutputFormat
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.znodes.access_lists import AclChange

group = CommandGroup("zk", "Look at the znodes, decoded, and say who may change them.")

Path = Annotated[str, typer.Argument(metavar="PATH", help="Path of the znode, relative to the chroot.")]
Raw = Annotated[bool, typer.Option("--raw", help="Show the data as it is stored, without secrets.")]


@group.command(
    "tree",
    needs=Needs(cluster=True, asks=Asks.ZOOKEEPER, kafka=True),
    examples=("klamm zk tree --depth 2", "klamm zk tree /brokers/topics/orders", "klamm zk tree /config --acl -o json"),
)
async def tree(
    invocation: Invocation,
    path: Path = "/",
    depth: Annotated[int | None, typer.Option("--depth", metavar="N", min=0, help="How many levels to show.")] = None,
    raw: Raw = False,
    acl: Annotated[bool, typer.Option("--acl", help="Show each znode's access list.")] = False,
    recursive: Annotated[bool, typer.Option("-R", hidden=True)] = False,
) -> Report:
    """Show a znode and everything below it."""
    from cli.framework.cluster_session import open_cluster
    from cli.views.kafka.znodes import children_text
    from cli.views.znodes import tree_report
    from engine.admin.znodes.tree import get_tree

    if invocation.output is OutputFormat.KAFKA and depth is None and not recursive:
        depth = 1
    async with open_cluster(invocation, may_be_absent=True) as cluster:
        znodes = await get_tree(await cluster.zookeeper(), path, depth_max=depth, raw=raw, with_acls=acl)
        address = cluster.target.zookeeper or ""
        return tree_report(znodes, lambda: children_text(address, znodes, is_recursive=recursive))


@group.command(
    "get",
    needs=Needs(cluster=True, asks=Asks.ZOOKEEPER, kafka=True),
    examples=("klamm zk get /controller", "klamm zk get /brokers/topics/orders --raw"),
)
async def get(invocation: Invocation, path: Path = "/", raw: Raw = False) -> Report:
    """Show one znode: what it says, its access list, version, owner and times."""
    from cli.framework.cluster_session import open_cluster
    from cli.views.kafka.znodes import data_text
    from cli.views.znodes import znode_report
    from engine.admin.znodes.tree import get_znode

    raw = raw or invocation.output is OutputFormat.KAFKA
    async with open_cluster(invocation, may_be_absent=True) as cluster:
        znode = await get_znode(await cluster.zookeeper(), path, raw=raw)
        return znode_report(znode, lambda: data_text(cluster.target.zookeeper or "", znode))


@group.command(
    "secure",
    needs=Needs(cluster=True, changes=True, asks=Asks.ZOOKEEPER),
    examples=("klamm zk secure --jaas-config zk.jaas --dry-run", "klamm zk secure --jaas-config zk.jaas --yes"),
)
async def secure(
    invocation: Invocation,
    check_paths: Annotated[
        bool, typer.Option("--enable-path-check", help="Refuse if one of Kafka's znodes is missing.")
    ] = False,
) -> Report:
    """Close Kafka's znodes to others: only the user that this session logs in as may change them.

    Everybody may still read them, except those that hold secrets. First restart every broker with a login for
    ZooKeeper, and then again with zookeeper.set.acl=true. It does what zookeeper-security-migration does, and refuses
    if brokers log in as somebody else.
    """
    from cli.framework.cluster_session import open_cluster
    from engine.admin.znodes.access_lists import open_brokers, protect_znodes

    async with open_cluster(invocation, for_change=True) as cluster:
        changes = await protect_znodes(cluster, check_paths=check_paths)
        if brokers := await open_brokers(cluster):
            whom = ", ".join(sorted(brokers))
            invocation.talk.warn(
                f"brokers without zookeeper.set.acl=true: {whom}; without a login they could not write any more"
            )
        return await _change(invocation, cluster, changes, is_secure=True)


@group.command(
    "open",
    needs=Needs(cluster=True, changes=True, asks=Asks.ZOOKEEPER),
    examples=("klamm zk open --jaas-config zk.jaas --dry-run", "klamm zk open --jaas-config zk.jaas --yes"),
)
async def open_(invocation: Invocation) -> Report:
    """Open Kafka's znodes to everybody, so that brokers can do without a ZooKeeper login.

    First restart every broker with zookeeper.set.acl=false. It does what zookeeper-security-migration does.
    """
    from cli.framework.cluster_session import open_cluster
    from engine.admin.znodes.access_lists import open_znodes

    async with open_cluster(invocation, for_change=True) as cluster:
        return await _change(invocation, cluster, await open_znodes(cluster), is_secure=False)


async def _change(invocation: Invocation, cluster: Cluster, changes: Sequence[AclChange], *, is_secure: bool) -> Report:
    from cli.views.znodes import acl_changes_report
    from engine.admin.znodes.access_lists import change_acls

    if not changes:
        invocation.talk.say("every znode has this access list already")
        return acl_changes_report([])
    sentence = f"{'close' if is_secure else 'open'} {len(changes)} znodes of {cluster.target.title}"
    details = [f"{change.path}: {' '.join(change.before or ('?',))} → {' '.join(change.after)}" for change in changes]
    if not invocation.confirm(sentence, details, is_destructive=True):
        return acl_changes_report(changes)
    return acl_changes_report(await change_acls(cluster, changes, is_secure=is_secure))
