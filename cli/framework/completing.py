"""What the Tab key offers besides commands and options: names that only the cluster knows, and a few fixed values.

It asks the cluster that the line names so far, or else the default one, for at most a second. If anything goes wrong,
it offers nothing and stays silent, because the line is not finished yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from typer._click.core import Context

from cli.framework.invocation import TargetOptions

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster

_PATIENCE_S = 1.0
_OFFERED_MAX = 200


def complete_topics(ctx: Context, incomplete: str) -> list[str]:
    """Offer the names of topics."""

    async def names(cluster: Cluster) -> list[str]:
        from engine.admin.topics.access import topic_reader

        return [entry.topic for entry in await (await topic_reader(cluster)).names()]

    return _offered(names, ctx.params, incomplete)


def complete_brokers(ctx: Context, incomplete: str) -> list[str]:
    """Offer the ids of live brokers."""

    async def ids(cluster: Cluster) -> list[str]:
        from engine.admin.cluster.members import read_members

        return [str(broker.id) for broker in (await read_members(cluster)).brokers]

    return _offered(ids, ctx.params, incomplete)


def complete_groups(ctx: Context, incomplete: str) -> list[str]:
    """Offer the ids of consumer groups."""

    async def names(cluster: Cluster) -> list[str]:
        from engine.admin.groups.describing import list_consumer_groups, parse_filter

        return [entry.group for entry in (await list_consumer_groups(cluster, parse_filter(None, None))).groups]

    return _offered(names, ctx.params, incomplete)


def complete_profiles(incomplete: str) -> list[str]:
    """Offer the names of profiles."""
    import os

    from engine.admin.cluster.profiles import load_profiles, profiles_path
    from engine.common.errors import KlammError

    try:
        profiles = load_profiles(profiles_path(os.environ)).profiles
    except (KlammError, OSError):
        return []
    return sorted(profile.name for profile in profiles if profile.name.startswith(incomplete))


def one_of(*values: str) -> Callable[[str], list[str]]:
    """Return what offers these values."""

    def offer(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return offer


def _offered(read: Callable[[Cluster], Awaitable[list[str]]], params: Mapping[str, Any], incomplete: str) -> list[str]:
    import asyncio

    from engine.common.errors import KlammError

    try:
        names = asyncio.run(_read(read, params))
    except (KlammError, OSError, TimeoutError, ValueError):
        return []
    return [name for name in names if name.startswith(incomplete)][:_OFFERED_MAX]


async def _read(read: Callable[[Cluster], Awaitable[list[str]]], params: Mapping[str, Any]) -> list[str]:
    import asyncio
    import os
    from pathlib import Path

    from engine.admin.cluster.connection import Cluster
    from engine.admin.cluster.target import resolve_target

    target = resolve_target(TargetOptions.of(params).naming(), os.environ, Path.cwd())
    async with asyncio.timeout(_PATIENCE_S):
        async with Cluster(target, timeout_s=_PATIENCE_S) as cluster:
            return await read(cluster)
