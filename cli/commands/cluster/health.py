"""``klamm cluster health``: a gate for scripts, a list of reasons for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.cluster.shared import group
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.framework.watching import Interval, Watch, watch_reports
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.admin.health.report import HealthStatus


@group.command(
    "health",
    needs=Needs(cluster=True, bounded=False, metrics=True),
    examples=(
        "klamm cluster health --timeout 10",
        "klamm cluster health --wait --timeout 5m",
        "klamm cluster health --watch",
        "klamm cluster health --fail-on warning -o json | jq '.reasons[].check'",
    ),
)
async def health(
    invocation: Invocation,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="warning|critical", help="What makes the exit code 1.")
    ] = "critical",
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it is healthy, at most --timeout.")
    ] = False,
    watch: Watch = False,
    interval: Interval = "2s",
) -> Report:
    """Say whether the cluster is healthy, and why not.

    It names the five worst cases of each reason, or all of them with -v. With --wait it says what it waits for, and
    since when.
    Critical: no or several controllers, dead or silent brokers, partitions that are offline, under min ISR or
    under-replicated, failed log dirs, hanging transactions. Warnings: transactions that hold readers up for minutes,
    running reassignments, leaked throttles, leaders that are not the preferred ones, replicas that share a rack
    unnecessarily, min.insync.replicas above the number of replicas, deletions that are stuck, a slow ZooKeeper.

    A snapshot does not show whether brokers answer, and it shows failed log dirs only if it was taken with --sizes.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.health import WaitingTold, health_report
    from engine.admin.health.report import EXAMPLES_MAX
    from engine.admin.health.waiting import read_health

    threshold = _threshold(fail_on)
    if watch and wait:
        raise UsageError("--watch goes on forever, --wait until it is healthy: give one of them")
    async with open_cluster(invocation) as cluster:

        async def read() -> Report:
            health = await read_health(
                cluster,
                until_better_than=threshold if wait else None,
                examples_max=None if invocation.talk.is_verbose else EXAMPLES_MAX,
                on_wait=WaitingTold(invocation.talk),
            )
            seen_by = (cluster.principal or "this login") if cluster.denied else None
            return health_report(health, fails_on=threshold, pasteable=invocation.pasteable, seen_by=seen_by)

        return await (watch_reports(invocation, interval, read) if watch else read())


def _threshold(word: str) -> HealthStatus:
    from engine.admin.health.report import HealthStatus

    if word not in (HealthStatus.WARNING, HealthStatus.CRITICAL):
        raise UsageError(f"--fail-on must be warning or critical, not {word!r}")
    return HealthStatus(word)
