"""Kafka's operations on ZooKeeper, all in one place.

Each subject is a class in a file of this package: ``brokers``, ``cluster``, ``controller``, ``topics``, ``partitions``,
``configs``, ``consumers``, ``acls``, ``tokens``, ``admin_nodes`` and ``notifications``. The controller's writes take
``epoch_zk_version``, the version of ``/controller_epoch`` from its election; a write that finds another version raises
ControllerMoved.

Reads arm the watch callbacks registered for their znodes (``watch_data`` and ``watch_children`` of ``client``).
"""

from __future__ import annotations

from engine.common.clock import Clock, SystemClock
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.acls import AclZnodes
from engine.kafka.zk.admin_nodes import AdminZnodes
from engine.kafka.zk.brokers import BrokerZnodes
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.cluster import ClusterZnodes
from engine.kafka.zk.configs import ConfigZnodes
from engine.kafka.zk.consumers import ConsumerZnodes
from engine.kafka.zk.controller import ControllerZnodes
from engine.kafka.zk.notifications import NotificationZnodes
from engine.kafka.zk.partitions import PartitionZnodes
from engine.kafka.zk.tokens import TokenZnodes
from engine.kafka.zk.topics import TopicZnodes


class KafkaZkClient:
    """A Kafka cluster's ZooKeeper side, over one ZkClient: an attribute for each subject.

    Args:
        client: an open client; ``close`` closes it. Its security says whether new znodes get access lists.
        clock: for the timestamps that Kafka writes into znodes, and for the wait for a broker id.
    """

    def __init__(self, client: ZkClient, *, clock: Clock | None = None) -> None:
        policy = AclPolicy(client.security.is_protecting)
        clock = clock or SystemClock()
        self.client = client
        self.cluster = ClusterZnodes(client, policy)
        self.brokers = BrokerZnodes(client, policy, clock)
        self.controller = ControllerZnodes(client, policy, clock)
        self.topics = TopicZnodes(client, policy)
        self.partitions = PartitionZnodes(client, policy)
        self.configs = ConfigZnodes(client, policy)
        self.consumers = ConsumerZnodes(client, policy)
        self.acls = AclZnodes(client, policy)
        self.tokens = TokenZnodes(client, policy)
        self.admin = AdminZnodes(client, policy)
        self.notifications = NotificationZnodes(client, policy)
        self.close = client.close
