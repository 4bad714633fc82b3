"""Settings that change at run time: precedence, refusals, and who is notified."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from engine.common.errors import ConfigError
from engine.kafka.config.alter import AlterOperation, ConfigChange, apply_changes, validate_broker_change
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.definition import ConfigDef
from engine.kafka.config.dynamic import BROKERS, DEFAULT_ENTITY, TOPICS, USERS, DynamicConfigs
from engine.kafka.config.log_config import LogConfig
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.config.values import LONG_MAX


def configs(**settings: str) -> DynamicConfigs:
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    return DynamicConfigs(BrokerConfig.from_properties({"zookeeper.connect": "z:1", "broker.id": "1", **texts}))


def test_precedence_of_a_topic_setting() -> None:
    held = configs(log_retention_hours="1")
    assert held.log_config("t").retention_ms == 3_600_000
    held.apply(BROKERS, DEFAULT_ENTITY, {"log.retention.ms": "300"})
    assert held.log_config("t").retention_ms == 300
    held.apply(BROKERS, "1", {"log.retention.ms": "200"})
    assert held.log_config("t").retention_ms == 200
    held.apply(TOPICS, "t", {"retention.ms": "100"})
    assert held.log_config("t").retention_ms == 100
    assert held.log_config("u").retention_ms == 200
    for entity_type, name, expected in ((TOPICS, "t", 200), (BROKERS, "1", 300), (BROKERS, DEFAULT_ENTITY, 3_600_000)):
        held.apply(entity_type, name, {})
        assert held.log_config("t").retention_ms == expected


def test_a_topic_keeps_its_overrides_when_the_broker_changes() -> None:
    held = configs()
    held.apply(TOPICS, "t", {"retention.ms": "100"})
    held.apply(BROKERS, DEFAULT_ENTITY, {"log.segment.bytes": "5000"})
    assert held.log_config("t") == LogConfig(retention_ms=100, segment_bytes=5000)


def test_a_dynamic_setting_beats_its_static_synonyms() -> None:
    held = configs(log_roll_ms="5000")
    held.apply(BROKERS, "1", {"log.roll.ms": "7000"})
    assert held.current.log_roll_ms == 7000
    assert held.static.log_roll_ms == 5000


def test_settings_that_stand_elsewhere() -> None:
    """KIP-421: what the file declares counts for changes at run time too, encrypted ones as well."""

    def resolve(texts: Mapping[str, str]) -> dict[str, str]:
        if "${file:gone}" in texts.values():
            raise ConfigError("the file cannot be read")
        return {name: text.replace("${file:x}", "found") for name, text in texts.items()}

    name, key = "listener.name.plaintext.ssl.keystore.location", "ssl.keystore.location"
    held = DynamicConfigs(configs().static, resolve)
    assert held.apply(BROKERS, "1", {name: "${file:x}"}) == []
    assert held.current.for_listener("PLAINTEXT", key) == "found"
    assert held.broker_overrides == {name: "${file:x}"}
    (problem,) = held.apply(BROKERS, "1", {name: "${file:gone}"})
    assert problem.endswith("could not be applied: the file cannot be read")
    assert held.current.for_listener("PLAINTEXT", key) == "found"


def test_settings_of_other_brokers_do_not_count() -> None:
    held = configs()
    assert held.apply(BROKERS, "2", {"message.max.bytes": "5"}) == []
    assert held.current is held.static


def test_unusable_topic_overrides_are_told_and_left_out() -> None:
    held = configs()
    problems = held.apply(TOPICS, "t", {"segment.bytes": "-5", "no.such.key": "1", "retention.ms": "9"})
    assert problems == [
        "Invalid value -5 for configuration segment.bytes: Value must be at least 14",
        "Unknown topic config name: no.such.key",
    ]
    assert held.log_config("t") == LogConfig(retention_ms=9)
    assert held.topic_overrides("t") == {"segment.bytes": "-5", "no.such.key": "1", "retention.ms": "9"}


def test_unusable_broker_settings_are_told_and_left_out() -> None:
    held = configs()
    problems = held.apply(
        BROKERS,
        DEFAULT_ENTITY,
        {
            "message.max.bytes": "x",
            "broker.rack": "r",
            "ssl.keystore.type": "JKS",
            "listener.name.plaintext.ssl.keystore.type": "JKS",
            "log.retention.ms": "77",
        },
    )
    assert sorted(problems) == [
        "Invalid value x for configuration message.max.bytes: Not a number of type INT",
        "broker.rack cannot be changed at run time",
        "listener.name.plaintext.ssl.keystore.type cannot be set for all brokers at once",
        "ssl.keystore.type counts for single listeners only, with the listener prefix",
    ]
    assert held.default_overrides == {"log.retention.ms": "77"}


def test_settings_that_contradict_each_other_leave_the_old_ones_in_force() -> None:
    held = configs()
    held.apply(BROKERS, "1", {"log.retention.ms": "50"})
    (problem,) = held.apply(BROKERS, "1", {"log.retention.ms": "0", "message.max.bytes": "5"})
    assert problem.startswith("Per-broker configs of 1 could not be applied: log.retention.ms must be")
    assert held.current.log_retention_ms == 50
    assert held.current.message_max_bytes == 1_048_588


def test_settings_that_only_the_other_level_allows_count_once_both_are_read() -> None:
    """In whatever order they come. Kafka 3.9.1's DynamicBrokerConfig merges what it has of both levels each time."""
    held = configs()
    (problem,) = held.apply(BROKERS, "1", {"log.cleaner.threads": "200"})
    assert problem.startswith("Per-broker configs of 1 could not be applied: log.cleaner.dedupe.buffer.size must be")
    assert held.current.log_cleaner_threads == 1
    assert held.apply(BROKERS, DEFAULT_ENTITY, {"log.cleaner.dedupe.buffer.size": str(2**30)}) == []
    assert held.current.log_cleaner_threads == 200


