"""Checks a cluster's health once, or repeatedly until it is good enough."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from engine.admin.cluster.connection import Cluster
from engine.admin.health.checks import assess
from engine.admin.health.reading import read_health_facts
from engine.admin.health.report import EXAMPLES_MAX, HealthReport, HealthStatus

PAUSE_S = 1.0


OnWait = Callable[[HealthReport, float], None]
"""Called with what is still wrong, and how many seconds the wait has lasted."""


async def read_health(
    cluster: Cluster,
    *,
    until_better_than: HealthStatus | None = None,
    examples_max: int | None = EXAMPLES_MAX,
    on_wait: OnWait = lambda report, waited_s: None,
) -> HealthReport:
    """Return a cluster's health.

    Args:
        until_better_than: check again while it is this bad, at most for the cluster's time-out.
        examples_max: this many cases of each reason are named; None: all.
        on_wait: called after each check that fails.

    Raises:
        Unreachable, TimeoutError: the cluster could not be read.
    """
    started = time.monotonic()
    deadline = started + cluster.timeout_s
    while True:
        async with asyncio.timeout(max(PAUSE_S, deadline - time.monotonic())):
            facts = await read_health_facts(cluster)
        report = assess(facts, examples_max)
        is_good = until_better_than is None or not report.is_as_bad_as(until_better_than)
        if is_good or time.monotonic() + PAUSE_S > deadline:
            return report
        on_wait(report, time.monotonic() - started)
        await asyncio.sleep(PAUSE_S)
