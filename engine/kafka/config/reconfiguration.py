"""What a change of a running broker's settings must respect beyond each value's own limits.

Source: the reconfigurables of DynamicBrokerConfig in Kafka 3.9; the texts of the errors are Kafka's.
"""

from __future__ import annotations

from typing import Final

from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.broker_configs import BrokerKeys
from engine.kafka.config.dynamic_keys import is_dynamic_for_listeners
from engine.kafka.config.values import ReconfigurationError

_THREAD_COUNTS: Final = (
    BrokerKeys.num_io_threads,
    BrokerKeys.num_replica_fetchers,
    BrokerKeys.num_recovery_threads_per_data_dir,
    BrokerKeys.background_threads,
    BrokerKeys.num_network_threads,
)


_LIMITS: Final = (BrokerKeys.max_connections.name, BrokerKeys.max_connection_creation_rate.name)
"""How many connections a listener may have, and how many may come to it in a second."""


def check_reconfiguration(current: BrokerConfig, new: BrokerConfig) -> None:
    """Check the step from one set of settings to another.

    Raises:
        ReconfigurationError: a thread count more than halves or doubles, a listener changes that stays, or no client
            could connect to it any more.
    """
    for key in _THREAD_COUNTS:
        _check_thread_count(key.name, key.of(current), key.of(new))
    _check_cleaner_threads(current.log_cleaner_threads, new.log_cleaner_threads)
    _check_listeners(current, new)
    _check_limits(current, new)


def _check_listeners(current: BrokerConfig, new: BrokerConfig) -> None:
    """Let listeners come and go; of one that stays, only stores and limits may change."""
    protocols = {each.listener_name: each.security_protocol for each in current.listener_settings.listeners}
    for endpoint in new.listener_settings.listeners:
        name = endpoint.listener_name
        if name not in protocols:
            continue
        if _fixed_texts(current, name) != _fixed_texts(new, name):
            raise ReconfigurationError(
                f"Configs cannot be updated dynamically for existing listener ListenerName({name}), restart broker or "
                "create a new listener for update",
                key="listeners",
            )
        if protocols[name] is not endpoint.security_protocol:
            raise ReconfigurationError(
                f"Security protocol cannot be updated for existing listener ListenerName({name})", key="listeners"
            )


def _check_limits(current: BrokerConfig, new: BrokerConfig) -> None:
    """Refuse limits that let no connection in: no operator could connect to raise them again."""
    for endpoint in current.listener_settings.listeners:
        before, after = (
            {name: config.for_listener(endpoint.listener_name, name) for name in _LIMITS} for config in (current, new)
        )
        if after != before:
            for name, limit in after.items():
                if limit == 0:
                    raise ReconfigurationError(f"Invalid {name} {limit}", key=name)


def _fixed_texts(config: BrokerConfig, listener_name: str) -> dict[str, str]:
    prefix = f"listener.name.{listener_name.lower()}."
    own = {name.removeprefix(prefix): text for name, text in config.originals.items() if name.startswith(prefix)}
    return {name: text for name, text in own.items() if not is_dynamic_for_listeners(name)}


def _check_thread_count(name: str, old: int, new: int) -> None:
    failed = f"Dynamic thread count update validation failed for {name}={new}"
    if new < old // 2:
        raise ReconfigurationError(f"{failed}, value should be at least half the current value {old}", key=name)
    if new > old * 2:
        raise ReconfigurationError(
            f"{failed}, value should not be greater than double the current value {old}", key=name
        )


def _check_cleaner_threads(old: int, new: int) -> None:
    name = "log.cleaner.threads"
    if new < old // 2:
        raise ReconfigurationError(
            f"Log cleaner threads cannot be reduced to less than half the current value {old}", key=name
        )
    if new > old * 2:
        raise ReconfigurationError(
            f"Log cleaner threads cannot be increased to more than double the current value {old}", key=name
        )
