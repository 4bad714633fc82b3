"""Every setting of brokers and topics, compared key by key with Kafka's own definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.common.errors import ConfigError
from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF, SUBJECTS
from engine.kafka.config.definition import INT, STRING, ConfigDef, ConfigKey, DynamicMode, Importance
from engine.kafka.config.log_config import LogConfig
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.config.values import ConfigType

FIXTURES = Path(__file__).parents[3] / "fixtures" / "config"
BROKER_FACTS = {row["name"]: row for row in json.loads((FIXTURES / "kafka-3.9.1-broker-configs.json").read_text())}
TOPIC_FACTS = {row["name"]: row for row in json.loads((FIXTURES / "kafka-3.9.1-topic-configs.json").read_text())}
MODES = {None: DynamicMode.READ_ONLY, "per-broker": DynamicMode.PER_BROKER, "cluster-wide": DynamicMode.CLUSTER_WIDE}

# Nothing here reads lists of KRaft voters, and two limits of thread counts have a shorter text.
OTHER_LIMITS = {
    "controller.quorum.voters": None,
    "controller.quorum.bootstrap.servers": None,
    "remote.log.manager.copier.thread.pool.size": "-1 or [1,...]",
    "remote.log.manager.expiration.thread.pool.size": "-1 or [1,...]",
}


def valid_text(key: ConfigKey) -> str | None:
    if key.validator is None:
        return None
    if str(key.validator) == f"[{', '.join(map(str, MetadataVersion))}]":
        return "an inter-broker protocol version"
    return str(key.validator)


def assert_as_kafka(key: ConfigKey, facts: dict[str, Any]) -> None:
    assert key.type is ConfigType[facts["type"]], key.name
    assert key.default_text == facts["default"], key.name
    assert key.importance is Importance[facts["importance"]], key.name
    assert valid_text(key) == OTHER_LIMITS.get(key.name, facts["valid"]), key.name
    assert key.is_internal == facts.get("internal", False), key.name
    if key.default is not None:
        assert key.parse(key.default_text) == key.default, key.name


def test_all_keys_are_there() -> None:
    assert set(BROKER_CONFIG_DEF.names) == set(BROKER_FACTS)
    assert set(TOPIC_CONFIG_DEF.names) == set(TOPIC_FACTS)
    assert len(BROKER_CONFIG_DEF) == sum(len(ConfigDef.of(subject)) for subject in SUBJECTS) == 328


def test_broker_keys() -> None:
    for name, facts in BROKER_FACTS.items():
        key = BROKER_CONFIG_DEF[name]
        assert_as_kafka(key, facts)
        assert key.dynamic is MODES[facts.get("dynamic")], name


@pytest.mark.parametrize("name", sorted(TOPIC_FACTS))
def test_topic_key(name: str) -> None:
    key = TOPIC_CONFIG_DEF[name]
    assert_as_kafka(key, TOPIC_FACTS[name])
    assert list(key.synonyms) == TOPIC_FACTS[name]["server_settings"]


def test_every_key_is_documented() -> None:
    for key in (*BROKER_CONFIG_DEF, *TOPIC_CONFIG_DEF):
        assert key.doc.endswith((".", "…")), key.name
        assert 20 <= len(key.doc) <= 300, key.name


def test_log_config_has_kafkas_defaults() -> None:
    held = LogConfig(segment_bytes=77)
    for key in TOPIC_CONFIG_DEF:
        assert key.of(LogConfig()) == key.default, key.name
        assert key.of(held) == (77 if key.name == "segment.bytes" else key.default)


def test_log_config_is_a_small_value_that_stays_as_it_is() -> None:
    """A broker holds one for each topic with its own settings, and reads it for each batch."""
    held = LogConfig(cleanup_policy=("compact",))
    assert held == LogConfig(cleanup_policy=("compact",)) != LogConfig()
    assert hash(held) == hash(LogConfig(cleanup_policy=("compact",)))
    assert not hasattr(held, "__dict__")
    with pytest.raises(AttributeError):
        held.segment_bytes = 5
    with pytest.raises(TypeError):
        LogConfig(no_such_setting=1)


class _Two:
    a = INT(1, Importance.LOW).without_effect("First.")
    b = STRING(None, Importance.LOW).without_effect("Second.")


def test_definition_parses_all_or_names_the_first_error() -> None:
    definition = ConfigDef.of(_Two)
    assert definition.parse({"a": "5", "x": "?"}) == {"a": 5, "b": None}
    assert "a" in definition and "x" not in definition
    assert definition.get("x") is None
    with pytest.raises(ConfigError, match="Invalid value five for configuration a: Not a number of type INT"):
        definition.parse({"a": "five"})


def test_a_key_cannot_be_defined_twice() -> None:
    with pytest.raises(ConfigError, match="defined twice"):
        ConfigDef.of(_Two, _Two)
