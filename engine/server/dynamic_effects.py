"""What a change of settings at run time changes in a broker's parts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from engine.common.errors import ConfigError
from engine.config.broker import BrokerConfig
from engine.config.dynamic import DynamicConfigs
from engine.config.log_config import LogConfig
from engine.network.server import SocketServer
from engine.replication.replica_manager import ReplicaManager
from engine.replication.throttle import ALL_REPLICAS
from engine.server.settings import address_limits
from engine.storage.log_manager import LogManager

logger = logging.getLogger(__name__)


class DynamicEffects:
    """Listens to a broker's DynamicConfigs and hands on what changed."""

    def __init__(
        self,
        configs: DynamicConfigs,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        enable_unclean_election: Callable[[str | None], None],
    ) -> None:
        """``enable_unclean_election`` has the controller elect where nobody leads: for a topic, or (None) for all."""
        self._configs = configs
        self._enable_unclean_election = enable_unclean_election
        self._logs = log_manager
        self._replicas = replica_manager
        self._broker_id = configs.static.broker_id
        configs.topic_listeners.append(self._topic_changed)
        configs.broker_listeners.append(self._broker_changed)
        self._catch_up()

    def _catch_up(self) -> None:
        """Hand on what has changed since the parts were made: logs may have taken hours to load."""
        for topic in self._configs.known_topics:
            self._throttle(topic, self._configs.log_config(topic))
        self._logs.refresh_configs()
        set_log_settings(self._logs, self._configs.current)
        self._replicas.fetchers.resize(self._configs.current.num_replica_fetchers)
        self._set_rates()

    def _topic_changed(self, topic: str, config: LogConfig) -> None:
        self._logs.update_topic_config(topic, config)
        self._throttle(topic, config)
        if config.unclean_leader_election_enable:
            self._enable_unclean_election(topic)

    def _broker_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        self._logs.refresh_configs()
        if new.num_replica_fetchers != old.num_replica_fetchers:
            self._replicas.fetchers.resize(new.num_replica_fetchers)
        if new.unclean_leader_election_enable and not old.unclean_leader_election_enable:
            self._enable_unclean_election(None)
        set_log_settings(self._logs, new)
        self._set_rates()

    def _set_rates(self) -> None:
        self._replicas.leader_quota.rate_bytes_max = self._configs.leader_replication_throttled_rate
        self._replicas.follower_quota.rate_bytes_max = self._configs.follower_replication_throttled_rate
        self._replicas.log_dir_moves.quota.rate_bytes_max = self._configs.alter_log_dirs_throttled_rate

    def _throttle(self, topic: str, config: LogConfig) -> None:
        replicas = self._replicas
        replicas.leader_quota.throttle(topic, self._own(config.leader_replication_throttled_replicas))
        replicas.follower_quota.throttle(topic, self._own(config.follower_replication_throttled_replicas))

    def _own(self, throttled: tuple[str, ...]) -> frozenset[int]:
        """Return this broker's partitions of a ``…replication.throttled.replicas`` list (``partition:broker``)."""
        if "*" in throttled:
            return ALL_REPLICAS
        pairs = [entry.split(":") for entry in throttled]
        return frozenset(int(partition) for partition, broker in pairs if int(broker) == self._broker_id)


def set_log_settings(log_manager: LogManager, config: BrokerConfig) -> None:
    """Hand the log manager those of its settings that may change while the broker runs."""
    log_manager.update_settings(
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        log_segment_delete_delay_ms=config.get_int("log.segment.delete.delay.ms"),
    )


def follow_limits(configs: DynamicConfigs, network: SocketServer) -> None:
    """Have ``network``, made with the static limits of connections, keep to them as they are and change.

    Connections that are open stay.
    """

    def changed(old: BrokerConfig, new: BrokerConfig) -> None:
        limits = network.limits
        if new.max_connections_per_ip_overrides != old.max_connections_per_ip_overrides:
            try:
                limits = replace(
                    limits, max_connections_per_ip_overrides=address_limits(new.max_connections_per_ip_overrides)
                )
            except ConfigError as error:
                logger.warning("The limits of connections by address stay as they were: %s", error)
        network.limits = replace(
            limits, max_connections=new.max_connections, max_connections_per_ip=new.max_connections_per_ip
        )

    configs.broker_listeners.append(changed)
    changed(configs.static, configs.current)