def test_a_throttle_counts_whatever_is_wrong_with_other_settings() -> None:
    """As in Kafka 3.9.1's BrokerConfigHandler, which sets throttles after the other settings have failed."""
    held = configs()
    rates: list[int] = []
    held.follow(lambda: held.throttles.leader_replication_throttled_rate, rates.append)
    texts = {"log.retention.ms": "0", "leader.replication.throttled.rate": "5000"}
    (problem,) = held.apply(BROKERS, "1", texts)
    assert "log.retention.ms must be" in problem
    assert rates[1:] == [5000]
    assert held.apply(BROKERS, "1", {"log.retention.ms": "0"}) == [problem]
    assert rates[1:] == [5000, 2**63 - 1]


def test_a_running_broker_refuses_what_it_cannot_change_to_even_from_zookeeper() -> None:
    """As in Kafka 3.9.1's DynamicBrokerConfig: the rest of the change waits, too, until it is mended or the next start.

    What is mended then is compared with what is in force, not with what was refused.
    """
    held = configs(listeners="PLAINTEXT://h:1")
    texts = {"listener.security.protocol.map": "PLAINTEXT:SSL", "message.max.bytes": "5"}
    held.is_running = True
    (problem,) = held.apply(BROKERS, "1", texts)
    complaint = "Security protocol cannot be updated for existing listener ListenerName(PLAINTEXT)"
    assert problem == f"Per-broker configs of 1 could not be applied: {complaint}"
    assert held.current.message_max_bytes == 1_048_588
    mended = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT", "message.max.bytes": "5"}
    validate_broker_change(mended, held, is_per_broker=True)
    assert held.apply(BROKERS, "1", mended) == []
    assert held.current.message_max_bytes == 5
    (problem,) = held.apply(BROKERS, DEFAULT_ENTITY, {"num.io.threads": "100"})
    assert problem.startswith("Cluster default configs could not be applied: Dynamic thread count update validation")


def test_listeners_come_and_go() -> None:
    held = configs(listeners="PLAINTEXT://h:1")
    named: list[list[str]] = []

    def names() -> list[str]:
        return [endpoint.listener_name for endpoint in held.current.listener_settings.listeners]

    held.follow(names, named.append)
    assert held.apply(BROKERS, "1", {"listeners": "PLAINTEXT://h:1,SSL://h:2"}) == []
    assert held.apply(BROKERS, "1", {}) == []
    assert named == [["PLAINTEXT"], ["PLAINTEXT", "SSL"], ["PLAINTEXT"]]


def test_a_generated_broker_id_survives() -> None:
    static = BrokerConfig.from_properties({"zookeeper.connect": "z:1"}).with_broker_id(1001)
    held = DynamicConfigs(static)
    held.apply(BROKERS, "1001", {"message.max.bytes": "9"})
    assert held.current.broker_id == 1001
    assert held.current.message_max_bytes == 9


def test_throttle_rates() -> None:
    held = configs()
    assert held.throttles.leader_replication_throttled_rate == LONG_MAX
    held.apply(BROKERS, DEFAULT_ENTITY, {"leader.replication.throttled.rate": "10"})
    held.apply(BROKERS, "1", {"follower.replication.throttled.rate": "20"})
    held.apply(BROKERS, "1", {"leader.replication.throttled.rate": "30"})
    assert held.throttles.leader_replication_throttled_rate == 30
    assert held.throttles.follower_replication_throttled_rate == LONG_MAX
    held.apply(BROKERS, "1", {})
    assert held.throttles.leader_replication_throttled_rate == 10
    assert held.throttles.replica_alter_log_dirs_io_max_bytes_per_second == LONG_MAX


