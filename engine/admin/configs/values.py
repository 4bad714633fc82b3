"""Settings of topics, brokers and broker loggers as values: their owner, their values, and the source of each.

``access`` reads and alters them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.admin.cluster.errors import BadRequest, Unreachable
from engine.admin.cluster.remedies import Do, Give, Operation, Parameter, Phrase
from engine.admin.cluster.settings_silence import UNKNOWN_SETTINGS_HINT
from engine.common.quantities import exact_size_text, parse_duration_s, parse_rate, parse_size, span_text
from engine.common.snapshot import TopicSnapshot


class EntityType(StrEnum):
    """What has the settings; the values are kafka-configs' words."""

    TOPIC = "topics"
    BROKER = "brokers"
    BROKER_LOGGER = "broker-loggers"
    CLIENT = "clients"
    USER = "users"
    USER_CLIENT = "users/clients"
    """A client of a user; its name is both, each percent-encoded, with a slash between them."""
    IP = "ips"

    @property
    def is_of_clients(self) -> bool:
        """Whether it is about users of the cluster: quotas, and users' credentials (``quotas``)."""
        return self in (EntityType.CLIENT, EntityType.USER, EntityType.USER_CLIENT, EntityType.IP)

    @property
    def resource_type(self) -> int:
        """The wire's number for it (ConfigResource.Type)."""
        return _RESOURCE_TYPES[self]


_RESOURCE_TYPES = {EntityType.TOPIC: 2, EntityType.BROKER: 4, EntityType.BROKER_LOGGER: 8}


@dataclass(frozen=True, slots=True)
class Entity:
    """One thing with settings. ``name`` None is the default of all of its type."""

    type: EntityType
    name: str | None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic that it is; nothing if it is something else."""
        return (self.name or "",) if self.type is EntityType.TOPIC else ()

    def check(self) -> None:
        """Raise BadRequest if such an entity cannot have this name."""
        if self.type is EntityType.TOPIC and self.name is None:
            hint = Phrase("give ", Give(Parameter.TOPIC), "; brokers have defaults")
            raise BadRequest("topics have no default of their own", hint=hint)
        if self.type.is_of_clients:
            return
        if self.type is not EntityType.TOPIC and self.name is not None and not self.name.isdigit():
            hint = Phrase("see the ids with: ", Operation.LIST_BROKERS)
            raise BadRequest(f"not a broker id: {self.name!r}", hint=hint)
        if self.type is EntityType.BROKER_LOGGER and self.name is None:
            hint = Phrase("give ", Give(Parameter.BROKER_LOGGER))
            raise BadRequest("loggers belong to one broker", hint=hint)

    def __str__(self) -> str:
        if self.type is EntityType.USER_CLIENT:
            user, _, client = (self.name or "").partition("/")
            return f"client {client} of user {user}"
        singular = self.type.value.removesuffix("s")
        return f"the default of all {self.type.value}" if self.name is None else f"{singular} {self.name}"


def not_set(entity: Entity, absent: Sequence[str]) -> BadRequest:
    """Return the error for settings to be dropped that the entity does not have."""
    see = Do(Operation.DESCRIBE_CONFIGS, entity.type.value.partition("/")[0])
    if entity.type is EntityType.TOPIC and entity.name is not None:
        see = Do(Operation.DESCRIBE_TOPIC_CONFIGS, entity.name)
    elif entity.type is EntityType.BROKER and entity.name is not None:
        see = Do(Operation.DESCRIBE_BROKER_CONFIGS, entity.name)
    message = f"invalid config(s): {', '.join(absent)} (not set)"
    return BadRequest(message, where=str(entity), hint=Phrase("see what is set with: ", see))


class ConfigSource(StrEnum):
    """Where a value comes from, in Kafka's words."""

    UNKNOWN = "UNKNOWN"
    DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
    DYNAMIC_BROKER_CONFIG = "DYNAMIC_BROKER_CONFIG"
    DYNAMIC_DEFAULT_BROKER_CONFIG = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"
    DEFAULT_CONFIG = "DEFAULT_CONFIG"
    DYNAMIC_BROKER_LOGGER_CONFIG = "DYNAMIC_BROKER_LOGGER_CONFIG"
    CLIENT_METRICS_CONFIG = "CLIENT_METRICS_CONFIG"
    CLIENT_QUOTA = "CLIENT_QUOTA"
    """klamm's own: the wire has no number for it, because quotas are not settings there."""
    SCRAM_CREDENTIAL = "SCRAM_CREDENTIAL"

    @staticmethod
    def of_code(code: int) -> ConfigSource:
        """Return the source with the wire's number ``code``."""
        return _SOURCES[code] if 0 <= code < len(_SOURCES) else ConfigSource.UNKNOWN


