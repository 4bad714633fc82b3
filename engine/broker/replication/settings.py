"""The settings of replication, taken from the broker's configuration once at the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.kafka.client.broker_client import DEFAULT_SETUP_TIMEOUTS, SetupTimeouts
from engine.kafka.client.security import Security, plaintext
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.metadata_version import LATEST_PRODUCTION, MetadataVersion


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """Kafka's keys with underscores, and Kafka 3.9's defaults."""

    broker_id: int
    inter_broker_listener_name: str = "PLAINTEXT"
    inter_broker_security: Callable[[], Security] = plaintext
    """For each new connection to another broker: its certificate may change."""
    inter_broker_protocol_version: MetadataVersion = LATEST_PRODUCTION
    replica_lag_time_max_ms: int = 30_000
    num_replica_fetchers: int = 1
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_backoff_ms: int = 1000
    num_replica_alter_log_dirs_threads: int | None = None
    """None: as many as there are log dirs."""
    replication_quota_window_count: int = 11
    replication_quota_window_ms: int = 1000
    alter_log_dirs_quota_window_count: int = 11
    alter_log_dirs_quota_window_ms: int = 1000
    setup_timeouts: SetupTimeouts = DEFAULT_SETUP_TIMEOUTS
    replica_socket_timeout_ms: int = 30_000
    """For connecting to a leader."""
    request_timeout_ms: int = 30_000
    """For the answers of a leader."""
    controller_socket_timeout_ms: int = 30_000
    """For what a broker asks of the controller."""


def setup_timeouts(config: BrokerConfig) -> SetupTimeouts:
    """Return how long a connection to another broker may take until it is open."""
    return SetupTimeouts(config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms)
