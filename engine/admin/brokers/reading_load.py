"""Asks a cluster how much its brokers carry. Only brokers report sizes; a silent broker is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.admin.brokers.access import broker_reader
from engine.admin.brokers.load import BrokerLoad, LoadOfPlan, Replicas, bytes_to_copy, load_of_brokers, load_of_plan
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.members import read_members
from engine.admin.topics.access import topic_reader
from engine.admin.topics.describing import read_selected
from engine.admin.topics.selection import TopicSelection
from engine.common.model import TopicPartition
from engine.common.snapshot import LogDirSnapshot


async def read_broker_load(cluster: Cluster, selection: TopicSelection) -> list[BrokerLoad]:
    """Return what each broker carries of the chosen topics.

    Raises:
        NotFound: a named topic does not exist.
    """
    members = await read_members(cluster)
    reader = await topic_reader(cluster, on_unknown_settings=cluster.observe)
    topics = await read_selected(reader, selection, if_exists=False)
    sizes = await broker_reader(cluster).sizes_of_brokers(None if selection.is_all else topics)
    return load_of_brokers(members.brokers, topics, sizes)


async def read_load_of_plan(
    cluster: Cluster, before: Replicas, after: Replicas, brokers: Iterable[int] = ()
) -> LoadOfPlan:
    """Return the load of a plan's brokers and of ``brokers``, with bytes if they are known."""
    sizes = await read_sizes(cluster, after)
    return LoadOfPlan(load_of_plan(before, after, sizes, brokers), bytes_to_copy(before, after, sizes))


async def read_sizes(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Return the bytes of partitions; nothing if no broker reports them in time. Never fails."""
    return await broker_reader(cluster).sizes(partitions)


async def read_volumes(cluster: Cluster) -> Sequence[LogDirSnapshot]:
    """Return the working log dirs with their free space, without brokers that do not report it. Never fails."""
    return await broker_reader(cluster).volumes()