_OURS = (ConfigSource.CLIENT_QUOTA, ConfigSource.SCRAM_CREDENTIAL)
_SOURCES = tuple(source for source in ConfigSource if source not in _OURS)
"""By the wire's number."""


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One place that a value may come from, in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting; ``value`` is None if it is sensitive or not set."""

    name: str
    value: str | None
    source: ConfigSource
    sensitive: bool = False
    read_only: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


@dataclass(frozen=True, slots=True)
class EntityConfigs:
    """The settings of one entity, by name. ``error`` says why they are not known if one of many did not answer."""

    entity_type: EntityType
    entity_name: str | None
    configs: tuple[ConfigEntry, ...]
    error: str | None = None


_LOSING = ("cleanup.policy", "unclean.leader.election.enable", "remote.log.delete.on.disable")
_MORE_IS_SAFER = ("min.insync.replicas", "retention.ms", "retention.bytes", "retention.minutes", "retention.hours")


def may_cost_records(name: str) -> bool:
    """Whether a setting decides which records are kept: retention, compaction, and which replica may lead."""
    return name.endswith((*_LOSING, *_MORE_IS_SAFER))


def _is_at_least(new: str, before: str) -> bool:
    """Whether a number is as large as another one; a negative one means no limit."""
    try:
        values = [float("inf") if int(text) < 0 else int(text) for text in (new, before)]
    except ValueError:
        return False
    return values[0] >= values[1]


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One setting of an entity before and after.

    ``old`` and ``new`` None: it is not set on this entity, or nobody may see the value. ``inherited`` is what applies
    while it is not set, if known. ``warnings`` say what is doubtful about the new value.
    """

    name: str
    old: str | None
    new: str | None
    sensitive: bool = False
    inherited: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def is_risky(self) -> bool:
        """Whether nobody should make the change without being asked."""
        return self.may_lose_data or bool(self.warnings)

    @property
    def may_lose_data(self) -> bool:
        """Whether records may be lost, present or later ones, or readers may miss a deletion.

        What keeps more than before loses nothing. A value that is not known, before or after, may be any value.
        """
        before = self.inherited if self.old is None else self.old
        if not may_cost_records(self.name) or (self.new is not None and self.new == before):
            return False
        if self.name.endswith(_LOSING):
            return self.new != "false"
        return before is None or self.new is None or not _is_at_least(self.new, before)

    def __str__(self) -> str:
        if self.sensitive:
            return f"{self.name}: [redacted]"
        inherited = "not set" if self.inherited is None else f"{self.inherited} (not set here)"
        old = inherited if self.old is None else self.old or '""'
        new = "dropped" if self.new is None else self.new or '""'
        return f"{self.name}: {old} → {new}"


_DURATIONS = (".ms", "_ms")
_RATES = ("byte_rate", "throttled.rate")
_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?=[^\]]*(?:\[|$))")


def parse_additions(text: str) -> dict[str, str]:
    """Return keys and values of ``k=v,k=[a,b]``; brackets hold values with commas.

    Raises:
        BadRequest: a part is not KEY=VALUE.
    """
    additions = {}
    for part in _COMMA_OUTSIDE_BRACKETS.split(text):
        key, equals, value = part.strip().partition("=")
        if not equals or not key.strip():
            raise BadRequest(f"not KEY=VALUE: {part.strip()!r}", hint="put values with commas in brackets: k=[a,b]")
        value = value.strip()
        if value.startswith("[") and value.endswith("]"):
            value = value[1:-1]
        additions[key.strip()] = plain_value(key.strip(), value)
    return additions


def plain_value(key: str, value: str) -> str:
    """Return a setting's value as Kafka takes it: converts ``2h`` to milliseconds and ``50M`` to bytes.

    A number without a unit, and anything but a quantity, stays as it is; the cluster judges it.
    """
    if value[-1:].isdigit():
        return value
    try:
        return _quantity(key, value)
    except ValueError:
        return value


def _quantity(key: str, value: str) -> str:
    """Return the number for a setting that is a duration or a size; for other settings the value.

    Raises:
        ValueError: the value is not a quantity.
    """
    if key.endswith(_DURATIONS):
        return str(round(parse_duration_s(value) * 1000))
    if key.endswith(_RATES):
        return str(parse_rate(value))
    return str(parse_size(value)) if "bytes" in key else value


def reading_of(key: str, value: str) -> str | None:
    """Return a setting's number in larger units, ``1 GiB`` or ``7d``; None if there is no such number that is exact."""
    if not value.isdecimal() or (number := int(value)) < 1000:
        return None
    if key.endswith(_DURATIONS):
        text = span_text(number // 1000)
    elif key.endswith(_RATES):
        text = f"{exact_size_text(number)}/s"
    else:
        text = exact_size_text(number)
    return text if plain_value(key, text) == value else None


def settings_of(configs: EntityConfigs) -> Mapping[str, str]:
    """Return names and values of the settings that have a value."""
    return {entry.name: entry.value for entry in configs.configs if entry.value is not None}


def known_configs(topic: TopicSnapshot) -> Mapping[str, str]:
    """Return a topic's overrides.

    Raises:
        Unreachable: no broker returned them.
    """
    if topic.configs is None:
        raise Unreachable(f"the settings of topic {topic.name} are not known", hint=UNKNOWN_SETTINGS_HINT)
    return topic.configs