def test_who_follows_topics_is_handed_what_is_known_and_what_changes() -> None:
    held = configs()
    heard: list[object] = []
    held.apply(TOPICS, "s", {"retention.ms": "4"})
    held.follow_topics(lambda topic, config: heard.append((topic, config.retention_ms, held.log_config(topic))))
    held.apply(TOPICS, "t", {"retention.ms": "5"})
    held.apply(TOPICS, "t", {"retention.ms": "5"})
    held.apply(TOPICS, "t", {})
    assert heard == [
        ("s", 4, LogConfig(retention_ms=4)),
        ("t", 5, LogConfig(retention_ms=5)),
        ("t", 604_800_000, LogConfig()),
    ]


def test_who_follows_a_setting_is_handed_its_value_and_each_change() -> None:
    held = configs()
    sizes: list[int] = []
    rates: list[int] = []
    held.apply(BROKERS, DEFAULT_ENTITY, {"message.max.bytes": "6"})
    held.follow(lambda: held.current.message_max_bytes, sizes.append)
    held.follow(lambda: held.throttles.leader_replication_throttled_rate, rates.append)
    held.apply(BROKERS, "1", {"message.max.bytes": "7"})
    held.apply(BROKERS, "1", {"message.max.bytes": "7", "leader.replication.throttled.rate": "3"})
    held.apply(BROKERS, "1", {})
    assert sizes == [6, 7, 6]
    assert rates == [LONG_MAX, 3, LONG_MAX]


def test_a_change_that_a_follower_fails_over_comes_to_the_others_and_to_it_again() -> None:
    held = configs()
    faults, sizes, others = iter([RuntimeError("a fault of ours")]), [], []

    def fails_once(size: int) -> None:
        if size == 7:
            for fault in faults:
                raise fault
        sizes.append(size)

    held.follow(lambda: held.current.message_max_bytes, fails_once)
    held.follow(lambda: held.current.message_max_bytes, others.append)
    with pytest.raises(RuntimeError):
        held.apply(BROKERS, "1", {"message.max.bytes": "7"})
    assert (sizes, others) == ([1_048_588], [1_048_588, 7])
    held.apply(BROKERS, "1", {"message.max.bytes": "7"})
    assert sizes == others == [1_048_588, 7]


def test_all_who_follow_topics_and_clients_hear_of_a_change_over_which_one_fails() -> None:
    held, heard = configs(), []

    def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    def fail_too(*_: object) -> None:
        raise KeyError("another")

    for take in (fail, fail_too, lambda *told: heard.append(told)):
        held.follow_topics(take)
        held.follow_clients(take)
    with pytest.raises(RuntimeError) as failure:
        held.apply(TOPICS, "t", {"retention.ms": "5"})
    assert failure.value.__notes__ == ["another failed, too: KeyError('another')"]
    with pytest.raises(RuntimeError):
        held.apply(USERS, "u", {"producer_byte_rate": "5"})
    assert heard == [("t", LogConfig(retention_ms=5)), (USERS, "u", {"producer_byte_rate": "5"})]


def test_settings_of_clients_are_kept_as_they_were_told() -> None:
    held = configs()
    assert held.apply(USERS, "u/clients/c", {"producer_byte_rate": "5"}) == []
    assert held.stored_texts(USERS, "u/clients/c") == {"producer_byte_rate": "5"}


def test_a_new_topic_does_not_inherit_from_a_deleted_one() -> None:
    held = configs()
    assert not held.knows_topic("t")
    held.apply(TOPICS, "t", {"retention.ms": "5"})
    assert held.knows_topic("t")
    held.forget_topic("t")
    assert not held.knows_topic("t")
    assert held.log_config("t") == LogConfig()


def test_an_old_format_version_is_told_to_be_ignored() -> None:
    held = configs()
    (warning,) = held.apply(TOPICS, "t", {"message.format.version": "0.10.2"})
    assert warning.startswith("Topic configuration message.format.version with value `0.10.2` is ignored for `t`")
    assert held.apply(TOPICS, "t", {"message.format.version": "2.0"}) == []
    assert held.apply(TOPICS, "t", {"message.format.version": "0.11.0"}) == []


def test_the_record_format_counts_before_ibp_3_0_only() -> None:
    """Source: KafkaConfig.logMessageFormatVersion and TopicConfigHandler.excludedConfigs of Kafka 3.9."""
    old = {"message.format.version": "0.10.2"}
    new = configs(log_message_format_version="0.10.2")
    new.apply(TOPICS, "t", old)
    assert (new.log_config("u").record_magic, new.log_config("t").record_magic) == (2, 2)
    mixed = configs(inter_broker_protocol_version="2.8", log_message_format_version="0.9.0")
    mixed.apply(TOPICS, "t", old)
    assert (mixed.log_config("u").record_magic, mixed.log_config("t").record_magic) == (0, 1)
    behind = configs(inter_broker_protocol_version="0.10.1", log_message_format_version="0.10.0")
    behind.apply(TOPICS, "t", {"message.format.version": "0.11.0"})
    assert behind.log_config("t").record_magic == 1
    with pytest.raises(ConfigError, match=r"log\.message\.format\.version 3\.0-IV1 can only be used when"):
        configs(inter_broker_protocol_version="0.10.2")


