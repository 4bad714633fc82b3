"""Topic settings: checking them, and the LogConfig of a topic from its overrides and the broker's defaults.

Order of precedence: the topic's override, then the broker setting that is its default (ms before minutes before hours).
Source: LogConfig and KafkaConfig of Kafka 3.9. The keys are in ``topic_configs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.common.errors import ConfigError
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF
from engine.kafka.config.log_config import LogConfig
from engine.kafka.config.metadata_version import is_message_format_version_ignored, parse_metadata_version
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.config.values import LONG_MAX, InvalidConfigurationError, Value

IGNORED_FORMAT_VERSION: Final = "3.0-IV1"


def server_defaults(broker: BrokerConfig) -> dict[str, Value]:
    """Return what a topic without overrides gets from this broker, by topic key."""
    defaults: dict[str, Value] = {
        key.name: BROKER_CONFIG_DEF[key.synonyms[0]].of(broker) if key.synonyms else key.default
        for key in TOPIC_CONFIG_DEF
    }
    defaults["message.format.version"] = _default_format_version(broker)
    return _with_timestamp_limits(defaults)


def topic_values(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Value]:
    """Return the value of every topic setting.

    Raises:
        ConfigError: an override's value is not allowed. Unknown keys are ignored.
    """
    values = server_defaults(broker)
    values.update((name, TOPIC_CONFIG_DEF[name].parse(text)) for name, text in overrides.items() if name in values)
    return values


def topic_log_config(overrides: Mapping[str, str], broker: BrokerConfig) -> LogConfig:
    """Return the settings of a topic's logs.

    Raises:
        ConfigError: an override's value is not allowed.
    """
    values = _with_timestamp_limits(topic_values(overrides, broker))
    values["message.format.version"] = _format_version_that_counts(overrides, broker)
    return LogConfig(**{key.attribute: values[key.name] for key in TOPIC_CONFIG_DEF})


def validate_topic_config(overrides: Mapping[str, str | None], broker: BrokerConfig) -> None:
    """Check a topic's new overrides, alone and together with the broker's defaults.

    Raises:
        InvalidConfigurationError: an unknown key, or settings that contradict each other.
        ConfigError: a value that is not allowed. All in Kafka's words.
    """
    texts: dict[str, str] = {}
    for name, text in overrides.items():
        if name not in TOPIC_CONFIG_DEF:
            raise InvalidConfigurationError(f"Unknown topic config name: {name}", key=name)
        if text is None:
            raise InvalidConfigurationError(f"Null value not supported for topic configs: {name}", key=name)
        texts[name] = text
    values = topic_values(texts, broker)
    _check_compaction_lags(values)
    _check_tiered_storage(values)


def usable_overrides(overrides: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Separate usable overrides found in ZooKeeper from unusable ones; the second part says why.

    A broker must cope with what others wrote: an unusable override counts as none.
    """
    usable: dict[str, str] = {}
    problems: list[str] = []
    for name, text in overrides.items():
        key = TOPIC_CONFIG_DEF.get(name)
        if key is None:
            problems.append(f"Unknown topic config name: {name}")
            continue
        try:
            key.parse(text)
        except ConfigError as error:
            problems.append(str(error))
        else:
            usable[name] = text
    return usable, problems


def ignored_format_version_warning(topic: str, overrides: Mapping[str, str], broker: BrokerConfig) -> str | None:
    """Return Kafka's warning if a topic asks for an old record format that no longer counts, else None."""
    asked = overrides.get("message.format.version")
    ibp = broker.inter_broker_protocol_version
    if asked is None or not is_message_format_version_ignored(ibp) or not asked.startswith("0."):
        return None
    if asked.startswith("0.11"):
        return None
    return (
        f"Topic configuration message.format.version with value `{asked}` is ignored for `{topic}` because the "
        f"inter-broker protocol version `{broker.get('inter.broker.protocol.version')}` is greater or equal than "
        "3.0. This configuration is deprecated and it will be removed in Apache Kafka 4.0."
    )


def _format_version_that_counts(overrides: Mapping[str, str], broker: BrokerConfig) -> str:
    """A topic's own record format counts before IBP 3.0, unless it is newer than what the brokers agreed on."""
    ibp, asked = broker.inter_broker_protocol_version, overrides.get("message.format.version")
    if asked is None or is_message_format_version_ignored(ibp) or parse_metadata_version(asked) > ibp:
        return _default_format_version(broker)
    return asked


def _default_format_version(broker: BrokerConfig) -> str:
    if is_message_format_version_ignored(broker.inter_broker_protocol_version):
        return IGNORED_FORMAT_VERSION
    return parse_metadata_version(broker.log_message_format_version).text


def _with_timestamp_limits(values: dict[str, Value]) -> dict[str, Value]:
    """Let the deprecated limit replace each of the two newer ones that has its default (KIP-937)."""
    for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        if values[name] == LONG_MAX:
            values[name] = values["message.timestamp.difference.max.ms"]
    return values


def _check_compaction_lags(values: Mapping[str, Value]) -> None:
    minimum, maximum = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if isinstance(minimum, int) and isinstance(maximum, int) and minimum > maximum:
        raise InvalidConfigurationError(
            f"conflict topic config setting min.compaction.lag.ms ({minimum}) > max.compaction.lag.ms ({maximum})",
            key="min.compaction.lag.ms",
        )


def _check_tiered_storage(values: Mapping[str, Value]) -> None:
    if values["remote.log.delete.on.disable"] or values["remote.log.copy.disable"]:
        raise InvalidConfigurationError(
            "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode.",
            key="remote.log.copy.disable",
        )
    if values["remote.storage.enable"]:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
            key="remote.storage.enable",
        )
