"""``klamm doctor``: what is missing on this machine, or in the way to a cluster, and how to get it."""

from __future__ import annotations

from pathlib import Path

from cli.framework.command import single_command
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.output.report import Report


@single_command(
    "doctor",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=(
        "klamm doctor",
        "klamm doctor --cluster prod",
        "klamm doctor -b kafka1:9093 --command-config client.properties",
        "klamm doctor -o json | jq '.[] | select(.status != \"ok\")'",
    ),
)
async def command(invocation: Invocation) -> Report:
    """Say what is missing on this machine and how to get it; or what is in the way to a cluster.

    If an option names a cluster, it walks there: name, port, TLS, login, APIs, rights, and the same for every broker
    that the cluster names. It stops at the first step that fails, and says what to do; the exit code is that of a
    command that fails there.

    Without a cluster it exits with 1 when something is missing that klamm's main uses need; what is optional does not
    count.
    """
    from cli.views.doctor import doctor_report, walk_report

    options = invocation.target_options
    if not (options.cluster or options.zookeeper or options.bootstrap_server):
        from engine.local.doctor import examine

        return doctor_report(examine(Path.cwd() / ".klamm"))
    from cli.framework.cluster_session import open_cluster
    from engine.admin.brokers.walk import walk

    async with open_cluster(invocation) as cluster:
        return walk_report([step async for step in walk(cluster)])
