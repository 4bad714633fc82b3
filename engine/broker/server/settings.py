"""Turns a broker's configuration into the values that its parts need."""

from __future__ import annotations

import base64
import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address

from engine.broker.controller.channels import ChannelSettings
from engine.broker.controller.options import ControllerOptions
from engine.broker.network.connection_rates import UNLIMITED, CreationLimits
from engine.broker.network.server import BoundListener, ListenerSpec, ServerLimits
from engine.broker.replication.settings import ReplicationSettings, setup_timeouts
from engine.broker.security.authorizer import AUTHORIZERS
from engine.common.errors import ConfigError
from engine.common.model import Endpoint, SecurityProtocol, address_in_java
from engine.common.windowed_rate import Window
from engine.kafka.client.security import Security, plaintext
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.metadata_version import (
    feature_znode_version,
    is_alter_partition_supported,
    is_feature_versioning_supported,
    is_leader_recovery_supported,
    is_topic_id_supported,
)
from engine.kafka.zk.security import ZkSecurity, zk_security
from engine.runtime.descriptors import descriptor_limit, descriptors_for_sockets


def random_cluster_id() -> str:
    """Return a new cluster id: 22 characters of URL-safe base64, as in Kafka."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def quota_window(config: BrokerConfig) -> Window:
    """Return what clients' quotas are averaged over."""
    return Window(config.quota_window_num, config.quota_window_size_seconds * 1000)


def metrics_window(config: BrokerConfig) -> Window:
    """Return over which time the rates and means of Kafka's own metrics are taken."""
    return Window(config.metrics_num_samples, config.metrics_sample_window_ms)


def controller_quota_window(config: BrokerConfig) -> Window:
    """Return what quotas of topic changes are averaged over."""
    return Window(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)


def listener_spec(endpoint: Endpoint) -> ListenerSpec:
    """Return the address to bind for an entry of ``listeners``."""
    return ListenerSpec(endpoint.listener_name, endpoint.host, endpoint.port, int(endpoint.security_protocol))


def advertised(wanted: Sequence[Endpoint], bound: Mapping[str, BoundListener]) -> tuple[Endpoint, ...]:
    """Return the advertised addresses of open listeners: no host becomes this machine's name, port 0 the bound one."""
    return tuple(
        replace(
            endpoint,
            host=endpoint.host or socket.getfqdn(),
            port=endpoint.port or bound[endpoint.listener_name].port,
            security_protocol=SecurityProtocol(bound[endpoint.listener_name].spec.security_protocol),
        )
        for endpoint in wanted
        if endpoint.listener_name in bound
    )


def address_limits(overrides: Mapping[str, int]) -> dict[str, int]:
    """Return limits by address; look up host names once, at start.

    Raises:
        ConfigError: a name does not resolve.
    """
    limits: dict[str, int] = {}
    for host, limit in overrides.items():
        try:
            limits[address_of(host)] = limit
        except (OSError, UnicodeError) as error:
            raise ConfigError(
                f"max.connections.per.ip.overrides: the host '{host}' is unknown "
                f"({getattr(error, 'strerror', None) or error})",
                key="max.connections.per.ip.overrides",
            ) from error
    return limits


def zookeeper_security(config: BrokerConfig) -> ZkSecurity:
    """Return how the broker's session with ZooKeeper is protected; a login is in the JAAS file of ``KAFKA_OPTS``.

    Raises:
        ConfigError: a value cannot be used, or znodes would be protected and nobody would have access.
    """
    security = zk_security(config.originals, os.environ)
    if config.zookeeper_set_acl and not security.identities:
        raise ConfigError(
            "zookeeper.set.acl=true, but this broker has no identity for ZooKeeper: name a JAAS file with a section "
            "Client in KAFKA_OPTS (-Djava.security.auth.login.config=FILE), or set zookeeper.ssl.keystore.location",
            key="zookeeper.set.acl",
        )
    return replace(security, protects=config.zookeeper_set_acl)


