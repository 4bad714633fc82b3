"""The quorum of KRaft's controllers, as its leader reports it, and a cluster's finalized features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.admin.cluster.asking import FAILURES, beside_limit_s
from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.wire import WireCluster
from engine.common.version import VERSION
from engine.kafka.client.broker_client import CLIENT_SOFTWARE_NAME
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from engine.kafka.protocol.apis.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartitionAsked,
    QuorumReplica,
    QuorumTopicAsked,
)

_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class QuorumMember:
    """A controller that votes, or a broker that follows. ``lag`` counts records behind the leader."""

    id: int
    is_voter: bool
    is_leader: bool
    log_end_offset: int
    lag: int
    last_caught_up_ms: int | None
    """When it last had everything; None: it did not say, or never."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """Which controller leads the metadata log, and up to which offset each of the others has it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    members: tuple[QuorumMember, ...]


@dataclass(frozen=True, slots=True)
class FinalizedFeature:
    """A feature that is in force in the whole cluster, at a level."""

    name: str
    level: int


async def read_quorum(wire: WireCluster) -> Quorum:
    """Return the quorum of a cluster without ZooKeeper.

    Raises:
        Unreachable: the leader is unknown: without a majority of its controllers a quorum has none.
    """
    asked = QuorumTopicAsked(topic_name=_TOPIC, partitions=[QuorumPartitionAsked(partition_index=0)])
    response: DescribeQuorumResponse = await wire.call_any(
        DescribeQuorumRequest(topics=[asked]), limit_s=beside_limit_s(wire)
    )
    partitions = [partition for topic in response.topics for partition in topic.partitions if not partition.error_code]
    if response.error_code or not partitions:
        raise Unreachable("the brokers know no leader of the quorum")
    (partition,) = partitions
    ends = [voter.log_end_offset for voter in partition.current_voters if voter.replica_id == partition.leader_id]
    end = max(ends, default=partition.high_watermark)
    voters = _members(partition.current_voters, partition.leader_id, end, is_voter=True)
    observers = _members(partition.observers, partition.leader_id, end, is_voter=False)
    return Quorum(partition.leader_id, partition.leader_epoch, partition.high_watermark, (*voters, *observers))


async def read_finalized_features(wire: WireCluster) -> tuple[FinalizedFeature, ...]:
    """Return the finalized features by name; brokers before 2.7 know of none."""
    try:
        response: ApiVersionsResponse = await wire.call_any(
            ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=VERSION),
            limit_s=beside_limit_s(wire),
        )
    except FAILURES:
        return ()
    features = (FinalizedFeature(feature.name, feature.max_version_level) for feature in response.finalized_features)
    return tuple(sorted(features, key=lambda feature: feature.name))


def _members(
    replicas: Iterable[QuorumReplica], leader_id: int, end: int, *, is_voter: bool
) -> tuple[QuorumMember, ...]:
    return tuple(
        QuorumMember(
            replica.replica_id,
            is_voter,
            replica.replica_id == leader_id,
            replica.log_end_offset,
            max(0, end - replica.log_end_offset),
            replica.last_caught_up_timestamp if replica.last_caught_up_timestamp > 0 else None,
        )
        for replica in sorted(replicas, key=lambda replica: replica.replica_id)
    )
