"""Asks a cluster how much its brokers carry. Sizes are told by the brokers alone; who is silent is left out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from engine.admin.brokers.load import (
    BrokerLoad,
    LoadOfPlan,
    Replicas,
    bytes_to_copy,
    load_of_brokers,
    load_of_plan,
    sizes_of_brokers,
    sizes_of_partitions,
)
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.cluster.members import read_members
from engine.admin.cluster.snapshot_file import load_snapshot
from engine.admin.topics.access import topic_reader
from engine.admin.topics.describing import read_selected, topic_not_found
from engine.admin.topics.selection import TopicSelection
from engine.common.model import TopicPartition

if TYPE_CHECKING:
    from engine.admin.brokers.log_dirs import LogDir

SIZES_WITHIN_S = 5.0
"""A plan is shown without sizes where they take longer."""

ONE_WITHIN_S = 3.0
"""So long one broker may take: the others' sizes are to be there in time."""


async def read_broker_load(cluster: Cluster, selection: TopicSelection) -> list[BrokerLoad]:
    """Return what each broker carries of the chosen topics.

    Raises:
        NotFound: a topic that was named does not exist.
    """
    if cluster.target.snapshot is not None:
        snapshot = load_snapshot(cluster.target.snapshot)
        names = [topic.name for topic in snapshot.topics]
        missing = selection.unmatched(names)
        if missing:
            raise topic_not_found(missing)
        wanted = frozenset(selection.choose(names))
        chosen = [topic for topic in snapshot.topics if topic.name in wanted]
        return load_of_brokers(snapshot.brokers, chosen, sizes_of_brokers(chosen))
    members = await read_members(cluster)
    topics = await read_selected(
        await topic_reader(cluster, on_unknown_settings=cluster.observe), selection, if_exists=False
    )
    named = [TopicPartition(topic.name, p.partition) for topic in topics for p in topic.partitions]
    sizes = await _sizes_of_brokers(cluster, None if selection.is_all else named)
    return load_of_brokers(members.brokers, topics, sizes)


async def read_load_of_plan(
    cluster: Cluster, before: Replicas, after: Replicas, brokers: Iterable[int] = ()
) -> LoadOfPlan:
    """Return what a plan makes of the brokers that have a part in it, and of ``brokers``; bytes where they are told."""
    sizes = await read_sizes(cluster, after)
    return LoadOfPlan(load_of_plan(before, after, sizes, brokers), bytes_to_copy(before, after, sizes))


async def read_sizes(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Return the bytes of partitions; nothing where nobody tells them in good time. Never fails."""
    wanted = frozenset(partitions)
    if cluster.target.snapshot is not None:
        sizes = sizes_of_partitions(load_snapshot(cluster.target.snapshot).topics)
        return {name: size for name, size in sizes.items() if name in wanted}
    found: dict[TopicPartition, int] = {}
    for one in await _log_dirs(cluster, wanted):
        for replica in one.replicas:
            name = TopicPartition(replica.topic, replica.partition)
            found[name] = max(found.get(name, 0), replica.size_bytes)
    return found


async def _sizes_of_brokers(cluster: Cluster, partitions: Iterable[TopicPartition] | None) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for one in await _log_dirs(cluster, partitions):
        if one.log_dir is not None:
            sizes[one.broker] = sizes.get(one.broker, 0) + sum(replica.size_bytes for replica in one.replicas)
    return sizes


async def _log_dirs(cluster: Cluster, partitions: Iterable[TopicPartition] | None) -> list[LogDir]:
    from engine.admin.brokers.log_dirs import read_log_dirs

    try:
        async with asyncio.timeout(SIZES_WITHIN_S):
            return await read_log_dirs(cluster, None, partitions, limit_s=ONE_WITHIN_S)
    except (AdminError, TimeoutError) as error:
        cluster.observe(f"brokers do not tell sizes: {error or 'no answer in time'}")
        return []
