"""A setting's value, source and synonyms, as Kafka's DescribeConfigs reports them. Pure.

Source: ConfigHelper of Kafka 3.9 (KIP-226, KIP-569).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF, OWN_KEYS
from engine.kafka.config.definition import AnyKey, DynamicMode
from engine.kafka.config.dynamic import DynamicConfigs, Overrides
from engine.kafka.config.dynamic_keys import broker_config_key, broker_synonyms
from engine.kafka.config.topic_config_values import server_defaults, usable_overrides
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.config.values import ConfigType, Value, value_text


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A setting that would give the described one its value if the ones before it were not set."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """One setting as DescribeConfigs reports it. A secret has no value."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None


def describe_topic(overrides: Overrides, configs: DynamicConfigs, names: Iterable[str] | None) -> list[DescribedConfig]:
    """Describe the settings of a topic with these overrides: all, or those of the names."""
    values: dict[str, Value] = server_defaults(configs.current)
    usable, _ = usable_overrides(overrides)
    values.update((name, TOPIC_CONFIG_DEF[name].parse(text)) for name, text in usable.items())
    values.update((name, text) for name, text in overrides.items() if name not in TOPIC_CONFIG_DEF)
    return [_describe_topic_config(name, value, overrides, configs) for name, value in _chosen(values, names)]


def describe_broker(configs: DynamicConfigs, names: Iterable[str] | None) -> list[DescribedConfig]:
    """Describe the settings of the broker itself: all, or those of the names."""
    texts = configs.current.originals
    values: dict[str, Value] = {name: text for name, text in texts.items() if name not in BROKER_CONFIG_DEF}
    for key in BROKER_CONFIG_DEF:
        if not key.is_internal or key.name in texts:
            values[key.name] = configs.current.get(key.name)
    return [_describe_broker_config(name, value, configs) for name, value in _chosen(values, names)]


def describe_broker_defaults(configs: DynamicConfigs, names: Iterable[str] | None) -> list[DescribedConfig]:
    """Describe the dynamic settings of all brokers: only those that are set."""
    return [
        _describe_broker_config(name, text, configs, only=ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        for name, text in _chosen(configs.default_overrides, names)
    ]


def _chosen(values: Mapping[str, Value], names: Iterable[str] | None) -> list[tuple[str, Value]]:
    wanted = set(names or ()) or set(values)
    return sorted((item for item in values.items() if item[0] in wanted), key=lambda item: item[0])


def _describe_topic_config(name: str, value: Value, overrides: Overrides, configs: DynamicConfigs) -> DescribedConfig:
    key = TOPIC_CONFIG_DEF.get(name)
    text = _shown(key, value)
    synonyms: list[ConfigSynonym] = []
    if key is not None and key.synonyms:
        synonyms = _broker_level_synonyms(key.synonyms[0], key.is_sensitive, configs)
    if name in overrides:
        synonyms.insert(0, ConfigSynonym(name, text, ConfigSource.TOPIC_CONFIG))
    return _described(name, text, key, synonyms, is_read_only=False)


def _describe_broker_config(
    name: str, value: Value, configs: DynamicConfigs, *, only: ConfigSource | None = None
) -> DescribedConfig:
    key = broker_config_key(name)
    own = OWN_KEYS.get(name)
    text = _shown(key, value) if own is None else str(value)
    synonyms = _broker_level_synonyms(name, own is None and (key is None or key.is_sensitive), configs)
    if only is not None:
        synonyms = [synonym for synonym in synonyms if synonym.source is only]
    exact = BROKER_CONFIG_DEF.get(name)
    is_read_only = exact is None or exact.dynamic is DynamicMode.READ_ONLY
    described = _described(name, text, key, synonyms, is_read_only=is_read_only)
    if own is None:
        return described
    # Kafka hides settings that it does not know. Those of klamm hold no secret, and tools look for them.
    return replace(described, type=ConfigType.STRING, is_sensitive=False, documentation=own)


def _broker_level_synonyms(name: str, is_sensitive: bool, configs: DynamicConfigs) -> list[ConfigSynonym]:
    """Return the synonyms of a broker setting, beginning with the first that has its own name, as Kafka does."""
    levels: list[tuple[Overrides, ConfigSource]] = [
        (configs.broker_overrides, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (configs.default_overrides, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (configs.static.originals, ConfigSource.STATIC_BROKER_CONFIG),
    ]
    names = broker_synonyms(name)
    synonyms = [
        ConfigSynonym(synonym, None if is_sensitive else texts[synonym], source)
        for texts, source in levels
        for synonym in names
        if synonym in texts
    ]
    for synonym in names:
        key = BROKER_CONFIG_DEF.get(synonym)
        if key is not None and key.default is not None:
            default = None if is_sensitive else key.default_text
            synonyms.append(ConfigSynonym(synonym, default, ConfigSource.DEFAULT_CONFIG))
    first = next((position for position, synonym in enumerate(synonyms) if synonym.name == name), len(synonyms))
    return synonyms[first:]


def _shown(key: AnyKey | None, value: Value) -> str | None:
    """Return a value's text; a value of unknown type might be a secret."""
    return None if key is None or key.is_sensitive else value_text(value, key.type)


def _described(
    name: str, text: str | None, key: AnyKey | None, synonyms: list[ConfigSynonym], *, is_read_only: bool
) -> DescribedConfig:
    return DescribedConfig(
        name=name,
        value=text,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        type=ConfigType.UNKNOWN if key is None else key.type,
        is_sensitive=key is None or key.is_sensitive,
        is_read_only=is_read_only,
        synonyms=tuple(synonyms),
        documentation=None if key is None else key.doc,
    )
