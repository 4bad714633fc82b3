"""``klamm cluster health``: a gate for scripts, a list of reasons for people."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.cluster_group import group
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.admin.health.report import HealthStatus

_PAUSE_S = 1.0


@group.command(
    "health",
    needs=Needs(cluster=True, bounded=False),
    examples=(
        "klamm cluster health --timeout 10",
        "klamm cluster health --wait --timeout 300",
        "klamm cluster health --fail-on warning -o json | jq '.reasons[].check'",
    ),
)
async def health(
    invocation: Invocation,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="warning|critical", help="What makes the exit code 1.")
    ] = "critical",
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Look again until it is healthy, for --timeout at most.")
    ] = False,
) -> Report:
    """Say whether the cluster is healthy, and why not.

    Critical: no or several controllers, dead or silent brokers, partitions that are offline, under min ISR or
    under-replicated, failed log dirs. Warnings: running reassignments, leaked throttles, leaders that are not the
    preferred ones, deletions that are stuck, a slow ZooKeeper.
    """
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from cli.views.health import health_report
    from engine.admin.health.checks import assess
    from engine.admin.health.reading import read_health_facts

    threshold = _threshold(fail_on)
    deadline = time.monotonic() + invocation.timeout_s
    async with open_cluster(invocation) as cluster:
        while True:
            async with asyncio.timeout(max(_PAUSE_S, deadline - time.monotonic())):
                facts = await read_health_facts(cluster)
            report = health_report(assess(facts), fails_on=threshold)
            if not wait or not report.exit_code or time.monotonic() + _PAUSE_S > deadline:
                return report
            invocation.talk.detail("not healthy yet, looking again")
            await asyncio.sleep(_PAUSE_S)


def _threshold(word: str) -> HealthStatus:
    from engine.admin.health.report import HealthStatus

    if word not in (HealthStatus.WARNING, HealthStatus.CRITICAL):
        raise UsageError(f"--fail-on wants warning or critical, not {word!r}")
    return HealthStatus(word)
