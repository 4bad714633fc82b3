"""Who is in the cluster: brokers, controller, cluster id; from the znodes or from the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import NotFound
from engine.admin.cluster.target import Side
from engine.common.model import NO_CONTROLLER, BrokerInfo, Endpoint, SecurityProtocol
from engine.common.snapshot import ClusterSnapshot

if TYPE_CHECKING:
    from engine.zk.client import ZkClient


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """One live broker; epoch and all listeners only as ZooKeeper tells them."""

    id: int
    host: str | None
    port: int | None
    rack: str | None
    controller: bool
    endpoints: tuple[str, ...]
    broker_epoch: int | None


@dataclass(frozen=True, slots=True)
class ClusterMembers:
    """The live brokers, and who controls them. What the source does not tell is None."""

    cluster_id: str | None
    controller_id: int
    controller_epoch: int | None
    brokers: tuple[BrokerInfo, ...]

    @property
    def descriptions(self) -> list[BrokerDescription]:
        return [_describe(broker, self.controller_id) for broker in self.brokers]


async def read_members(cluster: Cluster) -> ClusterMembers:
    """Return who is in the cluster, from a snapshot, ZooKeeper or the wire."""
    if cluster.target.snapshot is not None:
        from engine.admin.cluster.snapshot_file import load_snapshot

        return members_of(load_snapshot(cluster.target.snapshot))
    if cluster.reads_from is Side.ZOOKEEPER:
        return await _read_by_znode(await cluster.zookeeper())
    wire = await cluster.wire()
    response = await wire.metadata([])
    brokers = sorted(response.brokers, key=lambda broker: broker.node_id)
    return ClusterMembers(
        response.cluster_id,
        response.controller_id,
        None,
        tuple(BrokerInfo(b.node_id, (_plain(b.host, b.port),), b.rack) for b in brokers),
    )


async def check_broker_lives(cluster: Cluster, broker_id: int) -> None:
    """Raise NotFound where no live broker has this id."""
    live = [broker.id for broker in (await read_members(cluster)).brokers]
    if broker_id not in live:
        known = ", ".join(map(str, live)) or "none"
        raise NotFound(f"no live broker has the id {broker_id}", hint=f"live brokers: {known}")


def members_of(snapshot: ClusterSnapshot) -> ClusterMembers:
    """Return the members as a snapshot has them."""
    return ClusterMembers(snapshot.cluster_id, snapshot.controller_id, snapshot.controller_epoch, snapshot.brokers)


async def _read_by_znode(zk: ZkClient) -> ClusterMembers:
    from engine.admin.cluster.zookeeper import get_or_none, read_brokers
    from engine.zk.znodes.cluster_znodes import ClusterIdZNode
    from engine.zk.znodes.controller_znodes import ControllerEpochZNode, ControllerZNode

    cluster_id = await get_or_none(zk, ClusterIdZNode.path)
    controller = await get_or_none(zk, ControllerZNode.path)
    controller_epoch = await get_or_none(zk, ControllerEpochZNode.path)
    return ClusterMembers(
        cluster_id=None if cluster_id is None else ClusterIdZNode.decode(cluster_id),
        controller_id=NO_CONTROLLER if controller is None else ControllerZNode.decode(controller).broker_id,
        controller_epoch=None if controller_epoch is None else ControllerEpochZNode.decode(controller_epoch),
        brokers=tuple(registration.broker for registration in await read_brokers(zk)),
    )


def _plain(host: str, port: int) -> Endpoint:
    return Endpoint(host, port, "PLAINTEXT", SecurityProtocol.PLAINTEXT)


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
