"""The members of a cluster: brokers, controller and cluster id, from the znodes or over the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import no_live_broker
from engine.admin.cluster.target import Source
from engine.common.model import NO_CONTROLLER, BrokerInfo, Endpoint, SecurityProtocol

if TYPE_CHECKING:
    from engine.admin.cluster.wire import WireCluster
    from engine.kafka.zk.client import ZkClient


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """One live broker; only ZooKeeper knows its epoch and all its listeners."""

    id: int
    host: str | None
    port: int | None
    rack: str | None
    controller: bool
    endpoints: tuple[str, ...]
    broker_epoch: int | None


@dataclass(frozen=True, slots=True)
class ClusterMembers:
    """The live brokers, and which one is the controller. What the source does not report is None."""

    cluster_id: str | None
    controller_id: int
    controller_epoch: int | None
    brokers: tuple[BrokerInfo, ...]

    @property
    def descriptions(self) -> list[BrokerDescription]:
        return [_describe(broker, self.controller_id) for broker in self.brokers]


async def read_members(cluster: Cluster) -> ClusterMembers:
    match cluster.source:
        case Source.SNAPSHOT:
            snapshot = cluster.snapshot()
            return ClusterMembers(
                snapshot.cluster_id, snapshot.controller_id, snapshot.controller_epoch, snapshot.brokers
            )
        case Source.ZOOKEEPER:
            return await _read_by_znode(await cluster.zookeeper())
        case Source.WIRE:
            protocol = cluster.target.client_properties.security_protocol
            return await _read_by_wire(await cluster.wire(), protocol)


async def check_broker_lives(cluster: Cluster, broker_id: int) -> None:
    """Raise NotFound if no live broker has this id."""
    live = [broker.id for broker in (await read_members(cluster)).brokers]
    if broker_id not in live:
        raise no_live_broker(broker_id, live)


async def holds_replicas(cluster: Cluster, broker_id: int) -> bool:
    """Whether a broker has replicas: so one that is not alive is dead, rather than unknown."""
    match cluster.source:
        case Source.SNAPSHOT:
            topics = cluster.snapshot().topics
            return any(broker_id in partition.replicas for topic in topics for partition in topic.partitions)
        case Source.ZOOKEEPER:
            from engine.kafka.zk.kafka_client import KafkaZkClient
            from engine.kafka.zk.topics import TopicIdReplicaAssignment

            kafka = KafkaZkClient(await cluster.zookeeper())
            topic_reads = (await kafka.topics.read_topics(await kafka.topics.get_all_topics())).values()
            return any(
                broker_id in assignment.replicas
                for topic in topic_reads
                if isinstance(topic, TopicIdReplicaAssignment)
                for assignment in topic.by_partition().values()
            )
        case Source.WIRE:
            answer = await (await cluster.wire()).metadata(None)
            return any(
                broker_id in partition.replica_nodes for topic in answer.topics for partition in topic.partitions
            )


async def _read_by_znode(zk: ZkClient) -> ClusterMembers:
    from engine.admin.cluster.zookeeper import read_brokers
    from engine.kafka.zk.kafka_client import KafkaZkClient

    kafka = KafkaZkClient(zk)
    cluster_id = await kafka.cluster.get_cluster_id()
    controller_id = await kafka.controller.get_controller_id()
    epoch = await kafka.controller.get_controller_epoch()
    return ClusterMembers(
        cluster_id=cluster_id,
        controller_id=NO_CONTROLLER if controller_id is None else controller_id,
        controller_epoch=None if epoch is None else epoch.controller_epoch,
        brokers=tuple(registration.broker for registration in await read_brokers(zk)),
    )


async def _read_by_wire(wire: WireCluster, protocol: SecurityProtocol) -> ClusterMembers:
    response = await wire.metadata([])
    brokers = sorted(response.brokers, key=lambda broker: broker.node_id)
    return ClusterMembers(
        response.cluster_id,
        response.controller_id,
        None,
        tuple(BrokerInfo(b.node_id, (Endpoint.of_protocol(b.host, b.port, protocol),), b.rack) for b in brokers),
    )


def _describe(broker: BrokerInfo, controller_id: int) -> BrokerDescription:
    first = broker.endpoints[0] if broker.endpoints else None
    return BrokerDescription(
        id=broker.id,
        host=None if first is None else first.host,
        port=None if first is None else first.port,
        rack=broker.rack,
        controller=broker.id == controller_id,
        endpoints=tuple(str(endpoint) for endpoint in broker.endpoints),
        broker_epoch=None if broker.broker_epoch < 0 else broker.broker_epoch,
    )
