"""Which settings of a broker may change while it runs, and checking such changes (KIP-226). Not the changes themselves.

Source: DynamicBrokerConfig and DynamicConfig of Kafka 3.9; the texts of the errors are Kafka's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from engine.common.errors import ConfigError
from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF
from engine.kafka.config.definition import LONG, MEDIUM, AnyKey, ConfigDef, DynamicMode
from engine.kafka.config.values import LONG_MAX, ConfigType, Value, at_least


class ThrottleKeys:
    """Throttles"""

    leader_replication_throttled_rate = LONG(LONG_MAX, MEDIUM, at_least(0)).with_effect(
        "Bytes a second that leaders send for the replicas in `leader.replication.throttled.replicas` (KIP-73)."
    )
    follower_replication_throttled_rate = LONG(LONG_MAX, MEDIUM, at_least(0)).with_effect(
        "Bytes a second that followers fetch for the replicas in `follower.replication.throttled.replicas` (KIP-73)."
    )
    replica_alter_log_dirs_io_max_bytes_per_second = LONG(LONG_MAX, MEDIUM, at_least(0)).with_effect(
        "Bytes a second that moves of replicas between the log dirs of one broker may take (KIP-113)."
    )


THROTTLE_KEYS: Final = ConfigDef.of(ThrottleKeys)
"""Settings that exist in ZooKeeper only: in a broker's file they do nothing."""


class Throttles(ThrottleKeys):
    """The throttles in force on one broker."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        """``texts`` may contain other settings too."""
        self._values = THROTTLE_KEYS.parse(texts)

    def get(self, name: str) -> Value:
        return self._values[name]


DYNAMIC_CONFIG_DEF: Final = ConfigDef(
    (*THROTTLE_KEYS, *(key for key in BROKER_CONFIG_DEF if key.dynamic is not DynamicMode.READ_ONLY))
)
"""All that may be set in ``/config/brokers``."""

BROKER_AND_THROTTLE_DEF: Final = ConfigDef((*BROKER_CONFIG_DEF, *THROTTLE_KEYS))
"""All settings of a broker, those of its file and those that only ZooKeeper has."""

LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[^.]*\.")
_CLUSTER_LEVEL_OF_LISTENERS: Final = {"max.connections", "max.connection.creation.rate", "num.network.threads"}
_OF_LISTENERS_ONLY: Final = {
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
}
_OF_MECHANISMS: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
_DYNAMIC_PASSWORDS: Final = tuple(key.name for key in DYNAMIC_CONFIG_DEF if key.type is ConfigType.PASSWORD)


def base_name(name: str) -> str:
    """Return the general setting that ``listener.name.<listener>.<setting>`` overrides; else the name itself."""
    match = LISTENER_PREFIX.match(name)
    if match is None:
        return name
    rest = name[match.end() :]
    return next((setting for setting in _OF_MECHANISMS if rest.endswith(setting)), rest)


def broker_synonyms(name: str) -> tuple[str, ...]:
    """Return the settings that give a broker setting its value, the most specific first; at least itself."""
    key = BROKER_CONFIG_DEF.get(name)
    if key is not None:
        return key.synonyms or (name,)
    base = base_name(name)
    return (name,) if base == name else (name, base)


def broker_config_key(name: str) -> AnyKey | None:
    """Return the definition of a broker setting, even of one for a single listener; None if it is unknown."""
    return BROKER_AND_THROTTLE_DEF.get(name) or BROKER_CONFIG_DEF.get(base_name(name))


def is_password(name: str) -> bool:
    """Say whether a dynamic setting is a secret, which Kafka stores in ZooKeeper encrypted."""
    return name.endswith(_DYNAMIC_PASSWORDS)


def is_login(name: str) -> bool:
    """Say whether a setting says how peers log in: it may hold passwords."""
    return name.endswith("sasl.jaas.config")


def is_dynamic_for_listeners(name: str) -> bool:
    """Say whether a setting, without the listener's prefix, may change while the listener is open."""
    return name in _OF_LISTENERS_ONLY or name in _CLUSTER_LEVEL_OF_LISTENERS


def validate_dynamic_config(texts: Mapping[str, str], *, is_per_broker: bool) -> None:
    """Check what is to be stored for one broker, or for all (``is_per_broker=False``).

    Raises:
        ConfigError: a key cannot be changed at run time or not at this level, or a value is not allowed.
    """
    _refuse(_non_dynamic(texts), "Cannot update these configs dynamically")
    _refuse(
        _security_without_listener(texts),
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    _check_types(texts)
    if not is_per_broker:
        _refuse(_per_broker(texts), "Cannot update these configs at default cluster level, broker id must be specified")


def usable_dynamic_config(texts: Mapping[str, str], *, is_per_broker: bool) -> tuple[dict[str, str], list[str]]:
    """Separate usable settings found in ZooKeeper from unusable ones; the second part says why."""
    problems: list[str] = []
    usable = dict(texts)
    for name in texts:
        try:
            _check_types({name: texts[name]})
        except ConfigError as error:
            problems.append(str(error))
            del usable[name]
    reasons = [
        (_non_dynamic, "cannot be changed at run time"),
        (_security_without_listener, "counts for single listeners only, with the listener prefix"),
    ]
    if not is_per_broker:
        reasons.append((_per_broker, "cannot be set for all brokers at once"))
    for find, reason in reasons:
        for name in find(usable):
            del usable[name]
            problems.append(f"{name} {reason}")
    return usable, problems


def _refuse(names: Iterable[str], message: str) -> None:
    ordered = sorted(names)
    if ordered:
        raise ConfigError(f"{message}: Set({', '.join(ordered)})", key=ordered[0])


def _non_dynamic(texts: Mapping[str, str]) -> list[str]:
    return [name for name in texts if name in BROKER_CONFIG_DEF and name not in DYNAMIC_CONFIG_DEF]


def _security_without_listener(texts: Mapping[str, str]) -> list[str]:
    return [name for name in texts if name in _OF_LISTENERS_ONLY]


def _per_broker(texts: Mapping[str, str]) -> list[str]:
    return [name for name in texts if _is_per_broker(name)]


def _is_per_broker(name: str) -> bool:
    match = LISTENER_PREFIX.match(name)
    if match is not None:
        return name[match.end() :] not in _CLUSTER_LEVEL_OF_LISTENERS
    key = BROKER_CONFIG_DEF.get(name)
    return key is not None and key.dynamic is DynamicMode.PER_BROKER


def _check_types(texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        match = LISTENER_PREFIX.match(name)
        key = DYNAMIC_CONFIG_DEF.get(name[match.end() :] if match else name)
        if key is not None:
            key.parse(text)
