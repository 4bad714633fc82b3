"""Applies the changes of AlterConfigs and IncrementalAlterConfigs requests to a set of texts, and checks them.

Pure: the result is what would be stored. Source: ConfigAdminManager and DynamicBrokerConfig of Kafka 3.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from engine.kafka.config.definition import ConfigDef
from engine.kafka.config.dynamic import DynamicConfigs, check_reconfiguration
from engine.kafka.config.dynamic_keys import validate_dynamic_config
from engine.kafka.config.values import ConfigType, InvalidConfigurationError


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
    check_reconfiguration(configs.current, configs.preview(texts, is_per_broker=is_per_broker))


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
