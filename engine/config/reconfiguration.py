"""What a change of a running broker's settings must respect beyond each value's own limits.

Source: the reconfigurables of DynamicBrokerConfig in Kafka 3.9. klamm, unlike Kafka, opens and closes listeners at its
start only: such a change is refused instead of being stored and not done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.common.errors import ConfigError

if TYPE_CHECKING:
    from engine.config.broker import BrokerConfig

_THREAD_COUNTS: Final = (
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "num.network.threads",
)
AT_START_ONLY: Final = ("listeners", "advertised.listeners", "listener.security.protocol.map")
"""Dynamic in Kafka, but not here: the sockets are opened when the broker starts."""


class ReconfigurationError(ConfigError):
    """A running broker cannot go over to these settings, although each of them is allowed."""


def check_reconfiguration(current: BrokerConfig, new: BrokerConfig) -> None:
    """Check the step from one set of settings to another.

    Raises:
        ReconfigurationError: a thread count more than halves or doubles, or listeners change.
    """
    for name in _THREAD_COUNTS:
        _check_thread_count(name, current.get_int(name), new.get_int(name))
    _check_cleaner_threads(current.get_int("log.cleaner.threads"), new.get_int("log.cleaner.threads"))
    for name in AT_START_ONLY:
        if current.get(name) != new.get(name):
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
