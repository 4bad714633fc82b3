"""A whole cluster described in a few numbers, as ``klamm cluster describe`` shows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.cluster.members import BrokerDescription, ClusterMembers, read_members
from engine.admin.cluster.target import Source
from engine.admin.log_dirs.describing import note_topics_left_out
from engine.admin.topics.access import topic_reader
from engine.common.model import NO_CONTROLLER

if TYPE_CHECKING:
    from engine.admin.cluster.quorum import FinalizedFeature, Quorum


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster in a few numbers. ``controller_id`` -1 is none; on KRaft it is the quorum's leader."""

    cluster_id: str | None
    controller_id: int
    controller_epoch: int | None
    brokers: list[BrokerDescription]
    topic_count: int
    zookeeper: str | None
    told_by: str
    quorum: Quorum | None = None
    """Of KRaft's controllers; None on a cluster with ZooKeeper."""
    finalized_features: tuple[FinalizedFeature, ...] = ()


async def list_brokers(cluster: Cluster) -> list[BrokerDescription]:
    """Return the live brokers, and which of them is the controller."""
    members, _ = await _members_and_quorum(cluster)
    return members.descriptions


async def describe_cluster(cluster: Cluster, *, tells_hidden: bool = True) -> ClusterDescription:
    """Return the cluster in a few numbers. With ``tells_hidden`` the cluster notes the topics that are not counted."""
    members, quorum = await _members_and_quorum(cluster)
    topics = await (await topic_reader(cluster)).names()
    if tells_hidden:
        await note_topics_left_out(cluster, [entry.topic for entry in topics])
    return ClusterDescription(
        members.cluster_id,
        members.controller_id,
        members.controller_epoch,
        members.descriptions,
        len(topics),
        cluster.target.zookeeper,
        cluster.source.value,
        quorum,
        await _features(cluster) if cluster.source is Source.WIRE else (),
    )


async def _features(cluster: Cluster) -> tuple[FinalizedFeature, ...]:
    from engine.admin.cluster.quorum import read_finalized_features

    return await read_finalized_features(await cluster.wire())


async def _members_and_quorum(cluster: Cluster) -> tuple[ClusterMembers, Quorum | None]:
    """Return who is in the cluster. On KRaft brokers name any broker as the controller, so ask the quorum."""
    members = await read_members(cluster)
    if cluster.source is not Source.WIRE or not await (wire := await cluster.wire()).is_kraft():
        return members, None
    from engine.admin.cluster.quorum import read_quorum

    try:
        quorum = await read_quorum(wire)
    except AdminError as error:
        cluster.complain(f"the leader of the controller quorum is not known: {error}")
        return replace(members, controller_id=NO_CONTROLLER), None
    return replace(members, controller_id=quorum.leader_id, controller_epoch=quorum.leader_epoch), quorum
