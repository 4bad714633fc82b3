"""Applies the changes of AlterConfigs and IncrementalAlterConfigs requests to a set of texts, and checks them.

A running broker cannot change to all settings that are allowed: ``_check_reconfiguration`` knows what else counts.
Pure: the result is what would be stored. Source: ConfigAdminManager, DynamicBrokerConfig and its reconfigurables of
Kafka 3.9; the texts of the errors are Kafka's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.broker_configs import BrokerKeys
from engine.kafka.config.definition import ConfigDef
from engine.kafka.config.dynamic import DynamicConfigs
from engine.kafka.config.dynamic_keys import is_dynamic_for_listeners, validate_dynamic_config
from engine.kafka.config.values import ConfigType, InvalidConfigurationError, ReconfigurationError

_THREAD_COUNTS: Final = (
    BrokerKeys.num_io_threads,
    BrokerKeys.num_replica_fetchers,
    BrokerKeys.num_recovery_threads_per_data_dir,
    BrokerKeys.background_threads,
    BrokerKeys.num_network_threads,
)


class AlterOperation(IntEnum):
    """What IncrementalAlterConfigs does with one setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One requested change. ``operation`` is the number that came over the wire: see ``checked_operation``."""

    name: str
    operation: int
    value: str | None

    @property
    def checked_operation(self) -> AlterOperation:
        """The operation. Raises ValueError if Kafka has none of that number."""
        return AlterOperation(self.operation)


def apply_changes(texts: dict[str, str], changes: Iterable[ConfigChange], definition: ConfigDef) -> None:
    """Carry out the changes in the texts. A list is appended to its default if it is not set, as in Kafka.

    Raises:
        InvalidConfigurationError: APPEND or SUBTRACT on something that is not a list.
        ValueError: an unknown operation.
    """
    for change in changes:
        if change.checked_operation is AlterOperation.DELETE:
            texts.pop(change.name, None)
        elif change.checked_operation is AlterOperation.SET:
            texts[change.name] = change.value or ""
        else:
            texts[change.name] = _changed_list(texts.get(change.name), change, definition)


def validate_broker_change(texts: Mapping[str, str], configs: DynamicConfigs, *, is_per_broker: bool) -> None:
    """Check the settings that would be stored for this broker, or for all brokers.

    Raises:
        ConfigError: they are not allowed, or the running broker cannot change to them.
    """
    validate_dynamic_config(texts, is_per_broker=is_per_broker)
    _check_reconfiguration(configs.current, configs.preview(texts, is_per_broker=is_per_broker))


def _changed_list(text: str | None, change: ConfigChange, definition: ConfigDef) -> str:
    key = definition.get(change.name)
    verb = change.checked_operation.name.lower()
    if key is None:
        raise InvalidConfigurationError(f"Unknown config name: {change.name}", key=change.name)
    if key.type is not ConfigType.LIST:
        raise InvalidConfigurationError(
            f"Config value {verb} is not allowed for config key: {change.name}", key=change.name
        )
    old = (key.default_text or "" if text is None else text).split(",")
    given = (change.value or "").split(",")
    if change.checked_operation is AlterOperation.APPEND:
        present = [entry for entry in old if entry] if old == [""] else old
        known = set(present)
        return ",".join([*present, *(entry for entry in given if entry not in known)])
    return ",".join(_without(old, given))


def _without(entries: list[str], removed: list[str]) -> list[str]:
    """Remove each entry of ``removed``, once for each time that it is named."""
    left, times = [], Counter(removed)
    for entry in entries:
        if times[entry] > 0:
            times[entry] -= 1
        else:
            left.append(entry)
    return left


def _check_reconfiguration(current: BrokerConfig, new: BrokerConfig) -> None:
    """Check the step from one set of settings to another.

    Raises:
        ReconfigurationError: a thread count more than halves or doubles, or a listener changes that stays.
    """
    for key in _THREAD_COUNTS:
        _check_thread_count(key.name, key.of(current), key.of(new))
    _check_cleaner_threads(current.log_cleaner_threads, new.log_cleaner_threads)
    _check_listeners(current, new)


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
