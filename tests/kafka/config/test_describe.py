"""DescribeConfigs reports the value that is in force, whatever is set at which level."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.definition import ConfigKey
from engine.kafka.config.describe import (
    ConfigSource,
    DescribedConfig,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from engine.kafka.config.dynamic import BROKERS, DEFAULT_ENTITY, TOPICS, DynamicConfigs
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.config.values import ConfigType

BASE = {"zookeeper.connect": "z:1", "broker.id": "1"}
TEXTS = {
    ConfigType.BOOLEAN: st.sampled_from(["true", "false"]),
    ConfigType.INT: st.integers(20, 1_000_000).map(str),
    ConfigType.LONG: st.integers(20, 1_000_000).map(str),
    ConfigType.DOUBLE: st.sampled_from(["0.1", "0.25", "0.75"]),
    ConfigType.LIST: st.sampled_from(["compact", "delete", "compact,delete"]),
}
WORDS = {
    "compression.type": st.sampled_from(["gzip", "lz4", "producer"]),
    "message.timestamp.type": st.sampled_from(["CreateTime", "LogAppendTime"]),
    "compression.gzip.level": st.sampled_from(["1", "5"]),
    "compression.lz4.level": st.sampled_from(["1", "5"]),
    "compression.zstd.level": st.sampled_from(["1", "5"]),
}
# These three concern an ignored record format and tiered storage. The timestamp limits replace each other.
LEFT_OUT = {"message.format.version", "local.retention.ms", "local.retention.bytes"}
KEYS = [
    key
    for key in TOPIC_CONFIG_DEF
    if len(key.synonyms) == 1 and key.name not in LEFT_OUT and not key.name.startswith("message.timestamp.")
]


def texts_of(key: ConfigKey) -> st.SearchStrategy[str | None]:
    return st.none() | WORDS.get(key.name, TEXTS.get(key.type, st.nothing()))


LEVELS = st.sampled_from(KEYS).flatmap(lambda key: st.tuples(st.just(key), *[texts_of(key)] * 4))


def configs_with(name: str, static: str | None, default: str | None, broker: str | None) -> DynamicConfigs:
    configs = DynamicConfigs(BrokerConfig.from_properties(BASE | ({} if static is None else {name: static})))
    if default is not None:
        assert configs.apply(BROKERS, DEFAULT_ENTITY, {name: default}) == []
    if broker is not None:
        assert configs.apply(BROKERS, "1", {name: broker}) == []
    return configs


@given(LEVELS)
def test_the_first_synonym_is_what_is_in_force(
    case: tuple[ConfigKey, str | None, str | None, str | None, str | None],
) -> None:
    key, static, default, broker, topic = case
    configs = configs_with(key.synonyms[0], static, default, broker)
    overrides = {} if topic is None else {key.name: topic}
    configs.apply(TOPICS, "t", overrides)
    (described,) = describe_topic(overrides, configs, [key.name])

    levels = [topic, broker, default, static, key.default_text]
    expected = next(text for text in levels if text is not None)
    assert described.value == expected
    assert getattr(configs.log_config("t"), key.name.replace(".", "_")) == key.parse(expected)
    assert described.source == levels.index(expected, [text is not None for text in levels].index(True)) + 1
    assert [synonym.value for synonym in described.synonyms] == [text for text in levels if text is not None]
    assert [synonym.source for synonym in described.synonyms] == [
        source
        for source, text in zip(ConfigSource.__members__.values(), [None, *levels], strict=False)
        if text is not None
    ]


def one(described: list[DescribedConfig]) -> DescribedConfig:
    (config,) = described
    return config


def test_a_listeners_own_setting_has_the_general_one_behind_it() -> None:
    name = "listener.name.plaintext.max.connections"
    configs = DynamicConfigs(BrokerConfig.from_properties({**BASE, name: "5", "max.connections": "9"}))
    described = one(describe_broker(configs, [name]))
    assert described.value == "5"
    assert described.type is ConfigType.INT
    assert [(synonym.name, synonym.value) for synonym in described.synonyms] == [
        (name, "5"),
        ("max.connections", "9"),
        ("max.connections", "2147483647"),
    ]


def test_settings_nobody_knows_are_taken_for_secrets() -> None:
    configs = DynamicConfigs(BrokerConfig.from_properties({**BASE, "some.key": "geheim"}))
    described = one(describe_broker(configs, ["some.key"]))
    assert (described.value, described.is_sensitive, described.type) == (None, True, ConfigType.UNKNOWN)
    assert "geheim" not in repr(describe_broker(configs, None))
    override = one(describe_topic({"other.key": "geheim"}, configs, ["other.key"]))
    assert (override.value, override.source) == (None, ConfigSource.TOPIC_CONFIG)


def test_defaults_of_all_brokers_show_only_what_is_set() -> None:
    configs = DynamicConfigs(BrokerConfig.from_properties({**BASE, "message.max.bytes": "5"}))
    assert describe_broker_defaults(configs, None) == []
    configs.apply(BROKERS, DEFAULT_ENTITY, {"message.max.bytes": "6"})
    described = one(describe_broker_defaults(configs, None))
    assert [(synonym.value, synonym.source) for synonym in described.synonyms] == [
        ("6", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    ]


def test_internal_settings_are_shown_only_where_they_are_set() -> None:
    name = "log.initial.task.delay.ms"
    assert describe_broker(DynamicConfigs(BrokerConfig.from_properties(BASE)), [name]) == []
    configs = DynamicConfigs(BrokerConfig.from_properties({**BASE, name: "5"}))
    assert one(describe_broker(configs, [name])).value == "5"
