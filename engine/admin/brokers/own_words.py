"""What brokers say about themselves: their APIs, from which the release is guessed, protocol version, log dirs.

It asks all of them at the same time, and reports one that hangs. ZooKeeper adds when they registered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.admin.brokers.releases import release_of
from engine.admin.cluster.asking import FAILURES, answer_limit
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey

_PROTOCOL_KEY = "inter.broker.protocol.version"


@dataclass(frozen=True, slots=True)
class Registered:
    """When a broker registered in ZooKeeper, and its JMX port; None if unknown."""

    at_ms: int | None = None
    jmx_port: int | None = None


@dataclass(frozen=True, slots=True)
class DirSummary:
    """One log dir in short."""

    log_dir: str
    replica_count: int
    size_bytes: int
    total_bytes: int | None
    usable_bytes: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class OfferedApi:
    """One API with the versions that a broker offers; ``name`` is None for one that is not known here."""

    key: int
    name: str | None
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class OwnWords:
    """What a broker says about itself; ``trouble`` if it says nothing."""

    release: str | None = None
    inter_broker_protocol: str | None = None
    apis: tuple[OfferedApi, ...] = ()
    log_dirs: tuple[DirSummary, ...] | None = None
    trouble: str | None = None


async def ask_brokers(cluster: Cluster, brokers: Iterable[int]) -> dict[int, OwnWords]:
    """Return what each of these live brokers tells."""
    chosen = list(brokers)
    if not chosen:
        return {}
    try:
        # Open it once for all: each task below would open its own.
        await (await cluster.wire()).nodes()
    except AdminError as error:
        return dict.fromkeys(chosen, OwnWords(trouble=str(error)))
    async with asyncio.TaskGroup() as group:
        tasks = {one: group.create_task(_ask(cluster, one), name=f"describe-{one}") for one in chosen}
    return {one: task.result() for one, task in tasks.items()}


async def _ask(cluster: Cluster, broker: int) -> OwnWords:
    """Return what a broker tells within its time; if it falls silent, what it has told until then."""
    wire = await cluster.wire()
    words = OwnWords()
    try:
        async with answer_limit(wire, broker):
            client = await wire.client_of(broker)
            # Asked for once per connection; a broken connection becomes an error of this layer.
            await wire.version(client, ApiKey.API_VERSIONS)
            offered = await client.api_versions()
            apis = tuple(OfferedApi(key, _api_name(key), low, high) for key, (low, high) in sorted(offered.items()))
            words = OwnWords(release_of(offered), apis=apis)
            words = replace(words, inter_broker_protocol=await _protocol_version(cluster, broker))
            words = replace(words, log_dirs=await _dirs(cluster, broker))
    except FAILURES as error:
        return replace(words, trouble=str(error))
    return words


async def _protocol_version(cluster: Cluster, broker: int) -> str | None:
    """Return the broker's inter.broker.protocol.version; None if it does not tell."""
    from engine.admin.cluster.errors import Refused
    from engine.kafka.protocol.apis.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResponse,
    )

    resource = DescribeConfigsResource(resource_type=4, resource_name=str(broker), configuration_keys=[_PROTOCOL_KEY])
    try:
        response: DescribeConfigsResponse = await (await cluster.wire()).call_broker(
            broker, DescribeConfigsRequest(resources=[resource])
        )
    except Refused as error:
        cluster.observe(f"broker {broker} does not tell its protocol version: {error}")
        return None
    return next((c.value for r in response.results for c in r.configs if c.name == _PROTOCOL_KEY), None)


async def _dirs(cluster: Cluster, broker: int) -> tuple[DirSummary, ...] | None:
    from engine.admin.log_dirs.describing import read_log_dirs

    (*found,) = await read_log_dirs(cluster, [broker])
    if any(one.log_dir is None for one in found):
        return None
    return tuple(
        DirSummary(one.log_dir or "", one.replica_count, one.size_bytes, one.total_bytes, one.usable_bytes, one.error)
        for one in found
    )


def _api_name(key: int) -> str | None:
    return next((spec.name for known, spec in API_SPECS.items() if int(known) == key), None)
