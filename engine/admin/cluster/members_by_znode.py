"""Brokers, controller and cluster id as the znodes tell them."""

from __future__ import annotations

from engine.admin.cluster.members import NO_CONTROLLER, ClusterMembers
from engine.admin.cluster.zookeeper import get_or_none, read_brokers
from engine.zk.client import ZkClient
from engine.zk.znodes.cluster_znodes import ClusterIdZNode
from engine.zk.znodes.controller_znodes import ControllerEpochZNode, ControllerZNode


async def read_members_zk(zk: ZkClient) -> ClusterMembers:
    """Return who is in the cluster; without a controller its id is -1."""
    cluster_id = await get_or_none(zk, ClusterIdZNode.path)
    controller = await get_or_none(zk, ControllerZNode.path)
    controller_epoch = await get_or_none(zk, ControllerEpochZNode.path)
    return ClusterMembers(
        cluster_id=None if cluster_id is None else ClusterIdZNode.decode(cluster_id),
        controller_id=NO_CONTROLLER if controller is None else ControllerZNode.decode(controller).broker_id,
        controller_epoch=None if controller_epoch is None else ControllerEpochZNode.decode(controller_epoch),
        brokers=tuple(registration.broker for registration in await read_brokers(zk)),
    )