def is_address(host: str) -> bool:
    """Return whether a host is named by its address, which nobody has to look up."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def address_of(host: str) -> str:
    """Return a host's address as connections show it; of several, as Java, the first of IPv4 if there is one.

    It blocks while it looks a name up.

    Raises:
        OSError, UnicodeError: its name does not resolve.
    """
    resolved = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    addresses = [str(address[0]) for family, *_, address in resolved if family == socket.AF_INET]
    return addresses[0] if addresses else address_in_java(str(resolved[0][4][0]))


def listener_limits(config: BrokerConfig) -> dict[str, int]:
    """Return how many connections a listener may have, if it has a limit of its own."""
    limits = _of_listeners(config, "max.connections")
    return {listener: limit for listener, limit in limits.items() if limit != config.max_connections}


def creation_limits(config: BrokerConfig) -> CreationLimits:
    """Return how many connections a second may be opened. As in Kafka, the broker's limit is also each listener's."""
    rates = _of_listeners(config, "max.connection.creation.rate")
    own = {listener: limit for listener, limit in rates.items() if limit != UNLIMITED}
    return CreationLimits(config.max_connection_creation_rate, own)


def _of_listeners(config: BrokerConfig, name: str) -> dict[str, int]:
    names = [endpoint.listener_name for endpoint in config.listener_settings.listeners]
    return {listener: limit for listener in names if isinstance(limit := config.for_listener(listener, name), int)}


SUPER_USERS = "super.users"
ALLOWS_WITHOUT_RULES = "allow.everyone.if.no.acl.found"
"""Settings of Kafka's authorizer, not of its broker."""


def check_served(config: BrokerConfig) -> None:
    """Refuse settings that would leave a cluster less protected than they say.

    Raises:
        ConfigError: the authorizer is another than Kafka's for ZooKeeper, or its own settings are wrong; a policy is
            to judge requests, or a class to decide quotas.
    """
    for key, without in (
        (BrokerConfig.create_topic_policy_class_name, "every topic would be allowed"),
        (BrokerConfig.alter_config_policy_class_name, "every change of settings would be allowed"),
        (BrokerConfig.client_quota_callback_class, "clients would have only the quotas that are in ZooKeeper"),
    ):
        if named := key.of(config):
            raise ConfigError(
                f"{key.name}={named} is a Java class, which this broker cannot run, and without it {without}; remove "
                "the setting if that is right",
                key=key.name,
            )
    authorizer = config.authorizer_class_name
    if authorizer and authorizer not in AUTHORIZERS:
        raise ConfigError(
            f"authorizer.class.name={authorizer} is a Java class, which this broker cannot run, and without it "
            f"everybody could do everything; it can do the work of {AUTHORIZERS[0]}",
            key="authorizer.class.name",
        )
    if authorizer:
        super_users(config)
        allows_without_rules(config)
        url = "authorizer.zookeeper.url"
        if config.originals.get(url, config.zookeeper_connect) != config.zookeeper_connect:
            raise ConfigError(f"{url}: this broker keeps access rules where it keeps everything else", key=url)


def super_users(config: BrokerConfig) -> frozenset[str]:
    """Return the principals that no rule restricts. Raises ConfigError: one is not of the form ``User:name``."""
    principals = frozenset(each.strip() for each in config.originals.get(SUPER_USERS, "").split(";") if each.strip())
    for principal in principals:
        kind, _, name = principal.partition(":")
        if not kind or not name:
            raise ConfigError(
                f"{SUPER_USERS}: '{principal}' is not of the form User:name; ';' separates them", key=SUPER_USERS
            )
    return principals


def allows_without_rules(config: BrokerConfig) -> bool:
    """Return whether everybody may use resources without rules. Raises ConfigError: it is neither true nor false."""
    text = config.originals.get(ALLOWS_WITHOUT_RULES, "false").strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{ALLOWS_WITHOUT_RULES}={text} is neither true nor false", key=ALLOWS_WITHOUT_RULES)
    return text == "true"