def change(name: str, operation: AlterOperation, value: str | None = None) -> ConfigChange:
    return ConfigChange(name, operation, value)


def applied(before: dict[str, str], changes: list[ConfigChange], definition: ConfigDef) -> dict[str, str]:
    texts = dict(before)
    apply_changes(texts, changes, definition)
    return texts


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ({}, [change("retention.ms", AlterOperation.SET, "5")], {"retention.ms": "5"}),
        ({"retention.ms": "5"}, [change("retention.ms", AlterOperation.DELETE)], {}),
        ({}, [change("retention.ms", AlterOperation.DELETE)], {}),
        ({}, [change("cleanup.policy", AlterOperation.APPEND, "compact")], {"cleanup.policy": "delete,compact"}),
        (
            {"cleanup.policy": "delete"},
            [change("cleanup.policy", AlterOperation.APPEND, "delete,compact")],
            {"cleanup.policy": "delete,compact"},
        ),
        (
            {},
            [change("leader.replication.throttled.replicas", AlterOperation.APPEND, "0:1,1:2")],
            {"leader.replication.throttled.replicas": "0:1,1:2"},
        ),
        (
            {"leader.replication.throttled.replicas": "0:1,1:2,0:1"},
            [change("leader.replication.throttled.replicas", AlterOperation.SUBTRACT, "0:1,9:9")],
            {"leader.replication.throttled.replicas": "1:2,0:1"},
        ),
        ({}, [change("cleanup.policy", AlterOperation.SUBTRACT, "delete")], {"cleanup.policy": ""}),
    ],
)
def test_changes(before: dict[str, str], changes: list[ConfigChange], after: dict[str, str]) -> None:
    assert applied(before, changes, TOPIC_CONFIG_DEF) == after


@pytest.mark.parametrize(
    ("name", "operation", "message"),
    [
        ("retention.ms", AlterOperation.APPEND, "Config value append is not allowed for config key: retention.ms"),
        ("retention.ms", AlterOperation.SUBTRACT, "Config value subtract is not allowed for config key: retention.ms"),
        ("nonsense", AlterOperation.APPEND, "Unknown config name: nonsense"),
    ],
)
def test_changes_that_make_no_sense(name: str, operation: AlterOperation, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        applied({}, [change(name, operation, "1")], TOPIC_CONFIG_DEF)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"listener.name.plaintext.plain.sasl.jaas.config": "x"},
            r"Configs cannot be updated dynamically for existing listener ListenerName\(PLAINTEXT\)",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:SSL,SSL:PLAINTEXT"},
            r"Security protocol cannot be updated for existing listener ListenerName\(PLAINTEXT\)",
        ),
        ({"log.cleaner.threads": "9"}, "cannot be increased to more than double the current value 1"),
        ({"max.connections": "0"}, "Invalid max.connections 0"),
        ({"listener.name.plaintext.max.connections": "0"}, "Invalid max.connections 0"),
        ({"max.connection.creation.rate": "0"}, "Invalid max.connection.creation.rate 0"),
    ],
)
def test_broker_changes_that_are_not_done_are_refused(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate_broker_change(texts, configs(), is_per_broker=True)


def test_fewer_cleaner_threads() -> None:
    held = configs(log_cleaner_threads="8")
    with pytest.raises(ConfigError, match="less than half the current value 8"):
        validate_broker_change({"log.cleaner.threads": "3"}, held, is_per_broker=False)
    validate_broker_change({"log.cleaner.threads": "4"}, held, is_per_broker=False)


def test_very_long_lists_are_changed_in_one_pass() -> None:
    """Each entry was compared with each other one: 3 s for a few requests, and minutes for this one."""
    name, many = "leader.replication.throttled.replicas", 60_000
    old, new = ([f"{n}:{broker}" for n in range(many)] for broker in (1, 2))
    grown = applied({name: ",".join(old)}, [change(name, AlterOperation.APPEND, ",".join(new))], TOPIC_CONFIG_DEF)
    assert grown[name].split(",") == old + new
    left = applied(grown, [change(name, AlterOperation.SUBTRACT, ",".join(old))], TOPIC_CONFIG_DEF)
    assert left[name].split(",") == new
    twice = change(name, AlterOperation.SUBTRACT, "0:1,0:1,1:1")
    assert applied({name: "0:1,1:1,0:1,0:1"}, [twice], TOPIC_CONFIG_DEF)[name] == "0:1"
