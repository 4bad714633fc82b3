"""Each setting says honestly whether it has an effect: either something in the broker reads it, or nothing does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF, OWN_KEYS
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from engine.kafka.config.values import Value

ENGINE = Path(__file__).parents[3] / "engine"
# Definitions, and tools that write settings without obeying them.
NOT_A_BROKER = ("kafka/config/", "local/", "admin/", "spark/")
SOURCE = "\n".join(
    path.read_text(encoding="utf-8")
    for path in sorted(ENGINE.rglob("*.py"))
    if not str(path.relative_to(ENGINE)).startswith(NOT_A_BROKER)
)

# These take effect where the settings are read. The rest of the broker sees the result.
DONE_IN_CONFIG = {
    *("broker.id.generation.enable", "process.roles", "node.id", "zookeeper.metadata.migration.enable"),
    *(name for name in BROKER_CONFIG_DEF.names if name.startswith("password.encoder.")),
}
LISTENER_KEYS = {
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "control.plane.listener.name",
    "security.inter.broker.protocol",
}
# The code of connections takes these by name: it reads the properties of clients too.
READ_BY_NAME = ("ssl.", "zookeeper.ssl.", "sasl.jaas.config", "sasl.server.callback.", "sasl.oauthbearer.token.")
# Topic settings that properties of LogConfig represent.
BY_PROPERTY = {
    "cleanup.policy": ("is_compacted", "is_deleted_by_retention"),
    "message.format.version": ("record_magic",),
}
EFFECTIVE_TOPIC_DEFAULTS = {name for key in TOPIC_CONFIG_DEF if key.has_effect for name in key.synonyms}


class _Recorder(BrokerConfig):
    """Remembers which keys an attribute asks for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()
        super().__init__({"zookeeper.connect": "z:1"})

    def get(self, name: str) -> Value:
        self.asked.add(name)
        return super().get(name)


def attributes_by_key() -> dict[str, set[str]]:
    recorder = _Recorder()
    keys: dict[str, set[str]] = {}
    for row in BROKER_CONFIG_DEF:
        for name in BROKER_CONFIG_DEF:
            vars(recorder).pop(name.attribute, None)
        recorder.asked.clear()
        row.of(recorder)
        for key in recorder.asked:
            keys.setdefault(key, set()).add(row.attribute)
    return keys


ATTRIBUTES = attributes_by_key()
READ_OF_CONFIGS = set(re.findall(r"(?:config|current|new)\.(\w+)", SOURCE))


def is_read(name: str) -> bool:
    return name in DONE_IN_CONFIG | LISTENER_KEYS or not ATTRIBUTES[name].isdisjoint(READ_OF_CONFIGS)


def test_broker_settings() -> None:
    for name in BROKER_CONFIG_DEF.names:
        if BROKER_CONFIG_DEF[name].has_effect:
            assert name.startswith(READ_BY_NAME) or is_read(name) or name in EFFECTIVE_TOPIC_DEFAULTS, (
                f"nothing reads {name}: has_effect must be false"
            )
        elif name not in DONE_IN_CONFIG:
            assert not is_read(name), f"something reads {name} now: has_effect must be true, and doc say what it does"
            assert name not in EFFECTIVE_TOPIC_DEFAULTS


@pytest.mark.parametrize("name", OWN_KEYS)
def test_setting_of_klamms_own(name: str) -> None:
    assert f'"{name}"' in SOURCE, f"nothing reads {name}"


@pytest.mark.parametrize("name", TOPIC_CONFIG_DEF.names)
def test_topic_setting(name: str) -> None:
    fields = BY_PROPERTY.get(name, (name.replace(".", "_"),))
    is_used = any(re.search(rf"\.{field}\b", SOURCE) for field in fields)
    assert is_used == TOPIC_CONFIG_DEF[name].has_effect
