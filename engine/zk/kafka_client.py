"""Kafka's operations on ZooKeeper, all in one place.

Each method is documented where it is written: in ``brokers``, ``cluster``, ``controller``, ``topics``, ``partitions``,
``configs``, ``consumers``, ``admin_nodes`` and ``notifications`` of this package. What the controller writes takes
``epoch_zk_version``, the version of ``/controller_epoch`` that it was elected with; a write that finds another one
raises ControllerMoved.

Reads arm the watch callbacks registered for their znodes (``watch_data`` and ``watch_children`` of ``client``).
"""

from __future__ import annotations

from engine.common.clock import Clock, SystemClock
from engine.zk.acl_policy import AclPolicy
from engine.zk.admin_nodes import AdminZnodes
from engine.zk.brokers import BrokerZnodes
from engine.zk.client import ZkClient
from engine.zk.cluster import ClusterZnodes
from engine.zk.configs import ConfigZnodes
from engine.zk.consumers import ConsumerZnodes
from engine.zk.controller import ControllerZnodes
from engine.zk.notifications import NotificationZnodes
from engine.zk.partitions import PartitionZnodes
from engine.zk.topics import TopicZnodes


class KafkaZkClient(
    ClusterZnodes,
    BrokerZnodes,
    ControllerZnodes,
    TopicZnodes,
    PartitionZnodes,
    ConfigZnodes,
    ConsumerZnodes,
    AdminZnodes,
    NotificationZnodes,
):
    """A Kafka cluster's ZooKeeper side, over one ZkClient: the operations of all subjects, under one name.

    Args:
        client: an open client; ``close`` closes it.
        is_secure: ``zookeeper.set.acl``: new znodes get access lists.
        clock: for the timestamps that Kafka writes into znodes.
    """

    def __init__(self, client: ZkClient, *, is_secure: bool = False, clock: Clock | None = None) -> None:
        policy = AclPolicy(is_secure)
        BrokerZnodes.__init__(self, client, policy)
        ControllerZnodes.__init__(self, client, policy, clock or SystemClock())
        for subject in (
            ClusterZnodes,
            TopicZnodes,
            PartitionZnodes,
            ConfigZnodes,
            ConsumerZnodes,
            AdminZnodes,
            NotificationZnodes,
        ):
            subject.__init__(self, client, policy)
        self.client = client
        self.close = client.close
