"""A cluster's health looked at once, or again and again until it is good enough."""

from __future__ import annotations

import asyncio
import time

from engine.admin.cluster.connection import Cluster
from engine.admin.health.checks import assess
from engine.admin.health.reading import read_health_facts
from engine.admin.health.report import HealthReport, HealthStatus

PAUSE_S = 1.0


async def read_health(cluster: Cluster, *, until_better_than: HealthStatus | None = None) -> HealthReport:
    """Return a cluster's health.

    Args:
        until_better_than: look again while it is as bad as that, for the cluster's time-out at most.

    Raises:
        Unreachable, TimeoutError: it could not be looked at.
    """
    deadline = time.monotonic() + cluster.timeout_s
    while True:
        async with asyncio.timeout(max(PAUSE_S, deadline - time.monotonic())):
            facts = await read_health_facts(cluster)
        report = assess(facts)
        is_good = until_better_than is None or not report.is_as_bad_as(until_better_than)
        if is_good or time.monotonic() + PAUSE_S > deadline:
            return report
        cluster.observe("not healthy yet, looking again")
        await asyncio.sleep(PAUSE_S)
