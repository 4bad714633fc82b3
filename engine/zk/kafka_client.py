"""Kafka's operations on ZooKeeper, all in one place: the table of what there is, by subject.

Each method is documented where it is written: in ``brokers``, ``cluster``, ``controller``, ``topics``, ``partitions``,
``configs``, ``admin_nodes`` and ``notifications`` of this package. What the controller writes takes
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
from engine.zk.controller import ControllerZnodes
from engine.zk.notifications import NotificationZnodes
from engine.zk.partitions import PartitionZnodes
from engine.zk.topics import TopicZnodes


class KafkaZkClient:
    """A Kafka cluster's ZooKeeper side, over one ZkClient.

    Args:
        client: an open client; ``close`` closes it.
        is_secure: ``zookeeper.set.acl``: new znodes get access lists.
        clock: for the timestamps that Kafka writes into znodes.
    """

    def __init__(self, client: ZkClient, *, is_secure: bool = False, clock: Clock | None = None) -> None:
        self.client = client
        self.close = client.close
        policy = AclPolicy(is_secure)
        self._take_from_cluster(ClusterZnodes(client, policy))
        self._take_from_brokers(BrokerZnodes(client, policy))
        self._take_from_controller(ControllerZnodes(client, policy, clock or SystemClock()))
        self._take_from_topics(TopicZnodes(client, policy))
        self._take_from_partitions(PartitionZnodes(client, policy))
        self._take_from_configs(ConfigZnodes(client, policy))
        self._take_from_admin(AdminZnodes(client, policy))
        self._take_from_notifications(NotificationZnodes(client, policy))

    def _take_from_cluster(self, cluster: ClusterZnodes) -> None:
        self.make_persistent_paths = cluster.make_persistent_paths
        self.get_cluster_id = cluster.get_cluster_id
        self.get_or_create_cluster_id = cluster.get_or_create_cluster_id
        self.get_features = cluster.get_features
        self.set_up_features = cluster.set_up_features
        self.get_producer_id_block = cluster.get_producer_id_block
        self.allocate_producer_id_block = cluster.allocate_producer_id_block

    def _take_from_brokers(self, brokers: BrokerZnodes) -> None:
        self.register_broker = brokers.register_broker
        self.update_broker_registration = brokers.update_broker_registration
        self.get_broker_ids = brokers.get_broker_ids
        self.get_broker = brokers.get_broker
        self.get_broker_registrations = brokers.get_broker_registrations
        self.get_all_brokers_with_epochs = brokers.get_all_brokers_with_epochs
        self.generate_broker_id = brokers.generate_broker_id

    def _take_from_controller(self, controller: ControllerZnodes) -> None:
        self.elect_controller = controller.elect_controller
        self.get_controller_id = controller.get_controller_id
        self.get_controller_registration = controller.get_controller_registration
        self.get_controller_epoch = controller.get_controller_epoch
        self.delete_controller = controller.delete_controller

    def _take_from_topics(self, topics: TopicZnodes) -> None:
        self.get_all_topics = topics.get_all_topics
        self.topic_exists = topics.topic_exists
        self.get_topic_assignments = topics.get_topic_assignments
        self.read_topics = topics.read_topics
        self.get_topic_ids = topics.get_topic_ids
        self.create_topic_assignment = topics.create_topic_assignment
        self.set_topic_assignment = topics.set_topic_assignment
        self.set_topic_assignments = topics.set_topic_assignments
        self.delete_topic_znode = topics.delete_topic_znode
        self.delete_topic_configs = topics.delete_topic_configs

    def _take_from_partitions(self, partitions: PartitionZnodes) -> None:
        self.get_partition_states = partitions.get_partition_states
        self.get_partition_ids = partitions.get_partition_ids
        self.create_partition_states = partitions.create_partition_states
        self.update_partition_states = partitions.update_partition_states
        self.write_partition_state = partitions.write_partition_state

    def _take_from_configs(self, configs: ConfigZnodes) -> None:
        self.get_entity_configs = configs.get_entity_configs
        self.get_entities_configs = configs.get_entities_configs
        self.get_topic_configs = configs.get_topic_configs
        self.get_entity_names = configs.get_entity_names
        self.set_entity_configs = configs.set_entity_configs
        self.delete_entity_configs = configs.delete_entity_configs
        self.change_entity_configs = configs.change_entity_configs
        self.create_config_change_notification = configs.create_config_change_notification
        self.get_config_changes = configs.get_config_changes
        self.delete_config_changes = configs.delete_config_changes

    def _take_from_admin(self, admin: AdminZnodes) -> None:
        self.get_topic_deletions = admin.get_topic_deletions
        self.is_topic_marked_for_deletion = admin.is_topic_marked_for_deletion
        self.create_topic_deletion = admin.create_topic_deletion
        self.delete_topic_deletions = admin.delete_topic_deletions
        self.get_reassignments = admin.get_reassignments
        self.create_reassignments = admin.create_reassignments
        self.set_reassignments = admin.set_reassignments
        self.get_preferred_election = admin.get_preferred_election
        self.create_preferred_election = admin.create_preferred_election
        self.delete_preferred_election = admin.delete_preferred_election

    def _take_from_notifications(self, notifications: NotificationZnodes) -> None:
        self.get_isr_change_notifications = notifications.get_isr_change_notifications
        self.delete_isr_change_notifications = notifications.delete_isr_change_notifications
        self.propagate_isr_changes = notifications.propagate_isr_changes
        self.get_log_dir_events = notifications.get_log_dir_events
        self.delete_log_dir_events = notifications.delete_log_dir_events
        self.propagate_log_dir_event = notifications.propagate_log_dir_event
