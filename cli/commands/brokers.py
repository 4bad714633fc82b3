"""``klamm brokers``: who is in the cluster."""

from __future__ import annotations

from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report

group = CommandGroup("brokers", "Who is in the cluster.", action_flags={"--list": "list"})


@group.command(
    "list",
    needs=Needs(cluster=True),
    examples=("klamm brokers list", "klamm brokers list --zookeeper 127.0.0.1:2181 -o json"),
)
async def list_brokers(invocation: Invocation) -> Report:
    """List the live brokers with address and rack, and say which one is the controller."""
    from cli.framework.cluster_session import open_cluster
    from cli.views.brokers import brokers_report
    from engine.admin.brokers import read_members

    async with open_cluster(invocation) as cluster:
        return brokers_report((await read_members(cluster)).descriptions)