def metrics_address(config: BrokerConfig) -> tuple[str, int] | None:
    """Return where metrics are served; None: nowhere.

    Raises:
        ConfigError: the text is not an address, or other machines reach the address and that is not allowed.
    """
    key = "klamm.metrics.listener"
    text = config.originals.get(key, "").strip()
    if not text:
        return None
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{key}: '{text}' is not an address; write HOST:PORT, such as 127.0.0.1:7071", key=key)
    allowed = config.originals.get("klamm.metrics.allow.remote", "false").strip().lower()
    if allowed not in ("true", "false"):
        raise ConfigError(
            f"klamm.metrics.allow.remote: '{allowed}' is neither true nor false", key="klamm.metrics.allow.remote"
        )
    if allowed != "true" and not _is_loopback(host):
        raise ConfigError(
            f"{key}: other machines reach {text}, and whoever does may read everything; set "
            "klamm.metrics.allow.remote=true if they may, or an address such as 127.0.0.1",
            key=key,
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server_limits(config: BrokerConfig) -> ServerLimits:
    return ServerLimits(
        socket_request_max_bytes=config.socket_request_max_bytes,
        queued_max_request_bytes=config.queued_max_request_bytes,
        socket_listen_backlog_size=config.socket_listen_backlog_size,
        socket_send_buffer_bytes=config.socket_send_buffer_bytes,
        socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
        connections_max_idle_ms=config.connections_max_idle_ms,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=address_limits(config.max_connections_per_ip_overrides),
        descriptors_max=descriptors_for_sockets(descriptor_limit()),
        protected_listeners=protected_listeners(config),
    )


def protected_listeners(config: BrokerConfig) -> frozenset[str]:
    """Return the listeners of brokers and controller, unless all traffic uses one listener."""
    listeners = config.listener_settings
    own = {listeners.inter_broker_listener_name, listeners.control_plane_listener_name}
    names = {endpoint.listener_name for endpoint in listeners.listeners}
    return frozenset(name for name in own if name in names) if len(names) > 1 else frozenset()


def replication_settings(config: BrokerConfig, security: Callable[[], Security] = plaintext) -> ReplicationSettings:
    return ReplicationSettings(
        broker_id=config.broker_id,
        inter_broker_listener_name=config.listener_settings.inter_broker_listener_name,
        inter_broker_security=security,
        inter_broker_protocol_version=config.inter_broker_protocol_version,
        replica_lag_time_max_ms=config.replica_lag_time_max_ms,
        num_replica_fetchers=config.num_replica_fetchers,
        replica_fetch_wait_max_ms=config.replica_fetch_wait_max_ms,
        replica_fetch_min_bytes=config.replica_fetch_min_bytes,
        replica_fetch_max_bytes=config.replica_fetch_max_bytes,
        replica_fetch_response_max_bytes=config.replica_fetch_response_max_bytes,
        replica_fetch_backoff_ms=config.replica_fetch_backoff_ms,
        setup_timeouts=setup_timeouts(config),
        replica_socket_timeout_ms=config.replica_socket_timeout_ms,
        request_timeout_ms=config.request_timeout_ms,
        controller_socket_timeout_ms=config.controller_socket_timeout_ms,
        num_replica_alter_log_dirs_threads=config.num_replica_alter_log_dirs_threads,
        replication_quota_window_count=config.replication_quota_window_num,
        replication_quota_window_ms=config.replication_quota_window_size_seconds * 1000,
        alter_log_dirs_quota_window_count=config.alter_log_dirs_replication_quota_window_num,
        alter_log_dirs_quota_window_ms=config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
    )


def controller_options(config: BrokerConfig) -> ControllerOptions:
    ibp = config.inter_broker_protocol_version
    return ControllerOptions(
        controller_id=config.broker_id,
        delete_topic_enable=config.delete_topic_enable,
        auto_leader_rebalance_enable=config.auto_leader_rebalance_enable,
        leader_imbalance_per_broker_percentage=config.leader_imbalance_per_broker_percentage,
        leader_imbalance_check_interval_ms=config.leader_imbalance_check_interval_seconds * 1000,
        uses_topic_ids=is_topic_id_supported(ibp),
        is_alter_partition_enabled=is_alter_partition_supported(ibp),
        is_leader_recovery_supported=is_leader_recovery_supported(ibp),
        is_feature_versioning_supported=is_feature_versioning_supported(ibp),
        feature_znode_version=feature_znode_version(ibp),
    )


def channel_settings(config: BrokerConfig, security: Callable[[], Security] = plaintext) -> ChannelSettings:
    listeners = config.listener_settings
    return ChannelSettings(
        controller_id=config.broker_id,
        ibp=config.inter_broker_protocol_version,
        listener_name=listeners.control_plane_listener_name or listeners.inter_broker_listener_name,
        inter_broker_listener_name=listeners.inter_broker_listener_name,
        security=security,
        setup_timeouts=setup_timeouts(config).steady,
        connect_timeout_ms=config.controller_socket_timeout_ms,
        request_timeout_ms=config.request_timeout_ms,
    )
