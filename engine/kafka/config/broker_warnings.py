"""What an operator should know about a broker's file although the broker starts: keys that do nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF, OWN_KEYS
from engine.kafka.config.definition import ConfigKey
from engine.kafka.config.dynamic_keys import DYNAMIC_CONFIG_DEF, LISTENER_PREFIX

FORMER_KEYS: Final[Mapping[str, str]] = {
    "port": "Set listeners instead, e.g. listeners=PLAINTEXT://:9092.",
    "host.name": "Set listeners instead, e.g. listeners=PLAINTEXT://host:9092.",
    "advertised.port": "Set advertised.listeners instead.",
    "advertised.host.name": "Set advertised.listeners instead.",
    "quota.producer.default": "Set the default quota of clients by klamm quotas instead.",
    "quota.consumer.default": "Set the default quota of clients by klamm quotas instead.",
    "replica.lag.max.messages": "Followers leave the ISR by time alone, see replica.lag.time.max.ms.",
    "zookeeper.sync.time.ms": "It was for Kafka's old ZooKeeper client; remove it.",
    "log.cleaner.min.cleanable.dirty.ratio": "The key is log.cleaner.min.cleanable.ratio.",
    "log.delete.delay.ms": "The key is log.segment.delete.delay.ms.",
}
"""Keys of older Kafka versions that 3.9 does not know, and what to do about each."""

_OF_PROVIDERS: Final = "config.providers"
"""What the settings begin with that say where values stand that are not in the file."""

_OF_AUTHORIZER: Final = ("super.users", "allow.everyone.if.no.acl.found", "authorizer.zookeeper.url")
_OF_LISTENERS: Final = ("ssl.", "sasl.", "connections.max.reauth.ms", "max.connection")
"""Beginnings of the settings that klamm takes for single listeners."""

CSV_REPORTER: Final = "kafka.metrics.KafkaCSVMetricsReporter"
_OF_CSV_REPORTER: Final = ("kafka.csv.metrics.dir", "kafka.csv.metrics.reporter.enabled")


def broker_warnings(originals: Mapping[str, str]) -> list[str]:
    """Return a sentence for each key that is unknown or has no effect in klamm."""
    return [warning for name in sorted(originals) if (warning := _warning(name, originals)) is not None]


def unknown_settings(names: Iterable[str]) -> dict[str, str | None]:
    """Return the names that no setting of a broker has, each with the known one that is nearest to it, if any is near.

    A broker stores and hands out such settings at run time: a plug-in may read them.
    """
    return {name: _near(name) for name in names if not _is_known(name)}


def _is_known(name: str) -> bool:
    prefix = LISTENER_PREFIX.match(name)
    return (
        name in OWN_KEYS
        or name.startswith(_OF_PROVIDERS)
        or name in DYNAMIC_CONFIG_DEF
        or name in _OF_AUTHORIZER
        or name in _OF_CSV_REPORTER
        or _key(name[prefix.end() :] if prefix else name, has_prefix=prefix is not None) is not None
    )


def _key(base: str, *, has_prefix: bool) -> ConfigKey[Any] | None:
    return BROKER_CONFIG_DEF.get(base) or (BROKER_CONFIG_DEF.get(base.partition(".")[2]) if has_prefix else None)


def _near(name: str) -> str | None:
    names = [*BROKER_CONFIG_DEF.names, *OWN_KEYS]
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.9)), None)


def _warning(name: str, originals: Mapping[str, str]) -> str | None:
    if name in OWN_KEYS or name.startswith(_OF_PROVIDERS):
        return None
    if name == "node.id" and originals.get("broker.id") == originals[name]:
        return None
    prefix = LISTENER_PREFIX.match(name)
    base = name[prefix.end() :] if prefix else name
    key = _key(base, has_prefix=prefix is not None)
    if key is not None:
        is_idle = not key.has_effect or (prefix is not None and not key.name.startswith(_OF_LISTENERS))
        return f"Setting {name} has no effect in klamm: {key.doc}" if is_idle else None
    if name in _OF_AUTHORIZER:
        has_authorizer = bool(originals.get("authorizer.class.name"))
        return None if has_authorizer else f"Setting {name} has no effect without an authorizer."
    if name in _OF_CSV_REPORTER:
        has_reporter = CSV_REPORTER in originals.get("kafka.metrics.reporters", "")
        return None if has_reporter else f"Setting {name} has no effect without kafka.metrics.reporters={CSV_REPORTER}."
    if name in FORMER_KEYS:
        return f"Setting {name} is unknown since an earlier Kafka version and has no effect. {FORMER_KEYS[name]}"
    if name in DYNAMIC_CONFIG_DEF:
        return f"Setting {name} has no effect in a file. Set it at run time: klamm configs alter broker/<id> {name}=…"
    near = _near(name)
    hint = "" if near is None else f" Did you mean {near}?"
    return f"Setting {name} is unknown and has no effect.{hint}"
