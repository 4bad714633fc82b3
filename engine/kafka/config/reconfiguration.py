"""What a change of a running broker's settings must respect beyond each value's own limits.

Source: the reconfigurables of DynamicBrokerConfig in Kafka 3.9. Unlike Kafka, klamm opens listeners only when it
starts, so it refuses such a change instead of storing it without effect.
"""

from __future__ import annotations

from typing import Final

from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF, BrokerKeys
from engine.kafka.config.values import ReconfigurationError

_THREAD_COUNTS: Final = (
    BrokerKeys.num_io_threads,
    BrokerKeys.num_replica_fetchers,
    BrokerKeys.num_recovery_threads_per_data_dir,
    BrokerKeys.background_threads,
    BrokerKeys.num_network_threads,
)
AT_START_ONLY: Final = tuple(key.name for key in BROKER_CONFIG_DEF if key.at_start_only)
"""Dynamic in Kafka, but not here: klamm opens the sockets when the broker starts."""


def check_reconfiguration(current: BrokerKeys, new: BrokerKeys) -> None:
    """Check the step from one set of settings to another.

    Raises:
        ReconfigurationError: a thread count more than halves or doubles, or listeners change.
    """
    for key in _THREAD_COUNTS:
        _check_thread_count(key.name, key.of(current), key.of(new))
    _check_cleaner_threads(current.log_cleaner_threads, new.log_cleaner_threads)
    for name in AT_START_ONLY:
        if BROKER_CONFIG_DEF[name].of(current) != BROKER_CONFIG_DEF[name].of(new):
            raise ReconfigurationError(
                f"klamm applies {name} when a broker starts: change it in the broker's file and restart the broker.",
                key=name,
            )


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
