"""``klamm doctor``: what is missing on this machine and how to get it, or why a cluster cannot be reached."""

from __future__ import annotations

from collections.abc import Awaitable
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
def command(invocation: Invocation) -> Report | Awaitable[Report]:
    """Say what is missing on this machine and how to get it, or why a cluster cannot be reached.

    If an option names a cluster, it goes there step by step: name, port, TLS, login, APIs, rights, and the same for
    every broker that the cluster names. The way to ZooKeeper and the way to the brokers each end at the first step that
    fails, and klamm says what to do; the exit code is that of a command that fails there. If an address that you give
    does not answer, it goes on to the next one.

    Without a cluster it exits with 1 when something is missing that klamm's main uses need; what is optional does not
    count.
    """
    options = invocation.target_options
    if not (options.cluster or options.zookeeper or options.bootstrap_server):
        from cli.views.doctor import doctor_report
        from engine.local.doctor import examine

        return doctor_report(examine(Path.cwd() / ".klamm"))
    return _walked(invocation)


async def _walked(invocation: Invocation) -> Report:
    from cli.framework.cluster_session import open_cluster
    from cli.views.doctor import walk_report
    from engine.admin.brokers.doctor import walk

    async with open_cluster(invocation, may_be_absent=True) as cluster:
        return walk_report([step async for step in walk(cluster)])
