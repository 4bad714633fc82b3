"""What brokers say about themselves: APIs (from which klamm guesses the release), protocol version, log dirs.

It asks all brokers at the same time, and reports one that hangs. ZooKeeper adds the time at which each registered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

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
class SelfReport:
    """What a broker says about itself; ``trouble`` if it says nothing."""

    release: str | None = None
    inter_broker_protocol: str | None = None
    apis: tuple[OfferedApi, ...] = ()
    log_dirs: tuple[DirSummary, ...] | None = None
    trouble: str | None = None


async def ask_brokers(cluster: Cluster, brokers: Iterable[int]) -> dict[int, SelfReport]:
    """Return what each of these live brokers reports about itself."""
    chosen = list(brokers)
    if not chosen:
        return {}
    try:
        # Open it once for all: each task below would open its own.
        await (await cluster.wire()).nodes()
    except AdminError as error:
        return dict.fromkeys(chosen, SelfReport(trouble=str(error)))
    async with asyncio.TaskGroup() as group:
        tasks = {
            broker_id: group.create_task(_ask(cluster, broker_id), name=f"describe-{broker_id}") for broker_id in chosen
        }
    return {broker: task.result() for broker, task in tasks.items()}


async def _ask(cluster: Cluster, broker: int) -> SelfReport:
    """Return what a broker reports within its time; if it falls silent, what it had reported until then."""
    wire = await cluster.wire()
    report = SelfReport()
    try:
        async with answer_limit(wire, broker):
            client = await wire.client_of(broker)
            # Asked for once per connection; a broken connection becomes an error of this layer.
            await wire.version(client, ApiKey.API_VERSIONS)
            offered = await client.api_versions()
            apis = tuple(OfferedApi(key, _api_name(key), low, high) for key, (low, high) in sorted(offered.items()))
            report = SelfReport(release_of(offered), apis=apis)
            report = replace(report, inter_broker_protocol=await _protocol_version(cluster, broker))
            report = replace(report, log_dirs=await _dirs(cluster, broker))
    except FAILURES as error:
        return replace(report, trouble=str(error))
    return report


async def _protocol_version(cluster: Cluster, broker: int) -> str | None:
    """Return the broker's inter.broker.protocol.version; None if it does not report it."""
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
        cluster.observe(f"broker {broker} does not report its protocol version: {error}")
        return None
    return next((c.value for r in response.results for c in r.configs if c.name == _PROTOCOL_KEY), None)


async def _dirs(cluster: Cluster, broker: int) -> tuple[DirSummary, ...] | None:
    from engine.admin.log_dirs.describing import read_log_dirs

    (*log_dirs,) = await read_log_dirs(cluster, [broker])
    if any(log_dir.log_dir is None for log_dir in log_dirs):
        return None
    return tuple(
        DirSummary(
            log_dir.log_dir or "",
            log_dir.replica_count,
            log_dir.size_bytes,
            log_dir.total_bytes,
            log_dir.usable_bytes,
            log_dir.error,
        )
        for log_dir in log_dirs
    )


def _api_name(key: int) -> str | None:
    return next((spec.name for known, spec in API_SPECS.items() if int(known) == key), None)


# A broker's release, guessed from the APIs that it offers: brokers do not report their version.
#
# An API, or a version of one, that a release was the first to have identifies it. A release that added nothing looks
# like the one before.

_MARKS: tuple[tuple[str, ApiKey, int], ...] = (
    ("4.2", ApiKey.OFFSET_FETCH, 10),
    ("4.1", ApiKey.FETCH, 18),
    ("4.0", ApiKey.METADATA, 13),
    ("3.9", ApiKey.FETCH, 17),
    ("3.8", ApiKey.LIST_GROUPS, 5),
    ("3.7", ApiKey.FETCH, 16),
    ("3.5", ApiKey.FETCH, 15),
    ("3.4", ApiKey.LEADER_AND_ISR, 7),
    ("3.3", ApiKey.DESCRIBE_LOG_DIRS, 4),
    ("3.2", ApiKey.LEADER_AND_ISR, 6),
    ("3.1", ApiKey.FETCH, 13),
    ("3.0", ApiKey.LIST_OFFSETS, 7),
    ("2.8", ApiKey.DESCRIBE_CLUSTER, 0),
    ("2.7", ApiKey.FETCH, 12),
    ("2.6", ApiKey.DESCRIBE_CLIENT_QUOTAS, 0),
    ("2.5", ApiKey.SASL_AUTHENTICATE, 2),
    ("2.4", ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0),
    ("2.3", ApiKey.INCREMENTAL_ALTER_CONFIGS, 0),
    ("2.2", ApiKey.ELECT_LEADERS, 0),
    ("2.1", ApiKey.FETCH, 10),
    ("2.0", ApiKey.FETCH, 8),
    ("1.1", ApiKey.FETCH, 7),
    ("1.0", ApiKey.FETCH, 6),
    ("0.11", ApiKey.FETCH, 5),
    ("0.10.2", ApiKey.CREATE_TOPICS, 1),
    ("0.10.1", ApiKey.CREATE_TOPICS, 0),
    ("0.10.0", ApiKey.API_VERSIONS, 0),
)
"""From new to old. Sources: the request schemas of Kafka, whose comments name the release or the KIP."""


def release_of(offered: Mapping[int, tuple[int, int]]) -> str | None:
    """Return the Kafka release that offers these APIs, (lowest, highest) by API key; None if no known one does."""
    for release, key, version in _MARKS:
        if offered.get(int(key), (0, -1))[1] >= version:
            return release
    return None
