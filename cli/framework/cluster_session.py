"""Opens the cluster that a command means, for the time of the command. Imported inside commands only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cli.framework.invocation import Invocation
from engine.admin.connection import Cluster


@asynccontextmanager
async def open_cluster(invocation: Invocation, *, for_change: bool = False) -> AsyncIterator[Cluster]:
    """Give the cluster; what was opened is closed at the end."""
    target = invocation.target(for_change=for_change)
    cluster = Cluster(
        target, observe=invocation.talk.detail, accepted=invocation.accepted, timeout_s=invocation.timeout_s
    )
    async with cluster:
        yield cluster
