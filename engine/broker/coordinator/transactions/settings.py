"""The broker's settings of transactions, by Kafka's keys. Those that change at run time are read where they count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.broker.replication.settings import setup_timeouts
from engine.kafka.client.broker_client import SetupTimeouts
from engine.kafka.client.security import Security, plaintext
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.metadata_version import MetadataVersion


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """How long transactions may last, and how to write and read ``__transaction_state``."""

    broker_id: int
    num_partitions: int
    load_buffer_bytes: int
    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    abort_interval_ms: int
    """``transaction.abort.timed.out.transaction.cleanup.interval.ms``"""
    expiry_interval_ms: int
    """``transaction.remove.expired.transaction.cleanup.interval.ms``"""
    setup_timeouts: SetupTimeouts
    request_timeout_ms: int
    listener_name: str
    security: Callable[[], Security]
    """Of new connections to that listener."""
    ibp: MetadataVersion


def transaction_settings(config: BrokerConfig, security: Callable[[], Security] = plaintext) -> TransactionSettings:
    return TransactionSettings(
        broker_id=config.broker_id,
        num_partitions=config.transaction_state_log_num_partitions,
        load_buffer_bytes=config.transaction_state_log_load_buffer_size,
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expiry_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        setup_timeouts=setup_timeouts(config),
        request_timeout_ms=config.request_timeout_ms,
        listener_name=config.listener_settings.inter_broker_listener_name,
        security=security,
        ibp=config.inter_broker_protocol_version,
    )
