"""Applies settings that change at run time to a broker's parts."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from engine.broker.log.log_manager import LogManager
from engine.broker.network.connection_rates import ConnectionRates, CreationLimits
from engine.broker.network.server import SocketServer
from engine.broker.quotas.client_quotas import ClientQuotas
from engine.broker.replication.replica_manager import ReplicaManager
from engine.broker.replication.throttle import ALL_REPLICAS
from engine.broker.server.settings import (
    address_limits,
    address_of,
    creation_limits,
    is_address,
    listener_limits,
    protected_listeners,
)
from engine.common.errors import ConfigError
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic import DEFAULT_ENTITY, IPS, DynamicConfigs
from engine.kafka.config.dynamic_keys import Throttles
from engine.kafka.config.log_config import LogConfig
from engine.kafka.config.quota_keys import QuotaKey, parse_quota
from engine.kafka.config.values import java_integer
from engine.kafka.zk.configs import desanitized
from engine.runtime.offload import in_daemon_thread
from engine.runtime.turns import begin

logger = logging.getLogger(__name__)

T = TypeVar("T")


def follow_settings(
    configs: DynamicConfigs,
    logs: LogManager,
    replicas: ReplicaManager,
    enable_unclean_election: Callable[[str | None], None],
) -> None:
    """Make logs, replicas and controller follow the settings.

    They first get the changes made while logs were loading, which may have taken hours.
    ``enable_unclean_election`` makes an active controller elect leaders where there are none: for a topic, or (None)
    for all.
    """

    def own(throttled: tuple[str, ...]) -> frozenset[int]:
        """Return this broker's partitions of a ``…replication.throttled.replicas`` list (``partition:broker``)."""
        if "*" in throttled:
            return ALL_REPLICAS
        pairs = [map(java_integer, entry.split(":")) for entry in throttled]
        own_id = configs.static.broker_id
        return frozenset(partition for partition, broker in pairs if partition is not None and broker == own_id)

    def topic_changed(topic: str, config: LogConfig) -> None:
        logs.update_topic_config(topic, config)
        replicas.leader_quota.throttle(topic, own(config.leader_replication_throttled_replicas))
        replicas.follower_quota.throttle(topic, own(config.follower_replication_throttled_replicas))
        if config.unclean_leader_election_enable:
            enable_unclean_election(topic)

    def unclean_election_changed(is_enabled: bool) -> None:
        if is_enabled:
            enable_unclean_election(None)

    def rates_changed(throttles: Throttles) -> None:
        replicas.leader_quota.rate_bytes_max = throttles.leader_replication_throttled_rate
        replicas.follower_quota.rate_bytes_max = throttles.follower_replication_throttled_rate
        replicas.log_dir_moves.quota.rate_bytes_max = throttles.replica_alter_log_dirs_io_max_bytes_per_second

    configs.follow_topics(topic_changed)
    configs.follow(lambda: configs.log_defaults, lambda _: begin(logs.config_steps()))
    configs.follow(lambda: configs.current.num_replica_fetchers, replicas.fetchers.resize)
    configs.follow(lambda: configs.current.unclean_leader_election_enable, unclean_election_changed)
    configs.follow(lambda: configs.current, lambda current: set_log_settings(logs, current))
    configs.follow(lambda: configs.throttles, rates_changed)


def set_log_settings(log_manager: LogManager, config: BrokerConfig) -> None:
    """Give the log manager those of its settings that may change while the broker runs."""
    log_manager.update_settings(
        num_recovery_threads_per_data_dir=config.num_recovery_threads_per_data_dir,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        log_segment_delete_delay_ms=config.log_segment_delete_delay_ms,
        transaction_partition_verification_enable=config.transaction_partition_verification_enable,
    )


class _HostsInOrder:
    """Looks up the hosts in settings, and applies these in the order in which they were set.

    A thread looks names up: a name server may be silent for half a minute, in which the loop would serve no client.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], bool]] = deque()
        """Each begins its turn, and says whether a thread looks names up for it."""

    def take(self, hosts: Iterable[str], look_up: Callable[[], T], apply: Callable[[Callable[[], T]], None]) -> None:
        """Call ``apply`` with what returns or raises as ``look_up`` has; now, if these hosts are all addresses."""
        are_names = not all(map(is_address, hosts))

        def end(outcome: Callable[[], T]) -> None:
            try:
                apply(outcome)
            except Exception:
                # Those behind it have their turn all the same.
                logger.exception("A setting that names hosts has no effect")
            self._waiting.popleft()

        def found(future: asyncio.Future[T]) -> None:
            end(future.result)
            self._go_on()

        def begin() -> bool:
            if are_names:
                in_daemon_thread(look_up, "names of hosts").add_done_callback(found)
            else:
                end(look_up)
            return are_names

        self._waiting.append(begin)
        if len(self._waiting) == 1:
            self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self._waiting[0]():
            pass


def follow_quotas(configs: DynamicConfigs, quotas: ClientQuotas, rates: ConnectionRates) -> None:
    """Make the quotas of users, client ids and addresses follow what is set."""
    hosts = _HostsInOrder()

    def limit_address(name: str, text: str | None, address: Callable[[], str | None]) -> None:
        try:
            limit = None if text is None else int(parse_quota(QuotaKey.CONNECTION_RATE, text))
            rates.limit_address(address(), limit)
        except (ValueError, OSError) as error:
            logger.warning("Ignoring %s=%s of ips/%s: %s", QuotaKey.CONNECTION_RATE, text, name, error)

    def changed(folder: str, name: str, texts: Mapping[str, str]) -> None:
        if folder != IPS:
            quotas.update(folder, name, texts)
            return
        host = None if name == DEFAULT_ENTITY else desanitized(name)
        hosts.take(
            () if host is None else (host,),
            lambda: None if host is None else address_of(host),
            partial(limit_address, name, texts.get(QuotaKey.CONNECTION_RATE)),
        )

    configs.follow_clients(changed)


def follow_limits(configs: DynamicConfigs, network: SocketServer) -> None:
    """Make ``network``, which has the static connection limits, follow the current limits and their changes."""
    hosts = _HostsInOrder()

    def limit_addresses(limits: Callable[[], Mapping[str, int]]) -> None:
        try:
            network.change_limits(max_connections_per_ip_overrides=limits())
        except ConfigError as error:
            logger.warning("The connection limits by address stay as they were: %s", error)

    def overrides_changed(overrides: Mapping[str, int]) -> None:
        hosts.take(overrides, lambda: address_limits(overrides), limit_addresses)

    def limits_changed(limits: tuple[int, int]) -> None:
        network.change_limits(max_connections=limits[0], max_connections_per_ip=limits[1])

    def listeners_changed(own: tuple[Mapping[str, int], CreationLimits]) -> None:
        network.rates.limits = own[1]
        network.change_limits(max_connections_of_listeners=own[0])

    def protected_changed(listeners: frozenset[str]) -> None:
        network.rates.protected = listeners
        network.change_limits(protected_listeners=listeners)

    configs.follow(lambda: configs.current.max_connections_per_ip_overrides, overrides_changed)
    configs.follow(lambda: (configs.current.max_connections, configs.current.max_connections_per_ip), limits_changed)
    configs.follow(lambda: (listener_limits(configs.current), creation_limits(configs.current)), listeners_changed)
    configs.follow(lambda: protected_listeners(configs.current), protected_changed)
