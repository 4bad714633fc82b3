"""A whole cluster described in a few numbers, as ``klamm cluster describe`` shows it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.members import BrokerDescription, read_members
from engine.admin.topics.access import topic_reader


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster in a few numbers. ``controller_id`` -1 is none."""

    cluster_id: str | None
    controller_id: int
    controller_epoch: int | None
    brokers: list[BrokerDescription]
    topic_count: int
    zookeeper: str | None
    told_by: str


async def describe_cluster(cluster: Cluster) -> ClusterDescription:
    """Return the cluster in a few numbers."""
    members = await read_members(cluster)
    topics = await (await topic_reader(cluster)).names()
    return ClusterDescription(
        members.cluster_id,
        members.controller_id,
        members.controller_epoch,
        members.descriptions,
        len(topics),
        cluster.target.zookeeper,
        cluster.source.value,
    )
