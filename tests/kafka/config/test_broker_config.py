"""A broker's settings as a whole: what Kafka accepts and refuses, word for word, and what klamm adds to it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine.common.errors import ConfigError
from engine.common.model import Endpoint
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.config.properties import parse_override, parse_properties
from engine.kafka.config.topic_config_values import server_defaults
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.config.values import RequirementError, display_text

FIXTURES = Path(__file__).parents[3] / "fixtures" / "config"
SERVERS: list[dict[str, Any]] = json.loads((FIXTURES / "kafka-3.9.1-server-properties.json").read_text())
REQUIRED = "requirement failed: "


def config(**settings: str) -> BrokerConfig:
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    return BrokerConfig.from_properties({"zookeeper.connect": "localhost:2181", **texts})


def describe(endpoints: tuple[Endpoint, ...]) -> list[list[object]]:
    return [[e.host, e.port, e.listener_name, e.security_protocol.name] for e in endpoints]


def is_kraft(row: dict[str, Any]) -> bool:
    return "process.roles" in row["properties"]


@pytest.mark.parametrize("row", SERVERS, ids=lambda row: json.dumps(row["properties"]))
def test_judges_files_as_kafka(row: dict[str, Any]) -> None:
    if "error" in row:
        with pytest.raises(ConfigError) as caught:
            BrokerConfig.from_properties(row["properties"])
        prefix = REQUIRED if isinstance(caught.value, RequirementError) else ""
        if not is_kraft(row) and "end -1, length" not in row["error"]:
            assert prefix + str(caught.value) == re.sub(r"ListenerName\((\w+)\)", r"\1", row["error"])
        return
    broker = BrokerConfig.from_properties(row["properties"])
    listeners = broker.listener_settings
    assert describe(listeners.listeners) == row["listeners"]
    assert describe(listeners.advertised_listeners) == row.get("advertised", row["listeners"])
    inter_broker = f"{listeners.inter_broker_listener_name} {listeners.inter_broker_security_protocol.name}"
    assert inter_broker == row["inter_broker"]
    assert broker.broker_id == row["broker_id"]
    assert list(broker.log_dirs) == row["log_dirs"]
    ours = {
        name: display_text(value) for name, value in server_defaults(broker).items() if TOPIC_CONFIG_DEF[name].synonyms
    }
    assert ours == SERVERS[0]["log_config"] | row["log_config"]


def test_kafkas_own_file_is_accepted() -> None:
    broker = BrokerConfig.from_properties(parse_properties((FIXTURES / "server.properties").read_text()))
    assert broker.broker_id == 0
    assert broker.zookeeper_connect == "localhost:2181"
    assert broker.log_retention_ms == 168 * 3_600_000
    assert not [warning for warning in broker.warnings if "unknown" in warning]


def test_every_key_can_be_set_to_its_default() -> None:
    texts = {key.name: key.default_text for key in BROKER_CONFIG_DEF if key.default_text is not None}
    del texts["security.inter.broker.protocol"]
    broker = BrokerConfig.from_properties({**texts, "zookeeper.connect": "localhost:2181"})
    for key in BROKER_CONFIG_DEF:
        if key.name != "zookeeper.connect":
            assert broker.get(key.name) == key.default


def test_every_attribute_has_a_value() -> None:
    broker = config()
    for row in BROKER_CONFIG_DEF:
        assert row is getattr(BrokerConfig, row.attribute)
        assert row.of(broker) == getattr(broker, row.attribute) == vars(broker)[row.attribute]


def test_a_value_that_is_not_set_comes_from_another_setting() -> None:
    broker = config(log_roll_hours="2", log_roll_jitter_hours="1", log_retention_minutes="3", log_dir="/a,/b")
    assert (broker.log_roll_ms, broker.log_roll_jitter_ms) == (7_200_000, 3_600_000)
    assert (broker.log_retention_ms, broker.log_dirs) == (180_000, ("/a", "/b"))
    assert (broker.get("log.roll.ms"), broker.get("log.retention.ms"), broker.get("log.dirs")) == (None, None, None)
    assert config(log_retention_hours="1").log_retention_ms == 3_600_000
    assert config(log_retention_hours="-7").log_retention_ms == -1
    assert config(log_flush_scheduler_interval_ms="5").log_flush_interval_ms == 5
    assert config(zookeeper_session_timeout_ms="5").zookeeper_connection_timeout_ms == 5
    assert config(log_dirs="/c", log_dir="/d").log_dirs == ("/c",)


@pytest.mark.parametrize("roles", ["broker", "controller", "broker,controller"])
def test_kraft_mode_is_refused(roles: str) -> None:
    with pytest.raises(ConfigError, match=r"keep their metadata in ZooKeeper\. Remove process\.roles") as caught:
        config(process_roles=roles, node_id="1")
    assert caught.value.key == "process.roles"


def test_migration_to_kraft_is_refused() -> None:
    with pytest.raises(ConfigError, match="stay with ZooKeeper"):
        config(zookeeper_metadata_migration_enable="true")


def test_an_entry_without_colon_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'listener.security.protocol.map': 'PLAINTEXT' has no colon"):
        config(listener_security_protocol_map="PLAINTEXT")


def test_a_port_out_of_range_is_named() -> None:
    with pytest.raises(ConfigError, match=r"Port 70000 of listener PLAINTEXT must be from 0 to 65535"):
        config(listeners="PLAINTEXT://h:70000")


def test_an_address_and_a_name_cannot_share_a_port() -> None:
    with pytest.raises(ConfigError, match="unless exactly one listener has an IPv4 address"):
        config(listeners="PLAINTEXT://127.0.0.1:9092,SSL://h:9092")


def test_connection_overrides() -> None:
    assert config(max_connections_per_ip_overrides="10.0.0.1:5, ::1:6").max_connections_per_ip_overrides == {
        "10.0.0.1": 5,
        "::1": 6,
    }
    for odd in ("many", "2147483648", "9" * 5000):
        with pytest.raises(ConfigError, match=f"'{odd}' is not a number"):
            config(max_connections_per_ip_overrides=f"h:{odd}")


def test_reads_overrides_of_the_command_line() -> None:
    assert parse_override("log.dirs=/a=b") == ("log.dirs", "/a=b")
    for text in ("log.dirs", "=x", " =x"):
        with pytest.raises(ConfigError, match="key=value"):
            parse_override(text)


def test_a_generated_id_takes_the_place_of_none() -> None:
    broker = config().with_broker_id(1001)
    assert broker.broker_id == broker.node_id == broker.get("broker.id") == broker.get("node.id") == 1001
    assert "broker.id" not in broker.originals


def test_settings_of_one_listener_go_before_the_general_ones() -> None:
    broker = BrokerConfig.from_properties(
        {"zookeeper.connect": "a:1", "max.connections": "10", "listener.name.plaintext.max.connections": "3"}
    )
    assert broker.for_listener("PLAINTEXT", "max.connections") == 3
    assert broker.for_listener("OTHER", "max.connections") == 10


def test_inter_broker_protocol_version_is_a_version() -> None:
    assert config().inter_broker_protocol_version is MetadataVersion.IBP_3_9_IV0
    assert config(inter_broker_protocol_version="2.4").inter_broker_protocol_version is MetadataVersion.IBP_2_4_IV1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("num.io.threads", "has no effect in klamm: Threads"),
        ("port", "Set listeners instead"),
        ("host.name", "Set listeners instead"),
        ("log.segment.byte", "unknown and has no effect. Did you mean log.segment.bytes?"),
        ("whatever.it.is", "unknown and has no effect."),
        ("leader.replication.throttled.rate", "Set it at run time"),
        ("listener.name.plaintext.ssl.provider", "has no effect in klamm"),
        ("listener.name.sasl.gssapi.sasl.login.class", "has no effect in klamm"),
    ],
)
def test_warns_of_keys_that_do_nothing(name: str, said: str) -> None:
    broker = BrokerConfig.from_properties({"zookeeper.connect": "a:1", name: "7"})
    (warning,) = broker.warnings
    assert warning.startswith(f"Setting {name} ")
    assert said in warning


def test_does_not_warn_of_keys_that_do_something() -> None:
    own = {"broker.id": "1", "max.connections": "5", "config.providers": "f", "config.providers.f.class": "a.B"}
    assert BrokerConfig.from_properties({"zookeeper.connect": "a:1", **own}).warnings == []


def test_a_name_that_kafka_does_not_know_is_our_mistake() -> None:
    with pytest.raises(KeyError):
        config().get("no.such.key")
